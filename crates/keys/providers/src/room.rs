//! What every provider has in its own module: configuration, short form, slot type, and itself.

use std::path::Path;

use tidelock_keyring::{Error, Provider, SlotId, SlotKind};

use crate::descriptor::Descriptor;

/// What is known of a provider before anything is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The type of its slots; its name is `type` in configuration files.
    pub slot: SlotKind,
    /// As `--provider` takes it, for help.
    pub usage: &'static str,
    /// Where a new principal key comes from.
    pub rotation: Rotation,
    /// True if its key is always a person's, who is not asked by a check.
    pub is_a_persons: bool,
    /// True if others can easily come by its key.
    pub is_for_laboratories: bool,
    /// True if the key, or what wraps it, is on another machine: the network must be there first.
    pub is_remote: bool,
    /// Variables of the environment that hold its credentials, whatever is configured: not for
    /// programs that are run on the data, nor for the commands of other providers.
    pub secrets: &'static [&'static str],
}

/// How a slot gets a new principal key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// The configured provider wraps again: its service has versions of the key.
    Again,
    /// The provider by its name alone asks for a new one.
    Asks,
    /// The key is all that there is: a new provider must be named.
    Named,
}

impl Kind {
    /// A service that wraps again, needs nobody, and is fit for production.
    pub(crate) const fn service(slot: SlotKind, usage: &'static str) -> Self {
        let rotation = Rotation::Again;
        let (is_a_persons, is_for_laboratories, is_remote) = (false, false, false);
        Self { slot, usage, rotation, is_a_persons, is_for_laboratories, is_remote, secrets: &[] }
    }

    /// The same on another machine.
    pub(crate) const fn remote(self) -> Self {
        Self { is_remote: true, ..self }
    }

    /// The same with credentials in the environment.
    pub(crate) const fn with_secrets(self, secrets: &'static [&'static str]) -> Self {
        Self { secrets, ..self }
    }

    /// The same for a provider that has one key and no other.
    pub(crate) const fn one_key(slot: SlotKind, usage: &'static str) -> Self {
        Self { rotation: Rotation::Named, ..Self::service(slot, usage) }
    }
}

/// How a person gives what is to open a new slot.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Instead of the terminal.
    pub descriptor: Option<&'a Descriptor>,
    /// The option that names the descriptor, for messages.
    pub option: &'static str,
    /// Which of its lines, from 0.
    pub line: usize,
    /// The slot that it takes the place of, for the prompt.
    pub instead_of: Option<SlotId>,
    /// A passphrase may be easy to guess.
    pub accept_weak: bool,
}

/// A provider as configuration and command line name it: data only, until it is opened.
pub trait Room {
    /// What is known of all of them.
    fn kind() -> Kind
    where
        Self: Sized;

    /// Reads what follows `NAME:` in the short form, if a colon follows. Nothing if it names none.
    ///
    /// # Errors
    /// What is wrong with it, if that is known better.
    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error>
    where
        Self: Sized;

    /// The provider for the protected directory `protected`. A passphrase or PIN is read from this
    /// descriptor, or asked on the terminal.
    ///
    /// # Errors
    /// The descriptor cannot be read; what a provider needs at once is not there.
    fn open(
        &self,
        protected: &Path,
        descriptor: Option<&Descriptor>,
    ) -> Result<Box<dyn Provider>, Error>;

    /// The provider for one slot that exists: a person is asked for that slot's own passphrase, by
    /// its name.
    ///
    /// # Errors
    /// As [`Room::open`].
    fn open_slot(
        &self,
        _slot: SlotId,
        protected: &Path,
        descriptor: Option<&Descriptor>,
    ) -> Result<Box<dyn Provider>, Error> {
        self.open(protected, descriptor)
    }

    /// The provider of a slot that is about to be made.
    ///
    /// # Errors
    /// As [`Room::open`].
    fn open_new(&self, protected: &Path, new: &New<'_>) -> Result<Box<dyn Provider>, Error> {
        self.open(protected, new.descriptor)
    }

    /// True if it can open a keyring without anybody at a terminal.
    fn is_unattended(&self) -> bool {
        true
    }

    /// True if it opens a keyring only with what the caller's environment has now: not after a
    /// restart, and not in a unit.
    fn is_of_this_shell(&self) -> bool {
        false
    }

    /// Variables of the environment that hold its credentials, or its key: not for the programs
    /// that are run on the data.
    fn secret_variables(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The file on this machine that holds the principal key itself.
    fn key_file(&self) -> Option<&Path> {
        None
    }

    /// The credential that systemd must hand to a unit that unlocks with it.
    fn credential(&self) -> Option<&str> {
        None
    }

    /// The principal key in the words of `init`, where these are not [`Provider::describe`].
    fn key_in_words(&self) -> Option<String> {
        None
    }
}

/// For a short form that needs something behind its colon.
pub(crate) fn some(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}
