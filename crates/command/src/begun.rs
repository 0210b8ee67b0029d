//! What a command of several steps has begun on a directory: a record beside it, and a lock.
//!
//! `DIR.tidelock-KIND` is written before the first step and removed after the last. It may lie in a
//! folder of the directory's owner, so nobody goes on with a record that somebody else has written.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::owner::Owner;

/// A record is no longer.
const MAX: u64 = 256 * 1024;
/// How many commands may end, and remove the lock, while one wants it.
const TRIES: usize = 20;

/// Which command's.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    /// In the name of the file.
    pub(crate) kind: &'static str,
    /// The command, for people.
    pub(crate) command: &'static str,
}

impl Begun {
    /// Where the record of this directory is.
    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        beside(dir, &format!(".tidelock-{}", self.kind))
    }

    /// What has begun, if anything.
    ///
    /// # Errors
    /// [`Error::Refused`] if it cannot be read as a record; [`Error::Io`].
    pub(crate) fn read<T: DeserializeOwned>(self, dir: &Path) -> Result<Option<T>> {
        let path = self.path(dir);
        let entry = match Entry::of(&path) {
            Err(why) if why.is_not_found() => return Ok(None),
            entry => entry?,
        };
        let Some(file) = entry.open()? else { return Ok(None) };
        let owner = file.metadata().map_err(Error::io("look at", &path))?.uid();
        // It says where root writes the copy of a keyring, and whose configuration changes.
        if owner != Owner::caller().uid {
            return Err(Error::refused(
                format!("{} belongs to another user, {owner}, who has begun", path.display()),
                "go on as that user",
            ));
        }
        let mut text = String::new();
        file.take(MAX).read_to_string(&mut text).map_err(Error::io("read", &path))?;
        toml::from_str(&text).map(Some).map_err(|why| {
            Error::refused(
                format!("{} cannot be read: {why}", path.display()),
                format!("if `tidelock {}` has not begun here, move it away", self.command),
            )
        })
    }

    /// Writes it, so that it lasts.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write(self, dir: &Path, record: &impl Serialize) -> Result<()> {
        let path = self.path(dir);
        let text = toml::to_string(record)
            .map_err(|why| Error::io("write", &path)(std::io::Error::other(why)))?;
        let text = format!("# What `tidelock {}` has begun.\n{text}", self.command);
        Entry::of(&path)?.replace(text.as_bytes(), 0o600, None)
    }

    /// It is done, or taken back.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn remove(self, dir: &Path) -> Result<()> {
        let entry = Entry::of(&self.path(dir))?;
        entry.remove()?;
        entry.folder().sync()
    }

    /// Nobody else does the same until this is dropped.
    ///
    /// # Errors
    /// [`Error::Refused`] if somebody does; [`Error::Io`].
    pub(crate) fn lock(self, dir: &Path) -> Result<Lock> {
        let entry = Entry::of(&beside(dir, &format!(".tidelock-{}.lock", self.kind)))?;
        let path = entry.path();
        for _ in 0..TRIES {
            let file = match entry.create() {
                Err(why) if why.is(std::io::ErrorKind::AlreadyExists) => entry.open()?,
                made => Some(made?),
            };
            // Who held it has ended, and removed it.
            let Some(file) = file else { continue };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&path, &file) => {
                    return Ok(Lock { file, entry, record: self.path(dir) });
                }
                // Removed too: the next command locks another file of this name.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
            }
        }
        Err(Error::refused(
            format!("`tidelock {}` is at work on {}", self.command, dir.display()),
            "wait until it has ended; after a kill, what it had started may still run: end it",
        ))
    }
}

/// True if this path is that of the open file.
fn is_at(path: &Path, file: &File) -> bool {
    let (Ok(of_path), Ok(of_file)) = (path.symlink_metadata(), file.metadata()) else {
        return false;
    };
    (of_path.dev(), of_path.ino()) == (of_file.dev(), of_file.ino())
}

/// Held by a command, and by programs that it has started: these go on when it is killed.
pub(crate) struct Lock {
    file: File,
    entry: Entry,
    record: PathBuf,
}

impl Lock {
    /// For a program that keeps it as its standard input.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn share(&self) -> Result<File> {
        self.file.try_clone().map_err(Error::io("share", self.entry.path()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // With the record the lock goes too, unless another one has the name.
        if self.record.symlink_metadata().is_err() && is_at(&self.entry.path(), &self.file) {
            let _ = self.entry.remove();
        }
    }
}

/// A name in the folder of `dir` that begins as `dir` does.
pub(crate) fn beside(dir: &Path, ending: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    dir.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Begun = Begun { kind: "test", command: "test" };

    #[test]
    fn a_record_is_read_as_it_was_written_and_garbage_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap().join("d");
        let record = std::collections::BTreeMap::from([("a".to_owned(), 1)]);
        assert_eq!(KIND.read::<std::collections::BTreeMap<String, i32>>(&dir).unwrap(), None);
        KIND.write(&dir, &record).unwrap();
        assert_eq!(KIND.read(&dir).unwrap(), Some(record));
        std::fs::write(KIND.path(&dir), "a = [").unwrap();
        assert!(KIND.read::<std::collections::BTreeMap<String, i32>>(&dir).is_err());
        KIND.remove(&dir).unwrap();
        assert!(!KIND.path(&dir).exists());
    }

    #[test]
    fn the_lock_is_one_commands_and_goes_with_the_record() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap().join("d");
        let lock = KIND.lock(&dir).unwrap();
        assert!(matches!(KIND.lock(&dir), Err(Error::Refused { .. })));
        let shared = lock.share().unwrap();
        drop(lock);
        drop(shared);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_whose_name_another_file_has_is_none_and_leaves_that_alone() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap().join("d");
        let lock = KIND.lock(&dir).unwrap();
        let path = lock.entry.path();
        assert!(is_at(&path, &lock.file));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&path, &lock.file));
        let next = KIND.lock(&dir).unwrap();
        assert!(!is_at(&path, &lock.file) && is_at(&path, &next.file));
        drop(lock);
        assert!(matches!(KIND.lock(&dir), Err(Error::Refused { .. })));
    }
}
