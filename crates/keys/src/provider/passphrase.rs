//! A passphrase, stretched by argon2id (RFC 9106), or by PBKDF2-HMAC-SHA-256 in a FIPS build.
//!
//! The parameters travel in the slot, and are bounded before any work is done: whoever can write
//! the disk must not choose how much memory an unlock takes.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use tidelock_cipher::Secret;
use zeroize::Zeroizing;

use super::terminal;
use super::{PrincipalKey, Purpose};
use crate::error::Error;
use crate::slot::{Kdf, SlotKind, SlotTerms};

/// A passphrase has no more bytes.
const MAX: usize = 4096;
/// RFC 9106, second recommended option: 64 MiB, 3 passes, 4 lanes.
#[cfg(not(feature = "fips"))]
const NEW: Kdf = Kdf::Argon2id { memory: 64 * 1024, passes: 3, lanes: 4 };
/// OWASP's figure for PBKDF2-HMAC-SHA-256.
#[cfg(feature = "fips")]
const NEW: Kdf = Kdf::Pbkdf2 { iterations: 600_000 };

/// Opens slots with a passphrase.
pub struct PassphraseProvider {
    source: PassphraseSource,
    kdf: Kdf,
    /// Asked once, however many slots are tried.
    answer: OnceCell<Zeroizing<Vec<u8>>>,
}

/// Where the passphrase comes from.
pub enum PassphraseSource {
    /// Asked on the terminal, without echo; twice for a new slot.
    Terminal,
    /// The first line of an open file or pipe: `/dev/fd/N`.
    Descriptor(u32),
    /// Given.
    Given(Zeroizing<Vec<u8>>),
}

impl PassphraseProvider {
    /// A passphrase from `source`.
    #[must_use]
    pub const fn new(source: PassphraseSource) -> Self {
        Self { source, kdf: NEW, answer: OnceCell::new() }
    }

    /// Reads the first line of descriptor `number` now, so that several slots can use it.
    ///
    /// # Errors
    /// [`Error::NoPassphrase`], [`Error::Io`].
    pub fn from_descriptor(number: u32) -> Result<Self, Error> {
        Ok(Self::new(PassphraseSource::Given(read_descriptor(number)?)))
    }

    #[cfg(test)]
    pub(crate) fn quick(passphrase: &str) -> Self {
        let source = PassphraseSource::Given(Zeroizing::new(passphrase.as_bytes().to_vec()));
        #[cfg(not(feature = "fips"))]
        let kdf = Kdf::Argon2id { memory: 8 * 1024, passes: 1, lanes: 1 };
        #[cfg(feature = "fips")]
        let kdf = Kdf::Pbkdf2 { iterations: 100_000 };
        Self { source, kdf, answer: OnceCell::new() }
    }

    fn passphrase(&self, purpose: Purpose) -> Result<&[u8], Error> {
        if let Some(answer) = self.answer.get() {
            return Ok(answer);
        }
        let passphrase = match &self.source {
            PassphraseSource::Terminal => terminal::ask(purpose)?,
            PassphraseSource::Descriptor(number) => read_descriptor(*number)?,
            PassphraseSource::Given(passphrase) => passphrase.clone(),
        };
        match passphrase.len() {
            0 => Err(Error::NoPassphrase { why: "it is empty" }),
            1..=MAX => Ok(self.answer.get_or_init(|| passphrase)),
            _ => Err(Error::NoPassphrase { why: "it has more than 4096 bytes" }),
        }
    }
}

impl PrincipalKey for PassphraseProvider {
    fn kind(&self) -> SlotKind {
        SlotKind::Passphrase
    }

    fn describe(&self) -> String {
        "the passphrase".to_owned()
    }

    fn kdf(&self) -> Kdf {
        self.kdf
    }

    fn principal_key(&self, terms: &SlotTerms, purpose: Purpose) -> Result<Secret<32>, Error> {
        check_bounds(terms.kdf)?;
        stretch(self.passphrase(purpose)?, terms)
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

/// The first line of descriptor `number`: a passphrase, a PIN.
///
/// # Errors
/// [`Error::Io`].
pub fn read_descriptor(number: u32) -> Result<Zeroizing<Vec<u8>>, Error> {
    let path = format!("/dev/fd/{number}");
    let file = File::open(&path).map_err(Error::io("open the passphrase's descriptor", &path))?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX + 2));
    let limit = u64::try_from(MAX + 2).unwrap_or(u64::MAX);
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(Error::io("read the passphrase from", &path))?;
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::SlotId;
    use tidelock_format::KeyringId;

    fn terms(kdf: Kdf) -> SlotTerms {
        SlotTerms {
            kdf,
            salt: *b"saltsaltsaltsalt",
            ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SlotKind::Passphrase)
        }
    }

    #[test]
    fn parameters_outside_the_bounds_are_refused_before_any_work() {
        let provider = PassphraseProvider::quick("x");
        for kdf in [
            Kdf::Argon2id { memory: u32::MAX, passes: 1, lanes: 1 },
            Kdf::Argon2id { memory: 8, passes: 1, lanes: 1 },
            Kdf::Argon2id { memory: 8192, passes: 17, lanes: 1 },
            Kdf::Argon2id { memory: 8192, passes: 1, lanes: 0 },
            Kdf::Pbkdf2 { iterations: 1 },
            Kdf::Pbkdf2 { iterations: u32::MAX },
        ] {
            let found = provider.principal_key(&terms(kdf), Purpose::Unlock);
            assert!(matches!(found, Err(Error::KdfBounds { .. })), "{kdf:?}");
        }
    }

    #[test]
    fn an_empty_passphrase_is_refused() {
        let provider = PassphraseProvider::quick("");
        let found = provider.principal_key(&terms(provider.kdf), Purpose::Unlock);
        assert!(matches!(found, Err(Error::NoPassphrase { .. })));
    }

    /// Computed with Python's hashlib.pbkdf2_hmac, 100000 iterations.
    #[test]
    fn pbkdf2_is_the_standards() {
        let key = PassphraseProvider::quick("password")
            .principal_key(&terms(Kdf::Pbkdf2 { iterations: 100_000 }), Purpose::Unlock)
            .unwrap();
        assert_eq!(hex(key.expose()), include_str!("../../tests/vectors/pbkdf2.txt").trim());
    }

    /// Computed with the reference implementation (the `argon2` command of Debian or argon2-cffi).
    #[cfg(not(feature = "fips"))]
    #[test]
    fn argon2id_is_the_standards() {
        let kdf = Kdf::Argon2id { memory: 8192, passes: 2, lanes: 4 };
        let key = PassphraseProvider::quick("password")
            .principal_key(&terms(kdf), Purpose::Unlock)
            .unwrap();
        assert_eq!(hex(key.expose()), include_str!("../../tests/vectors/argon2id.txt").trim());
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
