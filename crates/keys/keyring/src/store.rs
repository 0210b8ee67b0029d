//! `DIR/.tidelock`: the keyring's place in a protected directory.
//!
//! The keyring is replaced whole: written beside, synced, renamed, the directory synced. One
//! command at a time changes it. The directory belongs to the owner of DIR, also when root makes
//! it.

mod replaced;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, fchown, flock, fstat, fsync, mkdirat, open,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use tidelock_contract::control::{ANNOUNCED_AT, FOLDER, LOCK};
use tidelock_format::{Generation, KeyringId};

use crate::error::Error;
use crate::keyring::{Keyring, MAX_FILE, SealedKeyring};
use crate::ownership::check_unshared;

pub use replaced::PREFIX as REPLACED;

/// The name of the keyring in it.
pub const KEYRING: &str = "keyring";
/// Locked by whoever changes the keyring.
const KEYRING_LOCK: &str = "keyring.lock";
/// The next keyring, while it is written.
const NEXT: &str = "keyring.new";
/// What may lie in the folder of a keyring that has not been written yet.
pub const WITHOUT_KEYRING: [&str; 2] = [KEYRING_LOCK, NEXT];
/// How often a lock file is looked for that others make and remove.
const ATTEMPTS: u32 = 100;
/// How long a command waits for another.
const PATIENCE: Duration = Duration::from_secs(5);

/// The folder with the keyring of one protected directory.
#[derive(Debug)]
pub struct KeyringDir {
    folder: File,
    path: PathBuf,
}

/// SHA-256 of a keyring's bytes, as [`KeyringDir::digest`] has it.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    let found = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.copy_from_slice(found.as_ref());
    digest
}

/// What has been done when a replacement is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Created,
    Written,
    Synced,
    Renamed,
}

/// Nobody else changes the keyring meanwhile; see [`KeyringDir::hold`].
#[must_use]
pub struct Held {
    _lock: File,
}

impl KeyringDir {
    /// Makes `dir/.tidelock`, without a keyring, in a directory that exists.
    ///
    /// # Errors
    /// [`Error::KeyringExists`] if there is one; [`Error::Io`].
    pub fn create(dir: &Path) -> Result<Self, Error> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = open(dir, flags, Mode::empty())
            .map_err(|errno| Error::io("open the directory of", dir.join(FOLDER))(errno.into()))?;
        Self::create_in(above, dir)
    }

    /// As [`KeyringDir::create`], in an open directory; `dir` is for messages.
    ///
    /// # Errors
    /// As [`KeyringDir::create`]; [`Error::ForeignFile`] for what somebody else has put there.
    pub fn create_in(above: impl AsFd, dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FOLDER);
        let failed = |what| {
            let path = path.clone();
            move |errno: Errno| Error::Io { what, path, source: errno.into() }
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        match mkdirat(&above, FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make")(errno)),
        }
        let folder = openat(&above, FOLDER, flags | OFlags::NOFOLLOW, Mode::empty())
            .map_err(failed("open"))?;
        let made = Self { folder: folder.into(), path: path.clone() };
        if made.exists()? {
            return Err(Error::KeyringExists { path: path.join(KEYRING) });
        }
        let owner = fstat(&above).map_err(failed("look at the directory of"))?;
        let found = fstat(&made.folder).map_err(failed("look at"))?;
        let me = rustix::process::geteuid();
        if ![me.as_raw(), owner.st_uid].contains(&found.st_uid) {
            return Err(Error::ForeignFile { path, why: "it belongs to somebody else" });
        }
        let owner = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        made.give_to(&made.folder, owner).map_err(Error::io("chown", &path))?;
        for name in [KEYRING_LOCK, LOCK] {
            if me.is_root() && !owner.0.is_root() {
                made.remove_roots(name)?;
            }
            made.open_lock(name)?;
        }
        made.folder.sync_all().map_err(Error::io("sync", &path))?;
        fsync(&above).map_err(failed("sync the directory of"))?;
        Ok(made)
    }

    /// Opens `dir/.tidelock`.
    ///
    /// # Errors
    /// [`Error::NoKeyring`] if it does not exist; [`Error::Io`].
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        match open(dir, flags, Mode::empty()) {
            Ok(above) => Self::open_in(above, dir),
            Err(Errno::NOENT | Errno::NOTDIR) => {
                Err(Error::NoKeyring { path: dir.join(FOLDER).join(KEYRING) })
            }
            Err(errno) => Err(Error::io("open", dir.join(FOLDER))(errno.into())),
        }
    }

    /// As [`KeyringDir::open`], in an open directory; `dir` is for messages.
    ///
    /// # Errors
    /// As [`KeyringDir::open`].
    pub fn open_in(above: impl AsFd, dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FOLDER);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(above, FOLDER, flags, Mode::empty()) {
            Ok(folder) => Ok(Self { folder: folder.into(), path }),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(Error::NoKeyring { path: path.join(KEYRING) }),
            Err(errno) => Err(Error::Io { what: "open", path, source: errno.into() }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the keyring: a backup of it.
    ///
    /// # Errors
    /// [`Error::NoKeyring`], [`Error::Io`].
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        let path = self.path.join(KEYRING);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file: File = match openat(&self.folder, KEYRING, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Err(Error::NoKeyring { path }),
            Err(errno) => return Err(Error::Io { what: "open", path, source: errno.into() }),
        };
        let metadata = file.metadata().map_err(Error::io("look at", &path))?;
        if !metadata.is_file() {
            return Err(Error::LooseFile { path, why: "it is not a regular file" });
        }
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_FILE + 1).unwrap_or(u64::MAX);
        file.take(limit).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
        Ok(bytes)
    }

    /// SHA-256 of the keyring's bytes: who has unlocked a keyring knows by it whether that one is
    /// still here.
    ///
    /// # Errors
    /// As [`KeyringDir::bytes`].
    pub fn digest(&self) -> Result<[u8; 32], Error> {
        Ok(digest(&self.bytes()?))
    }

    /// Reads the keyring.
    ///
    /// # Errors
    /// As [`KeyringDir::bytes`] and [`SealedKeyring::parse`].
    pub fn read(&self) -> Result<SealedKeyring, Error> {
        SealedKeyring::parse(&self.bytes()?)
    }

    /// Writes the first keyring.
    ///
    /// # Errors
    /// [`Error::KeyringExists`], [`Error::Busy`], [`Error::Io`]; none is made then.
    pub fn write_first(&self, keyring: &Keyring) -> Result<(), Error> {
        let _lock = self.lock()?;
        if self.exists()? {
            return Err(Error::KeyringExists { path: self.path.join(KEYRING) });
        }
        let sealed = keyring.seal()?;
        // What an earlier keyring has announced here is not this one's. First, because behind the
        // rename nothing may fail: the caller would take back the keys of a keyring that stays.
        self.announce(keyring.generation())?;
        self.replace(&sealed).inspect_err(|_| self.take_back())
    }

    /// Removes the first keyring, whose folder could not be synced.
    fn take_back(&self) {
        let _ = unlinkat(&self.folder, KEYRING, AtFlags::empty());
        let _ = self.folder.sync_all();
    }

    /// Writes a keyring that was read here and changed since; its generation becomes the next one.
    ///
    /// # Errors
    /// [`Error::Changed`] if another command was faster, [`Error::Busy`], [`Error::Io`]; the old
    /// keyring is then still there, and `keyring` keeps its generation.
    pub fn write(&self, keyring: &mut Keyring) -> Result<(), Error> {
        let held = self.hold(keyring)?;
        self.write_held(&held, keyring)
    }

    /// Keeps other commands from changing a keyring that was read here, as long as the answer
    /// lives: for what must agree with it, such as the configuration.
    ///
    /// # Errors
    /// [`Error::Changed`] if another command was faster, [`Error::Busy`], [`Error::Io`].
    pub fn hold(&self, keyring: &Keyring) -> Result<Held, Error> {
        let lock = self.lock()?;
        let (expected, found) = (keyring.generation(), self.read()?.generation());
        if expected != found {
            return Err(Error::Changed { expected: expected.0, found: found.0 });
        }
        Ok(Held { _lock: lock })
    }

    /// As [`KeyringDir::write`], of a keyring that is held.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_held(&self, _held: &Held, keyring: &mut Keyring) -> Result<(), Error> {
        let expected = keyring.generation();
        let next = expected.0.checked_add(1).ok_or(Error::Damaged { what: "its generation" })?;
        keyring.set_generation(Generation(next));
        let written = keyring.seal().and_then(|bytes| self.replace(&bytes));
        if written.is_err() {
            keyring.set_generation(expected);
        }
        written
    }

    /// Puts the bytes of a backup in place of the keyring, or where none is. What it replaces stays
    /// beside it: where, unless that is nothing or the same. `broken` is what is there if that was
    /// found to open with no key: then nothing that it says of itself counts.
    ///
    /// # Errors
    /// They are no keyring, one of another id, or one older than what is there
    /// ([`Error::RolledBack`]); [`Error::Busy`], [`Error::Io`].
    pub fn restore(&self, bytes: &[u8], broken: Option<&[u8]>) -> Result<Option<PathBuf>, Error> {
        let backup = SealedKeyring::parse(bytes)?;
        let _lock = self.lock()?;
        if let Some(present) = self.present_like(backup.id(), broken)?
            && backup.generation() < present
        {
            return Err(Error::RolledBack { have: backup.generation(), seen: present });
        }
        self.put(bytes)
    }

    /// Puts an older keyring that was opened in the place of one that is lost: it is sealed again
    /// as the generation after `seen`, so that the files which newer ones have sealed do not
    /// refuse it. Otherwise as [`KeyringDir::restore`].
    ///
    /// # Errors
    /// A keyring of another id is there; [`Error::Busy`], [`Error::Io`].
    pub fn restore_older(
        &self,
        keyring: &mut Keyring,
        seen: Generation,
        broken: Option<&[u8]>,
    ) -> Result<Option<PathBuf>, Error> {
        let _lock = self.lock()?;
        let present = self.present_like(keyring.id(), broken)?.unwrap_or(Generation(0));
        let newest = keyring.generation().max(seen).max(present);
        let next = newest.0.checked_add(1).ok_or(Error::Damaged { what: "its generation" })?;
        keyring.set_generation(Generation(next));
        self.put(&keyring.seal()?)
    }

    /// The generation of the keyring that is there; nothing if that cannot be read, or is `broken`.
    fn present_like(
        &self,
        id: KeyringId,
        broken: Option<&[u8]>,
    ) -> Result<Option<Generation>, Error> {
        if broken.is_some_and(|broken| self.bytes().is_ok_and(|present| present == broken)) {
            return Ok(None);
        }
        match self.read() {
            Ok(present) if present.id() == id => Ok(Some(present.generation())),
            Ok(_) => Err(Error::KeyringExists { path: self.path.join(KEYRING) }),
            // A keyring that cannot be read any more may be replaced by any.
            Err(_) => Ok(None),
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<Option<PathBuf>, Error> {
        let kept = self.keep_replaced(bytes)?;
        self.replace(bytes)?;
        Ok(kept)
    }

    /// Tells running programs that their agent has the keyring of `generation`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn announce(&self, generation: Generation) -> Result<(), Error> {
        let file = self.open_lock(LOCK)?;
        file.write_all_at(&generation.0.to_ne_bytes(), ANNOUNCED_AT)
            .map_err(Error::io("write", self.path.join(LOCK)))
    }

    /// The generation that was last announced to running programs; 0 if none was.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn announced(&self) -> Result<Generation, Error> {
        let file = self.open_lock(LOCK)?;
        let mut bytes = [0; 8];
        match file.read_at(&mut bytes, ANNOUNCED_AT) {
            Ok(8) => Ok(Generation(u64::from_ne_bytes(bytes))),
            Ok(_) => Ok(Generation(0)),
            Err(why) => Err(Error::io("read", self.path.join(LOCK))(why)),
        }
    }

    /// The file that names the memory which running programs share, see
    /// [`meet`](tidelock_contract::meet).
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::ForeignFile`].
    pub fn meeting_place(&self) -> Result<File, Error> {
        self.open_lock(LOCK)
    }

    fn exists(&self) -> Result<bool, Error> {
        match statat(&self.folder, KEYRING, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::io("look at", self.path.join(KEYRING))(errno.into())),
        }
    }

    /// Opens a lock file, made if it is not there. Whoever owns the folder may have put another
    /// file there by its second name: that one is neither written nor given away.
    fn open_lock(&self, name: &str) -> Result<File, Error> {
        let path = self.path.join(name);
        let failed = |errno: Errno| Error::io("open", &path)(errno.into());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let owner = fstat(&self.folder).map_err(failed)?;
        for _ in 0..ATTEMPTS {
            match openat(&self.folder, name, flags, Mode::empty()) {
                Err(Errno::NOENT) => {}
                opened => {
                    let file = File::from(opened.map_err(failed)?);
                    check_unshared(&file, &path, owner.st_uid)?;
                    return Ok(file);
                }
            }
            let new = flags | OFlags::CREATE | OFlags::EXCL;
            match openat(&self.folder, name, new, Mode::RUSR | Mode::WUSR) {
                // Another was quicker.
                Err(Errno::EXIST) => {}
                made => {
                    let file = File::from(made.map_err(failed)?);
                    let owner = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
                    self.give_to(&file, owner).map_err(Error::io("chown", &path))?;
                    return Ok(file);
                }
            }
        }
        Err(failed(Errno::EXIST))
    }

    /// Removes a file of root's that an interrupted command left in somebody's folder, rather than
    /// give away what may have come from elsewhere.
    fn remove_roots(&self, name: &str) -> Result<(), Error> {
        let roots = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| found.st_uid == 0);
        if !roots {
            return Ok(());
        }
        unlinkat(&self.folder, name, AtFlags::empty())
            .map_err(|errno| Error::io("remove", self.path.join(name))(errno.into()))
    }

    /// Held until it is dropped.
    fn lock(&self) -> Result<File, Error> {
        let lock = self.open_lock(KEYRING_LOCK)?;
        let until = Instant::now() + PATIENCE;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                    sleep(Duration::from_millis(50));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    return Err(Error::Busy { path: self.path.join(KEYRING_LOCK) });
                }
                Err(errno) => {
                    return Err(Error::io("lock", self.path.join(KEYRING_LOCK))(errno.into()));
                }
            }
        }
    }

    fn replace(&self, bytes: &[u8]) -> Result<(), Error> {
        let replaced = self.replace_in_steps(bytes, &mut |_| Ok(()));
        if replaced.is_err() {
            let _ = unlinkat(&self.folder, NEXT, AtFlags::empty());
        }
        replaced.map_err(Error::io("write", self.path.join(KEYRING)))
    }

    /// Calls `after` behind each step; its error ends this as a crash there would.
    fn replace_in_steps(
        &self,
        bytes: &[u8],
        after: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> io::Result<()> {
        // What a crash has left.
        match unlinkat(&self.folder, NEXT, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let next = openat(&self.folder, NEXT, flags | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR)?;
        let mut next = File::from(next);
        let owner = fstat(&self.folder)?;
        self.give_to(&next, (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid)))?;
        after(Step::Created)?;
        next.write_all(bytes)?;
        after(Step::Written)?;
        next.sync_all()?;
        after(Step::Synced)?;
        renameat(&self.folder, NEXT, &self.folder, KEYRING)?;
        after(Step::Renamed)?;
        self.folder.sync_all()
    }

    /// Root leaves nothing of its own in somebody's directory.
    fn give_to(&self, file: &File, (user, group): (Uid, Gid)) -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            fchown(file, Some(user), Some(group))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
