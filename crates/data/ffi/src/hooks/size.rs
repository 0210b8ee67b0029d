//! Truncating, allocating, and advice about ranges.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_uint};

use libc::{off_t, size_t, ssize_t};
use tidelock_engine::{Descriptor, Errno};
use tidelock_format::PlainOffset;

use crate::hooks::{File, aside, descriptor, none, path as path_of, place};
use crate::{guard, next, raw};

pub unsafe fn ftruncate(fd: c_int, len: off_t) -> c_int {
    let file = sealed_or!(fd, guard::cut(numeric!(SYS_ftruncate, fd, len), fd, len));
    none(place(len).and_then(|len| aside(|| file.set_len(len))))
}

pub unsafe fn truncate(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the contract of truncate.
    let process = process_or!(unsafe { guard::truncate(path, len) });
    // SAFETY: the contract of truncate.
    let path = unsafe { path_of(path) };
    none(path.and_then(|path| aside(|| process.truncate_at(path, place(len)?))))
}

pub unsafe fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    let file = sealed_or!(fd, numeric!(SYS_fallocate, fd, mode, at, len));
    none(allocate(&file, mode, at, len))
}

/// Returns the error instead of setting errno.
pub unsafe fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    let file = match descriptor(fd) {
        Descriptor::Sealed(file) => file,
        Descriptor::Hidden => return libc::EBADF,
        // SAFETY: the contract of posix_fallocate.
        Descriptor::Foreign => return unsafe { next::posix_fallocate(fd, at, len) },
    };
    match allocate(&file, 0, at, len) {
        // A file system that cannot reserve room: at least the size. (libc writes to each block.)
        Err(Errno::OPNOTSUPP) => {
            let end = place(at.saturating_add(len));
            code(end.and_then(|end| aside(|| file.reach(end))))
        }
        done => code(done),
    }
}

/// Returns the error instead of setting errno.
pub unsafe fn posix_fadvise(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int {
    let before = raw::errno();
    let done: c_int = match descriptor(fd) {
        Descriptor::Hidden => return libc::EBADF,
        Descriptor::Foreign => numeric!(SYS_fadvise64, fd, at, len, advice),
        Descriptor::Sealed(file) => {
            if advice == libc::POSIX_FADV_DONTNEED {
                // It begins to write the range.
                header_first(&file);
            }
            // An offset that no file has is the kernel's to judge.
            let at = on_disk(&file, at).unwrap_or(at);
            numeric!(SYS_fadvise64, file.hidden().0, at, len, advice)
        }
    };
    let error = raw::errno();
    raw::set_errno(before);
    if done == 0 { 0 } else { error.0 }
}

pub unsafe fn readahead(fd: c_int, at: off_t, len: size_t) -> ssize_t {
    let file = sealed_or!(fd, numeric!(SYS_readahead, fd, at, len));
    if !file.flags().access().read {
        return raw::fail(Errno::BADF);
    }
    let at = on_disk(&file, at).unwrap_or(at);
    numeric!(SYS_readahead, file.hidden().0, at, len)
}

pub unsafe fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int {
    let file = sealed_or!(fd, numeric!(SYS_sync_file_range, fd, at, len, flags));
    let disk = try_or_fail!(on_disk(&file, at));
    let (disk, len) = match (at, len) {
        // A length of zero means up to the end.
        (0, 0) => (0, 0),
        (0, 1..) => (0, len.saturating_add(i64::from(file.layout().data_offset()))),
        _ => {
            header_first(&file);
            (disk, len)
        }
    };
    numeric!(SYS_sync_file_range, file.hidden().0, disk, len, flags)
}

/// Sends the header to the disk: a range that reaches the disk before it would be lost with it
/// (docs/decisions/0004). On a page that is clean this does nothing; its errors are those of the
/// range.
fn header_first(file: &File) {
    const WRITE: c_uint = 2;
    let header = i64::from(file.layout().data_offset());
    let _: c_int = numeric!(SYS_sync_file_range, file.hidden().0, 0i64, header, WRITE);
}

fn allocate(file: &File, mode: c_int, at: off_t, len: off_t) -> Result<(), Errno> {
    let (at, len) = (place(at)?, place(len)?);
    aside(|| file.allocate(mode, at, len))
}

/// Where a range of the plain file begins on the disk.
fn on_disk(file: &File, at: off_t) -> Result<i64, Errno> {
    let at = PlainOffset::new(place(at)?).ok_or(Errno::INVAL)?;
    Ok(file.layout().disk(at).get().cast_signed())
}

fn code(result: Result<(), Errno>) -> c_int {
    result.err().map_or(0, |error| error.0)
}
