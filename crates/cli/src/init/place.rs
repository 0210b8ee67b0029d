//! Where a protected directory is made, for whom, and where its key file goes.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tidelock_keys::{FOLDER, KEYRING, Places};

use crate::error::{Error, Result};
use crate::init::undo::Undo;
use crate::owner::Owner;

/// How long one that makes a directory waits for another.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory that may become a protected one.
pub(super) struct Place {
    /// Its canonical path.
    pub(super) path: PathBuf,
    /// Whose it is or will be.
    pub(super) owner: Owner,
    exists: bool,
    chosen: bool,
}

impl Place {
    /// Refuses a directory with something in it.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Io`].
    pub(super) fn check(dir: &Path, owner: Option<Owner>) -> Result<Self> {
        let caller = Owner::caller();
        if owner.is_some_and(|owner| caller.uid != 0 && owner.uid != caller.uid) {
            return Err(Error::refused(
                "only root makes directories for others",
                "leave --owner out",
            ));
        }
        let chosen = owner.is_some();
        match fs::read_dir(dir) {
            Ok(entries) => {
                let path = fs::canonicalize(dir).map_err(Error::io("find", dir))?;
                for entry in entries {
                    let entry = entry.map_err(Error::io("list", dir))?;
                    refuse_entry(&path, &entry.path())?;
                }
                let owner = owner.map_or_else(|| Owner::of(&path), Ok)?;
                Ok(Self { path, owner, exists: true, chosen })
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                let above = match dir.parent() {
                    Some(above) if !above.as_os_str().is_empty() => above,
                    _ => Path::new("."),
                };
                let name = dir.file_name().ok_or_else(|| nameless(dir))?;
                let above = fs::canonicalize(above).map_err(Error::io("find", above))?;
                let owner = match owner {
                    Some(owner) => owner,
                    None if caller.uid == 0 => Owner::of(&above)?,
                    None => caller,
                };
                Ok(Self { path: above.join(name), owner, exists: false, chosen })
            }
            Err(why) if why.kind() == io::ErrorKind::NotADirectory => Err(Error::refused(
                format!("{} is not a directory", dir.display()),
                "name a directory that is empty or does not exist",
            )),
            Err(why) => Err(Error::io("list", dir)(why)),
        }
    }

    /// True if root makes it for somebody else.
    pub(super) fn for_another(&self) -> bool {
        self.owner.uid != Owner::caller().uid
    }

    /// Makes the directory, mode 0700, or gives the empty one to its owner.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn make(&self, undo: &mut Undo) -> Result<()> {
        if !self.exists {
            DirBuilder::new()
                .mode(0o700)
                .create(&self.path)
                .map_err(Error::io("make", &self.path))?;
            undo.folder(&self.path);
            super::sync_folder(&self.path).map_err(Error::io("sync", &self.path))?;
        }
        if !self.exists || self.chosen {
            self.owner.take(&self.path)?;
        }
        undo.control_folder(&self.path.join(FOLDER));
        Ok(())
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
            return Err(tidelock_keys::Error::InsideDirectory { path: file, dir }.into());
        }
        Ok(())
    }

    /// `keys/NAME.key` in the caller's configuration, or in root's if the directory is somebody else's;
    /// never one that exists.
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
            let own = places.own.ok_or(tidelock_keys::Error::NoConfigHome)?;
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

/// Held until it is dropped: of several that would make `dir` one does, and takes nothing back that another
/// has made. The directory above is locked, and `dir` itself for those who may not read that.
///
/// # Errors
/// [`Error::Refused`] if another takes too long; [`Error::Io`].
pub(super) fn lock(dir: &Path) -> Result<Vec<File>> {
    let above = match dir.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let mut held = Vec::new();
    match File::open(above) {
        Ok(file) => held.push(lock_one(file, above)?),
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied && dir.is_dir() => {}
        Err(why) => return Err(Error::io("find", above)(why)),
    }
    if dir.is_dir() {
        let file = File::open(dir).map_err(Error::io("list", dir))?;
        held.push(lock_one(file, dir)?);
    }
    Ok(held)
}

fn lock_one(file: File, path: &Path) -> Result<File> {
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                return Err(Error::refused(
                    format!("another command makes a directory at {}", path.display()),
                    "wait until it has ended, then run this again",
                ));
            }
            Err(errno) => return Err(Error::io("lock", path)(errno.into())),
        }
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

/// An entry of a directory that should be empty. What an interrupted init left is no reason to refuse.
fn refuse_entry(dir: &Path, entry: &Path) -> Result<()> {
    if entry.file_name() == Some(FOLDER.as_ref()) {
        return match entry.join(KEYRING).symlink_metadata() {
            Ok(_) => Err(tidelock_keys::Error::KeyringExists { path: entry.join(KEYRING) }.into()),
            Err(_) => Ok(()),
        };
    }
    Err(Error::refused(
        format!(
            "{} is not empty: it has {}",
            dir.display(),
            entry.file_name().unwrap_or_default().display()
        ),
        "init makes new directories only, converting comes with another command later: for now restore a \
         dump or base backup into a new one",
    ))
}

fn nameless(dir: &Path) -> Error {
    Error::usage(format!("{} names no directory to make", dir.display()), "name it by its own name")
}
