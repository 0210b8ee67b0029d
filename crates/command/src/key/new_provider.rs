//! The provider of a new slot: made if it is a key file that does not exist, and configured before
//! the keyring names it.

use std::path::Path;

use tidelock_keyring::{Keyring, Provider, Slot, SlotKind};
use tidelock_providers::{Descriptor, New, Places, ProviderChoice};

use super::session::Session;
use crate::console;
use crate::error::{Error, Result};
use crate::init::make_key_file;
use crate::owner::Owner;
use crate::protected::Protected;
use crate::unlock;

/// Where a new passphrase comes from, and how good it must be.
#[derive(clap::Args)]
pub(super) struct NewPassphrase {
    /// Read the new passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N")]
    pub(super) new_passphrase_fd: Option<Descriptor>,
    /// Take a new passphrase although it is easy to guess
    #[arg(long)]
    weak_passphrase: bool,
}

impl NewPassphrase {
    /// The one of a new slot.
    pub(super) fn first(&self) -> New<'_> {
        New {
            descriptor: self.new_passphrase_fd.as_ref(),
            option: "--new-passphrase-fd",
            line: 0,
            instead_of: None,
            accept_weak: self.weak_passphrase,
        }
    }
}

/// The provider that `choice` names, for a new slot.
///
/// # Errors
/// A key file that cannot be made; what the provider needs is not there.
pub(super) fn make(
    choice: &ProviderChoice,
    dir: &Path,
    new: &New<'_>,
) -> Result<(ProviderChoice, Box<dyn Provider>)> {
    let mut choice = choice.clone();
    if let Some(path) = choice.key_file() {
        let path = std::path::absolute(path).map_err(Error::io("find", path))?;
        tidelock_providers::refuse_inside(&path, dir)?;
        if path.symlink_metadata().is_err() {
            let owner = Owner::of(dir)?;
            let another = owner.uid != Owner::caller().uid;
            make_key_file(&path, another.then_some(owner))?;
            console::print(format_args!(
                "key file {}: copy it to a safe place that is not this disk\n",
                path.display()
            ))?;
        }
        choice = ProviderChoice::file(path);
    }
    let provider = choice.open_new(dir, new)?;
    for warning in provider.warnings() {
        console::warn(&warning, "docs/keys.md lists the providers");
    }
    Ok((choice, provider))
}

/// Takes out of the configuration what opened slots of this kind that are gone, and opens none that
/// is left. One that does not answer, or opens neither, may be needed, and stays.
pub(super) fn forget(protected: &Protected, keyring: &Keyring, kind: SlotKind) -> Result<()> {
    let Protected { path: dir, keyring: old, .. } = protected;
    let choices = unlock::configured(old, dir)?.providers;
    let of_kind = |slot: &&Slot| slot.terms.kind == kind;
    let left: Vec<&Slot> = keyring.slots().iter().filter(of_kind).collect();
    let is_left = |slot: &&Slot| left.iter().any(|one| one.terms.id == slot.terms.id);
    let gone: Vec<&Slot> = old.slots().iter().filter(of_kind).filter(|it| !is_left(it)).collect();
    for choice in choices.iter().filter(|choice| choice.kind().slot == kind) {
        let opened_what_is_gone = || {
            let Ok(provider) = choice.open(dir, None) else { return false };
            let wrong = |why| matches!(why, tidelock_keyring::Error::WrongKey { .. });
            gone.iter().any(|slot| slot.check(&*provider).is_ok())
                && left.iter().all(|slot| slot.check(&*provider).is_err_and(wrong))
        };
        let is_over = left.is_empty() || choice.is_unattended() && opened_what_is_gone();
        if !is_over {
            continue;
        }
        match places(dir)?.remove_provider(keyring.id(), dir, choice) {
            Ok(Some(path)) => {
                let what = choice.open(dir, None).map(|provider| provider.describe());
                let what = what.unwrap_or_else(|_| kind.to_string());
                console::print(format_args!("{what} is out of {}\n", path.display()))?;
            }
            Ok(None) => {}
            // It opens nothing: that it is named does no harm.
            Err(why) => console::warn(
                format!("the configuration still names a provider that opens no slot: {why}"),
                "take it out by hand",
            ),
        }
    }
    Ok(())
}

/// Where the provider of this directory is configured.
fn places(dir: &Path) -> Result<Places> {
    let mut places = Places::of_process();
    if Owner::of(dir)?.uid != Owner::caller().uid {
        // Root's own account is not where the owner of the directory would look.
        places.own = None;
    }
    Ok(places)
}

/// Names the provider in the configuration that is in force for this keyring.
///
/// # Errors
/// It cannot be written; another command has changed the keyring meanwhile.
pub(super) fn configure(session: &mut Session, choice: &ProviderChoice) -> Result<()> {
    session.hold()?;
    let places = places(&session.protected.path)?;
    let path = match places.add_provider(session.keyring.id(), &session.protected.path, choice) {
        Ok(path) => path,
        Err(tidelock_keyring::Error::NoConfigHome) => {
            console::warn(
                "nothing is configured for this keyring, and nothing was written",
                "write /etc/tidelock/keyrings/KEYRING.toml; docs/configuration.md shows one",
            );
            return Ok(());
        }
        Err(why) => return Err(why.into()),
    };
    console::print(format_args!("provider in {}\n", path.display()))
}
