//! A protected directory: found by its own path, or by a file in it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tidelock_contract::control::FOLDER;
use tidelock_keyring::{KEYRING, KeyringDir, SealedKeyring};
use tidelock_providers::known;

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::owner::Owner;

/// A protected directory whose keyring has been read, not unlocked.
pub(crate) struct Protected {
    /// Its canonical path.
    pub(crate) path: PathBuf,
    /// Its keyring.
    pub(crate) keyring: SealedKeyring,
    /// Whose the directory is that was opened: a moment later its path may lead to another.
    pub(crate) owner: Owner,
}

impl Protected {
    /// The protected directory `dir`.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not protected; [`Error::Locked`] for a keyring that cannot be
    /// read.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let path = canonical(dir)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(directory) => File::from(directory),
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(not_protected(&path)),
            Err(errno) => {
                let failed = tidelock_keyring::Error::io("open", path.join(FOLDER));
                return Err(failed(errno.into()).into());
            }
        };
        let found = directory.metadata().map_err(Error::io("look at", &path))?;
        let owner = Owner { uid: found.uid(), gid: found.gid() };
        Self::of(&directory, owner, path).map(|(protected, _)| protected)
    }

    /// The protected directory that is open here, and the folder of its keyring, for a command that
    /// writes.
    ///
    /// # Errors
    /// As [`Protected::open`].
    pub(crate) fn hold(directory: &Folder) -> Result<(Self, KeyringDir)> {
        Self::of(directory, directory.owner()?, directory.path().to_path_buf())
    }

    fn of(directory: impl AsFd, owner: Owner, path: PathBuf) -> Result<(Self, KeyringDir)> {
        let found = KeyringDir::open_in(directory, &path);
        match found.and_then(|folder| Ok((known(folder.read()?)?, folder))) {
            Ok((keyring, folder)) => Ok((Self { path, keyring, owner }, folder)),
            Err(why) => Err(unreadable(path, why)),
        }
    }

    /// The protected directory that holds `file`: the nearest directory above it with a keyring.
    ///
    /// # Errors
    /// As [`Protected::open`]; [`Error::Refused`] if there is none above it.
    pub(crate) fn around(file: &Path) -> Result<Self> {
        // By the path as it was typed too: a tablespace lies elsewhere and is named by its link.
        let typed = std::path::absolute(file).map_err(Error::io("find", file))?;
        let real = std::fs::canonicalize(file).map_err(Error::io("find", file))?;
        let mut above = real.ancestors().skip(1).chain(typed.ancestors().skip(1));
        match above.find(|dir| is_protected(dir)) {
            Some(dir) => Self::open(dir),
            None => Err(Error::refused(
                format!("{} lies in no protected directory", file.display()),
                "name the directory with -D DIR, or a copy of its keyring with --keyring FILE",
            )),
        }
    }
}

/// Has this directory a keyring?
pub(crate) fn is_protected(dir: &Path) -> bool {
    dir.join(FOLDER).join(KEYRING).symlink_metadata().is_ok()
}

fn unreadable(path: PathBuf, why: tidelock_keyring::Error) -> Error {
    match why {
        tidelock_keyring::Error::NoKeyring { .. } => not_protected(&path),
        why @ tidelock_keyring::Error::Io { .. } => why.into(),
        source => Error::Locked { dir: path, source },
    }
}

/// The canonical path of a directory that must exist.
///
/// # Errors
/// [`Error::Refused`], [`Error::Io`].
pub(crate) fn canonical(dir: &Path) -> Result<PathBuf> {
    match std::fs::canonicalize(dir) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(no_directory(dir)),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Err(not_protected(dir)),
        Err(why) => Err(Error::io("find", dir)(why)),
    }
}

/// Opens a directory that must exist, for a command that writes below it.
///
/// # Errors
/// As [`canonical`]; [`Error::Refused`] for links of others on the way.
pub(crate) fn folder(dir: &Path) -> Result<Folder> {
    Folder::open(dir).map_err(|why| match why {
        why if why.is_not_found() => not_protected(dir),
        why if why.is(std::io::ErrorKind::NotADirectory) => no_directory(dir),
        other => other,
    })
}

fn no_directory(dir: &Path) -> Error {
    Error::refused(
        format!("{} is not a directory", dir.display()),
        "name the directory that `tidelock init` made",
    )
}

fn not_protected(dir: &Path) -> Error {
    let why = if dir.exists() { "has no keyring" } else { "does not exist" };
    let is_another = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name() != FOLDER)
    };
    // `init` takes an absent or empty directory; what is in one that is not may need its keyring.
    let filled = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.any(is_another));
    let hint = match filled {
        true => format!(
            "if it was one, `tidelock keyring restore -D {} FILE` brings its keyring back; \
             `tidelock encrypt` seals a directory of plain files",
            dir.display()
        ),
        false => format!(
            "`tidelock init {0}` makes it one; `tidelock keyring restore -D {0} FILE` brings a \
             lost keyring back",
            dir.display()
        ),
    };
    Error::refused(format!("{} is not a protected directory: it {why}", dir.display()), hint)
}
