//! The real kernel: every call of the engine as system calls, without libc.
//!
//! UNSAFETY: the engine names descriptors by number; borrowing a number is a promise that it is
//! open. The engine's table makes that promise: a hidden descriptor is closed by its last user
//! only.
#![expect(unsafe_code, reason = "descriptors by number")]

mod directory;
mod stat;

use core::ffi::CStr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, IntoRawFd};

use rustix::fs::{
    Access, AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, SeekFrom, StatxAttributes,
    StatxFlags, Timespec,
};
use tidelock_cipher::{Root, Sealed, SealedHeader};
use tidelock_engine::{
    Actor, Errno, Fd, FileStat, Identity, Kernel, Links, Refusal, Synced, System, Words,
};
use tidelock_format::{DiskOffset, DiskSize};
use tidelock_runtime::limits::Numbers;
use tidelock_runtime::{Served, Sharing, is_under_way};

use crate::host::HOST;
use crate::process::{roots, starting};
use crate::scratch::{self, Scratch};
use crate::{futex, requests, sys};

const SPARES: usize = 8;
/// What open(2) knows. O_LARGEFILE is missing: all files are large here.
const KNOWN: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::ASYNC)
    .union(OFlags::CLOEXEC)
    .union(OFlags::CREATE)
    .union(OFlags::DIRECT)
    .union(OFlags::DIRECTORY)
    .union(OFlags::SYNC)
    .union(OFlags::EXCL)
    .union(OFlags::NOATIME)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::PATH)
    .union(OFlags::TMPFILE)
    .union(OFlags::TRUNC);
/// What it looks at beside O_PATH.
const WITH_PATH: OFlags =
    OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// For a directory that is not there.
static NOBODY: Sharing = Sharing::with_nobody();

/// The Linux kernel.
pub struct Linux {
    spares: [AtomicI32; SPARES],
    /// The lowest number for hidden descriptors.
    hidden_from: AtomicI32,
    /// All numbers lie below this one.
    numbers_end: AtomicI32,
}

fn error(from: rustix::io::Errno) -> Errno {
    Errno(from.raw_os_error())
}

/// A descriptor that the caller knows to be open, or a number that the kernel will refuse.
fn borrow(fd: Fd) -> BorrowedFd<'static> {
    if fd == Fd::CWD {
        return rustix::fs::CWD;
    }
    // SAFETY: the engine holds the descriptor open for the time of the call; no process has the
    // largest number.
    unsafe { BorrowedFd::borrow_raw(if fd.0 < 0 { i32::MAX } else { fd.0 }) }
}

/// open(2) leaves the other flags out; openat2(2) refuses them.
fn as_open_takes(flags: OFlags) -> OFlags {
    flags & if flags.contains(OFlags::PATH) { WITH_PATH } else { KNOWN }
}

fn text(path: &[u8]) -> Result<&CStr, Errno> {
    CStr::from_bytes_until_nul(path).map_err(|_| Errno::INVAL)
}

impl Default for Linux {
    fn default() -> Self {
        Self::new()
    }
}

impl Linux {
    /// A kernel of which nothing is known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            spares: [const { AtomicI32::new(-1) }; SPARES],
            hidden_from: AtomicI32::new(512),
            numbers_end: AtomicI32::new(0),
        }
    }

    pub(crate) fn set_numbers(&self, Numbers { end, hidden }: Numbers) {
        self.hidden_from.store(hidden, Relaxed);
        self.numbers_end.store(end, Relaxed);
    }

    /// Spare descriptors, to be closed: their numbers are not to be used any more.
    pub(crate) fn take_spares(&self) -> impl Iterator<Item = Fd> {
        self.spares.iter().map(|spare| Fd(spare.swap(-1, Acquire))).filter(|fd| fd.0 >= 0)
    }

    pub(crate) fn hidden_from(&self) -> i32 {
        self.hidden_from.load(Relaxed)
    }
}

/// What this program with keys has of a directory.
#[inline]
fn served(root: Root) -> Option<&'static Served> {
    roots().policy(root)?.keys()
}

impl Kernel for Linux {
    type Scratch = Scratch;

    #[inline]
    fn pread(&self, file: Fd, into: &mut [u8], at: DiskOffset) -> Result<usize, Errno> {
        rustix::io::pread(borrow(file), into, at.get()).map_err(error)
    }

    #[inline]
    fn pwrite(&self, file: Fd, bytes: Sealed<'_>, at: DiskOffset) -> Result<usize, Errno> {
        rustix::io::pwrite(borrow(file), bytes.as_bytes(), at.get()).map_err(error)
    }

    fn pwrite_first(
        &self,
        file: Fd,
        header: &SealedHeader,
        start: DiskOffset,
        bytes: Sealed<'_>,
    ) -> Result<usize, Errno> {
        static ZEROS: [u8; 131_072] = [0; 131_072];
        let copies = header.as_bytes();
        let start = usize::try_from(start.get()).map_err(|_| Errno::INVAL)?;
        let padding = ZEROS.get(..start - copies.len()).ok_or(Errno::INVAL)?;
        let pieces = [IoSlice::new(copies), IoSlice::new(padding), IoSlice::new(bytes.as_bytes())];
        sys::write_pieces(file.0, &pieces, 0)
    }

    fn clock(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
    }

    fn set_size(&self, file: Fd, size: DiskSize) -> Result<(), Errno> {
        rustix::fs::ftruncate(borrow(file), size.0).map_err(error)
    }

    fn touch(&self, file: Fd) -> Result<(), Errno> {
        stat::touch(borrow(file)).map_err(error)
    }

    #[inline]
    fn stat(&self, file: Fd) -> Result<FileStat, Errno> {
        stat::of(borrow(file)).map_err(error)
    }

    fn allocate(&self, file: Fd, mode: i32, at: DiskOffset, len: u64) -> Result<(), Errno> {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        rustix::fs::fallocate(borrow(file), mode, at.get(), len).map_err(error)
    }

    fn position(&self, file: Fd) -> Result<u64, Errno> {
        rustix::fs::tell(borrow(file)).map_err(error)
    }

    fn set_position(&self, file: Fd, at: u64) -> Result<(), Errno> {
        rustix::fs::seek(borrow(file), SeekFrom::Start(at)).map(|_| ()).map_err(error)
    }

    fn seek_back(&self, file: Fd, back: u64) -> Result<u64, Errno> {
        let back = i64::try_from(back).map_err(|_| Errno::INVAL)?;
        rustix::fs::seek(borrow(file), SeekFrom::End(-back)).map_err(error)
    }

    fn seek(&self, file: Fd, at: DiskOffset, whence: i32) -> Result<DiskOffset, Errno> {
        let to = if whence == libc::SEEK_DATA {
            SeekFrom::Data(at.get())
        } else {
            SeekFrom::Hole(at.get())
        };
        let found = rustix::fs::seek(borrow(file), to).map_err(error)?;
        Ok(tidelock_format::Layout::advance(DiskOffset::HEADER, found))
    }

    fn set_flags(&self, file: Fd, flags: i32) {
        let args = [i64::from(file.0), libc::F_SETFL.into(), flags.into(), 0, 0, 0];
        let _ = sys::plain(sys::nr::FCNTL, args);
    }

    fn synchronise(&self, file: Fd, synced: Synced) -> Result<(), Errno> {
        let done = match synced {
            Synced::Data => rustix::fs::fdatasync(borrow(file)),
            Synced::All => rustix::fs::fsync(borrow(file)),
        };
        done.map_err(error)
    }

    fn write_out(&self, file: Fd, at: DiskOffset, len: u64) -> Result<(), Errno> {
        const ALL: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let (at, len) = (at.get().cast_signed(), len.cast_signed());
        let args = [i64::from(file.0), at, len, i64::from(ALL), 0, 0];
        match sys::plain(sys::nr::SYNC_FILE_RANGE, args) {
            // A sandbox that does not have it: more than was promised.
            Err(Errno::NOSYS | Errno::PERM) => self.synchronise(file, Synced::Data),
            done => done.map(|_| ()),
        }
    }

    #[inline]
    fn words(&self, root: Root) -> &Words {
        served(root).map_or(NOBODY.words(), |served| served.sharing.words())
    }

    fn shares_words(&self, root: Root) -> bool {
        served(root).is_some_and(|served| served.sharing.is_shared())
    }

    #[inline]
    fn actor(&self, root: Root) -> Actor {
        served(root).map_or(&NOBODY, |served| &served.sharing).actor(&HOST, sys::thread())
    }

    fn lives(&self, root: Root, number: u32) -> bool {
        served(root).is_none_or(|served| served.sharing.lives(&HOST, number))
    }

    fn sleep(&self, word: &AtomicU64, seen: u64) {
        if requests::look() {
            return;
        }
        // Nobody wakes us when the kernel is done with one of them.
        let ns = if requests::are_under_way() { LOOK_AFTER_NS } else { ASK_AFTER_NS };
        futex::sleep(word, seen, ns);
    }

    fn wake(&self, word: &AtomicU64) {
        futex::wake(word);
    }

    fn pause(&self, looks: u32) {
        if !requests::look() {
            let ns = i64::from(looks.clamp(1, 100)) * 20_000;
            let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: ns });
        }
    }

    fn block_signals(&self) -> u64 {
        sys::block_signals()
    }

    fn restore_signals(&self, mask: u64) {
        sys::restore_signals(mask);
    }

    fn appends(&self, file: Fd, remembered: bool) -> bool {
        let args = [i64::from(file.0), F_GETSIG, 0, 0, 0, 0];
        sys::plain(sys::nr::FCNTL, args).map_or(remembered, |signal| signal == APPENDS)
    }

    fn mark_appends(&self, file: Fd, appends: bool) {
        let args = [i64::from(file.0), F_SETSIG, if appends { APPENDS } else { 0 }, 0, 0, 0];
        // It fails for want of a few bytes of memory only; then this process alone knows.
        let _ = sys::plain(sys::nr::FCNTL, args);
    }

    #[inline]
    fn scratch(&self, len: usize) -> Result<Scratch, Errno> {
        scratch::take(len)
    }
}

impl System for Linux {
    fn open(&self, at: Fd, path: &[u8], flags: i32, mode: u32, links: Links) -> Result<Fd, Errno> {
        let path = text(path)?;
        let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mode = Mode::from_bits_retain(if creates { mode & 0o7777 } else { 0 });
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let opened = match links {
            Links::Follow => rustix::fs::openat(borrow(at), path, flags, mode),
            Links::Refuse => {
                let flags = as_open_takes(flags);
                // open(2) leaves the mode out too.
                let mode = if flags.contains(OFlags::PATH) { Mode::empty() } else { mode };
                let opened =
                    rustix::fs::openat2(borrow(at), path, flags, mode, ResolveFlags::NO_SYMLINKS);
                // A filter of system calls may say EPERM of a call that it does not know. A true
                // one comes again on the way without this call.
                opened.map_err(|why| match why {
                    rustix::io::Errno::PERM => rustix::io::Errno::NOSYS,
                    why => why,
                })
            }
        };
        opened.map(|fd| Fd(fd.into_raw_fd())).map_err(error)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        sys::plain(sys::nr::CLOSE, [i64::from(fd.0), 0, 0, 0, 0, 0]).map(|_| ())
    }

    fn set_size_of_path(&self, file: Fd, size: DiskSize) -> Result<(), Errno> {
        let mut name = [0; 32];
        let name = text(crate::stdio::standard::name_of(file.0, &mut name))?;
        sys::truncate(name, size.0)
    }

    fn duplicate(&self, of: Fd, lowest: i32, cloexec: bool) -> Result<Fd, Errno> {
        let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        let args = [i64::from(of.0), i64::from(command), i64::from(lowest), 0, 0, 0];
        let fd = sys::plain(sys::nr::FCNTL, args)?;
        i32::try_from(fd).map(Fd).map_err(|_| Errno::MFILE)
    }

    fn duplicate_onto(&self, of: Fd, onto: Fd, cloexec: bool) -> Result<(), Errno> {
        let flags = if cloexec { i64::from(libc::O_CLOEXEC) } else { 0 };
        sys::plain(sys::nr::DUP3, [i64::from(of.0), i64::from(onto.0), flags, 0, 0, 0]).map(|_| ())
    }

    fn reserve_hidden(&self, root: Root) -> Result<Fd, Errno> {
        for spare in &self.spares {
            if spare.load(Relaxed) >= 0 {
                let fd = spare.swap(-1, Acquire);
                if fd >= 0 {
                    return Ok(Fd(fd));
                }
            }
        }
        match self.duplicate(self.anchor(root), self.hidden_from(), true) {
            // The program has lowered its limit below that: the upper half of what is left.
            Err(Errno::INVAL) => self.duplicate(self.anchor(root), half_of_the_limit(), true),
            reserved => reserved,
        }
    }

    fn has_number_below(&self, numbers: usize) -> bool {
        let last = i32::try_from(numbers).map_or(i32::MAX, |numbers| numbers - 1);
        if self.numbers_end.load(Relaxed) <= last {
            return true;
        }
        // The kernel gives the lowest number that is free, so the last one tells.
        let asked = [i64::from(last), i64::from(libc::F_GETFD), 0, 0, 0, 0];
        if sys::plain(sys::nr::FCNTL, asked).is_err() {
            return true;
        }
        let next = self.duplicate(self.anchor(Root::FIRST), 0, true);
        next.is_ok_and(|fd| self.close(fd).is_ok() && fd.0 <= last)
    }

    fn keep_as_spare(&self, root: Root, fd: Fd) -> bool {
        // A low number is the program's.
        fd.0 >= self.hidden_from()
            && self.spares.iter().any(|spare| spare.load(Relaxed) < 0)
            && self.duplicate_onto(self.anchor(root), fd, true).is_ok()
            && self
                .spares
                .iter()
                .any(|spare| spare.compare_exchange(-1, fd.0, Release, Relaxed).is_ok())
    }

    fn anchor(&self, root: Root) -> Fd {
        served(root).map_or(Fd(-1), |served| served.anchor)
    }

    fn working_directory(&self, into: &mut [u8]) -> Result<usize, Errno> {
        // Nobody tells us of changes in a program that is guarded.
        if crate::guard::is_at_work() || APART.load(Relaxed) {
            return sys::working_directory(into);
        }
        directory::read(into)
    }

    fn path_of(&self, fd: Fd, into: &mut [u8]) -> Result<usize, Errno> {
        let mut name = [0; 32];
        let name = crate::stdio::standard::name_of(fd.0, &mut name);
        self.read_link(Fd::CWD, name, into)
    }

    fn read_link(&self, at: Fd, path: &[u8], into: &mut [u8]) -> Result<usize, Errno> {
        rustix::fs::readlinkat_raw(borrow(at), text(path)?, into)
            .map(|found: usize| found)
            .map_err(error)
    }

    fn stat_at(&self, at: Fd, path: &[u8]) -> Result<FileStat, Errno> {
        stat::at(borrow(at), text(path)?).map_err(error)
    }

    fn may_only_write(&self, at: Fd, path: &[u8]) -> bool {
        let may = |access| {
            let asked = text(path)
                .map(|path| rustix::fs::accessat(borrow(at), path, access, AtFlags::EACCESS));
            asked.map(|answer| answer.is_ok())
        };
        may(Access::WRITE_OK) == Ok(true) && may(Access::READ_OK) == Ok(false)
    }

    fn can_only_grow(&self, at: Fd, path: &[u8]) -> bool {
        let found = text(path)
            .map(|path| rustix::fs::statx(borrow(at), path, AtFlags::empty(), StatxFlags::TYPE));
        matches!(found, Ok(Ok(stat)) if stat.stx_attributes.contains(StatxAttributes::APPEND))
    }

    fn identity(&self, directory: Fd) -> Result<Identity, Errno> {
        let wanted = StatxFlags::INO | StatxFlags::CTIME | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(borrow(directory), c"", AtFlags::EMPTY_PATH, wanted)
            .map_err(error)?;
        let tells_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(Identity {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            mount: if tells_mount { stat.stx_mnt_id } else { 0 },
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        })
    }

    fn mount_origin(&self, mount: u64, into: &mut [u8]) -> Result<usize, Errno> {
        tidelock_runtime::mounts::origin(mount, into)
    }

    fn rename(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: u32) -> Result<(), Errno> {
        let (from, to) = ((from.0.0, text(from.1)?), (to.0.0, text(to.1)?));
        sys::two_paths(sys::nr::RENAMEAT2, from, to, i64::from(flags))
    }

    fn link(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: i32) -> Result<(), Errno> {
        let (from, to) = ((from.0.0, text(from.1)?), (to.0.0, text(to.1)?));
        sys::two_paths(sys::nr::LINKAT, from, to, i64::from(flags))
    }

    fn drop_record_locks(&self, file: Fd) {
        let all = libc::flock { l_type: 2, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
        // Unlocking cannot fail on an open file.
        let _ = sys::lock_record(file.0, i64::from(libc::F_SETLK), &all);
    }

    fn may_be_locked(&self, file: Fd) -> bool {
        let kind = 1; // F_WRLCK: any lock is in its way.
        let mut all = libc::flock { l_type: kind, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
        // For the open file: then the locks of this very process are in the way too.
        let asked = sys::query_record(file.0, libc::F_OFD_GETLK, &mut all);
        asked.is_err() || i32::from(all.l_type) != libc::F_UNLCK
    }

    fn is_sole_holder(&self, file: Fd) -> bool {
        let ask = |command: i64, word: i64| {
            let args = [i64::from(file.0), command, word, 0, 0, 0];
            sys::plain(sys::nr::FCNTL, args)
        };
        let lease = |kind: i32| ask(libc::F_SETLEASE.into(), kind.into()).is_ok();
        let Ok(mark) = ask(F_GETSIG, 0) else { return false };
        // Who opens the file meanwhile has the kernel send us a signal. SIGIO would end the
        // program; SIGURG is ignored. F_UNLCK takes it back.
        if ask(F_SETSIG, libc::SIGURG.into()).is_err() {
            return false;
        }
        let sole = lease(libc::F_WRLCK) && lease(libc::F_UNLCK);
        let _ = ask(F_SETSIG, mark);
        sole
    }

    fn may_rekey_lost(&self, root: Root) -> bool {
        is_under_way(starting(), root)
    }

    fn report(&self, path: &[u8], why: Refusal) {
        tidelock_runtime::messages::refusal(starting(), path, why);
        if why.ends_the_program() {
            sys::exit(MORE_THAN_A_COMMAND);
        }
    }
}

/// PostgreSQL stops recovery when a restore_command ends with more than 125.
const MORE_THAN_A_COMMAND: i32 = 255;

/// The signal that an open file would send when it is ready. A regular file never is, so that the
/// number is free to tell all who share the open file that it appends.
const F_SETSIG: i64 = 10;
const F_GETSIG: i64 = 11;
const APPENDS: i64 = 1;

/// How long a sleeper sleeps before it asks whether whom it waits for lives.
const ASK_AFTER_NS: i64 = 20_000_000;
/// The same, before it looks at requests of its own process.
const LOOK_AFTER_NS: i64 = 100_000;

fn half_of_the_limit() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| i32::try_from(limit / 2).ok()).unwrap_or(i32::MAX)
}

/// Asks the kernel for the working directory again, after chdir or fchdir.
pub fn refresh_working_directory() {
    directory::refresh();
}

/// Threads have working directories of their own, or soon will: each asks for its own.
pub(crate) fn working_directories_part() {
    APART.store(true, Relaxed);
}

static APART: AtomicBool = AtomicBool::new(false);

/// In a forked child, which has one thread.
pub(crate) fn working_directory_after_fork() {
    directory::after_fork_in_child();
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn who_opens_the_file_while_it_is_asked_about_ends_nobody() {
        let path = std::env::temp_dir().join(format!("tidelock-sole-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file");
        let fd = Fd(file.as_raw_fd());
        let (kernel, done) = (Linux::new(), AtomicBool::new(false));
        kernel.mark_appends(fd, true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let _ = File::open(&path);
                }
            });
            for _ in 0..20_000 {
                let _ = kernel.is_sole_holder(fd);
            }
            done.store(true, Relaxed);
        });
        assert!(kernel.appends(fd, false));
        let again = File::open(&path).expect("it is there");
        assert!(!kernel.is_sole_holder(fd));
        drop(again);
        std::fs::remove_file(path).expect("removed");
    }
}
