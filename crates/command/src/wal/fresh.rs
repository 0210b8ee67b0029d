//! A file that comes to be whole or not at all: written without a name, synced, then linked.
//!
//! A link never takes the place of a file, so of two that archive one name at once one is told.
//! File systems without nameless files (NFS) get one by another name; its lock says whether the one
//! that made it still lives.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, linkat, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use tidelock_cipher::StreamMac;
use tidelock_format::{BLOCK_USIZE, Front, PlainSize, WHOLE_AT};

use crate::error::{Error, Result};
use crate::folder::{Folder, give};
use crate::owner::Owner;
use crate::sealed::{self, Mac, whole_mac};
use crate::wal::MADE;
use crate::wal::place::Want;
use crate::wal::source::{CHUNK, Source};

/// What a file ends with while it is written.
const NEXT: &str = ".tidelock-new";
/// So many of the first bytes are kept, to be looked at.
const HEAD_KEPT: usize = 4096;

/// A file on its way to its name.
pub(super) struct Fresh {
    folder: Folder,
    name: OsString,
    file: File,
    /// Its own name, where it needs one.
    temporary: Option<OsString>,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Published {
    /// It has its name.
    Done,
    /// Something else has it.
    Taken,
}

impl Fresh {
    /// An empty file that will be `name` in `folder`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn new(folder: &Folder, name: &str) -> Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let (file, temporary) = match openat(folder, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => (file.into(), None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let (file, name) = named(folder, name)?;
                (file, Some(name))
            }
            Err(errno) => {
                return Err(Error::io("make a file in", folder.path())(errno.into()));
            }
        };
        let fresh = Self { folder: folder.clone(), name: name.into(), file, temporary };
        let owner = folder.owner()?;
        if Owner::caller().uid == 0 && owner.uid != 0 {
            give(&fresh.file, owner).map_err(Error::io("chown", fresh.path()))?;
        }
        Ok(fresh)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Writes all of `source`, sealed or plain as `want` says, and if sealed with this MAC.
    ///
    /// # Errors
    /// [`Error::Io`]; what is wrong with the source.
    pub(super) fn fill(&mut self, source: &mut Source, want: Want<'_>, mac: Mac) -> Result<()> {
        let mut filling = self.begin(want, mac)?;
        let mut chunk = vec![0u8; CHUNK];
        loop {
            let count = source.next(&mut chunk)?;
            if count == 0 {
                return filling.finish().map(drop);
            }
            filling.push(chunk.get(..count).unwrap_or_default())?;
        }
    }

    /// Begins to write plain bytes that come one after another.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begin(&mut self, want: Want<'_>, over: Mac) -> Result<Filling<'_>> {
        let mut mac = None;
        let sealed = matches!(want, Want::Sealed(..));
        if let Want::Sealed(keys, class) = want {
            let made = match over {
                Mac::WholeFile => keys.create_whole_in(MADE, class),
                Mac::Header => keys.create_in(MADE, class, Front::Copy),
            };
            let (region, header) = made.map_err(|fault| {
                Error::refused(
                    format!("{}: {fault}", self.path().display()),
                    "wait until the system gives random bytes",
                )
            })?;
            mac = whole_mac(&header);
            if let Some(mac) = &mut mac {
                mac.update(region.get(..WHOLE_AT).unwrap_or(&region));
            }
            self.write(&region)?;
        }
        let waiting = Vec::with_capacity(CHUNK);
        Ok(Filling { fresh: self, sealed, mac, waiting, at: 0, head: Vec::new(), failure: None })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(Error::io("write", self.path()))
    }

    /// Makes it last, then gives it its name, unless something has that.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn publish(mut self) -> Result<Published> {
        let failed = |errno: Errno| Error::io("write", self.path())(errno.into());
        self.file.sync_all().map_err(Error::io("sync", self.path()))?;
        match self.link(&self.name.clone()) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Published::Taken),
            Err(errno) => return Err(failed(errno)),
        }
        self.drop_temporary();
        self.folder.sync()?;
        Ok(Published::Done)
    }

    /// Makes it last, then puts it in the place of what may be there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn replace(mut self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("sync", self.path()))?;
        let replaced = || -> rustix::io::Result<()> {
            let next = match &self.temporary {
                Some(next) => next.clone(),
                None => {
                    let mut next = self.name.clone();
                    next.push(NEXT);
                    // What a crash has left.
                    match unlinkat(&self.folder, &next, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(errno) => return Err(errno),
                    }
                    self.link(&next)?;
                    next
                }
            };
            renameat(&self.folder, &next, &self.folder, &self.name)
        };
        replaced().map_err(|errno| Error::io("write", self.path())(errno.into()))?;
        self.temporary = None;
        self.folder.sync()
    }

    /// Gives it one more name.
    fn link(&self, name: &OsString) -> rustix::io::Result<()> {
        let Some(temporary) = &self.temporary else {
            let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return linkat(CWD, open, &self.folder, name, AtFlags::SYMLINK_FOLLOW);
        };
        match linkat(&self.folder, temporary, &self.folder, name, AtFlags::empty()) {
            // No second names there (FAT).
            Err(Errno::PERM | Errno::OPNOTSUPP) => {
                let flags = RenameFlags::NOREPLACE;
                renameat_with(&self.folder, temporary, &self.folder, name, flags)
            }
            linked => linked,
        }
    }

    fn drop_temporary(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = unlinkat(&self.folder, &temporary, AtFlags::empty());
        }
    }
}

/// Plain bytes on their way into a file.
pub(super) struct Filling<'f> {
    fresh: &'f mut Fresh,
    sealed: bool,
    mac: Option<StreamMac>,
    /// Fewer than a chunk.
    waiting: Vec<u8>,
    at: u64,
    head: Vec<u8>,
    /// Why a write through [`io::Write`] failed.
    pub(super) failure: Option<Error>,
}

impl Filling<'_> {
    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        let missing = HEAD_KEPT.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
        while !bytes.is_empty() {
            let room = (CHUNK - self.waiting.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.waiting.extend_from_slice(now);
            if self.waiting.len() == CHUNK {
                self.put_down()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// All of the last bytes, or a whole chunk.
    fn put_down(&mut self) -> Result<()> {
        let count = self.waiting.len();
        if self.sealed {
            self.waiting.resize(count.next_multiple_of(BLOCK_USIZE), 0);
            let tail = count % BLOCK_USIZE;
            let mut body = vec![0; self.waiting.len() + tail];
            sealed::seal_body_in(MADE, self.at, &self.waiting, tail, &mut body);
            if let Some(mac) = &mut self.mac {
                mac.update(&body);
            }
            self.fresh.write(&body)?;
        } else {
            self.fresh.write(&self.waiting)?;
        }
        self.waiting.clear();
        self.at += count as u64;
        Ok(())
    }

    /// Ends the file; its first bytes, and how many it has.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, u64)> {
        if !self.waiting.is_empty() {
            self.put_down()?;
        }
        if let Some(mac) = self.mac.take() {
            let mark = mac.end(PlainSize(self.at)).to_bytes();
            let written = self.fresh.file.write_all_at(&mark, WHOLE_AT as u64);
            written.map_err(Error::io("write", self.fresh.path()))?;
        }
        Ok((self.head, self.at))
    }
}

impl io::Write for Filling<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.push(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(why) => {
                self.failure = Some(why);
                Err(io::Error::other("the file cannot be written"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        self.drop_temporary();
    }
}

/// An empty file by a name of its own, locked; those that ended programs have left for this name
/// are removed.
fn named(folder: &Folder, name: &str) -> Result<(File, OsString)> {
    let prefix = format!(".{name}.");
    for found in folder.names()? {
        let bytes = found.as_bytes();
        if bytes.starts_with(prefix.as_bytes()) && bytes.ends_with(NEXT.as_bytes()) {
            remove_if_left(folder, &found);
        }
    }
    let own = OsString::from(format!("{prefix}{}{NEXT}", std::process::id()));
    let file = folder.entry(own.clone()).create()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|errno| Error::io("lock", folder.path().join(&own))(errno.into()))?;
    Ok((file, own))
}

fn remove_if_left(folder: &Folder, name: &OsString) {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(folder, name, flags, Mode::empty()) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = unlinkat(folder, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// As on a file system without nameless files.
    fn with_a_name(folder: &Folder, name: &str, bytes: &[u8]) -> Fresh {
        let (file, temporary) = named(folder, name).unwrap();
        let temporary = Some(temporary);
        let mut fresh = Fresh { folder: folder.clone(), name: name.into(), file, temporary };
        fresh.write(bytes).unwrap();
        fresh
    }

    fn names(folder: &Folder) -> Vec<OsString> {
        let mut names = folder.names().unwrap();
        names.sort();
        names
    }

    #[test]
    fn a_file_gets_its_name_once_and_never_that_of_another() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let nameless = |bytes: &[u8]| {
            let mut fresh = Fresh::new(&folder, "a").unwrap();
            fresh.write(bytes).unwrap();
            fresh
        };
        drop(nameless(b"dropped"));
        drop(with_a_name(&folder, "a", b"dropped"));
        assert_eq!(names(&folder), Vec::<OsString>::new());
        assert_eq!(nameless(b"first").publish().unwrap(), Published::Done);
        assert_eq!(nameless(b"second").publish().unwrap(), Published::Taken);
        assert_eq!(with_a_name(&folder, "a", b"third").publish().unwrap(), Published::Taken);
        assert_eq!(with_a_name(&folder, "b", b"fourth").publish().unwrap(), Published::Done);
        assert_eq!(fs::read(home.path().join("a")).unwrap(), b"first");
        assert_eq!(fs::read(home.path().join("b")).unwrap(), b"fourth");
        nameless(b"fifth").replace().unwrap();
        with_a_name(&folder, "b", b"sixth").replace().unwrap();
        assert_eq!(fs::read(home.path().join("a")).unwrap(), b"fifth");
        assert_eq!(fs::read(home.path().join("b")).unwrap(), b"sixth");
        assert_eq!(names(&folder), ["a", "b"]);
    }

    #[test]
    fn what_a_dead_writer_left_is_removed_and_what_a_live_one_writes_is_not() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        let (dead, live, other) = (".a.1.tidelock-new", ".a.2.tidelock-new", ".b.1.tidelock-new");
        for name in [dead, live, other] {
            fs::write(home.path().join(name), "half").unwrap();
        }
        let held = File::open(home.path().join(live)).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(with_a_name(&folder, "a", b"").publish().unwrap(), Published::Done);
        assert_eq!(names(&folder), [live, other, "a"]);
    }
}
