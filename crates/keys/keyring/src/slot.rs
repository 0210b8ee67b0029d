//! A key slot: one way to open the keyring.
//!
//! A slot wraps keyring id, slot id and keyring key; everything else in it is associated data. What
//! the wrapped bytes look like is the provider's affair. FORMAT.md, "Keyring", draws it.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use tidelock_cipher::Secret;
use tidelock_contract::Writer;
use tidelock_format::{KeyringId, Reader};

use crate::error::Error;
use crate::provider::{Health, Provider};

/// Bytes of an entry before its key reference.
const FIXED: usize = 64;
/// A key reference is no longer.
const MAX_REFERENCE: usize = 1024;
/// Wrapped bytes are no more: room for what a key service returns.
const MAX_WRAPPED: usize = 6 * 1024;
/// What a slot wraps: keyring id, slot id, keyring key.
pub const PAYLOAD: usize = 64;

/// The name of a type that was read and not yet looked up.
const UNNAMED: &str = "?";

/// Names a slot; random.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotId(pub [u8; 16]);

/// The type of a slot: which provider opens it. FORMAT.md lists the numbers; the names are the
/// providers'.
#[derive(Clone, Copy, Debug)]
pub struct SlotKind {
    number: u8,
    name: &'static str,
}

/// How the bytes are wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Wrapping {
    /// Here, with AES-256-GCM under a principal key that the provider gives.
    Direct = 1,
    /// By the provider, whose principal key never leaves it.
    Remote = 2,
}

/// How a passphrase becomes a principal key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kdf {
    /// The principal key is used as it is.
    None,
    /// argon2id (RFC 9106), version 0x13.
    Argon2id {
        /// Memory in KiB.
        memory: u32,
        /// Passes.
        passes: u32,
        /// Lanes.
        lanes: u32,
    },
    /// PBKDF2-HMAC-SHA-256 (SP 800-132).
    Pbkdf2 {
        /// Iterations.
        iterations: u32,
    },
}

/// Everything of a slot but its wrapped bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotTerms {
    /// The keyring that it opens.
    pub keyring: KeyringId,
    /// Its id.
    pub id: SlotId,
    /// Its type.
    pub kind: SlotKind,
    /// How it is wrapped.
    pub wrapping: Wrapping,
    /// How a passphrase becomes the principal key.
    pub kdf: Kdf,
    /// Salt of that.
    pub salt: [u8; 16],
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Which principal key, in the provider's words.
    pub reference: String,
}

/// A key slot as it stands in the keyring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// What it says.
    pub terms: SlotTerms,
    pub(crate) wrapped: Vec<u8>,
}

/// What a slot wraps: keyring id, slot id and keyring key, in this order.
pub struct Payload(Secret<PAYLOAD>);

impl Slot {
    /// A new slot that `provider` opens.
    pub(crate) fn make(
        provider: &dyn Provider,
        keyring: KeyringId,
        keyring_key: &Secret<32>,
    ) -> Result<Self, Error> {
        let terms = SlotTerms {
            wrapping: provider.wrapping(),
            kdf: provider.kdf(),
            created: now(),
            reference: provider.reference(),
            ..SlotTerms::new(keyring, SlotId(random()?), provider.kind())
        };
        Self::wrap(provider, terms, keyring_key)
    }

    /// The first of `providers` that opens this slot, which holds `keyring_key`.
    pub(crate) fn opener<'p>(
        &self,
        providers: &[&'p dyn Provider],
        keyring_key: &Secret<32>,
    ) -> Result<&'p dyn Provider, Error> {
        let mut why = None;
        for provider in providers.iter().filter(|provider| provider.kind() == self.terms.kind) {
            match self.open(*provider) {
                Ok(key) if key.equals(keyring_key.expose()) => return Ok(*provider),
                Ok(_) => {
                    return Err(Error::Tampered { what: "a slot, which holds another key," });
                }
                Err(error) => why = Some(error),
            }
        }
        let (slot, kind) = (self.terms.id, self.terms.kind);
        Err(Error::SlotNotAtHand { slot, kind, why: why.map(Box::new) })
    }

    /// Would this slot open now, without anybody at a terminal?
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, provider: &dyn Provider) -> Result<Health, Error> {
        provider.check(&self.terms, &self.wrapped)
    }

    /// The same slot around another keyring key, with a fresh salt.
    pub(crate) fn rewrap(
        &self,
        provider: &dyn Provider,
        keyring_key: &Secret<32>,
    ) -> Result<Self, Error> {
        Self::wrap(provider, self.terms.clone(), keyring_key)
    }

    fn wrap(
        provider: &dyn Provider,
        mut terms: SlotTerms,
        keyring_key: &Secret<32>,
    ) -> Result<Self, Error> {
        if terms.kdf != Kdf::None {
            terms.salt = random()?;
        }
        if terms.reference.len() > MAX_REFERENCE {
            return Err(Error::TooMany { what: "bytes of key reference", most: MAX_REFERENCE });
        }
        let payload = Payload::new(&terms, keyring_key);
        let wrapped = provider.wrap(&terms, &payload)?;
        if wrapped.len() > MAX_WRAPPED {
            return Err(Error::TooMany { what: "wrapped bytes in a slot", most: MAX_WRAPPED });
        }
        let slot = Self { terms, wrapped };
        // A person who has typed a passphrase twice is not asked for it once more.
        if slot.terms.kdf == Kdf::None {
            slot.try_out(provider, &payload)?;
        }
        Ok(slot)
    }

    /// A service may let the caller wrap and not unwrap, a command may print another key each time:
    /// such a slot must not take the place of one that opens.
    fn try_out(&self, provider: &dyn Provider, payload: &Payload) -> Result<(), Error> {
        let why = match provider.unwrap(&self.terms, &self.wrapped) {
            Ok(given) if given.equals(payload) => return Ok(()),
            Ok(_) => None,
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(why) => Some(Box::new(why)),
        };
        Err(Error::WrapsOnly { provider: provider.describe(), why })
    }

    /// The keyring key, if `provider` opens this slot.
    pub(crate) fn open(&self, provider: &dyn Provider) -> Result<Secret<32>, Error> {
        if provider.kind() != self.terms.kind {
            return Err(Error::NoSlot { keyring: self.terms.keyring, kind: provider.kind() });
        }
        provider.unwrap(&self.terms, &self.wrapped)?.keyring_key(&self.terms)
    }

    /// Bytes of the entry in the slot table.
    pub(crate) fn len(&self) -> usize {
        FIXED + self.terms.reference.len() + self.wrapped.len()
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(u32::try_from(self.len()).expect("a slot is at most 8 KiB"));
        self.terms.encode(out);
        out.count(self.wrapped.len());
        out.bytes(self.terms.reference.as_bytes());
        out.bytes(&self.wrapped);
    }

    /// Reads one entry; `None` if the bytes end inside it.
    pub(crate) fn decode(from: &mut Reader<'_>, keyring: KeyringId) -> Result<Self, Error> {
        let short = |_| Error::Damaged { what: "the slot table ends inside a slot" };
        let len = from.u32().map_err(short)?;
        let kind = from.u8().map_err(short)?;
        let wrapping = from.u8().map_err(short)?;
        let kdf = from.u16().map_err(short)?;
        let id = SlotId(from.array().map_err(short)?);
        let created = from.u64().map_err(short)?;
        let numbers =
            (from.u32().map_err(short)?, from.u32().map_err(short)?, from.u32().map_err(short)?);
        let salt = from.array().map_err(short)?;
        let reference_len = usize::from(from.u16().map_err(short)?);
        let wrapped_len = usize::from(from.u16().map_err(short)?);
        if reference_len > MAX_REFERENCE || wrapped_len > MAX_WRAPPED {
            return Err(Error::Damaged { what: "a slot is too long" });
        }
        if usize::try_from(len) != Ok(FIXED + reference_len + wrapped_len) {
            return Err(Error::Damaged { what: "the length of a slot is not that of its parts" });
        }
        let reference = from.bytes(reference_len).map_err(short)?;
        let wrapped = from.bytes(wrapped_len).map_err(short)?.to_vec();
        let terms = SlotTerms {
            keyring,
            id,
            kind: SlotKind::new(kind, UNNAMED),
            wrapping: match wrapping {
                1 => Wrapping::Direct,
                2 => Wrapping::Remote,
                found => {
                    return Err(Error::Algorithm { what: "wrapping", found: found.into() });
                }
            },
            kdf: Kdf::from_numbers(kdf, numbers)?,
            salt,
            created,
            reference: String::from_utf8(reference.to_vec())
                .map_err(|_| Error::Damaged { what: "a key reference is not text" })?,
        };
        Ok(Self { terms, wrapped })
    }
}

impl SlotTerms {
    /// Terms that say nothing but whose they are: wrapped here, without passphrase, time and
    /// reference.
    #[must_use]
    pub const fn new(keyring: KeyringId, id: SlotId, kind: SlotKind) -> Self {
        Self {
            keyring,
            id,
            kind,
            wrapping: Wrapping::Direct,
            kdf: Kdf::None,
            salt: [0; 16],
            created: 0,
            reference: String::new(),
        }
    }

    /// The associated data of the wrapped bytes.
    #[must_use]
    pub fn associated_data(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(128 + self.reference.len());
        out.bytes(b"tidelock v1 slot");
        out.bytes(&self.keyring.0);
        self.encode(&mut out);
        out.bytes(self.reference.as_bytes());
        out.into_bytes()
    }

    fn encode(&self, out: &mut Writer) {
        let (kdf, numbers) = self.kdf.numbers();
        out.u8(self.kind.number);
        out.u8(self.wrapping as u8);
        out.u16(kdf);
        out.bytes(&self.id.0);
        out.u64(self.created);
        numbers.iter().for_each(|number| out.u32(*number));
        out.bytes(&self.salt);
        out.count(self.reference.len());
    }
}

impl Kdf {
    fn numbers(self) -> (u16, [u32; 3]) {
        match self {
            Self::None => (0, [0; 3]),
            Self::Argon2id { memory, passes, lanes } => (1, [memory, passes, lanes]),
            Self::Pbkdf2 { iterations } => (2, [0, iterations, 0]),
        }
    }

    fn from_numbers(kdf: u16, numbers: (u32, u32, u32)) -> Result<Self, Error> {
        match (kdf, numbers) {
            (0, (0, 0, 0)) => Ok(Self::None),
            (1, (memory, passes, lanes)) => Ok(Self::Argon2id { memory, passes, lanes }),
            (2, (0, iterations, 0)) => Ok(Self::Pbkdf2 { iterations }),
            (0 | 2, _) => Err(Error::Damaged { what: "an unused parameter of a slot is not zero" }),
            (found, _) => Err(Error::Algorithm { what: "passphrase function", found }),
        }
    }
}

impl SlotKind {
    /// The type with this number.
    #[must_use]
    pub const fn new(number: u8, name: &'static str) -> Self {
        Self { number, name }
    }

    /// Its number in the keyring.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }

    /// The name in configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The same from among `known`.
    pub(crate) fn among(self, known: &[Self]) -> Result<Self, Error> {
        let found = self.number.into();
        let same = known.iter().find(|kind| **kind == self);
        same.copied().ok_or(Error::Algorithm { what: "slot type", found })
    }
}

impl PartialEq for SlotKind {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for SlotKind {}

impl Payload {
    fn new(terms: &SlotTerms, keyring_key: &Secret<32>) -> Self {
        let mut secret = Secret::new([0; PAYLOAD]);
        let (ids, key) = secret.expose_mut().split_at_mut(32);
        ids[..16].copy_from_slice(&terms.keyring.0);
        ids[16..].copy_from_slice(&terms.id.0);
        key.copy_from_slice(keyring_key.expose());
        Self(secret)
    }

    /// What a provider unwrapped; nothing if it is not [`PAYLOAD`] bytes.
    #[must_use]
    pub fn from_slice(plain: &[u8]) -> Option<Self> {
        let plain = <&[u8; PAYLOAD]>::try_from(plain).ok()?;
        let mut secret = Secret::new([0; PAYLOAD]);
        secret.expose_mut().copy_from_slice(plain);
        Some(Self(secret))
    }

    /// The bytes, for the provider that wraps them.
    #[must_use]
    pub const fn expose(&self) -> &[u8; PAYLOAD] {
        self.0.expose()
    }

    /// In constant time.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        self.0.equals(other.0.expose())
    }

    fn keyring_key(&self, terms: &SlotTerms) -> Result<Secret<32>, Error> {
        let (ids, key) = self.0.expose().split_at(32);
        if ids[..16] != terms.keyring.0 || ids[16..] != terms.id.0 {
            return Err(Error::Tampered { what: "a slot, which is of another keyring," });
        }
        let mut keyring_key = Secret::new([0; 32]);
        keyring_key.expose_mut().copy_from_slice(key);
        Ok(keyring_key)
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", HEXLOWER.encode_display(&self.0))
    }
}

impl fmt::Debug for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotId({self})")
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::Crypto { what: "random bytes" })?;
    Ok(bytes)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
