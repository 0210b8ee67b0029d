//! Names of descriptors: /proc/self/fd/N, /dev/fd/N and /dev/stdin are the file itself, not its
//! anchor. And links that a program follows by itself.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int};

use libc::{size_t, ssize_t};
use tidelock_engine::{Descriptor, Errno, Fd, System as _};

use crate::hooks::names::take_along;
use crate::hooks::{buffer_mut, descriptor, path as path_of};
use crate::process::process;
use crate::{next, raw};

/// The descriptor that the path names, if it is that of a sealed file.
pub(crate) fn named(path: &[u8]) -> Option<c_int> {
    let fd = number(path.strip_suffix(b"\0").unwrap_or(path))?;
    matches!(descriptor(fd), Descriptor::Sealed(_)).then_some(fd)
}

fn number(path: &[u8]) -> Option<c_int> {
    match path {
        b"/dev/stdin" => Some(0),
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        _ => {
            let digits =
                path.strip_prefix(b"/proc/self/fd/").or_else(|| path.strip_prefix(b"/dev/fd/"))?;
            core::str::from_utf8(digits).ok()?.parse().ok()
        }
    }
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
    let fd =
        unsafe { path_of(path) }.ok().filter(|path| path.starts_with(b"/proc/")).and_then(named);
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
    match unsafe { take_along(libc::AT_FDCWD, path) } {
        // SAFETY: the program's own arguments.
        Ok(()) => unsafe { next::realpath(path, into) },
        Err(why) => no_path(why),
    }
}

pub unsafe fn realpath_chk(path: *const c_char, into: *mut c_char, room: size_t) -> *mut c_char {
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

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn only_whole_numbers_name_descriptors() {
        assert_eq!(number(b"/proc/self/fd/17"), Some(17));
        assert_eq!(number(b"/dev/fd/3"), Some(3));
        assert_eq!(number(b"/dev/stderr"), Some(2));
        assert_eq!(number(b"/proc/self/fd/"), None);
        assert_eq!(number(b"/proc/self/fd/3/x"), None);
        assert_eq!(number(b"/proc/self/fdinfo/3"), None);
    }
}
