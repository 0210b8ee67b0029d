//! One file: its bytes in the other form, in a file beside it that can take its place.
//!
//! ```text
//!   what is it? --> done already, or --> new file, written --> synced --> compared --> renamed
//! ```
//!
//! The file itself is only read. Whatever fails or is killed before the rename leaves it as it was.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, Mode, OFlags, fadvise, fchown, open};
use rustix::io::Errno;
use tidelock_cipher::KeySlot;
use tidelock_format::{Front, PROBE_LEN, PlainSize, UNIT_USIZE, looks_sealed};
use tidelock_keyring::Direction;

use super::content::{Source, Target};
use super::scan::{Item, NEXT};
use super::throttle::Throttle;
use crate::error::{Error, Result};
use crate::sealed::{Content, EndFault, Fault, Keys, Mac, SealedFile, Wanted};
use crate::walk::{self, read_first};

/// Read, sealed and written at once.
const CHUNK: usize = 64 * UNIT_USIZE;
/// Sent to the disk at once.
const WRITEBACK: u64 = 8 << 20;
/// Most names of an xattr list, and most bytes of a value: those of the kernel.
const XATTR: usize = 64 * 1024;
/// The access control list of a file.
const ACL: &str = "system.posix_acl_access";

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// A plain file becomes a sealed one.
    Encrypt,
    /// A sealed file becomes a plain one; what has no header is plain.
    Decrypt,
    /// A sealed file is sealed under the current data key.
    Rekey,
    /// A sealed file that never got a header gets one; what has none is sealed.
    Head,
}

impl From<Direction> for Task {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Encrypt => Self::Encrypt,
            Direction::Decrypt => Self::Decrypt,
            Direction::Rekey => Self::Rekey,
        }
    }
}

/// What all workers of a conversion share.
#[derive(Clone)]
pub(super) struct Conditions<'c> {
    pub(super) keys: &'c Keys,
    pub(super) task: Task,
    pub(super) throttle: Arc<Throttle>,
    /// Somebody wants it to end.
    pub(super) stop: &'c AtomicBool,
}

/// Converts one file after another; owns scratch memory and two slots of the cipher.
pub(super) struct Worker<'c> {
    pub(super) conditions: &'c Conditions<'c>,
    slots: [KeySlot; 2],
    plain: Vec<u8>,
    out: Vec<u8>,
}

/// A file that was written and has not taken its place.
pub(super) struct Written {
    /// Open for writing, to be synced.
    pub(super) file: File,
    /// Where it is; empty if it has no name.
    pub(super) path: PathBuf,
    /// The size of the contents.
    size: PlainSize,
    /// What it was made from, as it was then.
    before: Stamp,
    /// What was wrong with the end of that. The file is what the library showed of it.
    pub(super) bad_end: Option<EndFault>,
}

/// Plain bytes, and what is wrong with their end.
type Sound = (Source, Option<EndFault>);

/// By what a file is known to be unchanged.
#[derive(PartialEq, Eq)]
struct Stamp {
    size: u64,
    written: (i64, i64),
    inode: (u64, u64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Self::from(&found))
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            size: found.len(),
            written: (found.mtime(), found.mtime_nsec()),
            inode: (found.dev(), found.ino()),
        }
    }
}

impl Written {
    /// Refuses to take the place of a file that was changed, or is another by now.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Io`].
    pub(super) fn refuse_changed(&self, path: &Path) -> Result<()> {
        let now = std::fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
        if Stamp::from(&now) == self.before { Ok(()) } else { Err(changed(path)) }
    }
}

/// Where a new file is made.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// Beside the file whose place it takes.
    Beside,
    /// Nowhere: it goes with its descriptor. For estimates.
    Nameless,
}

impl<'c> Worker<'c> {
    /// The worker with this number, from 0 on.
    pub(super) fn new(conditions: &'c Conditions<'c>, number: u32) -> Self {
        let slots = [KeySlot(1 + 2 * number), KeySlot(2 + 2 * number)];
        Self { conditions, slots, plain: vec![0; CHUNK], out: Vec::with_capacity(CHUNK * 2) }
    }

    /// Writes the other form of a file; `None` if it has that already.
    ///
    /// # Errors
    /// The file cannot be read, is sealed under an unknown key, or was changed meanwhile.
    pub(super) fn convert(&mut self, item: &Item, place: Place) -> Result<Option<Written>> {
        let Some(path) = item.names.first() else { return Ok(None) };
        let file = open_file(path)?;
        let before = Stamp::of(&file).map_err(Error::io("look at", path))?;
        let original = file.try_clone().map_err(Error::io("open", path))?;
        let Some((source, bad_end)) = self.source(file, item, path)? else { return Ok(None) };
        let new = match place {
            Place::Beside => next(path, item.inode.1),
            Place::Nameless => PathBuf::new(),
        };
        let made = match place {
            Place::Beside => create(&new),
            Place::Nameless => create_nameless(path),
        };
        let named = if new.as_os_str().is_empty() { path } else { &new };
        // What is there already is not ours to remove.
        let file = made.map_err(Error::io("create", named))?;
        let written = self.target(file, item, path, source.mac()).and_then(|target| {
            self.copy(&source, &target, path, named)?;
            attributes(&original, target.file(), named)?;
            if Stamp::of(&original).map_err(Error::io("look at", path))? != before {
                return Err(changed(path));
            }
            let file = target.file().try_clone().map_err(Error::io("open", named))?;
            Ok(Written { file, path: new.clone(), size: source.size(), before, bad_end })
        });
        if written.is_err() && !new.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&new);
        }
        written.map(Some)
    }

    /// What the file is; `None` if it has the other form already. What may be a sealed file, the
    /// keys decide or refuse: one good copy of its header is enough.
    fn source(&self, file: File, item: &Item, path: &Path) -> Result<Option<Sound>> {
        let broken = |fault| broken(path, fault);
        let size = PlainSize(file.metadata().map_err(Error::io("look at", path))?.len());
        let keys = self.conditions.keys;
        let mut first = [0u8; PROBE_LEN];
        let count = read_first(&file, &mut first).map_err(Error::io("read", path))?;
        let is_sealed = looks_sealed(first.get(..count).unwrap_or_default());
        let wanted = Wanted::File(item.class);
        let slot = self.slots[0];
        match self.conditions.task {
            Task::Encrypt if !is_sealed => Ok(Some((Source::Plain(file, size), None))),
            Task::Encrypt => keys.open_in(slot, file, wanted).map(|_| None).map_err(broken),
            Task::Head => match keys.open_in(slot, file, wanted).map_err(broken)? {
                Content::Sealed(_) => Ok(None),
                Content::Empty => Ok(Some((Source::Zeros(PlainSize::ZERO), None))),
                Content::Blank(size) => Ok(Some((Source::Zeros(size), None))),
            },
            Task::Decrypt if !is_sealed => Ok(None),
            Task::Decrypt | Task::Rekey => {
                match keys.open_in(slot, file, wanted).map_err(broken)? {
                    Content::Sealed(sealed)
                        if self.conditions.task == Task::Rekey
                            && keys.is_current(&sealed.header) =>
                    {
                        Ok(None)
                    }
                    Content::Sealed(sealed) => sound(sealed, path).map(Some),
                    // No key is in it.
                    Content::Empty | Content::Blank(_) => Ok(None),
                }
            }
        }
    }

    /// `mac` is that of the file whose place it takes.
    fn target(&self, file: File, item: &Item, path: &Path, mac: Mac) -> Result<Target> {
        if self.conditions.task == Task::Decrypt {
            return Ok(Target::Plain(file));
        }
        let (keys, slot) = (self.conditions.keys, self.slots[1]);
        let made = match mac {
            Mac::WholeFile => keys.create_whole_in(slot, item.class),
            Mac::Header => {
                let front = Front::of(path.as_os_str().as_bytes());
                keys.create_in(slot, item.class, front)
            }
        };
        let (mut head, header) = made.map_err(|fault| broken(path, fault))?;
        head.truncate(usize::try_from(keys.layout.written_header().get()).unwrap_or(head.len()));
        Ok(Target::Sealed { file, head, slot, header })
    }

    fn copy(&mut self, source: &Source, target: &Target, from: &Path, to: &Path) -> Result<()> {
        let (mut at, mut headed, mut sent) = (0, false, 0);
        while let Some(range) = source.data(at).map_err(Error::io("read", from))? {
            at = range.start;
            headed |= at == 0;
            while at < range.end {
                if self.conditions.stop.load(Ordering::Relaxed) {
                    return Err(Error::Keys(tidelock_keyring::Error::Interrupted));
                }
                let wanted = usize::try_from(range.end - at).unwrap_or(CHUNK).min(CHUNK);
                let into = self.plain.get_mut(..wanted).unwrap_or_default();
                let mut count = source.read(at, into).map_err(Error::io("read", from))?;
                if let (Source::Zeros(size), 0) = (source, count) {
                    into.fill(0);
                    count = wanted.min(usize::try_from(size.0 - at).unwrap_or(wanted));
                }
                if count == 0 {
                    return Err(changed(from));
                }
                if at == 0 {
                    refuse_twice_sealed(self.conditions, &self.plain, count, from)?;
                }
                self.conditions.throttle.take(count);
                target
                    .write(at, &mut self.plain, count, &mut self.out)
                    .map_err(Error::io("write", to))?;
                at += wanted as u64;
                // The disk works while the next bytes are sealed.
                if at - sent >= WRITEBACK {
                    target.begin_writeback(sent..at);
                    sent = at;
                }
            }
            at = range.end;
        }
        target.finish(source.size(), headed).map_err(Error::io("write", to))
    }

    /// Reads both files again, from the disk where the system can be told to, and compares what is
    /// in them.
    ///
    /// # Errors
    /// [`Error::Verification`] if they differ; the original changed or cannot be read.
    pub(super) fn compare(&mut self, item: &Item, written: &Written) -> Result<()> {
        let Some(path) = item.names.first() else { return Ok(()) };
        let file = open_file(path)?;
        if Stamp::of(&file).map_err(Error::io("look at", path))? != written.before {
            return Err(changed(path));
        }
        let Some((source, _)) = self.source(file, item, path)? else { return Err(changed(path)) };
        let new = File::open(&written.path).map_err(Error::io("open", &written.path))?;
        // The copy in memory proves nothing of the disk.
        let _ = fadvise(&new, 0, None, Advice::DontNeed);
        let copy = match self.conditions.task {
            Task::Decrypt => Source::Plain(new, written.size),
            Task::Encrypt | Task::Rekey | Task::Head => {
                let keys = self.conditions.keys;
                let opened = keys.open_in(self.slots[1], new, Wanted::File(item.class));
                match opened.map_err(|fault| broken(&written.path, fault))? {
                    Content::Sealed(sealed) => {
                        let size =
                            sealed.plain_size().map_err(Error::io("look at", &written.path))?;
                        let whole =
                            sealed.check_whole().map_err(Error::io("read", &written.path))?;
                        whole.map_err(|_| differs(path))?;
                        Source::Sealed(sealed, size)
                    }
                    _ => return Err(differs(path)),
                }
            }
        };
        let keeps_form = self.conditions.task != Task::Rekey || copy.mac() == source.mac();
        if copy.size() != source.size() || !keeps_form {
            return Err(differs(path));
        }
        self.out.resize(CHUNK, 0);
        let (mut one, mut other) = (0, 0);
        loop {
            // A hole in one and zeros in the other are the same bytes.
            let next = |of: &Source, at| of.data(at).map_err(Error::io("read", path));
            let (here, there) = (next(&source, one)?, next(&copy, other)?);
            let Some(start) = [&here, &there].into_iter().flatten().map(|it| it.start).min() else {
                return Ok(());
            };
            let end = [&here, &there].into_iter().flatten().map(|it| it.end).max().unwrap_or(start);
            let mut at = start;
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
                let left = self.plain.get_mut(..wanted).unwrap_or_default();
                let right = self.out.get_mut(..wanted).unwrap_or_default();
                right.fill(0);
                let count = source.read(at, left).map_err(Error::io("read", path))?;
                // What is not zero there is a bad end, of which nothing was taken.
                left.get_mut(count..).unwrap_or_default().fill(0);
                copy.read(at, right).map_err(Error::io("read", &written.path))?;
                if left != right {
                    return Err(differs(path));
                }
                at += wanted as u64;
            }
            (one, other) = (end, end);
        }
    }
}

/// A sealed file, all of it as it must be where a MAC says how. Without a MAC, a power cut may have
/// left any end, and the library shows the file all the same.
fn sound(sealed: SealedFile, path: &Path) -> Result<Sound> {
    let size = sealed.plain_size().map_err(Error::io("look at", path))?;
    let bad_end = sealed.end().map_err(Error::io("read", path))?.first().copied();
    let changed = sealed.check_whole().map_err(Error::io("read", path))?.err();
    let source = Source::Sealed(sealed, size);
    match changed.or(bad_end.filter(|_| source.mac() == Mac::WholeFile)) {
        Some(fault) => Err(Error::Verification {
            what: format!("{}: {fault}", path.display()),
            hint: RESTORE.to_owned(),
        }),
        None => Ok((source, bad_end)),
    }
}

const RESTORE: &str =
    "`tidelock verify` says more; restore the file from a backup, then run this again";

fn open_file(path: &Path) -> Result<File> {
    walk::open_file(path, OFlags::NOFOLLOW).map_err(Error::io("open", path))
}

/// The name of the file that will take the place of `path`.
pub(super) fn next(path: &Path, inode: u64) -> PathBuf {
    path.with_file_name(format!("{NEXT}{inode}"))
}

fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn create_nameless(beside: &Path) -> io::Result<File> {
    let folder = beside.parent().unwrap_or(beside);
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Whoever resumes a decryption tells files that are done by their first bytes.
fn refuse_twice_sealed(
    conditions: &Conditions<'_>,
    plain: &[u8],
    count: usize,
    path: &Path,
) -> Result<()> {
    let first = plain.get(..count.min(PROBE_LEN)).unwrap_or_default();
    if conditions.task == Task::Decrypt && looks_sealed(first) {
        return Err(Error::refused(
            format!("{} is a sealed file within a sealed file", path.display()),
            "move it out of the directory, then run this again",
        ));
    }
    Ok(())
}

/// Mode, owner and extended attributes, in an order in which none undoes another. The time of the
/// last change stays that of the conversion: tools of backup that go by time and size must read the
/// file again, and a file under other keys may have the size that it had.
fn attributes(from: &File, to: &File, path: &Path) -> Result<()> {
    let found = from.metadata().map_err(Error::io("look at", path))?;
    let set = || -> io::Result<()> {
        // A folder with the setgid bit has given it the folder's group.
        let given = to.metadata()?;
        if (found.uid(), found.gid()) != (given.uid(), given.gid()) {
            use rustix::fs::{Gid, Uid};
            let (user, group) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
            fchown(to, Some(user), Some(group))?;
        }
        extended_attributes(from, to)?;
        to.set_permissions(Permissions::from_mode(found.mode() & 0o7777))
    };
    set().map_err(Error::io("set the owner, mode and attributes of", path))
}

fn extended_attributes(from: &File, to: &File) -> io::Result<()> {
    let (names, given) = (attribute_names(from)?, attribute_names(to)?);
    let is_acl = |name: &&[u8]| *name == ACL.as_bytes();
    // Of a folder with a default ACL.
    if each_name(&given).any(|name| is_acl(&name)) && !each_name(&names).any(|name| is_acl(&name)) {
        rustix::fs::fremovexattr(to, ACL)?;
    }
    if names.is_empty() {
        return Ok(());
    }
    let mut value = vec![0u8; XATTR];
    for name in each_name(&names) {
        let count = rustix::fs::fgetxattr(from, name, &mut value)?;
        let value = value.get(..count).unwrap_or_default();
        let set = rustix::fs::fsetxattr(to, name, value, rustix::fs::XattrFlags::empty());
        if let Err(errno) = set {
            // Labels that the system gives to new files by itself.
            let mut given = vec![0u8; XATTR];
            let same = rustix::fs::fgetxattr(to, name, &mut given)
                .is_ok_and(|count| given.get(..count) == Some(value));
            if !same {
                return Err(errno.into());
            }
        }
    }
    Ok(())
}

/// The names of extended attributes, a zero after each.
fn attribute_names(of: &File) -> io::Result<Vec<u8>> {
    let mut names = [0u8; 1024];
    match rustix::fs::flistxattr(of, &mut names) {
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Ok(count) => Ok(names.get(..count).unwrap_or_default().to_vec()),
        Err(Errno::RANGE) => {
            let mut all = vec![0u8; XATTR];
            let count = rustix::fs::flistxattr(of, &mut all)?;
            all.truncate(count);
            Ok(all)
        }
        Err(errno) => Err(errno.into()),
    }
}

fn each_name(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}

fn changed(path: &Path) -> Error {
    Error::refused(
        format!("{} was changed while it was converted", path.display()),
        "find out who writes there (lsof), end it, then run this again",
    )
}

fn differs(path: &Path) -> Error {
    Error::Verification {
        what: format!("{} was read back otherwise than it was written", path.display()),
        hint: "the file is as it was; see the system's log for errors of the disk".to_owned(),
    }
}

/// Why a sealed file cannot be converted.
pub(super) fn broken(path: &Path, fault: Fault) -> Error {
    let what = format!("{}: {fault}", path.display());
    match fault {
        Fault::Read(source) => Error::Io { what: "read", path: path.into(), source },
        Fault::UnknownKey { .. } => Error::BadKey {
            what,
            hint: "move the file out of the directory; or take its key in with `tidelock key \
                   adopt`"
                .to_owned(),
        },
        Fault::RolledBack { .. } => Error::BadKey {
            what,
            hint: "restore the newest keyring with `tidelock keyring restore`".to_owned(),
        },
        Fault::NotSealed => Error::Verification {
            what,
            hint: "a program without keys has put it there: move it out".to_owned(),
        },
        _ => Error::Verification { what, hint: RESTORE.to_owned() },
    }
}
