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

use tidelock_keyring::{Error, PAYLOAD, Payload, ServiceFault, SlotTerms};
use zeroize::Zeroizing;

/// The first byte.
const VERSION: u8 = 1;
/// Bytes of a tag.
pub(crate) const TAG: usize = 16;
/// What the second part holds.
const CHECK: [u8; 16] = [0; 16];

/// Who seals and opens: a key of a service.
pub(crate) trait Gcm {
    /// For messages.
    fn who(&self) -> String;

    /// Appends the length of an IV, the IV, and what was sealed with its tag.
    ///
    /// # Errors
    /// Those of the service.
    fn seal(&self, plain: &[u8], bound: &[u8], out: &mut Vec<u8>) -> Result<(), Error>;

    /// `None` if the tag does not verify, or the service says so little that this may be meant.
    ///
    /// # Errors
    /// Those of the service.
    fn open(&self, sealed: &Sealed<'_>, bound: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Error>;

    /// It did something that it should not.
    fn fault(&self, why: &str) -> Error;
}

/// Wraps a payload.
///
/// # Errors
/// Those of the service.
pub(crate) fn wrap(
    terms: &SlotTerms,
    label: &str,
    payload: &Payload,
    by: &impl Gcm,
) -> Result<Vec<u8>, Error> {
    let mut out = vec![VERSION];
    by.seal(payload.expose(), &terms.associated_data(), &mut out)?;
    by.seal(&CHECK, &check_data(label, terms), &mut out)?;
    Ok(out)
}

/// True if it opens what it has sealed. A client that may only open cannot ask, and it is taken to
/// work.
fn works(label: &str, by: &impl Gcm) -> Result<bool, Error> {
    let mut sealed = Vec::new();
    match by.seal(&CHECK, label.as_bytes(), &mut sealed) {
        Ok(()) => {}
        Err(Error::Service { fault: ServiceFault::Denied, .. }) => return Ok(true),
        Err(why) => return Err(why),
    }
    let Some((sealed, _)) = take(&sealed, CHECK.len() + TAG) else { return Ok(false) };
    Ok(by.open(&sealed, label.as_bytes())?.is_some())
}

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

    /// What was wrapped. Services say little of what does not open, and one that is broken may say
    /// the same, so it has to open what it seals before the key is called wrong.
    ///
    /// # Errors
    /// [`Error::WrongKey`], [`Error::Tampered`]; those of the service.
    pub(crate) fn open(
        &self,
        terms: &SlotTerms,
        label: &str,
        by: &impl Gcm,
    ) -> Result<Payload, Error> {
        if let Some(plain) = by.open(&self.payload, &terms.associated_data())? {
            let payload = Payload::from_slice(&plain);
            return payload.ok_or_else(|| by.fault("opens to another length"));
        }
        if by.open(&self.check, &check_data(label, terms))?.is_some() {
            return Err(Error::Tampered { what: "its slot" });
        }
        match works(label, by)? {
            true => Err(Error::WrongKey { slot: terms.id, provider: by.who() }),
            false => Err(by.fault("does not open what it has just sealed")),
        }
    }
}

/// What the second part is bound to: keyring and slot only, so that a changed parameter is told
/// from another key.
fn check_data(label: &str, terms: &SlotTerms) -> Vec<u8> {
    [label.as_bytes(), &terms.keyring.0, &terms.id.0].concat()
}

fn take(from: &[u8], length: usize) -> Option<(Sealed<'_>, &[u8])> {
    let (iv_length, rest) = from.split_first()?;
    let (iv, rest) = rest.split_at_checked(usize::from(*iv_length))?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    (!iv.is_empty()).then_some((Sealed { iv, bytes }, rest))
}

#[cfg(test)]
mod tests {
    use tidelock_format::KeyringId;
    use tidelock_keyring::{SlotId, SlotKind};

    use super::*;

    const KIND: SlotKind = SlotKind::new(77, "double");

    /// A service whose tag is the sum of key and bytes.
    #[derive(Clone, Copy)]
    struct Double {
        key: u8,
        /// It says "no" to all that it is to open.
        broken: bool,
        /// The client may only open.
        opens_only: bool,
    }

    impl Double {
        fn tag(self, plain: &[u8], bound: &[u8]) -> [u8; TAG] {
            let all = plain.iter().chain(bound);
            [all.fold(self.key, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte)); TAG]
        }

        fn service(fault: ServiceFault, why: &str) -> Error {
            Error::Service { provider: KIND, fault, why: why.into() }
        }
    }

    impl Gcm for Double {
        fn who(&self) -> String {
            "a double".into()
        }

        fn seal(&self, plain: &[u8], bound: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
            if self.opens_only {
                return Err(Self::service(ServiceFault::Denied, "may not"));
            }
            out.extend_from_slice(&[1, 0]);
            out.extend_from_slice(plain);
            out.extend_from_slice(&self.tag(plain, bound));
            Ok(())
        }

        fn open(
            &self,
            sealed: &Sealed<'_>,
            bound: &[u8],
        ) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
            let (plain, tag) = sealed.bytes.split_at(sealed.bytes.len() - TAG);
            let fits = !self.broken && self.tag(plain, bound) == tag;
            Ok(fits.then(|| Zeroizing::new(plain.to_vec())))
        }

        fn fault(&self, why: &str) -> Error {
            Self::service(ServiceFault::Protocol, why)
        }
    }

    #[test]
    fn a_broken_service_is_not_taken_for_a_wrong_key() {
        let terms = SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), KIND);
        let good = Double { key: 5, broken: false, opens_only: false };
        let payload = Payload::from_slice(&[7; PAYLOAD]).unwrap();
        let wrapped = wrap(&terms, "label", &payload, &good).unwrap();
        let open = |by: Double| TwoParts::parse(&wrapped).unwrap().open(&terms, "label", &by);
        assert!(open(good).is_ok());
        let wrong = |by| matches!(open(by), Err(Error::WrongKey { .. }));
        assert!(wrong(Double { key: 6, ..good }));
        // Of this one nothing better is known.
        assert!(wrong(Double { key: 6, opens_only: true, ..good }));
        let broken = open(Double { broken: true, ..good });
        assert!(matches!(broken, Err(Error::Service { fault: ServiceFault::Protocol, .. })));
        let mut changed = wrapped.clone();
        changed[3] ^= 1;
        let changed = TwoParts::parse(&changed).unwrap().open(&terms, "label", &good);
        assert!(matches!(changed, Err(Error::Tampered { .. })));
    }
}
