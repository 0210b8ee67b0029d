//! The provider of a new slot: made if it is a key file that does not exist, and configured before the keyring
//! names it.

use std::path::Path;

use tidelock_keys::{Places, Provider, ProviderChoice};

use super::session::Session;
use crate::console;
use crate::error::{Error, Result};
use crate::init::make_key_file;
use crate::owner::Owner;

/// The provider that `choice` names, for a new slot.
///
/// # Errors
/// A key file that cannot be made; what the provider needs is not there.
pub(super) fn make(
    choice: &ProviderChoice,
    dir: &Path,
    passphrase_fd: Option<u32>,
) -> Result<(ProviderChoice, Box<dyn Provider>)> {
    let mut choice = choice.clone();
    if let ProviderChoice::File { path } = &mut choice {
        *path = std::path::absolute(&*path).map_err(Error::io("find", &*path))?;
        if path.symlink_metadata().is_err() {
            tidelock_keys::refuse_inside(path, dir)?;
            let owner = Owner::of(dir)?;
            let another = owner.uid != Owner::caller().uid;
            make_key_file(path, another.then_some(owner))?;
            console::print(format_args!(
                "key file {}: copy it to a safe place that is not this disk\n",
                path.display()
            ))?;
        }
    }
    let provider = tidelock_providers::open(&choice, dir, passphrase_fd)?;
    for warning in provider.warnings() {
        console::warn(&warning, "docs/keys.md lists the providers");
    }
    Ok((choice, provider))
}

/// Names the provider in the configuration that is in force for this keyring.
///
/// # Errors
/// It cannot be written.
pub(super) fn configure(session: &Session, choice: &ProviderChoice) -> Result<()> {
    let mut places = Places::of_process();
    if Owner::of(&session.protected.path)?.uid != Owner::caller().uid {
        // Root's own account is not where the owner of the directory would look.
        places.own = None;
    }
    let path = match places.add_provider(session.keyring.id(), &session.protected.path, choice) {
        Ok(path) => path,
        Err(tidelock_keys::Error::NoConfigHome) => {
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
