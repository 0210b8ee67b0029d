//! A passphrase, stretched by argon2id (RFC 9106), or by PBKDF2-HMAC-SHA-256 in a FIPS build.
//!
//! The parameters travel in the slot, and are bounded before any work is done: whoever can write
//! the disk must not choose how much memory an unlock takes.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use aws_lc_rs::pbkdf2;
use serde::{Deserialize, Serialize};
use tidelock_cipher::Secret;
use tidelock_keyring::{
    Error, Kdf, Payload, PrincipalKey, Provider, Purpose, SlotId, SlotKind, SlotTerms, Wrapping,
};
use zeroize::Zeroizing;

use crate::descriptor::{Descriptor, MAX_LINE};
use crate::room::{Kind, New, Room, Rotation};
use crate::{strength, terminal};

const SLOT: SlotKind = SlotKind::new(2, "passphrase");
/// RFC 9106, second recommended option: 64 MiB, 3 passes, 4 lanes.
#[cfg(not(feature = "fips"))]
const NEW: Kdf = Kdf::Argon2id { memory: 64 * 1024, passes: 3, lanes: 4 };
/// OWASP's figure for PBKDF2-HMAC-SHA-256.
#[cfg(feature = "fips")]
const NEW: Kdf = Kdf::Pbkdf2 { iterations: 600_000 };

/// `passphrase`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassphraseChoice {}

/// Opens slots with passphrases: those that were given, else one that is asked for.
pub struct PassphraseProvider {
    kdf: Kdf,
    asks: Asks,
    accept_weak: bool,
    /// The option that gives a passphrase, for messages.
    option: &'static str,
    /// Each is tried on each slot.
    known: RefCell<Vec<Zeroizing<Vec<u8>>>>,
    /// Which of them opened which slot, and so wraps it again.
    opened: RefCell<Vec<(SlotId, usize)>>,
}

/// Who is asked on the terminal, without echo.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asks {
    /// Nobody: it was given.
    Nobody,
    /// Once, for any slot of this directory's keyring.
    Once(PathBuf),
    /// Once, for this slot alone.
    Slot(SlotId),
    /// Twice, for a new slot, which may take the place of another one.
    New(Option<SlotId>),
}

impl Room for PassphraseChoice {
    fn kind() -> Kind {
        let rotation = Rotation::Asks;
        Kind { rotation, is_a_persons: true, ..Kind::one_key(SLOT, "passphrase") }
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(text.is_none().then_some(Self {}))
    }

    fn open(
        &self,
        protected: &Path,
        descriptor: Option<&Descriptor>,
    ) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(match descriptor {
            Some(given) => PassphraseProvider::new(Asks::Nobody, given.lines()?),
            None => PassphraseProvider::new(Asks::Once(protected.into()), Vec::new()),
        }))
    }

    fn open_slot(
        &self,
        slot: SlotId,
        protected: &Path,
        descriptor: Option<&Descriptor>,
    ) -> Result<Box<dyn Provider>, Error> {
        match descriptor {
            Some(_) => self.open(protected, descriptor),
            None => Ok(Box::new(PassphraseProvider::new(Asks::Slot(slot), Vec::new()))),
        }
    }

    fn open_new(&self, _: &Path, new: &New<'_>) -> Result<Box<dyn Provider>, Error> {
        let (asks, known) = match new.descriptor {
            None => (Asks::New(new.instead_of), Vec::new()),
            Some(given) => match given.lines()?.into_iter().nth(new.line) {
                Some(line) => (Asks::Nobody, vec![line]),
                None => {
                    let why = "the descriptor has fewer lines than there are passphrases to give";
                    return Err(Error::no_passphrase(why).with_passphrase_option(new.option));
                }
            },
        };
        let (accept_weak, option) = (new.accept_weak, new.option);
        Ok(Box::new(PassphraseProvider {
            accept_weak,
            option,
            ..PassphraseProvider::new(asks, known)
        }))
    }

    fn is_unattended(&self) -> bool {
        false
    }
}

impl PassphraseProvider {
    fn new(asks: Asks, known: Vec<Zeroizing<Vec<u8>>>) -> Self {
        Self {
            kdf: NEW,
            asks,
            accept_weak: false,
            option: "--passphrase-fd",
            known: RefCell::new(known),
            opened: RefCell::default(),
        }
    }

    /// This passphrase, however weak it is.
    #[must_use]
    pub fn given(passphrase: Zeroizing<Vec<u8>>) -> Self {
        Self { accept_weak: true, ..Self::new(Asks::Nobody, vec![passphrase]) }
    }

    /// The place among the known ones of the passphrase for a slot that is wrapped: what opened it,
    /// else what a person gives for a new one.
    fn for_wrapping(&self, slot: SlotId) -> Result<usize, Error> {
        if let Some((_, at)) = self.opened.borrow().iter().find(|(opened, _)| *opened == slot) {
            return Ok(*at);
        }
        if self.known.borrow().is_empty() {
            let asked = terminal::ask_twice(&match self.asks {
                Asks::New(Some(old)) => format!("New passphrase instead of slot {}: ", short(old)),
                _ => "New passphrase: ".to_owned(),
            })?;
            self.known.borrow_mut().push(asked);
        }
        let known = self.known.borrow();
        let passphrase = checked(known.first().map_or(&[][..], |one| one))?;
        if !self.accept_weak {
            strength::check(passphrase)?;
        }
        Ok(0)
    }

    /// Opens a slot with the known passphrase at this place.
    fn try_one(&self, at: usize, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        let known = self.known.borrow();
        let passphrase = known.get(at).map_or(&[][..], |one| one);
        let payload = Stretched { passphrase: checked(passphrase)? }.unwrap(terms, wrapped)?;
        self.opened.borrow_mut().push((terms.id, at));
        Ok(payload)
    }
}

impl Provider for PassphraseProvider {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        DESCRIBED.to_owned()
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Direct
    }

    fn kdf(&self) -> Kdf {
        self.kdf
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        let at = self.for_wrapping(terms.id).map_err(|why| why.with_passphrase_option(self.option));
        let (at, known) = (at?, self.known.borrow());
        let passphrase = known.get(at).map_or(&[][..], |one| one);
        Stretched { passphrase }.wrap(terms, payload)
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        let mut failure = Error::WrongKey { slot: terms.id, provider: self.describe() };
        check_bounds(terms.kdf)?;
        let count = self.known.borrow().len();
        for at in 0..count {
            match self.try_one(at, terms, wrapped) {
                Err(why @ Error::WrongKey { .. }) => failure = why,
                other => return other,
            }
        }
        let asked = match &self.asks {
            _ if count > 0 => return Err(failure),
            Asks::Once(dir) => terminal::ask(&format!("Passphrase of {}: ", dir.display()))?,
            Asks::Slot(slot) if *slot == terms.id => {
                terminal::ask(&format!("Passphrase of slot {}: ", short(*slot)))?
            }
            Asks::Slot(_) | Asks::New(_) | Asks::Nobody => return Err(failure),
        };
        self.known.borrow_mut().push(asked);
        self.try_one(0, terms, wrapped)
    }
}

/// One passphrase at work.
struct Stretched<'a> {
    passphrase: &'a [u8],
}

impl PrincipalKey for Stretched<'_> {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        DESCRIBED.to_owned()
    }

    fn principal_key(&self, terms: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        check_bounds(terms.kdf)?;
        stretch(self.passphrase, terms)
    }
}

const DESCRIBED: &str = "the passphrase";

/// As lists of slots show it.
fn short(slot: SlotId) -> String {
    slot.to_string().chars().take(8).collect()
}

fn checked(passphrase: &[u8]) -> Result<&[u8], Error> {
    match passphrase.len() {
        0 => Err(Error::no_passphrase("it is empty")),
        1..=MAX_LINE => Ok(passphrase),
        _ => Err(Error::no_passphrase("it has more than 4096 bytes")),
    }
}

fn check_bounds(kdf: Kdf) -> Result<(), Error> {
    let bounds: &[(&'static str, u32, u32, u32)] = match kdf {
        Kdf::None => return Err(Error::Damaged { what: "a passphrase slot has no function" }),
        Kdf::Argon2id { memory, passes, lanes } => &[
            ("argon2id memory in KiB", memory, 8 * 1024, 1024 * 1024),
            ("argon2id passes", passes, 1, 16),
            ("argon2id lanes", lanes, 1, 16),
        ],
        Kdf::Pbkdf2 { iterations } => &[("PBKDF2 iterations", iterations, 100_000, 10_000_000)],
    };
    match bounds.iter().find(|(_, found, low, high)| !(low..=high).contains(&found)) {
        Some(&(what, found, low, high)) => Err(Error::KdfBounds { what, found, low, high }),
        None => Ok(()),
    }
}

fn stretch(passphrase: &[u8], terms: &SlotTerms) -> Result<Secret<32>, Error> {
    let mut key = Secret::new([0; 32]);
    match terms.kdf {
        Kdf::None => return Err(Error::Damaged { what: "a passphrase slot has no function" }),
        Kdf::Argon2id { memory, passes, lanes } => {
            argon2id(passphrase, &terms.salt, [memory, passes, lanes], key.expose_mut())?;
        }
        Kdf::Pbkdf2 { iterations } => {
            let iterations = NonZeroU32::new(iterations)
                .ok_or(Error::Damaged { what: "a passphrase slot has no iterations" })?;
            pbkdf2::derive(
                pbkdf2::PBKDF2_HMAC_SHA256,
                iterations,
                &terms.salt,
                passphrase,
                key.expose_mut(),
            );
        }
    }
    Ok(key)
}

#[cfg(all(feature = "argon2", not(feature = "fips")))]
fn argon2id(
    passphrase: &[u8],
    salt: &[u8; 16],
    [memory, passes, lanes]: [u32; 3],
    key: &mut [u8; 32],
) -> Result<(), Error> {
    use argon2::{Algorithm, Argon2, Block, Params, Version};

    let failed = |_| Error::Crypto { what: "argon2id" };
    let params = Params::new(memory, passes, lanes, Some(32)).map_err(failed)?;
    let blocks = params.block_count();
    let function = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    // The work area is wiped, which the crate's own allocation is not.
    let mut work = Zeroizing::new(vec![Block::default(); blocks]);
    function
        .hash_password_into_with_memory(passphrase, salt, key, work.as_mut_slice())
        .map_err(failed)
}

#[cfg(not(all(feature = "argon2", not(feature = "fips"))))]
fn argon2id(_: &[u8], _: &[u8; 16], _: [u32; 3], _: &mut [u8; 32]) -> Result<(), Error> {
    Err(Error::KdfUnavailable { kdf: "argon2id" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::HEXLOWER;
    use tidelock_format::KeyringId;
    use tidelock_keyring::SlotId;

    fn quick(passphrase: &str) -> PassphraseProvider {
        of(&[passphrase])
    }

    fn of(passphrases: &[&str]) -> PassphraseProvider {
        #[cfg(not(feature = "fips"))]
        let kdf = Kdf::Argon2id { memory: 8 * 1024, passes: 1, lanes: 1 };
        #[cfg(feature = "fips")]
        let kdf = Kdf::Pbkdf2 { iterations: 100_000 };
        let known = passphrases.iter().map(|one| one.as_bytes().to_vec().into()).collect();
        PassphraseProvider {
            kdf,
            accept_weak: true,
            ..PassphraseProvider::new(Asks::Nobody, known)
        }
    }

    fn payload() -> Payload {
        Payload::from_slice(&[9; 64]).unwrap()
    }

    fn slot(id: u8) -> SlotTerms {
        SlotTerms { id: SlotId([id; 16]), ..terms(quick("x").kdf) }
    }

    #[test]
    fn each_slot_is_wrapped_again_under_the_passphrase_that_opened_it() {
        let (one, two) = (slot(1), slot(2));
        let first = quick("one").wrap(&one, &payload()).unwrap();
        let second = quick("two").wrap(&two, &payload()).unwrap();
        let both = of(&["two", "one"]);
        both.unwrap(&one, &first).unwrap();
        both.unwrap(&two, &second).unwrap();
        let (first, second) =
            (both.wrap(&one, &payload()).unwrap(), both.wrap(&two, &payload()).unwrap());
        quick("one").unwrap(&one, &first).unwrap();
        quick("two").unwrap(&two, &second).unwrap();
        assert!(matches!(quick("two").unwrap(&one, &first), Err(Error::WrongKey { .. })));
    }

    #[test]
    fn a_slots_own_provider_asks_for_no_other_slot() {
        let wrapped = quick("one").wrap(&slot(1), &payload()).unwrap();
        let other = PassphraseProvider::new(Asks::Slot(SlotId([2; 16])), Vec::new());
        assert!(matches!(other.unwrap(&slot(1), &wrapped), Err(Error::WrongKey { .. })));
    }

    #[test]
    fn a_weak_passphrase_makes_no_slot_but_opens_one() {
        let wrapped = quick("x").wrap(&slot(1), &payload()).unwrap();
        let weak = PassphraseProvider { accept_weak: false, ..quick("x") };
        assert!(weak.unwrap(&slot(1), &wrapped).is_ok());
        assert!(weak.wrap(&slot(1), &payload()).is_ok(), "a slot that it opened");
        assert!(matches!(weak.wrap(&slot(2), &payload()), Err(Error::WeakPassphrase { .. })));
    }

    fn terms(kdf: Kdf) -> SlotTerms {
        SlotTerms {
            kdf,
            salt: *b"saltsaltsaltsalt",
            ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT)
        }
    }

    #[test]
    fn parameters_outside_the_bounds_are_refused_before_any_work() {
        let provider = quick("x");
        for kdf in [
            Kdf::Argon2id { memory: u32::MAX, passes: 1, lanes: 1 },
            Kdf::Argon2id { memory: 8, passes: 1, lanes: 1 },
            Kdf::Argon2id { memory: 8192, passes: 17, lanes: 1 },
            Kdf::Argon2id { memory: 8192, passes: 1, lanes: 0 },
            Kdf::Pbkdf2 { iterations: 1 },
            Kdf::Pbkdf2 { iterations: u32::MAX },
        ] {
            let found = provider.unwrap(&terms(kdf), &[]);
            assert!(matches!(found, Err(Error::KdfBounds { .. })), "{kdf:?}");
        }
    }

    #[test]
    fn an_empty_passphrase_is_refused() {
        let provider = quick("");
        let found = provider.unwrap(&terms(provider.kdf), &[]);
        assert!(matches!(found, Err(Error::NoPassphrase { .. })));
        let found = provider.wrap(&terms(provider.kdf), &payload());
        assert!(matches!(found, Err(Error::NoPassphrase { .. })));
    }

    /// Computed with Python's hashlib.pbkdf2_hmac, 100000 iterations.
    #[test]
    fn pbkdf2_is_the_standards() {
        let key = Stretched { passphrase: b"password" }
            .principal_key(&terms(Kdf::Pbkdf2 { iterations: 100_000 }), Purpose::Unlock)
            .unwrap();
        assert_eq!(
            HEXLOWER.encode(key.expose()),
            include_str!("../tests/vectors/pbkdf2.txt").trim()
        );
    }

    /// Computed with the reference implementation (the `argon2` command of Debian or argon2-cffi).
    #[cfg(not(feature = "fips"))]
    #[test]
    fn argon2id_is_the_standards() {
        let kdf = Kdf::Argon2id { memory: 8192, passes: 2, lanes: 4 };
        let key = Stretched { passphrase: b"password" }
            .principal_key(&terms(kdf), Purpose::Unlock)
            .unwrap();
        assert_eq!(
            HEXLOWER.encode(key.expose()),
            include_str!("../tests/vectors/argon2id.txt").trim()
        );
    }
}
