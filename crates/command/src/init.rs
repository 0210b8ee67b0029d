//! `tidelock init`: makes an absent or empty directory a protected one.
//!
//! The keyring is written last: whatever fails before leaves nothing behind. `tidelock encrypt`
//! makes one of a directory that has data, by the same way.

mod auto;
mod making;
mod nearby;
mod place;
mod undo;

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use tidelock_keyring::Keyring;
use tidelock_providers::{Config, FileProvider, Places, ProviderChoice, RecoveryKey};

pub(crate) use auto::{configured_owner, open_or_make};
pub(crate) use making::Making;
pub(crate) use place::{NewDirectory, lock};

use crate::error::{Error, Result};
use crate::folder::{self, Entry};
use crate::owner::Owner;

/// Make an absent or empty directory a protected one, with a fresh keyring
#[derive(clap::Args)]
pub(crate) struct Init {
    /// The directory
    dir: PathBuf,
    /// What is sealed and how: the name of a built-in profile (`tidelock profile
    /// show`), or the path of one
    #[arg(long, value_name = "PROFILE", default_value = "postgres")]
    profile: String,
    #[command(flatten)]
    making: Making,
    /// Whose directory it is, when root makes it [default: the owner of DIR, or of its parent]
    #[arg(long, value_name = "USER")]
    owner: Option<Owner>,
}

impl Init {
    /// # Errors
    /// DIR has something in it, the file is no profile, a provider refuses.
    pub(crate) fn run(self) -> Result<()> {
        let _alone = place::lock(&self.dir)?;
        let place = NewDirectory::check(&self.dir, self.owner)?;
        let made = self.making.make(&place, &self.profile, None)?;
        let dir = place.path.display();
        let program = match made.keyring.policy().profile() {
            "postgres" => format!("initdb -D {dir}"),
            "mariadb" => format!("mariadb-install-db --datadir={dir}"),
            "mysql" => format!("mysqld --initialize --datadir={dir}"),
            _ => "PROGRAM".to_owned(),
        };
        made.tell(&format!("tidelock exec -D {dir} -- {program}"))
    }
}

/// A recovery key opens the keyring for ever: it is not left in the log of a pipeline or of a unit
/// by accident.
///
/// # Errors
/// [`Error::Refused`] unless standard output is a terminal, or `asked` says that it may be
/// anything.
pub(crate) fn refuse_to_print_into_logs(asked: bool, hint: &str) -> Result<()> {
    if asked || std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Error::refused(
        "the recovery key is printed on a terminal only, and standard output is not one",
        hint,
    ))
}

/// Root, who makes it for another user, configures the machine; everybody else their own account.
fn write_config(
    place: &NewDirectory,
    keyring: &Keyring,
    choice: &ProviderChoice,
) -> Result<PathBuf> {
    let config = Config {
        directory: Some(place.path.clone()),
        providers: vec![choice.clone()],
        ..Config::default()
    };
    let mut places = Places::of_process();
    if place.for_another() {
        places.own = Some(machine_folder(&places)?);
    }
    let path = places.write(keyring.id(), &config)?;
    if place.for_another() {
        open_config(&path, place.owner, choice)?;
    }
    Ok(path)
}

/// Where root configures a keyring for another user: the machine's folder, made if it is not there.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn machine_folder(places: &Places) -> Result<PathBuf> {
    place::make_machine_folder(&places.system.join("keyrings"))?;
    Ok(places.system.clone())
}

/// Lets `owner` read root's file, which names `choice`, and all others unless a secret may stand in
/// it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn open_config(path: &Path, owner: Owner, choice: &ProviderChoice) -> Result<()> {
    if choice.kind().slot.name() != "command" {
        return place::open_to_all(path, 0o644);
    }
    let group = owner.account().map_or(owner.gid, |account| account.gid.as_raw());
    std::os::unix::fs::chown(path, None, Some(group)).map_err(Error::io("chown", path))?;
    place::open_to_all(path, 0o640)
}

/// Makes a key file, mode 0600, for `owner` if that is another user; whole, or not at all.
///
/// # Errors
/// [`Error::Io`], also if it exists; no randomness.
pub(crate) fn make_key_file(path: &Path, owner: Option<Owner>) -> Result<Entry> {
    let entry = Entry::of(path).map_err(named("create the key file", path))?;
    let made = entry.create_whole(|file| {
        FileProvider::fill(file, path)?;
        match owner {
            Some(owner) => folder::give(file, owner).map_err(Error::io("chown", path)),
            None => Ok(()),
        }
    });
    made.map_err(of_new_file("create the key file", path))?;
    Ok(entry)
}

/// Writes a recovery key to a new file, mode 0600; whole, or not at all.
///
/// # Errors
/// [`Error::Io`], also if it exists.
pub(crate) fn write_recovery_key(path: &Path, key: &RecoveryKey) -> Result<Entry> {
    let entry = Entry::of(path).map_err(named("create the recovery key's file", path))?;
    let made = entry.create_whole(|file| {
        file.write_all(key.to_text().as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .map_err(Error::io("write the recovery key to", path))
    });
    made.map_err(of_new_file("create the recovery key's file", path))?;
    Ok(entry)
}

/// As [`named`], where the name of the file could not be made.
fn of_new_file(what: &'static str, path: &Path) -> impl FnOnce(Error) -> Error {
    let path = path.to_path_buf();
    move |why| match why {
        why @ Error::Io { what: "create", .. } => named(what, &path)(why),
        other => other,
    }
}

/// The system's reason, told of the path as it was typed.
fn named(what: &'static str, path: &Path) -> impl FnOnce(Error) -> Error {
    let path = path.to_path_buf();
    move |why| match why {
        Error::Io { source, .. } => Error::Io { what, path, source },
        other => other,
    }
}
