//! The provider of a new slot: made if it is a key file that does not exist, and configured before
//! the keyring names it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidelock_keyring::{Keyring, Provider, Slot, SlotKind};
use tidelock_providers::{Config, Descriptor, New, Places, ProviderChoice};

use super::session::Session;
use crate::console;
use crate::error::{Error, Result};
use crate::init::{machine_folder, make_key_file, open_config};
use crate::owner::Owner;
use crate::protected::Protected;
use crate::unlock;
use crate::walk::read_small;

/// Where a new passphrase comes from, and how good it must be.
#[derive(clap::Args)]
pub(super) struct NewPassphrase {
    /// Read the new passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N", value_parser = unlock::descriptor)]
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
/// A key file that cannot be made; what the provider needs is not there; what root would configure
/// would hide the owner's own configuration.
pub(super) fn make(
    choice: &ProviderChoice,
    session: &Session,
    new: &New<'_>,
) -> Result<(ProviderChoice, Box<dyn Provider>)> {
    let dir = &*session.protected.path;
    refuse_owners_file(session)?;
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
            gone.iter().any(|slot| slot.check(&*provider).is_ok())
                && left
                    .iter()
                    .all(|slot| slot.check(&*provider).is_err_and(|why| why.is_wrong_key()))
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
    let (dir, id) = (session.protected.path.clone(), session.keyring.id());
    let mut places = places(&dir)?;
    let owner = Owner::of(&dir)?;
    let for_another = owner.uid != Owner::caller().uid;
    let for_id = places.system.join("keyrings").join(format!("{id}.toml"));
    // Its text may hold a passphrase.
    let is_secret = for_another && choice.kind().slot.name() == "command";
    if for_another && places.find(id, &dir)?.is_none() {
        places.own = Some(machine_folder(&places)?);
    } else if is_secret && for_id.exists() {
        // Before the text comes into it.
        open_config(&for_id, owner, choice)?;
    }
    let path = match places.add_provider(id, &dir, choice) {
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
    if for_another && places.own.is_some() {
        open_config(&path, owner, choice)?;
    } else if is_secret && path != for_id && is_open_to_all(&path) {
        // A `NAME.toml` stays so: where one is closed to them, other users find no configuration.
        console::warn(
            format!("every user can read {}, and the command in it", path.display()),
            "keep passphrases out of the command: have it read a file of its user's",
        );
    }
    console::print(format_args!("provider in {}\n", path.display()))
}

fn is_open_to_all(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.mode() & 0o004 != 0)
}

/// Root configures the machine for another user's directory. That goes before what the owner has
/// configured, whose other providers would no longer be asked.
///
/// # Errors
/// [`Error::Refused`] if the owner's home has a file for this keyring or directory.
fn refuse_owners_file(session: &Session) -> Result<()> {
    let (dir, id) = (&session.protected.path, session.keyring.id());
    let owner = Owner::of(dir)?;
    if owner.uid == Owner::caller().uid || places(dir)?.find(id, dir)?.is_some() {
        return Ok(());
    }
    let Some(home) = owner.home() else { return Ok(()) };
    let own = home.join(".config/tidelock");
    let by_id = own.join("keyrings").join(format!("{id}.toml"));
    let by_name = || {
        let files = fs::read_dir(&own).into_iter().flatten().flatten();
        let files = files.filter(|file| file.file_type().is_ok_and(|it| it.is_file()));
        let mut paths = files.map(|file| file.path());
        paths.find(|file| names(file, dir))
    };
    let (file, place, closed) = if by_id.symlink_metadata().is_ok() {
        let closed = " (640 and the owner's group if it has a command)";
        (by_id, format!("/etc/tidelock/keyrings/{id}.toml"), closed)
    } else if let Some(file) = by_name() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let place = format!("/etc/tidelock/{name}");
        (file, place, "")
    } else {
        return Ok(());
    };
    Err(Error::refused(
        format!(
            "the keyring is opened by {}, which what root writes into /etc/tidelock would hide",
            file.display()
        ),
        format!(
            "run the command as {}; or move that file to {place}, chown it to root and chmod \
             644{closed}",
            owner.name()
        ),
    ))
}

/// True of a `NAME.toml` for this directory.
fn names(file: &Path, dir: &Path) -> bool {
    let is_config = file.extension().is_some_and(|ending| ending == "toml");
    let text = is_config.then(|| read_small(file).ok()).flatten().unwrap_or_default();
    let named = toml::from_str::<Config>(&text).ok().and_then(|config| config.directory);
    named.and_then(|named| named.canonicalize().ok()).is_some_and(|named| named == dir)
}
