//! One simulated process: its descriptors, open file descriptions and locks, as the engine's two
//! traits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use libc::{O_ACCMODE, O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_TRUNC};
use tidelock_cipher::{Root, Sealed, SealedHeader};
use tidelock_engine::{
    Actor, Errno, Fd, FileStat, Identity, Kernel, Links, Refusal, Synced, System, Words,
};
use tidelock_format::{DiskOffset, DiskSize};

use super::SimDisk;
use super::faults::Call;
use super::names::Node;
use super::scratch::Scratch;

/// What direct access is aligned to.
const SECTOR: u64 = 512;
/// RLIMIT_NOFILE.
const LIMIT: i32 = 256;
/// Hidden descriptors begin here.
const HIDDEN: i32 = 1024;
const ANCHOR: Fd = Fd(1023);
/// How many hidden descriptors are kept for the next open.
const SPARES: usize = 2;
/// Beyond this, a file is too large.
const LARGEST: usize = 1 << 24;
/// A plaintext run of this length on the disk is a leak: by chance it occurs once in 10^13 bytes.
const LEAK: usize = 14;

/// A process of the simulated kernel.
pub struct SimProcess {
    disk: Rc<SimDisk>,
    pid: u64,
    table: RefCell<BTreeMap<i32, Rc<Description>>>,
    spares: RefCell<Vec<Fd>>,
    /// How often signals are blocked.
    blocked: Cell<u64>,
    recovers: Cell<bool>,
    crowded: Cell<bool>,
    /// Files may have record locks.
    locked: Cell<bool>,
    reports: RefCell<Vec<Refusal>>,
}

struct Description {
    what: Node,
    path: Vec<u8>,
    access: i32,
    offset: Cell<u64>,
}

impl Description {
    /// Direct access is by whole sectors, to memory that is aligned as they are.
    fn may_transfer(&self, bytes: &[u8], at: DiskOffset) -> Result<(), Errno> {
        let all = bytes.as_ptr().addr() | bytes.len();
        let fits = (all as u64 | at.get()).is_multiple_of(SECTOR);
        if self.access & O_DIRECT == 0 || fits { Ok(()) } else { Err(Errno::INVAL) }
    }
}

impl SimProcess {
    pub(super) fn new(disk: Rc<SimDisk>, pid: u64) -> Self {
        let anchor = Description {
            what: Node::Directory,
            path: b"/proc/self".to_vec(),
            access: O_PATH,
            offset: Cell::new(0),
        };
        Self {
            disk,
            pid,
            table: RefCell::new(BTreeMap::from([(ANCHOR.0, Rc::new(anchor))])),
            spares: RefCell::new(Vec::new()),
            blocked: Cell::new(0),
            recovers: Cell::new(false),
            locked: Cell::new(false),
            crowded: Cell::new(false),
            reports: RefCell::new(Vec::new()),
        }
    }

    /// The anchor, which the engine must be told to hide.
    #[must_use]
    pub const fn anchor_fd() -> Fd {
        ANCHOR
    }

    /// The descriptors that the program can see.
    #[must_use]
    pub fn visible(&self) -> Vec<i32> {
        self.table.borrow().keys().copied().filter(|&fd| fd < ANCHOR.0).collect()
    }

    /// How many descriptors stand for a real file, hidden ones included.
    #[must_use]
    pub fn real_files(&self) -> usize {
        let is_file = |open: &&Rc<Description>| matches!(open.what, Node::File(_));
        self.table.borrow().values().filter(is_file).count()
    }

    /// What was reported to the administrator so far.
    #[must_use]
    pub fn take_reports(&self) -> Vec<Refusal> {
        self.reports.take()
    }

    /// Lets the process be an engine in recovery.
    pub fn set_recovers(&self, recovers: bool) {
        self.recovers.set(recovers);
    }

    /// Lets the files have record locks.
    pub fn set_locked(&self, locked: bool) {
        self.locked.set(locked);
    }

    /// Lets the program have taken all descriptors for which the engine has places.
    pub fn set_crowded(&self, crowded: bool) {
        self.crowded.set(crowded);
    }

    /// True if nobody holds anything.
    #[must_use]
    pub fn holds_no_lock(&self) -> bool {
        self.blocked.get() == 0 && self.disk.words.are_at_rest()
    }

    /// fsync(2).
    ///
    /// # Errors
    /// EBADF.
    pub fn sync(&self, fd: Fd) -> Result<(), Errno> {
        let (_, file) = self.file(fd)?;
        self.disk.files.borrow_mut()[file].sync();
        Ok(())
    }

    /// close(2) straight to the kernel, as a program does that goes round libc.
    pub fn raw_close(&self, fd: i32) {
        self.table.borrow_mut().remove(&fd);
    }

    fn open_at(&self, fd: Fd) -> Result<Rc<Description>, Errno> {
        self.table.borrow().get(&fd.0).cloned().ok_or(Errno::BADF)
    }

    fn file(&self, fd: Fd) -> Result<(Rc<Description>, usize), Errno> {
        let open = self.open_at(fd)?;
        match open.what {
            Node::File(file) if open.access & O_PATH == 0 => Ok((open, file)),
            _ => Err(Errno::BADF),
        }
    }

    fn writable(&self, fd: Fd) -> Result<usize, Errno> {
        let (open, file) = self.file(fd)?;
        if open.access & O_ACCMODE == 0 { Err(Errno::BADF) } else { Ok(file) }
    }

    fn cut(&self, file: usize, size: DiskSize) -> Result<(), Errno> {
        self.disk.enter(Call::SetSize)?;
        let size = usize::try_from(size.0).map_err(|_| Errno::FBIG)?;
        let mut files = self.disk.files.borrow_mut();
        let longest = self.disk.longest.get().unwrap_or(LARGEST).max(files[file].bytes().len());
        if size > LARGEST.min(longest) {
            return Err(Errno::FBIG);
        }
        files[file].set_size(size);
        Ok(())
    }

    fn lowest_free(&self, lowest: i32) -> Result<i32, Errno> {
        let table = self.table.borrow();
        let free = (lowest..).find(|fd| !table.contains_key(fd)).ok_or(Errno::MFILE)?;
        if free >= LIMIT { Err(Errno::MFILE) } else { Ok(free) }
    }

    fn write(&self, file: usize, bytes: &[u8], at: u64, call: Call) -> Result<usize, Errno> {
        let short = self.disk.enter(call)?;
        check_for_plaintext(bytes);
        let at = usize::try_from(at).map_err(|_| Errno::FBIG)?;
        let len = bytes.len().min(short.unwrap_or(bytes.len()).max(1));
        let len = len.min(self.disk.longest.get().unwrap_or(LARGEST).saturating_sub(at));
        if at + len > LARGEST || (len == 0 && !bytes.is_empty()) {
            return Err(Errno::FBIG);
        }
        let mut room = self.disk.room.get();
        let count = self.disk.files.borrow_mut()[file].write(at, &bytes[..len], &mut room);
        self.disk.room.set(room);
        if count == 0 && len > 0 { Err(Errno::NOSPC) } else { Ok(count) }
    }

    /// The directory that an `at` call begins in, and the path.
    fn base(&self, at: Fd, path: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Errno> {
        let path = path.strip_suffix(b"\0").expect("paths end with a zero byte");
        assert!(!path.contains(&0), "a zero byte within a path");
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let base = if at == Fd::CWD || path[0] == b'/' {
            Vec::new()
        } else {
            let open = self.open_at(at)?;
            if open.what != Node::Directory {
                return Err(Errno::NOTDIR);
            }
            open.path.clone()
        };
        Ok((base, path.to_vec()))
    }

    fn canonical(&self, at: Fd, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let (base, path) = self.base(at, path)?;
        Ok(self.disk.names.borrow().find(&base, &path, false, true)?.path)
    }

    fn node_at(
        &self,
        at: Fd,
        path: &[u8],
        flags: i32,
        links: Links,
    ) -> Result<(Node, Vec<u8>), Errno> {
        let (base, path) = self.base(at, path)?;
        let digits = path.strip_prefix(b"/proc/self/fd/").filter(|digits| !digits.is_empty());
        if let Some(digits) = digits {
            if links == Links::Refuse {
                return Err(Errno::LOOP);
            }
            let number = String::from_utf8_lossy(digits).parse().map_err(|_| Errno::NOENT)?;
            let open = self.open_at(Fd(number)).map_err(|_| Errno::NOENT)?;
            return Ok((open.what.clone(), open.path.clone()));
        }
        let exclusive = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let follow = flags & O_NOFOLLOW == 0 && !exclusive;
        let found = self.disk.names.borrow().find(&base, &path, follow, links == Links::Follow)?;
        match found.node {
            Some(_) if exclusive => Err(Errno::EXIST),
            Some(Node::Link(_)) if flags & O_PATH == 0 => Err(Errno::LOOP),
            Some(node) => Ok((node, found.path)),
            None if flags & O_CREAT != 0 && flags & O_PATH == 0 => {
                let up = found.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                let parent = self.disk.names.borrow().find(b"", &found.path[..up], true, true)?;
                if parent.node != Some(Node::Directory) {
                    return Err(Errno::NOENT);
                }
                let file = self.disk.new_file();
                self.disk.names.borrow_mut().insert_file(&found.path, file);
                Ok((Node::File(file), found.path))
            }
            None => Err(Errno::NOENT),
        }
    }
}

impl Kernel for SimProcess {
    type Scratch = Scratch;

    fn pread(&self, file: Fd, into: &mut [u8], at: DiskOffset) -> Result<usize, Errno> {
        self.disk.enter(Call::Pread)?;
        let (open, file) = self.file(file)?;
        if open.access & O_ACCMODE == 1 {
            return Err(Errno::BADF);
        }
        open.may_transfer(into, at)?;
        let files = self.disk.files.borrow();
        let at = usize::try_from(at.get()).map_err(|_| Errno::INVAL)?;
        let found = files[file].bytes().get(at..).unwrap_or_default();
        let count = found.len().min(into.len());
        into[..count].copy_from_slice(&found[..count]);
        Ok(count)
    }

    fn pwrite(&self, file: Fd, bytes: Sealed<'_>, at: DiskOffset) -> Result<usize, Errno> {
        assert!(at.get() >= u64::from(self.disk.layout.data_offset()), "a write into the header");
        let bytes = bytes.as_bytes();
        let (open, _) = self.file(file)?;
        open.may_transfer(bytes, at)?;
        let file = self.writable(file)?;
        let count = self.write(file, bytes, at.get(), Call::Pwrite)?;
        if open.access & O_DIRECT != 0 {
            let from = usize::try_from(at.get()).map_err(|_| Errno::FBIG)?;
            self.disk.files.borrow_mut()[file].write_out(from, from + count);
        }
        Ok(count)
    }

    fn pwrite_first(
        &self,
        file: Fd,
        header: &SealedHeader,
        start: DiskOffset,
        bytes: Sealed<'_>,
    ) -> Result<usize, Errno> {
        let file = self.writable(file)?;
        let mut all = header.as_bytes().to_vec();
        all.resize(usize::try_from(start.get()).map_err(|_| Errno::INVAL)?, 0);
        all.extend_from_slice(bytes.as_bytes());
        self.write(file, &all, 0, Call::PwriteFirst)
    }

    fn clock(&self) -> u64 {
        self.disk.clock.get()
    }

    fn touch(&self, file: Fd) -> Result<(), Errno> {
        // Every other file is of another user.
        let file = self.writable(file)?;
        if file.is_multiple_of(2) { Ok(()) } else { Err(Errno::PERM) }
    }

    fn set_size(&self, file: Fd, size: DiskSize) -> Result<(), Errno> {
        let file = self.writable(file).map_err(|_| Errno::INVAL)?;
        self.cut(file, size)
    }

    fn stat(&self, file: Fd) -> Result<FileStat, Errno> {
        self.disk.enter(Call::Stat)?;
        let open = self.open_at(file)?;
        Ok(self.disk.stat_node(&open.what))
    }

    fn allocate(&self, file: Fd, mode: i32, at: DiskOffset, len: u64) -> Result<(), Errno> {
        let file = self.writable(file)?;
        self.disk.enter(Call::Allocate)?;
        let from = usize::try_from(at.get()).map_err(|_| Errno::FBIG)?;
        let end = from + usize::try_from(len).map_err(|_| Errno::FBIG)?;
        if end > LARGEST {
            return Err(Errno::FBIG);
        }
        let mut files = self.disk.files.borrow_mut();
        match mode {
            1 => {
                let mut room = self.disk.room.get();
                let done = files[file].allocate(from, end, &mut room);
                self.disk.room.set(room);
                if done { Ok(()) } else { Err(Errno::NOSPC) }
            }
            3 => {
                files[file].punch(from, end);
                Ok(())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn position(&self, file: Fd) -> Result<u64, Errno> {
        self.disk.enter(Call::Position)?;
        Ok(self.file(file)?.0.offset.get())
    }

    fn set_position(&self, file: Fd, at: u64) -> Result<(), Errno> {
        self.disk.enter(Call::SetPosition)?;
        self.file(file)?.0.offset.set(at);
        Ok(())
    }

    fn seek_back(&self, file: Fd, back: u64) -> Result<u64, Errno> {
        self.disk.enter(Call::SetPosition)?;
        let (open, file) = self.file(file)?;
        let size = self.disk.files.borrow()[file].bytes().len() as u64;
        let at = size.checked_sub(back).ok_or(Errno::INVAL)?;
        open.offset.set(at);
        Ok(at)
    }

    fn seek(&self, file: Fd, at: DiskOffset, whence: i32) -> Result<DiskOffset, Errno> {
        self.disk.enter(Call::Seek)?;
        let (open, file) = self.file(file)?;
        let from = usize::try_from(at.get()).map_err(|_| Errno::NXIO)?;
        let found = self.disk.files.borrow()[file].seek(from, whence == 3).ok_or(Errno::NXIO)?;
        open.offset.set(found as u64);
        Ok(tidelock_format::Layout::advance(DiskOffset::HEADER, found as u64))
    }

    fn synchronise(&self, file: Fd, _synced: Synced) -> Result<(), Errno> {
        self.disk.enter(Call::Synchronise)?;
        self.sync(file)
    }

    fn write_out(&self, file: Fd, at: DiskOffset, len: u64) -> Result<(), Errno> {
        self.disk.enter(Call::WriteOut)?;
        let (_, file) = self.file(file)?;
        let index = |at: u64| usize::try_from(at).map_err(|_| Errno::INVAL);
        let (from, to) = (index(at.get())?, index(at.get() + len)?);
        self.disk.files.borrow_mut()[file].write_out(from, to);
        Ok(())
    }

    fn words(&self, _root: Root) -> &Words {
        &self.disk.words
    }

    fn actor(&self, _root: Root) -> Actor {
        Actor::new(u32::try_from(self.pid).expect("few processes"), 64)
    }

    fn lives(&self, _root: Root, _number: u32) -> bool {
        true
    }

    fn sleep(&self, _word: &AtomicU64, _seen: u64) {
        panic!("all processes are one thread here: the engine waits for what it holds itself");
    }

    fn wake(&self, _word: &AtomicU64) {
        panic!("nobody sleeps here");
    }

    fn pause(&self, _looks: u32) {
        panic!("nobody else is at work here");
    }

    fn block_signals(&self) -> u64 {
        self.blocked.replace(self.blocked.get() + 1)
    }

    fn restore_signals(&self, mask: u64) {
        assert_eq!(self.blocked.replace(mask), mask + 1, "masks go back in their order");
    }

    fn scratch(&self, len: usize) -> Result<Scratch, Errno> {
        Ok(Scratch::new(len))
    }
}

impl System for SimProcess {
    fn open(&self, at: Fd, path: &[u8], flags: i32, _mode: u32, links: Links) -> Result<Fd, Errno> {
        self.disk.enter(Call::Open)?;
        let fd = self.lowest_free(0)?;
        let (what, path) = self.node_at(at, path, flags, links)?;
        let writes = flags & O_ACCMODE != 0;
        match &what {
            Node::Directory if writes || flags & O_CREAT != 0 => return Err(Errno::ISDIR),
            Node::File(_) if flags & O_DIRECTORY != 0 => return Err(Errno::NOTDIR),
            Node::File(file) if flags & O_TRUNC != 0 => {
                self.disk.files.borrow_mut()[*file].set_size(0);
            }
            _ => {}
        }
        let access = flags & (O_ACCMODE | O_PATH | O_DIRECT);
        let open = Description { what, path, access, offset: Cell::new(0) };
        self.table.borrow_mut().insert(fd, Rc::new(open));
        Ok(Fd(fd))
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let counted = self.disk.enter(Call::Close);
        self.table.borrow_mut().remove(&fd.0).ok_or(Errno::BADF)?;
        counted.map(|_| ())
    }

    fn set_size_of_path(&self, file: Fd, size: DiskSize) -> Result<(), Errno> {
        let (_, file) = self.file(file)?;
        self.cut(file, size)
    }

    fn duplicate(&self, of: Fd, lowest: i32, _cloexec: bool) -> Result<Fd, Errno> {
        self.disk.enter(Call::Duplicate)?;
        let open = self.open_at(of)?;
        let fd = self.lowest_free(lowest)?;
        self.table.borrow_mut().insert(fd, open);
        Ok(Fd(fd))
    }

    fn duplicate_onto(&self, of: Fd, onto: Fd, _cloexec: bool) -> Result<(), Errno> {
        self.disk.enter(Call::DuplicateOnto)?;
        let open = self.open_at(of)?;
        if onto.0 < ANCHOR.0 && onto.0 >= LIMIT || onto.0 < 0 {
            return Err(Errno::BADF);
        }
        self.table.borrow_mut().insert(onto.0, open);
        Ok(())
    }

    fn reserve_hidden(&self, _root: Root) -> Result<Fd, Errno> {
        self.disk.enter(Call::ReserveHidden)?;
        if let Some(spare) = self.spares.borrow_mut().pop() {
            return Ok(spare);
        }
        let mut table = self.table.borrow_mut();
        let fd = (HIDDEN..).find(|fd| !table.contains_key(fd)).ok_or(Errno::MFILE)?;
        let anchor = Rc::clone(&table[&ANCHOR.0]);
        table.insert(fd, anchor);
        Ok(Fd(fd))
    }

    fn has_number_below(&self, _numbers: usize) -> bool {
        !self.crowded.get()
    }

    fn keep_as_spare(&self, _root: Root, fd: Fd) -> bool {
        let mut table = self.table.borrow_mut();
        assert!(table.contains_key(&fd.0), "a hidden descriptor is given back twice");
        let stays = self.spares.borrow().len() < SPARES;
        if stays {
            let anchor = Rc::clone(&table[&ANCHOR.0]);
            table.insert(fd.0, anchor);
            self.spares.borrow_mut().push(fd);
        }
        stays
    }

    fn anchor(&self, _root: Root) -> Fd {
        ANCHOR
    }

    fn working_directory(&self, into: &mut [u8]) -> Result<usize, Errno> {
        copy(b"/", into)
    }

    fn path_of(&self, fd: Fd, into: &mut [u8]) -> Result<usize, Errno> {
        let open = self.open_at(fd)?;
        copy(&[b"/", &open.path[..]].concat(), into)
    }

    fn read_link(&self, at: Fd, path: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        let (base, path) = self.base(at, path)?;
        match self.disk.names.borrow().find(&base, &path, false, true)?.node {
            Some(Node::Link(target)) => copy(&target, into),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::NOENT),
        }
    }

    fn stat_at(&self, at: Fd, path: &[u8]) -> Result<FileStat, Errno> {
        self.disk.enter(Call::StatAt)?;
        let (base, path) = self.base(at, path)?;
        let found = self.disk.names.borrow().find(&base, &path, false, true)?;
        Ok(self.disk.stat_node(&found.node.ok_or(Errno::NOENT)?))
    }

    fn identity(&self, directory: Fd) -> Result<Identity, Errno> {
        self.disk.enter(Call::Stat)?;
        let open = self.open_at(directory)?;
        // One mount; directories have no numbers, so the path stands for one.
        let inode =
            open.path.iter().fold(7, |sum: u64, &byte| sum * 31 % (1 << 48) + u64::from(byte));
        Ok(Identity { device: 1, inode, mount: 1, changed: (0, 0) })
    }

    fn mount_origin(&self, _mount: u64, _into: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::NOENT)
    }

    fn rename(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: u32) -> Result<(), Errno> {
        self.disk.enter(Call::Rename)?;
        let (from, to) = (self.canonical(from.0, from.1)?, self.canonical(to.0, to.1)?);
        let no_replace = flags & 1 != 0;
        if no_replace && self.disk.names.borrow().file(&to).is_some() {
            return Err(Errno::EXIST);
        }
        self.disk.names.borrow_mut().rename(&from, &to)
    }

    fn link(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), _flags: i32) -> Result<(), Errno> {
        self.disk.enter(Call::Link)?;
        let (from, to) = (self.canonical(from.0, from.1)?, self.canonical(to.0, to.1)?);
        self.disk.names.borrow_mut().link(&from, &to)
    }

    fn drop_record_locks(&self, _file: Fd) {}

    fn may_be_locked(&self, _file: Fd) -> bool {
        self.locked.get()
    }

    fn is_sole_holder(&self, _file: Fd) -> bool {
        true
    }

    fn may_rekey_lost(&self, _root: Root) -> bool {
        self.recovers.get()
    }

    fn report(&self, _path: &[u8], why: Refusal) {
        self.reports.borrow_mut().push(why);
    }
}

fn copy(from: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
    into.get_mut(..from.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(from);
    Ok(from.len())
}

fn check_for_plaintext(bytes: &[u8]) {
    let mut run = 0;
    for (at, byte) in bytes.iter().enumerate() {
        run = if byte.is_ascii_lowercase() { run + 1 } else { 0 };
        assert!(run < LEAK, "plaintext reaches the disk: {LEAK} bytes up to byte {at} of a write");
    }
}
