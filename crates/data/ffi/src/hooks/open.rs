//! open and its kin: the engine decides whose the file is.
//!
//! UNSAFETY: see hooks.rs. The variadic C functions are hooked with the mode as a fixed argument:
//! on x86-64 and aarch64 it comes in the same register; it is looked at only if the flags say that
//! it was passed.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int};

use libc::mode_t;

use crate::guard;
use crate::hooks::{aside, directory, number, path as path_of};
use crate::stdio;

pub unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the contract of open.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

pub unsafe fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let mode = if needs_mode(flags) { mode } else { 0 };
    // SAFETY: the contract of openat.
    let process = process_or!(unsafe { guard::openat(at, path, flags, mode) });
    // SAFETY: the contract of openat.
    let path = try_or_fail!(unsafe { path_of(path) });
    let at = try_or_fail!(directory(at, path));
    stdio::standard::landed(number(aside(|| process.open(at, path, flags, mode))))
}

pub unsafe fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the contract of creat.
    unsafe { open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

pub unsafe fn open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the contract of open without a mode.
    unsafe { openat_2(libc::AT_FDCWD, path, flags) }
}

pub unsafe fn openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    if needs_mode(flags) {
        // As libc does: the mode is missing, and whatever stands in its place must not be used.
        std::process::abort();
    }
    // SAFETY: the contract of openat without a mode.
    unsafe { openat(at, path, flags, 0) }
}

/// A function of glibc 2.43. Its way of resolving a path is not ours; programs fall back to openat.
pub unsafe fn openat2(
    at: c_int,
    path: *const c_char,
    how: *const libc::c_void,
    size: libc::size_t,
) -> c_int {
    if crate::process::process().is_some() || guard::is_at_work() {
        return crate::raw::fail(tidelock_engine::Errno::NOSYS);
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_openat2, at, path, how, size) }
}

pub unsafe fn open_by_handle_at(mount: c_int, handle: *mut libc::c_void, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let _process = process_or!(unsafe { raw!(SYS_open_by_handle_at, mount, handle, flags) });
    crate::raw::fail(tidelock_engine::Errno::OPNOTSUPP)
}

const fn needs_mode(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}
