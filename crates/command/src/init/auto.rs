//! `auto_init = true`: a directory of /etc/tidelock/NAME.toml that is absent or empty is made a
//! protected one when it is first used, from the configured providers and without a question.
//!
//! For replicas that are built from nothing. A directory with data and without a keyring has lost
//! it: that is refused, never repaired with another one.

use std::path::{Path, PathBuf};

use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_contract::control::FOLDER;
use tidelock_keyring::{Keyring, KeyringDir, Provider};
use tidelock_providers::{Named, Places, ProviderChoice, RecoveryKey};

use super::nearby;
use super::place::{self, NewDirectory};
use super::undo::Undo;
use super::write_recovery_key;
use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::owner::Owner;
use crate::protected::{Protected, is_protected};

/// The protected directory `dir`; made first if it is absent or empty and configured so.
///
/// # Errors
/// As [`Protected::open`]; [`Error::Refused`] if it has data and no keyring; what a provider says.
pub(crate) fn open_or_make(dir: &Path) -> Result<Protected> {
    if is_protected(dir) {
        return Protected::open(dir);
    }
    let named = Places::of_process().named(dir)?.filter(|named| named.config.auto_init);
    let Some(named) = named else { return Protected::open(dir) };
    let alone = place::lock(dir)?;
    // Another may have been quicker.
    if !is_protected(dir) {
        make(dir, &named)?;
    }
    drop(alone);
    Protected::open(dir)
}

/// Who will own a directory that is configured to be made.
///
/// # Errors
/// [`Error::Refused`] if there is no such user; [`Error::Io`].
pub(crate) fn configured_owner(named: &Named) -> Result<Option<Owner>> {
    let Some(name) = &named.config.owner else { return Ok(None) };
    let owner = name.parse().map_err(|why| {
        Error::refused(
            format!("the owner \"{name}\" in {}: {why}", named.file.display()),
            "name a user of this machine, or leave it out",
        )
    })?;
    Ok(Some(owner))
}

/// In the order of `tidelock init`: the keyring comes last, and what fails before leaves nothing.
fn make(dir: &Path, named: &Named) -> Result<()> {
    let Named { file, config, .. } = named;
    refuse_data(dir)?;
    let place = NewDirectory::check(dir, configured_owner(named)?)?;
    let profile = crate::profile::named(config.profile.as_deref().unwrap_or("postgres"))?;
    nearby::refuse_wrong_level(&place.path, &profile.name)?;
    let layout = profile.layout()?;
    let policy =
        profile.compile(&config.plain, &config.programs).map_err(tidelock_keyring::Error::from)?;
    let opened = providers(&place, file, &config.providers)?;
    let recovery = match &config.recovery_folder {
        Some(_) => Some(RecoveryKey::random()?),
        None => None,
    };
    let mut providers: Vec<&dyn Provider> = opened.iter().map(|it| &**it).collect();
    providers.extend(recovery.as_ref().map(|key| -> &dyn Provider { key }));
    let keyring =
        Keyring::create(policy, layout, &providers).map_err(|why| no_key(&place.path, &why))?;
    let mut undo = Undo::default();
    if let (Some(folder), Some(key)) = (&config.recovery_folder, &recovery) {
        let file = recovery_file(&place, folder, &keyring)?;
        undo.file(write_recovery_key(&file, key)?);
    }
    let directory = place.make(&mut undo)?;
    KeyringDir::create_in(&directory, &place.path)?.write_first(&keyring)?;
    undo.forget();
    tell(&directory, &keyring, file)
}

/// [`NewDirectory::check`] refuses it too; here it is told what it means.
fn refuse_data(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    let found = entries.flatten().map(|entry| entry.file_name()).find(|name| name != FOLDER);
    match found {
        Some(name) => Err(Error::refused(
            format!(
                "{} has data ({}) and no keyring: it does not become a protected directory by \
                 itself",
                dir.display(),
                name.display()
            ),
            format!(
                "`tidelock keyring restore -D {} FILE` brings a lost keyring back; to have the \
                 directory built again, empty it",
                dir.display()
            ),
        )),
        None => Ok(()),
    }
}

/// All that open without a person: a slot each.
fn providers(
    place: &NewDirectory,
    file: &Path,
    choices: &[ProviderChoice],
) -> Result<Vec<Box<dyn Provider>>> {
    let mut opened = Vec::new();
    for choice in choices.iter().filter(|choice| choice.is_unattended()) {
        if let Some(path) = choice.key_file() {
            place.refuse_inside(path)?;
        }
        let provider = choice.open(&place.path, None);
        opened.push(provider.map_err(|why| no_key(&place.path, &why))?);
    }
    if opened.is_empty() {
        return Err(Error::refused(
            format!("{} names no provider that works without a person", file.display()),
            "add a [[provider]] that works without a person; docs/keys.md has an example of each",
        ));
    }
    Ok(opened)
}

/// A key file that is gone is a matter of keys, whatever the system calls it. None is made up here.
fn no_key(dir: &Path, why: &tidelock_keyring::Error) -> Error {
    let hint = match why {
        tidelock_keyring::Error::Io { .. } => "bring the key back, or name another provider",
        other => other.hint(),
    };
    Error::BadKey {
        what: format!("{} cannot be made a protected directory: {why}", dir.display()),
        hint: hint.to_owned(),
    }
}

/// Named by the keyring: the key of another is never written over.
fn recovery_file(place: &NewDirectory, folder: &Path, keyring: &Keyring) -> Result<PathBuf> {
    let file = folder.join(format!("{}.recovery", keyring.id()));
    if !folder.is_absolute() {
        return Err(Error::refused(
            format!("the recovery folder {} is not an absolute path", folder.display()),
            "begin it with /",
        ));
    }
    place.refuse_inside(&file)?;
    Ok(file)
}

fn tell(directory: &Folder, keyring: &Keyring, file: &Path) -> Result<()> {
    let dir = directory.path();
    let details = Details {
        reason: Some(format!("auto_init in {}", file.display())),
        ..Details::of_this_process()
    };
    let sealed = Protected::hold(directory)?.0.keyring;
    trail::write(&sealed, dir, Some(keyring), Event::KeyringCreate, Outcome::Done, &details);
    console::tell(
        "note:",
        "36",
        format_args!("{} is a new protected directory, keyring {}", dir.display(), keyring.id()),
    );
    Ok(())
}
