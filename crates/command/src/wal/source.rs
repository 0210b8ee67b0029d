//! Plain bytes of a WAL file, wherever they lie: sealed or plain, in order, and proven at the end.
//!
//! Whoever reads must come to the end before anybody relies on a byte: only there it is known that
//! a whole file was not changed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use tidelock_cipher::KeySlot;
use tidelock_format::{BLOCK, BLOCK_USIZE, Form, PROBE_LEN, PlainSize, looks_sealed};

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::sealed::{Content, Fault, SealedFile, Whole};
use crate::wal::name::WalName;
use crate::wal::place::Want;
use crate::wal::segment::{self, HEAD};
use crate::wal::{ARCHIVED, STORED};
use crate::walk::read_at;

/// Read at once: whole units.
pub(super) const CHUNK: usize = 256 * 1024;

/// An open WAL file.
pub(super) struct Source {
    path: PathBuf,
    inner: Inner,
    size: u64,
    at: u64,
}

enum Inner {
    Plain(File),
    Sealed { sealed: SealedFile, whole: Option<Box<Whole>> },
    Empty,
}

impl Source {
    /// Opens `name` in `folder`, which is no link; `None` if it is not there.
    ///
    /// # Errors
    /// It is not what its place wants; it cannot be read.
    pub(super) fn open_in(folder: &Folder, name: &str, want: Want<'_>) -> Result<Option<Self>> {
        let path = folder.path().join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(folder, name, flags, Mode::empty()) {
            Ok(file) => Self::of(file.into(), path, (want, STORED)).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(Error::refused(
                format!("{} is a link", path.display()),
                "put the file itself there",
            )),
            Err(errno) => Err(Error::io("open", path)(errno.into())),
        }
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// As [`Source::open_in`].
    pub(super) fn open(path: &Path, want: Want<'_>) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        Self::of(file, path.to_path_buf(), (want, ARCHIVED))
    }

    /// One without bytes, in place of the file at `path`.
    pub(super) fn empty(path: &Path) -> Self {
        Self { path: path.to_path_buf(), inner: Inner::Empty, size: 0, at: 0 }
    }

    fn of(file: File, path: PathBuf, (want, slot): (Want<'_>, KeySlot)) -> Result<Self> {
        let failed = |what| Error::io(what, path.clone());
        let found = fstat(&file).map_err(|errno| failed("look at")(errno.into()))?;
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Err(Error::refused(
                format!("{} is not a regular file", path.display()),
                "name a file of WAL",
            ));
        }
        let mut first = [0u8; PROBE_LEN];
        let count = read_at(&file, &mut first, 0).map_err(failed("read"))?;
        let sealed = looks_sealed(first.get(..count).unwrap_or_default());
        let keys = match want {
            Want::Sealed(keys, _) => keys,
            Want::Plain(Some(keys)) if sealed => keys,
            Want::Plain(None) if sealed => {
                return Err(Error::BadKey {
                    what: format!("{} is sealed, and no keys are here for it", path.display()),
                    hint: "it was copied out of a protected directory: run this there".to_owned(),
                });
            }
            Want::Plain(_) => {
                let size = file.metadata().map_err(failed("look at"))?.len();
                return Ok(Self { path, inner: Inner::Plain(file), size, at: 0 });
            }
        };
        let fault = |fault| explain(&path, fault);
        let content = keys.open_in(slot, file, want.header()).map_err(fault)?;
        let (inner, size) = match content {
            Content::Empty => (Inner::Empty, 0),
            Content::Blank(_) => return Err(damaged(&path, "it is all zeros")),
            Content::Sealed(sealed) if sealed.header.form == Form::Stream => {
                return Err(fault(Fault::Stream));
            }
            Content::Sealed(sealed) => {
                let read = |why| explain(&path, Fault::Read(why));
                let size = sealed.plain_size().map_err(read)?.0;
                let whole = sealed.whole().map_err(read)?.map(Box::new);
                (Inner::Sealed { sealed, whole }, size)
            }
        };
        Ok(Self { path, inner, size, at: 0 })
    }

    /// How many plain bytes it has.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if its bytes lie there as they are.
    pub(super) const fn is_plain(&self) -> bool {
        matches!(self.inner, Inner::Plain(_))
    }

    /// True if a MAC over all of it will be checked.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.inner, Inner::Sealed { whole: Some(_), .. })
    }

    /// Reads the next bytes, whole chunks but for the last; 0 at the end, where all is proven.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    pub(super) fn next(&mut self, chunk: &mut [u8]) -> Result<usize> {
        let failed = Error::io("read", &self.path);
        let left = self.size - self.at;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        let count = match &mut self.inner {
            Inner::Empty => 0,
            Inner::Plain(file) => {
                let into = chunk.get_mut(..wanted).unwrap_or_default();
                let count = read_at(file, into, self.at).map_err(failed)?;
                if count < wanted {
                    return Err(damaged(&self.path, "it became shorter while it was read"));
                }
                count
            }
            Inner::Sealed { whole, .. } if left == 0 => match whole.take() {
                Some(whole) => {
                    let done = whole.check(PlainSize(self.size));
                    done.map_err(|fault| damaged(&self.path, &fault.to_string()))?;
                    0
                }
                None => 0,
            },
            Inner::Sealed { sealed, whole } => {
                let blocks = PlainSize(self.size).block_end() - self.at;
                let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).min(chunk.len());
                let into = chunk.get_mut(..blocks).unwrap_or_default();
                let count = sealed.read_sealed(self.at, into).map_err(failed)?;
                if count < blocks {
                    return Err(damaged(&self.path, "it became shorter while it was read"));
                }
                if let Some(whole) = whole {
                    whole.update(into);
                }
                sealed.open_bytes(self.at, into);
                let plain = wanted.min(count);
                if self.at + plain as u64 == self.size {
                    end(&self.path, sealed, whole.as_deref_mut(), self.size)?;
                }
                plain
            }
        };
        self.at += count as u64;
        Ok(count)
    }

    /// Reads again from the beginning. The MAC over all of it is checked once only, in the first
    /// pass that comes to the end.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn rewind(&mut self) -> Result<()> {
        if let Inner::Sealed { sealed, whole } = &mut self.inner {
            *whole = sealed.whole().map_err(Error::io("read", &self.path))?.map(Box::new);
        }
        self.at = 0;
        Ok(())
    }

    /// Refuses a file that is not what its name says; reads its beginning, and begins again.
    ///
    /// # Errors
    /// [`Error::Verification`].
    pub(super) fn refuse_unless_wal(&mut self, name: &WalName) -> Result<()> {
        let mut head = [0u8; 4096];
        let count = self.next(&mut head)?;
        let head = head.get(..count.min(if is_text(name) { count } else { HEAD }));
        let checked = segment::check(name, head.unwrap_or_default(), self.size);
        checked.map_err(|why| damaged(&self.path, &why.to_string()))?;
        self.rewind()
    }

    /// For fsync.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = match &self.inner {
            Inner::Plain(file) => file.sync_all(),
            Inner::Sealed { sealed, .. } => sealed.file().sync_all(),
            Inner::Empty => Ok(()),
        };
        synced.map_err(Error::io("sync", &self.path))
    }
}

fn is_text(name: &WalName) -> bool {
    use crate::wal::name::Kind;
    matches!(name.kind(), Kind::History | Kind::Backup)
}

/// What lies behind the last block says how long the file is; it must be right.
fn end(path: &Path, sealed: &SealedFile, whole: Option<&mut Whole>, size: u64) -> Result<()> {
    let read = |why| Error::io("read", path)(why);
    if let Some(fault) = sealed.end().map_err(read)?.first() {
        return Err(damaged(path, &fault.to_string()));
    }
    let mut tail = [0u8; BLOCK_USIZE];
    let count = sealed.read_sealed(size.next_multiple_of(BLOCK), &mut tail).map_err(read)?;
    if let Some(whole) = whole {
        whole.update(tail.get(..count).unwrap_or_default());
    }
    Ok(())
}

pub(super) fn damaged(path: &Path, why: &str) -> Error {
    Error::Verification {
        what: format!("{}: {why}", path.display()),
        hint: "this copy of the file is no good: use another one".to_owned(),
    }
}

fn explain(path: &Path, fault: Fault) -> Error {
    let what = format!("{}: {fault}", path.display());
    match fault {
        Fault::NotSealed => Error::Verification {
            what,
            hint: "a program without the library put it there; `tidelock wal put FILE ARCHIVE` \
                   seals a file that lies elsewhere"
                .to_owned(),
        },
        Fault::Read(source) => Error::io("read", path)(source),
        Fault::UnknownKey { .. } => Error::BadKey {
            what,
            hint: "`tidelock key adopt --from DIR` brings the data keys of the node that wrote it"
                .to_owned(),
        },
        Fault::RolledBack { .. } => Error::BadKey {
            what,
            hint: "restore the newest keyring with `tidelock keyring restore`".to_owned(),
        },
        _ => Error::Verification {
            what,
            hint: "this copy of the file is no good: use another one".to_owned(),
        },
    }
}

/// [`std::io::Read`] for what takes nothing else; the error is kept.
pub(super) struct Reader<'s> {
    source: &'s mut Source,
    chunk: Vec<u8>,
    from: usize,
    to: usize,
    pub(super) failure: Option<Error>,
}

impl<'s> Reader<'s> {
    pub(super) fn new(source: &'s mut Source) -> Self {
        Self { source, chunk: vec![0; CHUNK], from: 0, to: 0, failure: None }
    }
}

impl io::Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.from == self.to {
            match self.source.next(&mut self.chunk) {
                Ok(count) => (self.from, self.to) = (0, count),
                Err(why) => {
                    self.failure = Some(why);
                    return Err(io::Error::other("the file is damaged"));
                }
            }
        }
        let have = self.chunk.get(self.from..self.to).unwrap_or_default();
        let count = have.len().min(into.len());
        if let (Some(into), Some(have)) = (into.get_mut(..count), have.get(..count)) {
            into.copy_from_slice(have);
        }
        self.from += count;
        Ok(count)
    }
}
