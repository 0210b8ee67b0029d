//! What the engine needs of an operating system.
//!
//! Two traits: [`Kernel`] for the bytes of one file, [`System`] for names and descriptors. The real
//! ones are system calls (in `ffi`); the simulated one crashes, tears and fails at every call (in
//! `testkit`). Nothing here takes plain bytes: what is written is [`Sealed`] or a [`SealedHeader`],
//! by type.

use core::sync::atomic::AtomicU64;

use tidelock_cipher::{Root, Sealed, SealedHeader};
use tidelock_format::{DiskOffset, DiskSize};

use crate::ancestry::Identity;
use crate::errno::Errno;
use crate::refusal::Refusal;
use crate::words::{Actor, Words};

/// A descriptor of the process; for a sealed file, of the hidden kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fd(pub i32);

impl Fd {
    /// The working directory, as the first argument of an `at` call.
    pub const CWD: Self = Self(-100);
}

/// What fstat says of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The size on the disk, header included.
    pub size: DiskSize,
    /// True for a regular file.
    pub regular: bool,
    /// True for a directory.
    pub directory: bool,
    /// True for a symbolic link.
    pub symlink: bool,
    /// True for a block device: what is written there lies on a disk, and has no header.
    pub block: bool,
}

/// The bytes of files, and what processes need to share them.
pub trait Kernel {
    /// Working memory, aligned to a page.
    type Scratch: core::ops::DerefMut<Target = [u8]>;

    /// Reads from a place; fewer bytes only at the end of the file.
    fn pread(&self, file: Fd, into: &mut [u8], at: DiskOffset) -> Result<usize, Errno>;

    /// Writes to a place; may write less than asked.
    fn pwrite(&self, file: Fd, bytes: Sealed<'_>, at: DiskOffset) -> Result<usize, Errno>;

    /// Writes the first `start` bytes of the header region (both copies, then zeros) and bytes
    /// behind them in one call.
    fn pwrite_first(
        &self,
        file: Fd,
        header: &SealedHeader,
        start: DiskOffset,
        bytes: Sealed<'_>,
    ) -> Result<usize, Errno>;

    /// Cuts or extends; what is new reads as zeros.
    fn set_size(&self, file: Fd, size: DiskSize) -> Result<(), Errno>;

    /// Gives the file the time of now as that of its last change.
    fn touch(&self, file: Fd) -> Result<(), Errno>;

    /// Size and identity.
    fn stat(&self, file: Fd) -> Result<FileStat, Errno>;

    /// fallocate(2) with this mode.
    fn allocate(&self, file: Fd, mode: i32, at: DiskOffset, len: u64) -> Result<(), Errno>;

    /// The kernel's offset of the open file: it holds the plain offset.
    fn position(&self, file: Fd) -> Result<u64, Errno>;

    /// Moves the kernel's offset.
    fn set_position(&self, file: Fd, at: u64) -> Result<(), Errno>;

    /// Moves the kernel's offset to `back` bytes before the end, and returns it.
    ///
    /// # Errors
    /// EINVAL if the file is shorter than that.
    fn seek_back(&self, file: Fd, back: u64) -> Result<u64, Errno>;

    /// The next data or hole from a place (SEEK_DATA or SEEK_HOLE); moves the kernel's offset.
    fn seek(&self, file: Fd, at: DiskOffset, whence: i32) -> Result<DiskOffset, Errno>;

    /// Lets an open file have, of the flags that may change (F_SETFL), these alone. For a regular
    /// file none of them can be refused.
    fn set_flags(&self, _file: Fd, _flags: i32) {}

    /// fdatasync(2) or fsync(2).
    fn synchronise(&self, file: Fd, synced: Synced) -> Result<(), Errno>;

    /// Waits until the disk has what was written to a range of the file. What the file system
    /// knows of the file, such as its size, may still be on its way (`sync_file_range(2)`).
    fn write_out(&self, file: Fd, at: DiskOffset, len: u64) -> Result<(), Errno>;

    /// The words that all processes of directory `root` share.
    fn words(&self, root: Root) -> &Words;

    /// False where no memory could be shared: a forked child has words of its own then.
    fn shares_words(&self, _root: Root) -> bool {
        true
    }

    /// The calling thread, by the number that its process has in directory `root`.
    fn actor(&self, root: Root) -> Actor;

    /// True if the process with this number lives. Asked of the system, never guessed; when in
    /// doubt it lives.
    fn lives(&self, root: Root, number: u32) -> bool;

    /// Sleeps until somebody wakes sleepers of this word of [`words`](Self::words), for some
    /// milliseconds at most; not at all if its lower half is not that of `seen` any more. Looks
    /// before whether requests of the process are done ([`WriteRequest`](crate::WriteRequest)).
    fn sleep(&self, word: &AtomicU64, seen: u64);

    /// Wakes all that sleep at this word.
    fn wake(&self, word: &AtomicU64);

    /// Waits a moment for something that nobody tells the end of; longer the more looks were in
    /// vain. Looks at requests as [`sleep`](Self::sleep) does.
    fn pause(&self, looks: u32);

    /// Milliseconds of a clock that never goes back, at little cost.
    fn clock(&self) -> u64 {
        0
    }

    /// Blocks all signals of this thread; the mask that was.
    fn block_signals(&self) -> u64;

    /// Goes back to a mask.
    fn restore_signals(&self, mask: u64);

    /// Whether an open file appends, where another process may have changed that: O_APPEND itself
    /// is kept from the kernel, which would ignore the offset of a pwrite, but all who share the
    /// open file see a mark of it. `remembered` is what this process knows, and the answer where
    /// there are no others.
    fn appends(&self, file: Fd, remembered: bool) -> bool {
        let _ = file;
        remembered
    }

    /// Makes that mark, or takes it away.
    fn mark_appends(&self, file: Fd, appends: bool) {
        let _ = (file, appends);
    }

    /// Working memory of `len` bytes, at most [`SCRATCH_MAX`]; waits for nobody.
    ///
    /// # Errors
    /// ENOMEM if there is none.
    fn scratch(&self, len: usize) -> Result<Self::Scratch, Errno>;
}

/// What of a file the disk shall have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Synced {
    /// Its bytes, and what it takes to read them again: fdatasync(2).
    Data,
    /// All that the file system knows of it: fsync(2).
    All,
}

/// The largest working memory that is ever asked for.
pub const SCRATCH_MAX: usize = 128 * 1024;

/// Names and descriptors.
pub trait System: Kernel {
    /// openat(2), or openat2(2) with RESOLVE_NO_SYMLINKS when `links` is [`Links::Refuse`].
    ///
    /// `path` ends with a zero byte. ELOOP if a link was met that may not be followed.
    fn open(&self, at: Fd, path: &[u8], flags: i32, mode: u32, links: Links) -> Result<Fd, Errno>;

    /// Closes; an error is never retried.
    fn close(&self, fd: Fd) -> Result<(), Errno>;

    /// truncate(2) of the file behind an O_PATH descriptor.
    fn set_size_of_path(&self, file: Fd, size: DiskSize) -> Result<(), Errno>;

    /// The lowest free descriptor not below `lowest`, as a copy of `of`.
    fn duplicate(&self, of: Fd, lowest: i32, cloexec: bool) -> Result<Fd, Errno>;

    /// Makes `onto` a copy of `of` (dup3), closing what it was.
    fn duplicate_onto(&self, of: Fd, onto: Fd, cloexec: bool) -> Result<(), Errno>;

    /// A descriptor to move a real file to: at a number that no program will meet, close-on-exec.
    /// Taken before the open, so that a file that cannot be hidden is never created.
    fn reserve_hidden(&self, root: Root) -> Result<Fd, Errno>;

    /// True if the kernel would give the next descriptor a number below `numbers`.
    fn has_number_below(&self, _numbers: usize) -> bool {
        true
    }

    /// Closes the file behind a hidden descriptor, whose number stays for the next open; false if
    /// it cannot stay, and is the caller's to close.
    fn keep_as_spare(&self, root: Root, fd: Fd) -> bool;

    /// The anchor of directory `root`: an O_PATH descriptor that can neither be read, written nor
    /// reopened.
    fn anchor(&self, root: Root) -> Fd;

    /// The working directory, absolute and without links; its length in `into`.
    fn working_directory(&self, into: &mut [u8]) -> Result<usize, Errno>;

    /// The path of an open file or directory as the kernel knows it (/proc/self/fd).
    fn path_of(&self, fd: Fd, into: &mut [u8]) -> Result<usize, Errno>;

    /// readlinkat(2); `path` ends with a zero byte.
    fn read_link(&self, at: Fd, path: &[u8], into: &mut [u8]) -> Result<usize, Errno>;

    /// fstatat(2) without following a last link.
    fn stat_at(&self, at: Fd, path: &[u8]) -> Result<FileStat, Errno>;

    /// True if the mode of the file at `path` lets this process write to it and not read it.
    fn may_only_write(&self, _at: Fd, _path: &[u8]) -> bool {
        false
    }

    /// True if the file at `path` has the attribute by which it can only be appended to.
    fn can_only_grow(&self, _at: Fd, _path: &[u8]) -> bool {
        false
    }

    /// Which directory this is, by whatever path it was opened.
    fn identity(&self, directory: Fd) -> Result<Identity, Errno>;

    /// The path, within its file system, of the directory that is mounted by this mount; its length
    /// in `into`.
    ///
    /// # Errors
    /// ENOENT if there is no such mount here.
    fn mount_origin(&self, mount: u64, into: &mut [u8]) -> Result<usize, Errno>;

    /// renameat2(2), linkat(2): paths end with a zero byte.
    fn rename(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: u32) -> Result<(), Errno>;

    /// linkat(2).
    fn link(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: i32) -> Result<(), Errno>;

    /// Drops every POSIX record lock of this process on the file, as closing one of its descriptors
    /// does.
    fn drop_record_locks(&self, file: Fd);

    /// True if a POSIX record lock may be on the file, of this process or of others; when in doubt
    /// there is one.
    fn may_be_locked(&self, file: Fd) -> bool;

    /// True if nobody else has this file open (a write lease could be had).
    fn is_sole_holder(&self, file: Fd) -> bool;

    /// True if this program may give a lost header a new key: an engine that recovers from an
    /// unclean stop.
    fn may_rekey_lost(&self, root: Root) -> bool;

    /// Tells the administrator, in one line on standard error. Does not come back from a refusal
    /// that [ends the program](Refusal::ends_the_program).
    fn report(&self, path: &[u8], why: Refusal);
}

/// Whether symbolic links in a path are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// As the flags say.
    Follow,
    /// None anywhere: ELOOP instead.
    Refuse,
}
