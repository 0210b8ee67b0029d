//! Which file is a keyring's audit log: one for all who open it, where it survives a restart.
//!
//! ```text
//!   configured: audit = "file:PATH"
//!   /var/log/tidelock/ID.audit.log      if it is there; root makes it, for the directory's owner
//!   $XDG_STATE_HOME/tidelock/           or ~/.local/state/tidelock/
//!   RUNDIR/                             where there is no home that can be written
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tidelock_format::KeyringId;

use crate::error::Error;
use crate::rundir::{RunDir, make_for_all};

/// Root's; each log belongs to the owner of its protected directory.
const SYSTEM: &str = "/var/log/tidelock";

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// The file with the chain.
    pub file: PathBuf,
    /// Each line goes to systemd's journal too.
    pub journal: bool,
    /// Whose file it becomes when root makes it: user and group.
    pub owner: Option<(u32, u32)>,
}

impl Log {
    /// This file.
    #[must_use]
    pub const fn at(file: PathBuf) -> Self {
        Self { file, journal: false, owner: None }
    }

    /// The log of the keyring of `directory`: in this file, if one is configured.
    ///
    /// # Errors
    /// No place at all: those of [`RunDir::choose`].
    pub fn of(
        keyring: KeyringId,
        directory: &Path,
        file: Option<&Path>,
        journal: bool,
    ) -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        let owner = fs::metadata(directory).ok().map(|found| (found.uid(), found.gid()));
        let file = file.map_or_else(|| choose(keyring, root), |file| Ok(file.into()))?;
        Ok(Self { file, journal, owner: owner.filter(|_| root) })
    }

    /// Opens it for reading and appending; made if it is not there.
    pub(super) fn open(&self) -> Result<File, Error> {
        let failed =
            |source| Error::Io { what: "open the audit log", path: self.file.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
        match options.open(&self.file) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            opened => return opened.map_err(failed).and_then(|file| self.checked(file)),
        }
        if let Some(folder) = self.file.parent() {
            let made = match folder == Path::new(SYSTEM) {
                true => make_for_all(folder),
                false => make(folder),
            };
            made.map_err(failed)?;
        }
        let file = match options.create_new(true).open(&self.file) {
            Ok(file) => file,
            // Another was quicker.
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {
                let file = options.create_new(false).open(&self.file).map_err(failed)?;
                return self.checked(file);
            }
            Err(why) => return Err(failed(why)),
        };
        if let Some((uid, gid)) = self.owner {
            fchown(&file, Some(uid), Some(gid)).map_err(failed)?;
        }
        Ok(file)
    }

    /// Lines are added to a log alone, not to what somebody has linked to its name.
    fn checked(&self, file: File) -> Result<File, Error> {
        let me = rustix::process::geteuid().as_raw();
        let owner = self.owner.map_or(me, |(uid, _)| uid);
        tidelock_keyring::check_unshared(&file, &self.file, owner)?;
        Ok(file)
    }
}

fn make(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn choose(keyring: KeyringId, root: bool) -> Result<PathBuf, Error> {
    let name = format!("{keyring}.audit.log");
    let system = Path::new(SYSTEM).join(&name);
    if system.symlink_metadata().is_ok() {
        return Ok(system);
    }
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    if root && state.is_none() {
        return Ok(system);
    }
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let folder = state.map(|state| state.join("tidelock"));
    match folder.filter(|folder| make(folder).is_ok()) {
        Some(folder) => Ok(folder.join(name)),
        None => Ok(RunDir::choose()?.audit(keyring)),
    }
}
