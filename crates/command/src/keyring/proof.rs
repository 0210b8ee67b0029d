//! Is a keyring what a Tidelock wrote, every byte of it? Only a key shows that.
//!
//! ```text
//!   a provider opens it          every byte verifies
//!   an agent has opened it       the same, by the SHA-256 of the file
//!   no key is at hand            its shape alone: lengths, versions, reserved bytes
//!   a key is, and does not open  it is damaged, or another's: refused
//! ```

use std::path::Path;

use tidelock_keyring::{Keyring, SealedKeyring};
use tidelock_providers::{ProviderChoice, known};

use crate::error::{Error, Result};
use crate::running::{Found, Programs};
use crate::unlock::{self, KeyOptions};

/// What is known of the bytes of a keyring.
pub(super) enum Proof {
    /// A key opened them.
    Opened(Box<Keyring>),
    /// This agent, a process, has opened just these.
    Agent(i32),
    /// No key was at hand: why.
    Shape(Error),
}

/// The bytes of a keyring, from `file`, and what is known of them.
pub(super) struct Examined {
    pub(super) keyring: SealedKeyring,
    pub(super) proof: Proof,
}

impl Examined {
    /// Examines `bytes` with the providers of the command line, else with what is configured for
    /// the keyring and for `dir`.
    ///
    /// # Errors
    /// [`Error::Locked`], naming `file`: they are no keyring, or do not open with a key that is at
    /// hand.
    pub(super) fn of(bytes: &[u8], file: &Path, dir: &Path, keys: &KeyOptions) -> Result<Self> {
        Self::by(bytes, file, dir, keys, Asking::Somebody)
    }

    fn by(
        bytes: &[u8],
        file: &Path,
        dir: &Path,
        keys: &KeyOptions,
        asking: Asking,
    ) -> Result<Self> {
        let locked = |source| Error::Locked { dir: file.into(), source };
        let keyring = SealedKeyring::parse(bytes).and_then(known).map_err(locked)?;
        let proof = match try_open(&keyring, dir, keys, asking) {
            Ok(opened) => Proof::Opened(opened.into()),
            Err(Error::Keys(why @ tidelock_keyring::Error::Interrupted)) => {
                return Err(locked(why));
            }
            // Whoever names a key wants it to be the one.
            Err(Error::Keys(why)) if keys.is_used() => return Err(keys.locked(file, why)),
            Err(why) if keys.is_used() => return Err(why),
            Err(why) => match agent_with(&keyring, bytes, dir) {
                Some(pid) => Proof::Agent(pid),
                None => match why {
                    Error::Keys(why) if Says::of(&why).is_damage() => return Err(locked(why)),
                    why => Proof::Shape(why),
                },
            },
        };
        Ok(Self { keyring, proof })
    }

    /// As [`Examined::of`], with what is configured and asks nobody.
    ///
    /// # Errors
    /// As [`Examined::of`].
    pub(super) fn unattended(bytes: &[u8], file: &Path, dir: &Path) -> Result<Self> {
        Self::by(bytes, file, dir, &KeyOptions::default(), Asking::Nobody)
    }
}

impl Proof {
    /// In words, behind "checked".
    pub(super) fn words(&self) -> String {
        match self {
            Self::Opened(keyring) => match keyring.opened_by() {
                Some(slot) => format!("opened by a slot of type {}", slot.terms.kind),
                None => "opened".to_owned(),
            },
            Self::Agent(pid) => format!("the same bytes that the agent, process {pid}, has opened"),
            Self::Shape(_) => "its shape only, since no key is at hand".to_owned(),
        }
    }
}

/// May a person be asked for a key?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    Somebody,
    Nobody,
}

/// How much a failure says of the bytes themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Says {
    /// Nothing is configured.
    Nothing,
    /// There is no slot for the key.
    NoSlot,
    /// Nothing, but a key exists that could: it could not be had.
    NotAtHand,
    /// The key does not open them.
    Damage,
}

impl Says {
    const fn of(why: &tidelock_keyring::Error) -> Self {
        use tidelock_keyring::Error as E;
        match why {
            E::NoProvider { .. } => Self::Nothing,
            E::NoSlot { .. } => Self::NoSlot,
            E::Tampered { .. }
            | E::Damaged { .. }
            | E::Truncated { .. }
            | E::NotAKeyring
            | E::Version { .. }
            | E::Algorithm { .. }
            | E::WrongKey { .. }
            | E::WrongKeyringKey { .. }
            | E::KdfBounds { .. }
            | E::TooMany { .. }
            | E::Policy(_) => Self::Damage,
            _ => Self::NotAtHand,
        }
    }

    /// Something is configured, and all of it is at hand: that it opens nothing is the fault of the
    /// bytes.
    const fn is_damage(self) -> bool {
        matches!(self, Self::NoSlot | Self::Damage)
    }
}

/// The first that opens it. Of several failures the one that speaks of damage is told.
fn try_open(
    keyring: &SealedKeyring,
    dir: &Path,
    keys: &KeyOptions,
    asking: Asking,
) -> Result<Keyring> {
    if keys.is_used() {
        return keys.open_quietly(keyring, dir);
    }
    let mut choices = unlock::configured(keyring, dir)?.providers;
    // A person is asked last.
    choices.sort_by_key(|choice: &ProviderChoice| !choice.is_unattended());
    let mut failure = tidelock_keyring::Error::NoProvider { keyring: keyring.id() };
    for choice in choices {
        if asking == Asking::Nobody && !choice.is_unattended() {
            failure = tidelock_keyring::Error::no_passphrase("nobody is asked for it here");
            continue;
        }
        match choice.open(dir, None).and_then(|provider| keyring.unlock(&*provider)) {
            Ok(opened) => return Ok(opened),
            Err(why @ tidelock_keyring::Error::Interrupted) => return Err(why.into()),
            Err(why) if Says::of(&why) >= Says::of(&failure) => failure = why,
            Err(_) => {}
        }
    }
    Err(failure.into())
}

/// An agent of this keyring that has opened just these bytes, perhaps for a copy of the directory.
fn agent_with(keyring: &SealedKeyring, bytes: &[u8], dir: &Path) -> Option<i32> {
    let digest = tidelock_keyring::digest(bytes);
    let agents = Found::of_keyring(dir, keyring.id(), &Programs::of(dir));
    agents.into_iter().find_map(|found| match found {
        Found::Answers(agent) if agent.file == digest => Some(agent.pid),
        _ => None,
    })
}
