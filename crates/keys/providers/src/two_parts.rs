//! The wrapped bytes of those who seal with AES-256-GCM, but do not tell why something does not
//! open.
//!
//! ```text
//!   version 1 | length of IV | IV | 64 bytes sealed, bound to the slot's terms | tag
//!             | length of IV | IV | 16 zeros sealed, bound to keyring and slot | tag
//! ```
//!
//! The second part tells another key from changed bytes. Who seals may take another IV than was
//! asked for, so the one that it names is kept.

use tidelock_keyring::{Error, PAYLOAD, Payload, SlotTerms};
use zeroize::Zeroizing;

/// The first byte.
pub(crate) const VERSION: u8 = 1;
/// Bytes of a tag.
pub(crate) const TAG: usize = 16;
/// What the second part holds.
pub(crate) const CHECK: [u8; 16] = [0; 16];

/// The wrapped bytes, taken apart.
pub(crate) struct TwoParts<'a> {
    payload: Sealed<'a>,
    check: Sealed<'a>,
}

/// An IV and what it sealed, tag included.
pub(crate) struct Sealed<'a> {
    pub(crate) iv: &'a [u8],
    pub(crate) bytes: &'a [u8],
}

impl<'a> TwoParts<'a> {
    /// # Errors
    /// [`Error::Damaged`] for anything else.
    pub(crate) fn parse(wrapped: &'a [u8]) -> Result<Self, Error> {
        let split = || {
            let (version, rest) = wrapped.split_first()?;
            let (payload, rest) = take(rest, PAYLOAD + TAG)?;
            let (check, rest) = take(rest, CHECK.len() + TAG)?;
            (*version == VERSION && rest.is_empty()).then_some(Self { payload, check })
        };
        split().ok_or(Error::Damaged { what: "a slot's wrapped bytes have another form" })
    }

    /// What was wrapped; nothing if it has another length. `decrypt` gives nothing where a tag does
    /// not verify, `provider` describes who did it.
    ///
    /// # Errors
    /// [`Error::WrongKey`], [`Error::Tampered`]; those of `decrypt`.
    pub(crate) fn open(
        &self,
        terms: &SlotTerms,
        check_data: &[u8],
        provider: impl FnOnce() -> String,
        decrypt: impl Fn(&Sealed<'_>, &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Error>,
    ) -> Result<Option<Payload>, Error> {
        if let Some(plain) = decrypt(&self.payload, &terms.associated_data())? {
            return Ok(Payload::from_slice(&plain));
        }
        match decrypt(&self.check, check_data)? {
            Some(_) => Err(Error::Tampered { what: "its slot" }),
            None => Err(Error::WrongKey { slot: terms.id, provider: provider() }),
        }
    }
}

/// What the second part is bound to: keyring and slot only, so that a changed parameter is told
/// from another key.
pub(crate) fn check_data(label: &str, terms: &SlotTerms) -> Vec<u8> {
    [label.as_bytes(), &terms.keyring.0, &terms.id.0].concat()
}

fn take(from: &[u8], length: usize) -> Option<(Sealed<'_>, &[u8])> {
    let (iv_length, rest) = from.split_first()?;
    let (iv, rest) = rest.split_at_checked(usize::from(*iv_length))?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    (!iv.is_empty()).then_some((Sealed { iv, bytes }, rest))
}
