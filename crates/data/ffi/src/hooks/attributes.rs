//! Owner, mode, times, extended attributes and the file system of an open file: asked of, and
//! changed on, the hidden descriptor, because nothing of it is about bytes.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_void};

use libc::{gid_t, mode_t, size_t, ssize_t, statfs, statvfs, timespec, timeval, uid_t, utimbuf};

use crate::hooks::index::named;
use crate::hooks::proc::followed;
use crate::hooks::{below, beneath, is_empty};
use crate::{next, touch};

/// A call whose first argument is a descriptor.
macro_rules! on_hidden {
    ($number:ident, $fd:expr $(, $arg:expr)*) => {{
        let (fd, _file) = try_or_fail!(beneath($fd));
        // SAFETY: the program's own arguments, and a descriptor of the same file.
        let done = unsafe { raw!($number, fd $(, $arg)*) };
        match crate::guard::StandIn::after(&done, fd) {
            // SAFETY: as above.
            Some(other) => unsafe { raw!($number, other.number() $(, $arg)*) },
            None => done,
        }
    }};
}

pub unsafe fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    on_hidden!(SYS_fchmod, fd, mode)
}

pub unsafe fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int {
    on_hidden!(SYS_fchown, fd, owner, group)
}

pub unsafe fn fchownat(
    at: c_int,
    path: *const c_char,
    owner: uid_t,
    group: gid_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of fchownat.
    if flags & libc::AT_EMPTY_PATH != 0 && at >= 0 && unsafe { is_empty(path) } {
        return on_hidden!(SYS_fchownat, at, path, owner, group, flags);
    }
    // SAFETY: the contract of fchownat.
    if let Some(fd) = unsafe { followed(path, flags) } {
        // SAFETY: takes numbers only.
        return unsafe { fchown(fd, owner, group) };
    }
    named!(at, path: SYS_fchownat, at, path, owner, group, flags)
}

pub unsafe fn chown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int {
    // SAFETY: the contract of chown.
    unsafe { fchownat(libc::AT_FDCWD, path, owner, group, 0) }
}

pub unsafe fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the contract of chmod.
    match unsafe { followed(path, 0) } {
        // SAFETY: takes numbers only.
        Some(fd) => unsafe { fchmod(fd, mode) },
        None => named!(libc::AT_FDCWD, path: SYS_chmod, path, mode),
    }
}

pub unsafe fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    // SAFETY: the contract of fchmodat.
    match unsafe { followed(path, flags) } {
        // SAFETY: takes numbers only.
        Some(fd) => unsafe { fchmod(fd, mode) },
        None => {
            // SAFETY: the contract of fchmodat.
            let (at, _file) = try_or_fail!(unsafe { below(at, path, flags) });
            // SAFETY: the contract of fchmodat.
            unsafe { next::fchmodat(at, path, mode, flags) }
        }
    }
}

pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the contract of access.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, 0) }
}

pub unsafe fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: the contract of faccessat.
    if let Some(fd) = unsafe { followed(path, flags) } {
        let (empty, flags) = (c"".as_ptr(), flags | libc::AT_EMPTY_PATH);
        return on_hidden!(SYS_faccessat2, fd, empty, mode, flags);
    }
    if flags == 0 {
        return named!(at, path: SYS_faccessat, at, path, mode);
    }
    // SAFETY: the contract of faccessat.
    let (at, _file) = try_or_fail!(unsafe { below(at, path, flags) });
    // SAFETY: the contract of faccessat.
    unsafe { next::faccessat(at, path, mode, flags) }
}

pub unsafe fn futimens(fd: c_int, times: *const timespec) -> c_int {
    on_hidden!(SYS_utimensat, fd, core::ptr::null::<c_char>(), times, 0)
}

pub unsafe fn futimes(fd: c_int, times: *const timeval) -> c_int {
    if times.is_null() {
        // SAFETY: no times are the times of now.
        return unsafe { futimens(fd, core::ptr::null()) };
    }
    // SAFETY: the contract of futimes: two of them.
    let times = try_or_fail!(unsafe { touch::value(times.cast::<[timeval; 2]>()) });
    if times.iter().any(|time| !(0..1_000_000).contains(&time.tv_usec)) {
        return crate::raw::fail(tidelock_engine::Errno::INVAL);
    }
    let times = times
        .map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.wrapping_mul(1000) });
    // SAFETY: two times, as futimens wants.
    unsafe { futimens(fd, times.as_ptr()) }
}

pub unsafe fn utimensat(
    at: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    if path.is_null() {
        // libc refuses what would be futimens.
        return crate::raw::fail(tidelock_engine::Errno::INVAL);
    }
    // SAFETY: the contract of utimensat.
    if flags & libc::AT_EMPTY_PATH != 0 && at >= 0 && unsafe { is_empty(path) } {
        return on_hidden!(SYS_utimensat, at, path, times, flags);
    }
    // SAFETY: the contract of utimensat.
    if let Some(fd) = unsafe { followed(path, flags) } {
        // SAFETY: the contract of futimens.
        return unsafe { futimens(fd, times) };
    }
    named!(at, path: SYS_utimensat, at, path, times, flags)
}

pub unsafe fn utimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the contract of utimes.
    match unsafe { followed(path, 0) } {
        // SAFETY: the contract of futimes.
        Some(fd) => unsafe { futimes(fd, times) },
        None => named!(libc::AT_FDCWD, path: SYS_utimes, path, times),
    }
}

pub unsafe fn utime(path: *const c_char, times: *const utimbuf) -> c_int {
    // SAFETY: the contract of utime.
    if let Some(fd) = unsafe { followed(path, 0) } {
        if times.is_null() {
            // SAFETY: no times are the times of now.
            return unsafe { futimens(fd, core::ptr::null()) };
        }
        // SAFETY: the contract of utime.
        let times = try_or_fail!(unsafe { touch::value(times) });
        let times = [times.actime, times.modtime].map(|time| timespec { tv_sec: time, tv_nsec: 0 });
        // SAFETY: two times, as futimens wants.
        return unsafe { futimens(fd, times.as_ptr()) };
    }
    named!(libc::AT_FDCWD, path: SYS_utime, path, times)
}

pub unsafe fn statfs_of(path: *const c_char, into: *mut statfs) -> c_int {
    // SAFETY: the contract of statfs.
    match unsafe { followed(path, 0) } {
        // SAFETY: the contract of fstatfs.
        Some(fd) => unsafe { fstatfs(fd, into) },
        // SAFETY: the program's own arguments.
        None => unsafe { raw!(SYS_statfs, path, into) },
    }
}

pub unsafe fn fstatfs(fd: c_int, into: *mut statfs) -> c_int {
    on_hidden!(SYS_fstatfs, fd, into)
}

pub unsafe fn fpathconf(fd: c_int, name: c_int) -> core::ffi::c_long {
    let (fd, _file) = try_or_fail!(beneath(fd));
    // SAFETY: the contract of fpathconf, with a descriptor of the same file.
    unsafe { next::fpathconf(fd, name) }
}

pub unsafe fn fstatvfs(fd: c_int, into: *mut statvfs) -> c_int {
    let (fd, _file) = try_or_fail!(beneath(fd));
    // SAFETY: the contract of fstatvfs, with a descriptor of the same file.
    unsafe { next::fstatvfs(fd, into) }
}

pub unsafe fn fgetxattr(fd: c_int, name: *const c_char, into: *mut c_void, len: size_t) -> ssize_t {
    on_hidden!(SYS_fgetxattr, fd, name, into, len)
}

pub unsafe fn fsetxattr(
    fd: c_int,
    name: *const c_char,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> c_int {
    on_hidden!(SYS_fsetxattr, fd, name, from, len, flags)
}

pub unsafe fn flistxattr(fd: c_int, into: *mut c_char, len: size_t) -> ssize_t {
    on_hidden!(SYS_flistxattr, fd, into, len)
}

pub unsafe fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
    on_hidden!(SYS_fremovexattr, fd, name)
}

pub unsafe fn getxattr(
    path: *const c_char,
    name: *const c_char,
    into: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the contract of getxattr.
    match unsafe { followed(path, 0) } {
        // SAFETY: the contract of fgetxattr.
        Some(fd) => unsafe { fgetxattr(fd, name, into, len) },
        // SAFETY: the program's own arguments.
        None => unsafe { raw!(SYS_getxattr, path, name, into, len) },
    }
}

pub unsafe fn setxattr(
    path: *const c_char,
    name: *const c_char,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of setxattr.
    match unsafe { followed(path, 0) } {
        // SAFETY: the contract of fsetxattr.
        Some(fd) => unsafe { fsetxattr(fd, name, from, len, flags) },
        // SAFETY: the program's own arguments.
        None => unsafe { raw!(SYS_setxattr, path, name, from, len, flags) },
    }
}

pub unsafe fn listxattr(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the contract of listxattr.
    match unsafe { followed(path, 0) } {
        // SAFETY: the contract of flistxattr.
        Some(fd) => unsafe { flistxattr(fd, into, len) },
        // SAFETY: the program's own arguments.
        None => unsafe { raw!(SYS_listxattr, path, into, len) },
    }
}

pub unsafe fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
    // SAFETY: the contract of removexattr.
    match unsafe { followed(path, 0) } {
        // SAFETY: the contract of fremovexattr.
        Some(fd) => unsafe { fremovexattr(fd, name) },
        // SAFETY: the program's own arguments.
        None => unsafe { raw!(SYS_removexattr, path, name) },
    }
}
