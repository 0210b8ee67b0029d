//! The keyring: data keys and policy, sealed under a keyring key that each slot wraps.
//!
//! ```text
//!   file --parse--> SealedKeyring --unlock (a slot, its provider)--> Keyring --seal--> file
//! ```
//!
//! Knows bytes, not files: [`KeyringDir`](crate::KeyringDir) reads and replaces them. FORMAT.md,
//! "Keyring", draws the bytes.

mod body;
mod change;
mod sealed;

use tidelock_cipher::{DataKey, Secret};
use tidelock_contract::Policy;
use tidelock_contract::wire::KeyState;
use tidelock_format::{DataKeyId, Generation, KeyringId, Layout};

pub(crate) use sealed::MAX_FILE;
pub use sealed::SealedKeyring;

use crate::conversion::Conversion;
use crate::error::Error;
use crate::provider::Provider;
use crate::slot::{Slot, SlotId, now, random};

/// Most slots of a keyring.
pub(crate) const MAX_SLOTS: usize = 32;
/// Most data keys of a keyring.
pub(crate) const MAX_DATA_KEYS: usize = 1024;

/// An unlocked keyring.
pub struct Keyring {
    id: KeyringId,
    generation: Generation,
    layout: Layout,
    policy: Policy,
    data_keys: Vec<DataKeyEntry>,
    slots: Vec<Slot>,
    key: Secret<32>,
    conversion: Option<Conversion>,
    /// What opened it, if a slot did.
    opened: Option<SlotId>,
}

/// A data key and its history.
pub struct DataKeyEntry {
    /// Its id.
    pub id: DataKeyId,
    /// The key.
    pub key: DataKey,
    /// What it may be used for.
    pub state: KeyState,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it stopped being the current one.
    pub retired: Option<u64>,
}

impl Keyring {
    /// A fresh keyring with one data key and a slot for each provider. Not yet on the disk.
    ///
    /// # Errors
    /// No provider at all is [`Error::Damaged`]; what a provider says; no randomness.
    pub fn create(
        policy: Policy,
        layout: Layout,
        providers: &[&dyn Provider],
    ) -> Result<Self, Error> {
        let mut keyring = Self {
            id: KeyringId(random()?),
            generation: Generation(1),
            layout,
            policy,
            data_keys: vec![DataKeyEntry::random()?],
            slots: Vec::new(),
            key: Secret::random().map_err(|_| Error::Crypto { what: "random bytes" })?,
            conversion: None,
            opened: None,
        };
        for provider in providers {
            keyring.add_slot(*provider)?;
        }
        if keyring.slots.is_empty() {
            return Err(Error::Damaged { what: "it has no slot" });
        }
        Ok(keyring)
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> KeyringId {
        self.id
    }

    /// How often it has been replaced.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Where the units of its files begin.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Which files are sealed.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Its data keys, the oldest first.
    #[must_use]
    pub fn data_keys(&self) -> &[DataKeyEntry] {
        &self.data_keys
    }

    /// The data key with this id.
    #[must_use]
    pub fn data_key(&self, id: DataKeyId) -> Option<&DataKeyEntry> {
        self.data_keys.iter().find(|entry| entry.id == id)
    }

    /// The data key of new files.
    ///
    /// # Panics
    /// Never: a keyring without one cannot be made or read.
    #[must_use]
    pub fn current(&self) -> &DataKeyEntry {
        let is_current = |entry: &&DataKeyEntry| entry.state == KeyState::Current;
        self.data_keys.iter().find(is_current).expect("every keyring has a current data key")
    }

    /// Its slots.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot that opened it; none if it is new, or the keyring key itself did.
    #[must_use]
    pub fn opened_by(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| Some(slot.terms.id) == self.opened)
    }

    /// The keyring key, for the process that will unlock with it: [`SealedKeyring::unlock_with`].
    #[must_use]
    pub const fn keyring_key(&self) -> &Secret<32> {
        &self.key
    }

    /// The conversion of its files that has begun and not ended.
    #[must_use]
    pub const fn conversion(&self) -> Option<Conversion> {
        self.conversion
    }

    /// Begins or ends one. Not yet on the disk.
    pub const fn set_conversion(&mut self, conversion: Option<Conversion>) {
        self.conversion = conversion;
    }

    pub(crate) const fn set_generation(&mut self, generation: Generation) {
        self.generation = generation;
    }
}

impl DataKeyEntry {
    fn random() -> Result<Self, Error> {
        let key = Secret::random().map_err(|_| Error::Crypto { what: "random bytes" })?;
        Ok(Self {
            id: DataKeyId(random()?),
            key: DataKey::new(key),
            state: KeyState::Current,
            created: now(),
            retired: None,
        })
    }
}
