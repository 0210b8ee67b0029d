//! Names: rename, link, symlink, and the working directory that relative paths begin at.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_uint};

use tidelock_engine::{Errno, Fd, Index, is_shortage};
use tidelock_runtime::messages;

use crate::guard;
use crate::hooks::index::{by_own_name, named};
use crate::hooks::{aside, beneath, directory, is_control, is_empty, none, path as path_of};
use crate::process::process;
use crate::raw;

pub unsafe fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the contract of rename.
    unsafe { renameat2(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

pub unsafe fn renameat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the contract of renameat.
    unsafe { renameat2(from_at, from, to_at, to, 0) }
}

pub unsafe fn renameat2(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the contract of renameat2.
    let process = process_or!(unsafe { guard::renameat2(from_at, from, to_at, to, flags) });
    // SAFETY: the contract of renameat2.
    let from = try_or_fail!(unsafe { path_of(from) });
    // SAFETY: the contract of renameat2.
    let to = try_or_fail!(unsafe { path_of(to) });
    let from_at = try_or_fail!(directory(from_at, from));
    let to_at = try_or_fail!(directory(to_at, to));
    none(aside(|| process.rename((from_at, from), (to_at, to), flags)))
}

pub unsafe fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the contract of link.
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

pub unsafe fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of linkat.
    let process = process_or!(unsafe { guard::linkat(from_at, from, to_at, to, flags) });
    // SAFETY: the contract of linkat.
    let itself = flags & libc::AT_EMPTY_PATH != 0 && unsafe { is_empty(from) };
    // SAFETY: the contract of linkat.
    let from = try_or_fail!(unsafe { path_of(from) });
    // SAFETY: the contract of linkat.
    let to = try_or_fail!(unsafe { path_of(to) });
    let to_at = try_or_fail!(directory(to_at, to));
    if itself && let (real, Some(file)) = try_or_fail!(beneath(from_at)) {
        let from = (Fd(real), from);
        return none(aside(|| process.link_open_file(&file, from, (to_at, to), flags)));
    }
    let from_at = try_or_fail!(directory(from_at, from));
    none(aside(|| process.link((from_at, from), (to_at, to), flags)))
}

pub unsafe fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the contract of symlink.
    unsafe { symlinkat(target, libc::AT_FDCWD, path) }
}

pub unsafe fn symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int {
    if let Some(process) = process()
        // SAFETY: the contract of symlinkat.
        && let Ok(to) = unsafe { path_of(target) }
        // SAFETY: the contract of symlinkat.
        && let Ok(name) = unsafe { path_of(path) }
        && let Err(why @ (Errno::OPNOTSUPP | Errno::NFILE)) =
            aside(|| process.judge_new_link(to, Fd(at), name))
    {
        return crate::raw::fail(why);
    }
    // What cannot be judged is the kernel's to refuse.
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_symlinkat, target, at, path) };
    if done == 0
        && let Some(process) = process()
        // SAFETY: the contract of symlinkat.
        && let Ok(path) = unsafe { path_of(path) }
    {
        // What is not attached now is when it is used.
        let _ = aside(|| process.attach(Fd(at), path));
    }
    done
}

/// Before a program follows a path by itself: what it opens then no longer says whose it is.
///
/// # Errors
/// ENFILE and ENAMETOOLONG if no more can be attached; EOPNOTSUPP, after a line, for a place of all
/// programs; what is short for the look. Others are the kernel's to tell.
///
/// # Safety
/// That of `path_of`.
pub(super) unsafe fn take_along(at: c_int, path: *const c_char) -> Result<(), Errno> {
    let Some(process) = process() else { return Ok(()) };
    // SAFETY: the caller's promise.
    let Ok(path) = (unsafe { path_of(path) }) else { return Ok(()) };
    match aside(|| process.attach(Fd(at), path)) {
        Err(why) if matches!(why, Errno::NAMETOOLONG | Errno::OPNOTSUPP) || is_shortage(why) => {
            Err(why)
        }
        _ => Ok(()),
    }
}

pub unsafe fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the contract of unlink.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

pub unsafe fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the contract of rmdir.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

pub unsafe fn remove(path: *const c_char) -> c_int {
    let before = raw::errno();
    // SAFETY: the contract of remove.
    let done = unsafe { unlink(path) };
    if done == 0 || !matches!(raw::errno(), Errno(libc::EISDIR | libc::EPERM)) {
        return done;
    }
    raw::set_errno(before);
    // SAFETY: the contract of remove.
    unsafe { rmdir(path) }
}

pub unsafe fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the contract of unlinkat.
    if unsafe { path_of(path) }.is_ok_and(|path| is_control(at, path)) {
        return raw::fail(Errno::NOENT);
    }
    if flags & libc::AT_REMOVEDIR != 0 {
        // SAFETY: the program's own arguments.
        return unsafe { raw!(SYS_unlinkat, at, path, flags) };
    }
    // SAFETY: the program's own arguments, with a path of ours.
    let remove = |own| unsafe { raw!(SYS_unlinkat, at, own, flags) };
    // SAFETY: the contract of unlinkat.
    match unsafe { by_own_name(at, path, |index| index == Index::OfOpen, remove) } {
        Some(done) => done,
        None => named!(at, path: SYS_unlinkat, at, path, flags),
    }
}

pub unsafe fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the contract of chdir.
    if unsafe { path_of(path) }.is_ok_and(|path| is_control(libc::AT_FDCWD, path)) {
        return raw::fail(Errno::NOENT);
    }
    // SAFETY: the contract of chdir.
    try_or_fail!(unsafe { take_along(libc::AT_FDCWD, path) });
    // SAFETY: the program's own arguments.
    let done = unsafe { raw!(SYS_chdir, path) };
    if done == 0 {
        moved();
    }
    done
}

/// Every path would mean another file, and the name of each protected directory another one.
pub unsafe fn chroot(path: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    let _process = process_or!(unsafe { raw!(SYS_chroot, path) });
    messages::new_root("chroot");
    raw::fail(Errno::PERM)
}

/// As [`chroot`].
pub unsafe fn pivot_root(new: *const c_char, old: *const c_char) -> c_int {
    // SAFETY: the program's own arguments.
    let _process = process_or!(unsafe { raw!(SYS_pivot_root, new, old) });
    messages::new_root("pivot_root");
    raw::fail(Errno::PERM)
}

pub unsafe fn fchdir(fd: c_int) -> c_int {
    let done = numeric!(SYS_fchdir, fd);
    if done == 0 {
        moved();
    }
    done
}

/// The working directory may be another one.
pub(super) fn moved() {
    if process().is_some() {
        // Without memory for it, the next path that is judged asks the kernel.
        let _ = aside(|| {
            crate::refresh_working_directory();
            Ok(())
        });
    }
}
