//! Which file is a keyring's audit log: one for all who open it, where it survives a restart.
//!
//! ```text
//!   configured: audit = "file:PATH"   PATH.ID if that is there, or PATH is another keyring's
//!   /var/log/tidelock/ID.audit.log      if it is there; root makes it, for the directory's owner
//!   $XDG_STATE_HOME/tidelock/           or ~/.local/state/tidelock/
//!   RUNDIR/                             where there is no home that can be written
//! ```
//!
//! Root goes by no link that somebody else can change: the folders of a log may belong to the
//! server's user, and what root makes there is given away.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fchmod, mkdirat, openat};
use rustix::io::Errno;
use tidelock_format::KeyringId;
use tidelock_keyring::{Blocked, walk};

use crate::error::Error;
use crate::rundir::{RunDir, make_for_all};

/// Root's; each log belongs to the owner of its protected directory.
const SYSTEM: &str = "/var/log/tidelock";

/// The first whole line of a log is among these bytes.
const FIRST_LINES: u64 = 64 * 1024;

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

    /// The log of the keyring of `directory`: in this file, if one is configured. Where a directory
    /// was made again, that file is the log of the keyring before.
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
        let file = file.map_or_else(|| choose(keyring, root), |file| Ok(own(file, keyring)))?;
        Ok(Self { file, journal, owner: owner.filter(|_| root) })
    }

    /// Opens it for reading and appending; made if it is not there.
    pub(super) fn open(&self) -> Result<File, Error> {
        if rustix::process::geteuid().is_root() { self.open_as_root() } else { self.open_own() }
    }

    fn open_own(&self) -> Result<File, Error> {
        let failed = |source| self.failed(source);
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
        match options.open(&self.file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            opened => return opened.map_err(failed).and_then(|file| self.checked(file)),
        }
        if let Some(folder) = self.file.parent() {
            let made = match folder == Path::new(SYSTEM) {
                true => make_for_all(folder),
                false => make_own(folder),
            };
            made.map_err(failed)?;
        }
        match options.create_new(true).open(&self.file) {
            Ok(file) => Ok(file),
            // Another was quicker.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                let file = options.create_new(false).open(&self.file).map_err(failed)?;
                self.checked(file)
            }
            Err(why) => Err(failed(why)),
        }
    }

    /// By the descriptor of its folder, to which no link of somebody else's has led.
    fn open_as_root(&self) -> Result<File, Error> {
        let failed = |errno: Errno| self.failed(errno.into());
        let (above, name) = split(&self.file)?;
        let folder = open_or_make(above)?;
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags | OFlags::CLOEXEC;
        let existing = || openat(&folder, name, flags, Mode::empty()).map(File::from);
        match existing() {
            Err(Errno::NOENT) => {}
            opened => return opened.map_err(failed).and_then(|file| self.checked(file)),
        }
        let new = flags | OFlags::CREATE | OFlags::EXCL;
        let file = match openat(&folder, name, new, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            // Another was quicker.
            Err(Errno::EXIST) => {
                return existing().map_err(failed).and_then(|file| self.checked(file));
            }
            Err(errno) => return Err(failed(errno)),
        };
        if let Some((uid, gid)) = self.owner {
            fchown(&file, Some(uid), Some(gid)).map_err(|source| self.failed(source))?;
        }
        Ok(file)
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Io { what: "open the audit log", path: self.file.clone(), source }
    }

    /// Lines are added to a log alone, not to what somebody has linked to its name.
    fn checked(&self, file: File) -> Result<File, Error> {
        let me = rustix::process::geteuid().as_raw();
        let owner = self.owner.map_or(me, |(uid, _)| uid);
        tidelock_keyring::check_unshared(&file, &self.file, owner)?;
        Ok(file)
    }
}

/// The file that is configured; beside it, if it has the chain of another keyring, which could not
/// go on here. What is beside it goes on, also where the other chain was archived since.
fn own(file: &Path, keyring: KeyringId) -> PathBuf {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{keyring}"));
    let beside = PathBuf::from(beside);
    let is_anothers = || keyring_of(file).is_some_and(|other| other != keyring.to_string());
    if beside.symlink_metadata().is_ok() || is_anothers() { beside } else { file.into() }
}

/// What the first line says that says anything.
fn keyring_of(file: &Path) -> Option<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(file).ok()?;
    let mut text = Vec::new();
    file.take(FIRST_LINES).read_to_end(&mut text).ok()?;
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let line: serde_json::Value = serde_json::from_slice(line).ok()?;
        line.get("keyring")?.as_str().map(str::to_owned)
    })
}

fn make(folder: &Path) -> Result<(), Error> {
    match rustix::process::geteuid().is_root() {
        true => open_or_make(folder).map(drop),
        false => make_own(folder).map_err(Error::io("make", folder)),
    }
}

fn make_own(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// A folder, for root; those that are not there are made.
fn open_or_make(folder: &Path) -> Result<File, Error> {
    match walk(folder) {
        Ok((file, _)) => return Ok(file),
        Err(Blocked::Link(path)) => {
            let why = "it is a link on the way to the audit log, and somebody else can change it";
            return Err(tidelock_keyring::Error::ForeignFile { path, why }.into());
        }
        Err(Blocked::System(why)) if why.kind() == io::ErrorKind::NotFound => {}
        Err(Blocked::System(why)) => return Err(Error::io("open", folder)(why)),
    }
    let (above, name) = split(folder)?;
    let above = open_or_make(above)?;
    let is_for_all = folder == Path::new(SYSTEM);
    let mode = Mode::from_raw_mode(if is_for_all { 0o755 } else { 0o700 });
    let is_new = match mkdirat(&above, name, mode) {
        Ok(()) => true,
        // Another was quicker.
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(Error::sys("make", folder)(errno)),
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(&above, name, flags, Mode::empty()).map_err(Error::sys("open", folder))?;
    if is_new && is_for_all {
        // Whatever the umask says.
        fchmod(&made, mode).map_err(Error::sys("chmod", folder))?;
    }
    Ok(made.into())
}

/// The folder of a path, and its last name.
fn split(path: &Path) -> Result<(&Path, &OsStr), Error> {
    let nameless = || Error::io("make", path)(io::ErrorKind::NotFound.into());
    let name = path.file_name().ok_or_else(nameless)?;
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => Ok((above, name)),
        _ => Ok((Path::new("."), name)),
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    const THEIRS: u32 = 54321;

    /// Root's log in a folder of another user.
    fn log(file: PathBuf) -> Log {
        Log { file, journal: false, owner: Some((THEIRS, THEIRS)) }
    }

    #[test]
    fn root_follows_no_link_of_another_user_to_an_audit_log() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for folder in ["theirs", "elsewhere", "elsewhere/old"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("elsewhere/old/main.log"), "roots\n").unwrap();
        symlink("../elsewhere", at("theirs/logs")).unwrap();
        lchown(at("theirs/logs"), Some(THEIRS), Some(THEIRS)).unwrap();
        chown(at("theirs"), Some(THEIRS), Some(THEIRS)).unwrap();
        for name in ["main.log", "new/main.log", "old/main.log"] {
            let refused = log(at("theirs/logs").join(name)).open().unwrap_err();
            let Error::Keys(tidelock_keyring::Error::ForeignFile { path, .. }) = refused else {
                panic!("{refused}");
            };
            assert!(path.ends_with("theirs/logs"), "{}", path.display());
        }
        assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 1);
        assert_eq!(fs::read(at("elsewhere/old/main.log")).unwrap(), b"roots\n");
    }

    #[test]
    fn root_makes_a_log_for_another_user_by_a_link_of_roots_own() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("theirs")).unwrap();
        chown(at("theirs"), Some(THEIRS), Some(THEIRS)).unwrap();
        symlink("theirs", at("link")).unwrap();
        for name in ["theirs/main.log", "link/new/folder/main.log"] {
            let log = log(at(name));
            for _ in 0..2 {
                let found = log.open().unwrap().metadata().unwrap();
                assert_eq!((found.uid(), found.gid()), (THEIRS, THEIRS), "{name}");
            }
        }
    }
}
