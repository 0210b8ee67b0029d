//! Where a protected directory is made, for whom, and where its key file goes.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tidelock_contract::control::FOLDER;
use tidelock_keyring::KEYRING;
use tidelock_providers::Places;

use crate::error::{Error, Result};
use crate::folder::{Entry, Folder, lock_within};
use crate::init::nearby;
use crate::init::undo::Undo;
use crate::owner::Owner;

/// How long one that makes a directory waits for another.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that may become a protected one.
pub(crate) struct NewDirectory {
    /// Its path, without links.
    pub(crate) path: PathBuf,
    /// Whose it is or will be.
    pub(crate) owner: Owner,
    found: Found,
    chosen: bool,
}

/// What was there, held open: what is made is made in just this.
enum Found {
    Folder(Folder),
    Nothing(Entry),
}

impl NewDirectory {
    /// Refuses a directory with something in it.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Io`].
    pub(crate) fn check(dir: &Path, owner: Option<Owner>) -> Result<Self> {
        let caller = Owner::caller();
        if owner.is_some_and(|owner| caller.uid != 0 && owner.uid != caller.uid) {
            return Err(Error::refused(
                "only root makes directories for others",
                "leave --owner out",
            ));
        }
        let chosen = owner.is_some();
        match Folder::open(dir) {
            Ok(folder) => {
                for name in folder.names()? {
                    refuse_entry(dir, &folder, &name)?;
                }
                let theirs = folder.owner()?;
                let owner = owner.unwrap_or(theirs);
                if ![caller.uid, owner.uid].contains(&theirs.uid) {
                    return Err(Error::refused(
                        format!("{} belongs to another user, {}", dir.display(), theirs.uid),
                        "check whose it is; chown it first to give it away",
                    ));
                }
                let path = folder.path().to_path_buf();
                Ok(Self { path, owner, found: Found::Folder(folder), chosen })
            }
            Err(why) if why.is_not_found() => {
                if dir.file_name().is_none() {
                    return Err(nameless(dir));
                }
                let entry = Entry::of(dir)?;
                let owner = match owner {
                    Some(owner) => owner,
                    None if caller.uid == 0 => entry.folder().owner()?,
                    None => caller,
                };
                Ok(Self { path: entry.path(), owner, found: Found::Nothing(entry), chosen })
            }
            Err(why) if why.is(io::ErrorKind::NotADirectory) => Err(Error::refused(
                format!("{} is not a directory", dir.display()),
                "name a directory that is empty or does not exist",
            )),
            Err(why) => Err(why),
        }
    }

    /// A directory with data in it, which is no protected one yet.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Io`]; [`Error::Keys`] if it has a keyring.
    pub(crate) fn with_data(dir: &Path) -> Result<Self> {
        let folder = Folder::open(dir).map_err(|why| match why {
            why if why.is_not_found() => Error::refused(
                format!("{} does not exist", dir.display()),
                "name the data directory of a stopped server",
            ),
            why if why.is(io::ErrorKind::NotADirectory) => Error::refused(
                format!("{} is not a directory", dir.display()),
                "name the data directory of a stopped server",
            ),
            why => why,
        })?;
        if folder.entry(FOLDER).exists()? {
            refuse_entry(dir, &folder, OsStr::new(FOLDER))?;
        }
        let (owner, caller) = (folder.owner()?, Owner::caller());
        if ![0, owner.uid].contains(&caller.uid) {
            return Err(Error::refused(
                format!("{} belongs to another user, {}", dir.display(), owner.uid),
                "run it as that user, or as root",
            ));
        }
        let path = folder.path().to_path_buf();
        Ok(Self { path, owner, found: Found::Folder(folder), chosen: false })
    }

    /// True if root makes it for somebody else.
    pub(crate) fn for_another(&self) -> bool {
        self.owner.uid != Owner::caller().uid
    }

    /// Makes the directory, mode 0700, or gives the empty one to its owner.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn make(&self, undo: &mut Undo) -> Result<Folder> {
        let (folder, new) = match &self.found {
            Found::Folder(folder) => (folder.clone(), false),
            Found::Nothing(entry) => {
                let made = entry.make_folder(0o700)?;
                undo.folder(entry.clone());
                (made, true)
            }
        };
        if new || self.chosen {
            folder.give_to(self.owner)?;
        }
        undo.control_folder(folder.clone());
        Ok(folder)
    }

    /// A key beside the data that it opens protects nothing.
    ///
    /// # Errors
    /// [`Error::Keys`].
    pub(super) fn refuse_inside(&self, file: &Path) -> Result<()> {
        let file = std::path::absolute(file).map_err(Error::io("find", file))?;
        let folder = file.parent().unwrap_or(&file);
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        if folder.starts_with(&self.path) {
            let dir = self.path.clone();
            return Err(tidelock_keyring::Error::InsideDirectory { path: file, dir }.into());
        }
        Ok(())
    }

    /// `keys/NAME.key` in the caller's configuration, or in root's if the directory is somebody
    /// else's; never one that exists.
    ///
    /// # Errors
    /// [`Error::Keys`] if there is no configuration directory; [`Error::Io`].
    pub(super) fn default_key_file(&self) -> Result<PathBuf> {
        let places = Places::of_process();
        let folder = if self.for_another() {
            let folder = places.system.join("keys");
            make_machine_folder(&folder)?;
            folder
        } else {
            let own = places.own.ok_or(tidelock_keyring::Error::NoConfigHome)?;
            let folder = own.join("keys");
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(Error::io("make", &folder))?;
            folder
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbered = |number: u32| match number {
            1 => folder.join(format!("{name}.key")),
            _ => folder.join(format!("{name}-{number}.key")),
        };
        let free = (1..=u32::MAX).map(numbered).find(|path| path.symlink_metadata().is_err());
        free.ok_or_else(|| Error::refused("there are too many key files", "name one: file:PATH"))
    }
}

/// Held until it is dropped: of several that would make `dir` one does, and takes nothing back that
/// another has made. The directory above is locked, and `dir` itself for those who may not read
/// that.
///
/// # Errors
/// [`Error::Refused`] if another takes too long; [`Error::Io`].
pub(crate) fn lock(dir: &Path) -> Result<Vec<File>> {
    let above = match dir.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let mut held = Vec::new();
    match open_folder(above) {
        Ok(file) => held.push(lock_one(file, above)?),
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied && dir.is_dir() => {}
        Err(why) => return Err(Error::io("find", above)(why)),
    }
    if dir.is_dir() {
        let file = open_folder(dir).map_err(Error::io("list", dir))?;
        held.push(lock_one(file, dir)?);
    }
    Ok(held)
}

/// Nothing but a folder: a pipe would be waited for.
fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn lock_one(file: File, path: &Path) -> Result<File> {
    match lock_within(&file, PATIENCE) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Error::refused(
            format!("another command is making a directory at {}", path.display()),
            "wait until it has ended, then run this again",
        )),
        Err(errno) => Err(Error::io("lock", path)(errno.into())),
    }
}

/// A folder below /etc/tidelock: root writes, everybody may pass.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn make_machine_folder(folder: &Path) -> Result<()> {
    for folder in [folder.parent().unwrap_or(folder), folder] {
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).create(folder).map_err(Error::io("make", folder))?;
            open_to_all(folder, 0o755)?;
        }
    }
    Ok(())
}

/// Sets a mode whatever the umask says.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn open_to_all(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::io("chmod", path))
}

/// An entry of a directory that should be empty. What an interrupted init left is no reason to
/// refuse.
fn refuse_entry(dir: &Path, folder: &Folder, name: &OsStr) -> Result<()> {
    if name == FOLDER {
        return match folder.entry(FOLDER).open_folder()?.entry(KEYRING).exists()? {
            true => Err(Error::refused(
                format!("{} is protected already: it has a keyring", dir.display()),
                format!(
                    "nothing is left to do: `tidelock exec -D {} -- PROGRAM`; a keyring is \
                         never overwritten",
                    dir.display()
                ),
            )),
            false => Ok(()),
        };
    }
    if let Some(data) = nearby::data_directory_below(folder.path()) {
        return Err(Error::refused(
            format!(
                "{} is not a data directory, but holds some: {}",
                folder.path().display(),
                data.display()
            ),
            "protect each data directory by itself: names are judged from its top, and here \
             PG_VERSION and the \
             configuration would be sealed too",
        ));
    }
    Err(Error::refused(
        format!("{} is not empty: it has {}", folder.path().display(), name.display()),
        "init makes new directories only: restore a dump or a base backup into a new one",
    ))
}

fn nameless(dir: &Path) -> Error {
    Error::usage(format!("{} names no directory to make", dir.display()), "name it by its own name")
}
