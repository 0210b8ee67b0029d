//! What may be changed of an unlocked keyring: its slots, its data keys, the keyring key itself.
//!
//! In memory only: [`KeyringDir::write`](crate::KeyringDir::write) replaces the file, all of it or
//! nothing.

use tidelock_cipher::{DataKey, Secret};
use tidelock_format::DataKeyId;

use tidelock_contract::Policy;
use tidelock_contract::wire::KeyState;

use super::{DataKeyEntry, Keyring, MAX_DATA_KEYS, MAX_SLOTS};
use crate::error::Error;
use crate::provider::Provider;
use crate::slot::{Slot, SlotId};

impl Keyring {
    /// Adds a slot that `provider` opens. Not yet on the disk.
    ///
    /// # Errors
    /// What the provider says; [`Error::TooMany`].
    pub fn add_slot(&mut self, provider: &dyn Provider) -> Result<SlotId, Error> {
        if self.slots.len() >= MAX_SLOTS {
            return Err(Error::TooMany { what: "slots", most: MAX_SLOTS });
        }
        let slot = Slot::make(provider, self.id, &self.key)?;
        let id = slot.terms.id;
        self.slots.push(slot);
        Ok(id)
    }

    /// Takes a slot away. Not yet on the disk; whoever kept an old copy of the keyring opens that
    /// still.
    ///
    /// # Errors
    /// [`Error::LastSlot`], [`Error::UnknownSlot`].
    pub fn remove_slot(&mut self, id: SlotId) -> Result<(), Error> {
        let place = self.place_of(id)?;
        if self.slots.len() == 1 {
            return Err(Error::LastSlot { slot: id });
        }
        self.slots.remove(place);
        Ok(())
    }

    /// Makes a fresh data key the current one. Not yet on the disk.
    ///
    /// # Errors
    /// [`Error::TooMany`], or no randomness.
    pub fn add_data_key(&mut self) -> Result<DataKeyId, Error> {
        if self.data_keys.len() >= MAX_DATA_KEYS {
            return Err(Error::TooMany { what: "data keys", most: MAX_DATA_KEYS });
        }
        let fresh = DataKeyEntry::random()?;
        let id = fresh.id;
        for entry in self.data_keys.iter_mut().filter(|entry| entry.state == KeyState::Current) {
            entry.state = KeyState::Older;
            entry.retired = Some(fresh.created);
        }
        self.data_keys.push(fresh);
        Ok(id)
    }

    /// Puts a slot that `provider` opens in the place of another. Not yet on the disk.
    ///
    /// # Errors
    /// What the provider says; [`Error::UnknownSlot`].
    pub fn replace_slot(&mut self, id: SlotId, provider: &dyn Provider) -> Result<SlotId, Error> {
        let place = self.place_of(id)?;
        let slot = Slot::make(provider, self.id, &self.key)?;
        let new = slot.terms.id;
        self.slots[place] = slot;
        Ok(new)
    }

    /// Gives the keyring another key, wrapped in every slot by the provider that opens it: an old
    /// slot of an old copy then opens nothing that is written from now on. The data keys stay what
    /// they are. Not yet on the disk.
    ///
    /// # Errors
    /// [`Error::SlotNotAtHand`] if a slot is opened by none of `providers`; what a provider says.
    /// The keyring is then as before.
    pub fn renew(&mut self, providers: &[&dyn Provider]) -> Result<(), Error> {
        let key = Secret::random().map_err(|_| Error::Crypto { what: "random bytes" })?;
        let slots = self.slots.iter().map(|slot| {
            // The slot must go on opening with what opens it now, not with something new.
            let provider = slot.opener(providers, &self.key)?;
            slot.rewrap(provider, &key)
        });
        let slots = slots.collect::<Result<Vec<_>, Error>>()?;
        (self.key, self.slots) = (key, slots);
        Ok(())
    }

    /// Takes over the data keys of another node's keyring, for reading what it sealed: no new file
    /// uses them. Those that were new. Not yet on the disk.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn adopt(&mut self, other: &Self) -> Result<Vec<DataKeyId>, Error> {
        let new: Vec<_> = other
            .data_keys
            .iter()
            .filter(|theirs| self.data_key(theirs.id).is_none())
            .map(|theirs| DataKeyEntry {
                id: theirs.id,
                key: DataKey::new(Secret::new(*theirs.key.secret().expose())),
                state: KeyState::Adopted,
                created: theirs.created,
                retired: theirs.retired,
            })
            .collect();
        if self.data_keys.len() + new.len() > MAX_DATA_KEYS {
            return Err(Error::TooMany { what: "data keys", most: MAX_DATA_KEYS });
        }
        let ids = new.iter().map(|entry| entry.id).collect();
        self.data_keys.extend(new);
        Ok(ids)
    }

    /// Lets an adopted data key go: the node that it came from still has it. Not yet on the disk.
    ///
    /// # Errors
    /// [`Error::UnknownDataKey`]; [`Error::OwnDataKey`].
    pub fn release_data_key(&mut self, id: DataKeyId) -> Result<(), Error> {
        let entry = self.data_key(id).ok_or(Error::UnknownDataKey { id })?;
        if entry.state != KeyState::Adopted {
            return Err(Error::OwnDataKey { id });
        }
        self.data_keys.retain(|entry| entry.id != id);
        Ok(())
    }

    /// Puts another policy in the place of the one that was. Not yet on the disk.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Takes a data key away: what it sealed can never be read again, once no copy of the keyring
    /// has it. Not yet on the disk.
    ///
    /// # Errors
    /// [`Error::UnknownDataKey`]; [`Error::CurrentDataKey`].
    pub fn destroy_data_key(&mut self, id: DataKeyId) -> Result<(), Error> {
        let place = self.data_keys.iter().position(|entry| entry.id == id);
        let place = place.ok_or(Error::UnknownDataKey { id })?;
        if self.data_keys[place].state == KeyState::Current {
            return Err(Error::CurrentDataKey { id });
        }
        self.data_keys.remove(place);
        Ok(())
    }

    fn place_of(&self, id: SlotId) -> Result<usize, Error> {
        let place = self.slots.iter().position(|slot| slot.terms.id == id);
        place.ok_or(Error::UnknownSlot { slot: id })
    }
}
