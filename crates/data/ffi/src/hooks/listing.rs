//! opendir, readdir and scandir: `.tidelock` of a protected directory is not there for the engine's
//! programs.
//!
//! initdb and pg_basebackup want an empty directory, pg_rewind would delete what it does not know,
//! a replica must not receive it.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{CStr, c_char, c_int, c_void};

use libc::{DIR, dirent};
use tidelock_engine::Errno;

use crate::hooks::names::take_along;
use crate::hooks::{is_control, path as path_of};
use crate::process::process;
use crate::{next, raw};

pub unsafe fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the contract of opendir.
    if unsafe { path_of(path) }.is_ok_and(|path| is_control(libc::AT_FDCWD, path)) {
        raw::set_errno(Errno::NOENT);
        return core::ptr::null_mut();
    }
    // SAFETY: the contract of opendir.
    if let Err(why) = unsafe { take_along(libc::AT_FDCWD, path) } {
        raw::set_errno(why);
        return core::ptr::null_mut();
    }
    // SAFETY: the contract of opendir.
    unsafe { next::opendir(path) }
}

pub unsafe fn closedir(directory: *mut DIR) -> c_int {
    if let Some(process) = process()
        && !directory.is_null()
    {
        // libc closes the descriptor without asking us.
        // SAFETY: the contract of closedir.
        process.forget(unsafe { libc::dirfd(directory) });
    }
    // SAFETY: the contract of closedir.
    unsafe { next::closedir(directory) }
}

pub unsafe fn readdir(directory: *mut DIR) -> *mut dirent {
    loop {
        // SAFETY: the contract of readdir.
        let entry = unsafe { next::readdir(directory) };
        // SAFETY: libc's own entry of this directory.
        if entry.is_null() || !unsafe { is_hidden(directory, entry) } {
            return entry;
        }
    }
}

pub unsafe fn readdir_r(
    directory: *mut DIR,
    entry: *mut dirent,
    result: *mut *mut dirent,
) -> c_int {
    loop {
        // SAFETY: the contract of readdir_r.
        let error = unsafe { next::readdir_r(directory, entry, result) };
        // SAFETY: as above; libc has set it.
        let found = unsafe { *result };
        // SAFETY: libc has filled the entry if it says so.
        if error != 0 || found.is_null() || !unsafe { is_hidden(directory, found) } {
            return error;
        }
    }
}

pub unsafe fn scandir(
    path: *const c_char,
    list: *mut *mut *mut dirent,
    filter: Filter,
    order: Order,
) -> c_int {
    // SAFETY: the contract of scandir.
    let n = unsafe { next::scandir(path, list, filter, order) };
    // SAFETY: what scandir has made, of this directory.
    unsafe { without_hidden(libc::AT_FDCWD, path, list, n) }
}

pub unsafe fn scandirat(
    at: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent,
    filter: Filter,
    order: Order,
) -> c_int {
    // SAFETY: the contract of scandirat.
    let n = unsafe { next::scandirat(at, path, list, filter, order) };
    // SAFETY: what scandirat has made, of this directory.
    unsafe { without_hidden(at, path, list, n) }
}

pub type Filter = Option<unsafe extern "C" fn(*const dirent) -> c_int>;
pub type Order = Option<unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

const CONTROL: &CStr = c".tidelock";

unsafe fn has_its_name(entry: *const dirent) -> bool {
    // SAFETY: the caller's entry.
    let name = unsafe { &raw const (*entry).d_name };
    // SAFETY: a name in an entry ends with a zero byte.
    unsafe { CStr::from_ptr(name.cast()) == CONTROL }
}

/// True for the entry that is not to be seen: by its name, and only in a protected directory.
unsafe fn is_hidden(directory: *mut DIR, entry: *const dirent) -> bool {
    // SAFETY: the caller's entry.
    if !unsafe { has_its_name(entry) } {
        return false;
    }
    // SAFETY: the caller's directory.
    let fd = unsafe { libc::dirfd(directory) };
    is_control(fd, CONTROL.to_bytes_with_nul())
}

/// Takes the entry that is not to be seen out of a list of scandir.
unsafe fn without_hidden(
    at: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent,
    n: c_int,
) -> c_int {
    let Some(len) = usize::try_from(n).ok().filter(|&n| n > 0 && process().is_some()) else {
        return n;
    };
    // SAFETY: scandir has set it to `n` entries.
    let first = unsafe { *list };
    // SAFETY: scandir has set it to `n` entries.
    let entries = unsafe { core::slice::from_raw_parts_mut(first, len) };
    // SAFETY: each is an entry of scandir.
    let Some(found) = entries.iter().position(|&entry| unsafe { has_its_name(entry) }) else {
        return n;
    };
    let mut name = [0; 4096];
    // SAFETY: the contract of scandir.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    for (to, from) in name.iter_mut().zip(text.iter().chain(b"/.tidelock\0")) {
        *to = *from;
    }
    // A path that is too long for the buffer has no zero byte there.
    if !CStr::from_bytes_until_nul(&name).is_ok_and(|name| is_control(at, name.to_bytes_with_nul()))
    {
        return n;
    }
    if let Some(rest) = entries.get_mut(found..) {
        rest.rotate_left(1);
        // SAFETY: scandir allocates each entry with malloc, and the program frees only those that
        // it is told of.
        unsafe { libc::free(rest[rest.len() - 1].cast::<c_void>()) };
    }
    n - 1
}
