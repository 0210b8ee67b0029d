//! Names of descriptors: /proc/self/fd/N, /dev/fd/N, /dev/stdin and their kin are the file itself,
//! not its anchor. And links that a program follows by itself.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int};

use libc::{size_t, ssize_t};
use tidelock_engine::{Descriptor, Errno, Fd, System as _};

use crate::hooks::names::take_along;
use crate::hooks::{buffer_mut, descriptor, path as path_of};
use crate::process::process;
use crate::stdio::standard::name_of;
use crate::{next, raw};

/// The descriptor that the path names, if it is that of a sealed file.
pub(crate) fn named(path: &[u8]) -> Option<c_int> {
    let fd = process()?.numbered(path)?;
    matches!(descriptor(fd), Descriptor::Sealed(_)).then_some(fd)
}

pub unsafe fn readlink(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the contract of readlink.
    unsafe { readlinkat(libc::AT_FDCWD, path, into, len) }
}

pub unsafe fn readlinkat(
    at: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    let process = process_or!(unsafe { raw!(SYS_readlinkat, at, path, into, len) });
    // SAFETY: the contract of readlinkat.
    let name = unsafe { path_of(path) }.ok();
    // That of /dev/stdin reads as a name below /proc.
    let fd = name.filter(|name| !name.starts_with(b"/dev/std")).and_then(named);
    let file = match fd.map(descriptor) {
        Some(Descriptor::Sealed(file)) => file,
        _ => {
            // SAFETY: the program's own arguments.
            let count: ssize_t = unsafe { raw!(SYS_readlinkat, at, path, into, len) };
            if count >= 0 {
                // SAFETY: the contract of readlinkat.
                try_or_fail!(unsafe { take_along(at, path) });
            }
            return count;
        }
    };
    // SAFETY: the contract of readlinkat.
    let room = unsafe { buffer_mut(into.cast(), len) };
    crate::hooks::count(room.and_then(|room| process.system().path_of(Fd(file.hidden().0), room)))
}

pub unsafe fn readlink_chk(
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the contract of readlink.
    unsafe { readlink(path, into, len.min(room)) }
}

pub unsafe fn readlinkat_chk(
    at: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the contract of readlinkat.
    unsafe { readlinkat(at, path, into, len.min(room)) }
}

pub unsafe fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: the contract of realpath.
    if let Some(Descriptor::Sealed(file)) = unsafe { followed(path, 0) }.map(descriptor) {
        let mut name = [0; 32];
        let name = name_of(file.hidden().0, &mut name);
        // SAFETY: the contract of realpath, with another name of the same file.
        return unsafe { next::realpath(name.as_ptr().cast(), into) };
    }
    // SAFETY: the contract of realpath.
    match unsafe { take_along(libc::AT_FDCWD, path) } {
        // SAFETY: the program's own arguments.
        Ok(()) => unsafe { next::realpath(path, into) },
        Err(why) => no_path(why),
    }
}

pub unsafe fn realpath_chk(path: *const c_char, into: *mut c_char, room: size_t) -> *mut c_char {
    // SAFETY: the contract of realpath.
    if let Some(Descriptor::Sealed(file)) = unsafe { followed(path, 0) }.map(descriptor) {
        let mut name = [0; 32];
        let name = name_of(file.hidden().0, &mut name);
        // SAFETY: the contract of realpath, with another name of the same file.
        return unsafe { next::__realpath_chk(name.as_ptr().cast(), into, room) };
    }
    // SAFETY: the contract of realpath.
    match unsafe { take_along(libc::AT_FDCWD, path) } {
        // SAFETY: the program's own arguments.
        Ok(()) => unsafe { next::__realpath_chk(path, into, room) },
        Err(why) => no_path(why),
    }
}

pub unsafe fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the contract of realpath, which makes the room itself.
    unsafe { realpath(path, core::ptr::null_mut()) }
}

fn no_path(why: Errno) -> *mut c_char {
    raw::set_errno(why);
    core::ptr::null_mut()
}

/// True if a stat of this path, which follows links, is one of the named descriptor; that
/// descriptor.
pub(crate) unsafe fn followed(path: *const c_char, flags: c_int) -> Option<c_int> {
    process()?;
    // SAFETY: the contract of the stat family.
    let path = unsafe { path_of(path) }.ok()?;
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { named(path) } else { None }
}
