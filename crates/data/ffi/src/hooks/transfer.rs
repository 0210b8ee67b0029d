//! Calls that move bytes from file to file within the kernel: refused on sealed files, with the
//! error after which programs copy by reading and writing.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_uint};

use libc::{iovec, loff_t, off_t, size_t, ssize_t};
use tidelock_engine::Errno;

use crate::guard;
use crate::hooks::is_ours;
use crate::raw::fail;

pub unsafe fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    if is_ours(to) || is_ours(from) {
        return fail(Errno::INVAL);
    }
    // SAFETY: the program's own arguments.
    guard::not_this_way(unsafe { raw!(SYS_sendfile, to, from, at, len) }, to, Errno::INVAL)
}

pub unsafe fn splice(
    from: c_int,
    from_at: *mut loff_t,
    to: c_int,
    to_at: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours(to) || is_ours(from) {
        return fail(Errno::INVAL);
    }
    // SAFETY: the program's own arguments.
    guard::not_this_way(
        unsafe { raw!(SYS_splice, from, from_at, to, to_at, len, flags) },
        to,
        Errno::INVAL,
    )
}

pub unsafe fn tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t {
    if is_ours(to) || is_ours(from) {
        return fail(Errno::INVAL);
    }
    numeric!(SYS_tee, from, to, len, flags)
}

pub unsafe fn vmsplice(fd: c_int, pieces: *const iovec, n: size_t, flags: c_uint) -> ssize_t {
    if is_ours(fd) {
        return fail(Errno::BADF);
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_vmsplice, fd, pieces, n, flags) }
}

pub unsafe fn copy_file_range(
    from: c_int,
    from_at: *mut loff_t,
    to: c_int,
    to_at: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours(to) || is_ours(from) {
        return fail(Errno::XDEV);
    }
    // SAFETY: the program's own arguments.
    let done = unsafe { raw!(SYS_copy_file_range, from, from_at, to, to_at, len, flags) };
    guard::not_this_way(done, to, Errno::XDEV)
}
