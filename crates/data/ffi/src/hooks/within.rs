//! Files that libc, or the kernel, opens within itself although the program chose the path: refused
//! where the file would be a sealed one, because plain bytes would get in. So too in a program
//! without keys, which the guard keeps from it.
//!
//! Reading ones (catopen, dlopen, iconv_open and the like) are not here: they meet sealed bytes.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{FILE, mode_t};
use tidelock_engine::{Decided, Errno, Fd, is_shortage};

use crate::hooks::{aside, path as path_of};
use crate::process::process;
use crate::raw::fail;
use crate::stdio::parse;
use crate::{guard, next};

/// Leaves the open to libc or the kernel, unless only the engine may open what is at this path, or
/// a program without keys would write there by these flags.
///
/// # Errors
/// EOPNOTSUPP; in a program without keys those of the guard.
///
/// # Safety
/// `path` is null or a string.
unsafe fn judge(path: *const c_char, flags: c_int) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let Some(process) = process() else { return unsafe { guard::open_within(path, flags) } };
    // SAFETY: the caller's promise.
    let Ok(path) = (unsafe { path_of(path) }) else { return Ok(()) };
    let sealed = match aside(|| process.decide_to_write(Fd::CWD, path)) {
        Ok(decided) => {
            matches!(decided, Decided::Sealed(..) | Decided::Control(_) | Decided::Ambiguous)
        }
        Err(why) => why == Errno::ACCES || is_shortage(why),
    };
    if sealed { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

/// Appends a record of a login to any file.
pub unsafe fn updwtmp(path: *const c_char, entry: *const c_void) {
    // SAFETY: the contract of updwtmp.
    if let Err(why) = unsafe { judge(path, libc::O_WRONLY) } {
        return crate::raw::set_errno(why);
    }
    // SAFETY: the contract of updwtmp.
    unsafe { next::updwtmp(path, entry) }
}

/// The file that pututline, login and logout write to.
pub unsafe fn utmpname(path: *const c_char) -> c_int {
    // It is opened later, and may be there by then.
    // SAFETY: the contract of utmpname.
    try_or_fail!(unsafe { judge(path, libc::O_RDWR | libc::O_CREAT) });
    // SAFETY: the contract of utmpname.
    unsafe { next::utmpname(path) }
}

/// The kernel appends a record for every process that ends.
pub unsafe fn acct(path: *const c_char) -> c_int {
    // SAFETY: the contract of acct.
    try_or_fail!(unsafe { judge(path, libc::O_RDWR) });
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_acct, path) }
}

/// The kernel writes memory there.
pub unsafe fn swapon(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the contract of swapon.
    try_or_fail!(unsafe { judge(path, libc::O_RDWR) });
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_swapon, path, flags) }
}

/// What libstdc++ of the last century opened files by.
pub unsafe fn file_fopen(
    file: *mut FILE,
    path: *const c_char,
    mode: *const c_char,
    small: c_int,
) -> *mut FILE {
    // SAFETY: the contract of fopen: a string.
    let flags = unsafe { parse(mode) }.map_or(0, |wanted| wanted.flags);
    // SAFETY: the contract of fopen.
    try_or_fail!(unsafe { judge(path, flags) });
    // SAFETY: the program's own arguments.
    unsafe { next::_IO_file_fopen(file, path, mode, small) }
}

/// As [`file_fopen`], by flags.
pub unsafe fn file_open(
    file: *mut FILE,
    path: *const c_char,
    flags: c_int,
    mode: c_int,
    access: c_int,
    small: c_int,
) -> *mut FILE {
    // SAFETY: the contract of fopen.
    try_or_fail!(unsafe { judge(path, flags) });
    // SAFETY: the program's own arguments.
    unsafe { next::_IO_file_open(file, path, flags, mode, access, small) }
}

/// A file that the child opens before it is another program; returns the error.
///
/// A relative path that is not the first action is refused too: an action before it may have
/// changed the directory.
pub unsafe fn spawn_opens(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & CHANGES != 0;
    if writes && (process().is_some() || guard::is_at_work()) {
        // SAFETY: the contract of the function: actions that were initialised.
        let used = unsafe { *actions.cast::<[c_int; 2]>() }[1];
        // SAFETY: the contract of the function: a string, or null, which libc refuses.
        let relative = unsafe { path_of(path) }.is_ok_and(|path| !path.starts_with(b"/"));
        if relative && used > 0 {
            return libc::EOPNOTSUPP;
        }
        // SAFETY: as above.
        if let Err(why) = unsafe { judge(path, flags) } {
            return why.0;
        }
    }
    // SAFETY: the contract of the function.
    unsafe { next::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode) }
}

/// Flags that change a file that is opened for reading.
const CHANGES: c_int = libc::O_CREAT | libc::O_TRUNC;

/// A descriptor of another process: it may be a hidden one of another server process.
pub unsafe fn pidfd_getfd(pidfd: c_int, fd: c_int, flags: c_uint) -> c_int {
    let _process = process_or!(numeric!(SYS_pidfd_getfd, pidfd, fd, flags));
    fail(Errno::NOSYS)
}

/// The kernel opens the files of which it tells, with these flags.
pub unsafe fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int {
    let writes = event_flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY;
    if writes && process().is_some() {
        return fail(Errno::INVAL);
    }
    numeric!(SYS_fanotify_init, flags, event_flags)
}
