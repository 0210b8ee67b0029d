//! The stat family: everything as the kernel says, but the size is that of the plain file.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_uint};

use libc::{stat as Stat, statx as Statx};
use tidelock_engine::{Errno, Fd, FileStat, LastLink};
use tidelock_format::DiskSize;

use crate::hooks::index::named;
use crate::hooks::{File, aside, is_empty, names_control, path as path_of, proc};
use crate::process::{ActiveProcess, process};
use crate::raw;

pub unsafe fn fstat(fd: c_int, into: *mut Stat) -> c_int {
    // SAFETY: the contract of fstat.
    let file = sealed_or!(fd, unsafe { fstat_of_other(fd, into) });
    // SAFETY: the program's own arguments.
    let look = || Ok(unsafe { raw!(SYS_fstat, file.hidden().0, into) });
    let done: c_int = try_or_fail!(file.between_changes(look));
    if done == 0 {
        // SAFETY: the kernel has just filled it.
        let into = unsafe { &mut *into };
        into.st_size = plain_size(&file, into.st_size);
    }
    done
}

/// The descriptor that a path names, if its size is not the one on the disk.
///
/// # Safety
/// As `path_of`.
unsafe fn descriptor_at(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let sealed = unsafe { proc::followed(path, flags) };
    let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    sealed.or_else(|| {
        let process = process().filter(|process| follows && process.has_unopened())?;
        // SAFETY: the caller's promise.
        let fd = process.numbered(unsafe { path_of(path) }.ok()?)?;
        Unopened::may_be(fd).map(|_| fd)
    })
}

/// Of a descriptor that is not ours, but may be an O_PATH one of a sealed file.
unsafe fn fstat_of_other(fd: c_int, into: *mut Stat) -> c_int {
    let unopened = Unopened::may_be(fd);
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_fstat, fd, into) };
    if done == 0
        && let Some(unopened) = unopened
    {
        // SAFETY: the kernel has just filled it.
        let into = unsafe { &mut *into };
        let found = found(into.st_mode, into.st_size, into.st_dev, into.st_ino);
        into.st_size = try_or_fail!(unopened.size(&found));
    }
    done
}

pub unsafe fn stat(path: *const c_char, into: *mut Stat) -> c_int {
    // SAFETY: the contract of stat.
    unsafe { fstatat(libc::AT_FDCWD, path, into, 0) }
}

pub unsafe fn lstat(path: *const c_char, into: *mut Stat) -> c_int {
    // SAFETY: the contract of lstat.
    unsafe { fstatat(libc::AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW) }
}

pub unsafe fn fstatat(at: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int {
    // SAFETY: the contract of fstatat.
    if flags & libc::AT_EMPTY_PATH != 0 && at >= 0 && unsafe { is_empty(path) } {
        // SAFETY: the contract of fstat.
        return unsafe { fstat(at, into) };
    }
    // SAFETY: the contract of fstatat.
    if let Some(fd) = unsafe { descriptor_at(path, flags) } {
        // SAFETY: the contract of fstat.
        return unsafe { fstat(fd, into) };
    }
    let changes = size_changes();
    let done: c_int = named!(at, path: SYS_newfstatat, at, path, into, flags);
    if done != 0 || process().is_none() {
        return done;
    }
    // SAFETY: the kernel has just filled it.
    let into = unsafe { &mut *into };
    // SAFETY: the kernel has just used it.
    let found = found(into.st_mode, into.st_size, into.st_dev, into.st_ino);
    // SAFETY: the kernel has just used it.
    let size = unsafe { size_of_named(at, path, flags, &found, changes) };
    into.st_size = try_or_fail!(size);
    done
}

pub unsafe fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut Statx,
) -> c_int {
    // SAFETY: the contract of statx.
    if flags & libc::AT_EMPTY_PATH != 0 && at >= 0 && unsafe { is_empty(path) } {
        // SAFETY: the contract of statx.
        return unsafe { statx_of(at, flags, mask, into) };
    }
    // SAFETY: the contract of statx.
    if let Some(fd) = unsafe { descriptor_at(path, flags) } {
        // SAFETY: the contract of statx.
        return unsafe { statx_of(fd, flags | libc::AT_EMPTY_PATH, mask, into) };
    }
    let mask = if process().is_some() { mask | NEEDED } else { mask };
    let changes = size_changes();
    let done: c_int = named!(at, path: SYS_statx, at, path, flags, mask, into);
    if done != 0 || process().is_none() {
        return done;
    }
    // SAFETY: the kernel has just filled it.
    let into = unsafe { &mut *into };
    let found = found_by_statx(into);
    // SAFETY: the kernel has just used it.
    let size = unsafe { size_of_named(at, path, flags, &found, changes) };
    into.stx_size = try_or_fail!(size).cast_unsigned();
    done
}

unsafe fn statx_of(fd: c_int, flags: c_int, mask: c_uint, into: *mut Statx) -> c_int {
    let empty = c"".as_ptr();
    // SAFETY: the contract of statx.
    let file = sealed_or!(fd, unsafe { statx_of_other(fd, flags, mask, into) });
    // SAFETY: the program's own arguments.
    let look = || Ok(unsafe { raw!(SYS_statx, file.hidden().0, empty, flags, mask, into) });
    let done: c_int = try_or_fail!(file.between_changes(look));
    if done == 0 {
        // SAFETY: the kernel has just filled it.
        let into = unsafe { &mut *into };
        into.stx_size = plain_size(&file, into.stx_size.cast_signed()).cast_unsigned();
    }
    done
}

/// As [`fstat_of_other`].
unsafe fn statx_of_other(fd: c_int, flags: c_int, mask: c_uint, into: *mut Statx) -> c_int {
    let unopened = Unopened::may_be(fd);
    let mask = if unopened.is_some() { mask | NEEDED } else { mask };
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_statx, fd, c"".as_ptr(), flags, mask, into) };
    if done == 0
        && let Some(unopened) = unopened
    {
        // SAFETY: the kernel has just filled it.
        let into = unsafe { &mut *into };
        let size = try_or_fail!(unopened.size(&found_by_statx(into)));
        into.stx_size = size.cast_unsigned();
    }
    done
}

/// A descriptor that is open as O_PATH, in a process that has opened a sealed file so.
struct Unopened {
    fd: c_int,
    process: &'static ActiveProcess,
    /// Taken before it was looked at.
    changes: u64,
}

impl Unopened {
    fn may_be(fd: c_int) -> Option<Self> {
        let process = process().filter(|process| process.has_unopened())?;
        let before = raw::errno();
        let flags: c_int = numeric!(SYS_fcntl, fd, libc::F_GETFL);
        raw::set_errno(before);
        let changes = process.size_changes();
        (flags >= 0 && flags & libc::O_PATH != 0).then_some(Self { fd, process, changes })
    }

    fn size(&self, found: &FileStat) -> Result<i64, Errno> {
        if !found.regular {
            return Ok(found.size.0.cast_signed());
        }
        let size = || self.process.size_of_unopened(Fd(self.fd), found, self.changes);
        aside(size).map(u64::cast_signed)
    }
}

pub unsafe fn fxstat(version: c_int, fd: c_int, into: *mut Stat) -> c_int {
    // SAFETY: the contract of fstat.
    known(version, || unsafe { fstat(fd, into) })
}

pub unsafe fn xstat(version: c_int, path: *const c_char, into: *mut Stat) -> c_int {
    // SAFETY: the contract of stat.
    known(version, || unsafe { stat(path, into) })
}

pub unsafe fn lxstat(version: c_int, path: *const c_char, into: *mut Stat) -> c_int {
    // SAFETY: the contract of lstat.
    known(version, || unsafe { lstat(path, into) })
}

pub unsafe fn fxstatat(
    version: c_int,
    at: c_int,
    path: *const c_char,
    into: *mut Stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of fstatat.
    known(version, || unsafe { fstatat(at, path, into, flags) })
}

/// The versions of struct stat before glibc 2.33; both are that of today.
fn known(version: c_int, stat: impl FnOnce() -> c_int) -> c_int {
    if matches!(version, 0 | 1) { stat() } else { raw::fail(Errno::INVAL) }
}

fn plain_size(file: &File, disk: i64) -> i64 {
    DiskSize(disk.cast_unsigned()).plain(file.layout()).0.cast_signed()
}

/// The size that the program sees of the file at `path`; ENOENT for what is hidden.
unsafe fn size_of_named(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    found: &FileStat,
    changes: u64,
) -> Result<i64, Errno> {
    let disk = found.size.0.cast_signed();
    let Some(process) = process() else { return Ok(disk) };
    // SAFETY: the contract of fstatat.
    let path = unsafe { path_of(path) }?;
    if (!found.regular || disk == 0) && !names_control(path) {
        return Ok(disk);
    }
    let last =
        if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { LastLink::Follow } else { LastLink::Itself };
    let plain = aside(|| process.size_at((Fd(at), path), last, found, changes))?;
    Ok(if found.regular { plain.cast_signed() } else { disk })
}

/// Taken before a file is looked at by its path.
fn size_changes() -> u64 {
    process().map_or(0, |process| process.size_changes())
}

/// The size can be told only if the kind is known.
const NEEDED: c_uint = libc::STATX_TYPE | libc::STATX_INO;

fn found_by_statx(stat: &Statx) -> FileStat {
    let device = libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    found(stat.stx_mode.into(), stat.stx_size.cast_signed(), device, stat.stx_ino)
}

/// What the kernel says of a file, for the engine.
fn found(mode: u32, size: i64, device: u64, inode: u64) -> FileStat {
    let is = |kind| mode & libc::S_IFMT == kind;
    FileStat {
        device,
        inode,
        size: DiskSize(size.cast_unsigned()),
        regular: is(libc::S_IFREG),
        directory: is(libc::S_IFDIR),
        symlink: is(libc::S_IFLNK),
        block: is(libc::S_IFBLK),
    }
}
