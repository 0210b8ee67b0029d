//! read, write, pread, pwrite and lseek.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t, ssize_t};

use tidelock_engine::Errno;

use crate::hooks::{File, aside, buffer, buffer_mut, count, deep, offset as answer_offset, place};
use crate::{guard, touch};

pub unsafe fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    let file = sealed_or!(fd, guard::read(unsafe { raw!(SYS_read, fd, into, len) }, fd));
    let start = into;
    // SAFETY: the contract of read.
    count(match unsafe { room(&file, into, len) } {
        Ok(into) => deep(file.is_ready(), || file.read(into)),
        Err(fault) => {
            let at = file.seek(0, libc::SEEK_CUR);
            at.and_then(|at| unfilled(&file, at, (start, len), fault))
        }
    })
}

pub unsafe fn pread(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    let file = sealed_or!(fd, guard::read(unsafe { raw!(SYS_pread64, fd, into, len, at) }, fd));
    let start = into;
    // SAFETY: the contract of pread.
    let into = unsafe { room(&file, into, len) };
    count(place(at).and_then(|at| match into {
        Ok(into) => deep(file.is_ready(), || file.pread(into, at)),
        Err(fault) => unfilled(&file, at, (start, len), fault),
    }))
}

pub unsafe fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    let straight = || unsafe { raw!(SYS_write, fd, from, len) };
    // SAFETY: the contract of write.
    let file = sealed_or!(fd, unsafe { guard::written(fd, from, len, straight) });
    // SAFETY: the contract of write.
    count(match unsafe { buffer(from, len) } {
        Ok(from) => deep(file.is_at_once_here(from.len()), || file.write(from)),
        // A file that may not be written is told first.
        Err(fault) => file.write(&[]).and(Err(fault)),
    })
}

pub unsafe fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // Only what comes to lie at the beginning can be a header.
    let looked_at = if at == 0 { len } else { 0 };
    // SAFETY: the program's own arguments.
    let straight = || unsafe { raw!(SYS_pwrite64, fd, from, len, at) };
    // SAFETY: the contract of pwrite.
    let file = sealed_or!(fd, unsafe { guard::written(fd, from, looked_at, straight) });
    // SAFETY: the contract of pwrite.
    let from = unsafe { buffer(from, len) };
    count(place(at).and_then(|at| match from {
        Ok(from) => deep(file.is_at_once(from.len(), at), || file.pwrite(from, at)),
        Err(fault) => file.pwrite(&[], at).and(Err(fault)),
    }))
}

/// The memory of a read. Of a careless length, longer than the memory, no more than the file has.
///
/// # Errors
/// EFAULT.
///
/// # Safety
/// The contract of read.
unsafe fn room<'b>(file: &File, into: *mut c_void, len: usize) -> Result<&'b mut [u8], Errno> {
    const LARGE: usize = 1 << 20;
    if len <= LARGE || !touch::is_plausible(into.cast(), len) {
        // SAFETY: the caller's promise.
        return unsafe { buffer_mut(into, len) };
    }
    let size = file.size().map_or(u64::MAX, |size| size.0);
    // SAFETY: the caller's promise.
    unsafe { buffer_mut(into, len.min(usize::try_from(size).unwrap_or(len))) }
}

/// A read into memory that is not there: no error where nothing would be put there.
fn unfilled(
    file: &File,
    at: u64,
    (into, len): (*mut c_void, usize),
    fault: Errno,
) -> Result<usize, Errno> {
    aside(|| file.pread(&mut [], at))?;
    let nothing = touch::is_plausible(into.cast(), len) && at >= file.size()?.0;
    if nothing { Ok(0) } else { Err(fault) }
}

pub unsafe fn read_chk(fd: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    check_room(len, room);
    // SAFETY: the contract of read.
    unsafe { read(fd, into, len) }
}

pub unsafe fn pread_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    check_room(len, room);
    // SAFETY: the contract of pread.
    unsafe { pread(fd, into, len, at) }
}

pub unsafe fn lseek(fd: c_int, at: off_t, whence: c_int) -> off_t {
    let file = sealed_or!(fd, guard::sought(numeric!(SYS_lseek, fd, at, whence), fd, at));
    answer_offset(file.seek(at, whence))
}

unsafe extern "C" {
    /// Ends the program with libc's message about a buffer overflow.
    fn __chk_fail() -> !;
}

fn check_room(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: takes nothing and does not return.
        unsafe { __chk_fail() }
    }
}
