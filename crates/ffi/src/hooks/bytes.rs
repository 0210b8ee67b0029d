//! read, write, pread, pwrite and lseek.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t, ssize_t};

use crate::guard;
use crate::hooks::{buffer, buffer_mut, count, offset as answer_offset, place};

pub unsafe fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    let file = sealed_or!(fd, raw!(SYS_read, fd, into, len));
    // SAFETY: the contract of read.
    let into = unsafe { buffer_mut(into, len) };
    count(into.and_then(|into| file.read(into)))
}

pub unsafe fn pread(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    let file = sealed_or!(fd, raw!(SYS_pread64, fd, into, len, at));
    // SAFETY: the contract of pread.
    let into = unsafe { buffer_mut(into, len) };
    count(into.and_then(|into| file.pread(into, place(at)?)))
}

pub unsafe fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    let straight = || raw!(SYS_write, fd, from, len);
    // SAFETY: the contract of write.
    let file = sealed_or!(fd, unsafe { guard::written(fd, from, len, straight) });
    // SAFETY: the contract of write.
    let from = unsafe { buffer(from, len) };
    count(from.and_then(|from| file.write(from)))
}

pub unsafe fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // Only what comes to lie at the beginning can be a header.
    let looked_at = if at == 0 { len } else { 0 };
    let straight = || raw!(SYS_pwrite64, fd, from, len, at);
    // SAFETY: the contract of pwrite.
    let file = sealed_or!(fd, unsafe { guard::written(fd, from, looked_at, straight) });
    // SAFETY: the contract of pwrite.
    let from = unsafe { buffer(from, len) };
    count(from.and_then(|from| file.pwrite(from, place(at)?)))
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
    let file = sealed_or!(fd, guard::sought(raw!(SYS_lseek, fd, at, whence), fd, at));
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
