//! The keyring as it lies on the disk: header and slot table in the open, the body sealed.
//!
//! Header and slot table are the associated data of the body, so that nothing in the file can
//! change unseen. Parsing only checks shapes; what a field says is believed after unlocking.

use tidelock_cipher::Secret;
use tidelock_contract::Writer;
use tidelock_format::{Generation, KeyringId, Reader, Truncated};
use zeroize::Zeroizing;

use super::body::Body;
use super::{Keyring, MAX_SLOTS};
use crate::derive::{NONCE, TAG, expand, open, seal};
use crate::error::Error;
use crate::provider::Provider;
use crate::slot::{Slot, SlotId, SlotKind, random};

const MAGIC: &[u8; 8] = b"TDLKRING";
const VERSION: u16 = 1;
/// Bytes before the slot table.
const FIXED: usize = 112;
/// AES-256-GCM.
const BODY_CIPHER: u16 = 1;
/// HKDF-Expand-SHA-256.
const BODY_KDF: u16 = 1;
/// No keyring is longer.
pub(crate) const MAX_FILE: usize = 1024 * 1024;

/// A keyring that is not unlocked.
#[derive(Debug)]
pub struct SealedKeyring {
    id: KeyringId,
    generation: Generation,
    commitment: [u8; 32],
    nonce: [u8; NONCE],
    slots: Vec<Slot>,
    /// Header and slot table, as they stand.
    associated: Vec<u8>,
    /// Sealed body and tag.
    body: Vec<u8>,
}

impl SealedKeyring {
    /// Reads the bytes of a keyring file.
    ///
    /// # Errors
    /// They are no keyring, one of another version, truncated or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let need = |need| Error::Truncated { have: bytes.len(), need };
        if bytes.len() > MAX_FILE {
            return Err(damaged("it has more than 1 MiB"));
        }
        let magic = bytes.get(..MAGIC.len()).ok_or(need(FIXED))?;
        if magic != MAGIC {
            return Err(Error::NotAKeyring);
        }
        let short = |_: Truncated| need(FIXED);
        let mut from = Reader::new(&bytes[MAGIC.len()..]);
        match from.u16().map_err(short)? {
            VERSION => {}
            found => return Err(Error::Version { found }),
        }
        if usize::from(from.u16().map_err(short)?) != FIXED {
            return Err(damaged("its header has another length"));
        }
        for (what, known) in [("body cipher", BODY_CIPHER), ("body key derivation", BODY_KDF)] {
            let found = from.u16().map_err(short)?;
            if found != known {
                return Err(Error::Algorithm { what, found });
            }
        }
        let id = KeyringId(from.array().map_err(short)?);
        let generation = Generation(from.u64().map_err(short)?);
        let slots_len = length(from.u32().map_err(short)?);
        let body_len = length(from.u32().map_err(short)?);
        let count = from.u16().map_err(short)?;
        let reserved: [u8; 14] = from.array().map_err(short)?;
        let commitment = from.array().map_err(short)?;
        let nonce = from.array().map_err(short)?;
        let reserved_too: [u8; 4] = from.array().map_err(short)?;
        if reserved != [0; 14] || reserved_too != [0; 4] {
            return Err(damaged("a reserved byte of its header is not zero"));
        }
        if count == 0 || usize::from(count) > MAX_SLOTS {
            return Err(damaged("it has no slot, or more than 32"));
        }
        let body_at = FIXED.saturating_add(slots_len);
        let end = body_at.saturating_add(body_len).saturating_add(TAG);
        if bytes.len() < end {
            return Err(need(end));
        }
        if bytes.len() > end {
            return Err(damaged("bytes follow its body"));
        }
        let mut table = Reader::new(&bytes[FIXED..body_at]);
        let slots =
            (0..count).map(|_| Slot::decode(&mut table, id)).collect::<Result<Vec<_>, _>>()?;
        if !table.rest().is_empty() {
            return Err(damaged("bytes follow its slots"));
        }
        let (associated, body) = (bytes[..body_at].to_vec(), bytes[body_at..].to_vec());
        Ok(Self { id, generation, commitment, nonce, slots, associated, body })
    }

    /// The same with the names of its slots' types, all of which must be among `known`.
    ///
    /// # Errors
    /// [`Error::Algorithm`].
    pub fn with_slot_kinds(mut self, known: &[SlotKind]) -> Result<Self, Error> {
        for slot in &mut self.slots {
            slot.terms.kind = slot.terms.kind.among(known)?;
        }
        Ok(self)
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> KeyringId {
        self.id
    }

    /// How often it has been replaced; not verified before it is unlocked.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Its slots; not verified before it is unlocked.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Unlocks with the first slot of the provider's type that it opens.
    ///
    /// # Errors
    /// [`Error::NoSlot`]; [`Error::WrongKey`] if it opens none; [`Error::Tampered`].
    pub fn unlock(&self, provider: &dyn Provider) -> Result<Keyring, Error> {
        let mut failure = Error::NoSlot { keyring: self.id, kind: provider.kind() };
        for slot in self.slots.iter().filter(|slot| slot.terms.kind == provider.kind()) {
            match slot.open(provider) {
                Ok(key) => return self.opened_with(key, Some(slot.terms.id)),
                // Other slots of this type may have another key, or be whole.
                Err(why) if told_of_a_slot(&why) > 0 => {
                    if told_of_a_slot(&why) >= told_of_a_slot(&failure) {
                        failure = why;
                    }
                }
                // The provider itself is in trouble, whatever the slot.
                Err(why) => return Err(why),
            }
        }
        Err(failure)
    }

    /// Unlocks with the keyring key itself.
    ///
    /// # Errors
    /// [`Error::WrongKeyringKey`] for another key, [`Error::Tampered`] for changed bytes.
    pub fn unlock_with(&self, key: Secret<32>) -> Result<Keyring, Error> {
        self.opened_with(key, None)
    }

    fn opened_with(&self, key: Secret<32>, opened: Option<SlotId>) -> Result<Keyring, Error> {
        if !commitment(&key, self.id)?.equals(&self.commitment) {
            return Err(Error::WrongKeyringKey { keyring: self.id });
        }
        let body_key = body_key(&key, self.id, self.generation)?;
        let mut bytes = Zeroizing::new(self.body.clone());
        let body = open(&body_key, self.nonce, &self.associated, &mut bytes)?;
        let body = body.ok_or(Error::Tampered { what: "its header, slots or body" })?;
        let Body { layout, data_keys, policy, conversion } = Body::decode(body)?;
        let slots = self.slots.clone();
        let (id, generation) = (self.id, self.generation);
        Ok(Keyring { id, generation, layout, policy, data_keys, slots, key, conversion, opened })
    }
}

/// How much a failure says of the slot that was tried, the more the better; 0 if it says nothing of
/// it, but of the provider.
const fn told_of_a_slot(why: &Error) -> u8 {
    use crate::error::ServiceFault as Fault;
    match why {
        // Made by the same provider in another way.
        Error::NoSlot { .. } | Error::Damaged { .. } => 1,
        Error::WrongKey { .. } => 2,
        Error::CommandFailed { .. }
        | Error::CommandOutput { .. }
        | Error::CommandUnwrapped { .. }
        | Error::KdfBounds { .. }
        | Error::KdfUnavailable { .. }
        | Error::Service {
            fault: Fault::Denied | Fault::Disabled | Fault::NotFound | Fault::Protocol,
            ..
        } => 3,
        Error::Tampered { .. } => 4,
        _ => 0,
    }
}

impl Keyring {
    /// The bytes of the keyring file, with a fresh nonce.
    ///
    /// # Errors
    /// [`Error::Crypto`], [`Error::TooMany`].
    pub fn seal(&self) -> Result<Vec<u8>, Error> {
        let mut body = Zeroizing::new(self.encode_body(TAG).into_bytes());
        let nonce = random()?;
        let slots_len: usize = self.slots.iter().map(Slot::len).sum();
        let too_long = |_| Error::TooMany { what: "bytes", most: MAX_FILE };
        let mut out = Writer::with_capacity(FIXED + slots_len + body.len() + TAG);
        out.bytes(MAGIC);
        out.u16(VERSION);
        out.count(FIXED);
        out.u16(BODY_CIPHER);
        out.u16(BODY_KDF);
        out.bytes(&self.id.0);
        out.u64(self.generation.0);
        out.u32(u32::try_from(slots_len).map_err(too_long)?);
        out.u32(u32::try_from(body.len()).map_err(too_long)?);
        out.count(self.slots.len());
        out.bytes(&[0; 14]);
        out.bytes(commitment(&self.key, self.id)?.expose());
        out.bytes(&nonce);
        out.bytes(&[0; 4]);
        self.slots.iter().for_each(|slot| slot.encode(&mut out));
        let mut out = out.into_bytes();
        seal(&body_key(&self.key, self.id, self.generation)?, nonce, &out, &mut body)?;
        out.extend_from_slice(&body);
        if out.len() > MAX_FILE {
            return Err(Error::TooMany { what: "bytes", most: MAX_FILE });
        }
        Ok(out)
    }
}

/// Tells another keyring key from changed bytes, and commits to the key, which GCM does not.
fn commitment(key: &Secret<32>, id: KeyringId) -> Result<Secret<32>, Error> {
    expand(key, &[b"tidelock v1 keyring commitment", &id.0])
}

/// A fresh key for each generation, so that a nonce never meets the same key twice.
fn body_key(key: &Secret<32>, id: KeyringId, generation: Generation) -> Result<Secret<32>, Error> {
    expand(key, &[b"tidelock v1 keyring body", &id.0, &generation.0.to_le_bytes()])
}

fn length(field: u32) -> usize {
    usize::try_from(field).unwrap_or(usize::MAX)
}

const fn damaged(what: &'static str) -> Error {
    Error::Damaged { what }
}
