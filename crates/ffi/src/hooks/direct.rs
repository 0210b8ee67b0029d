//! syscall(2) by number: what opens files or changes descriptors goes the way of its function; what
//! would go round the table is refused; all else is straight, and fails with EBADF on a visible
//! descriptor.
//!
//! UNSAFETY: see hooks.rs. The six arguments are hooked as fixed ones; a program that passes fewer
//! leaves us words that the call does not look at.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_long, c_uint, c_void};

use libc::rlimit;
use tidelock_engine::Errno;

use crate::hooks::{close, control, duplicate, limits, map, names, open, processes, size};
use crate::process::process;
use crate::raw::{self, Outcome as _};

pub unsafe fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if process().is_some() {
        // SAFETY: the contract of syscall: the arguments that the call of this number wants.
        if let Some(result) = unsafe { by_function(number, a, b, c, d, e) } {
            return c_long::from(result);
        }
    }
    // SAFETY: the program's own arguments.
    let straight = || unsafe { raw::call(number, [a, b, c, d, e, f]) };
    let flags = match number {
        libc::SYS_clone => Some(a),
        // SAFETY: the contract of clone3: its arguments, flags first.
        libc::SYS_clone3 => unsafe { at::<c_long>(a).as_ref() }.copied(),
        _ => None,
    };
    let makes_process = flags.is_some_and(|flags| flags & SHARES_MEMORY == 0);
    raw::answer(if makes_process { processes::around_fork(straight) } else { straight() })
}

const SHARES_MEMORY: c_long = libc::CLONE_VM as c_long;

/// The calls that must not go round us.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one table, one call is made")]
unsafe fn by_function(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
) -> Option<c_int> {
    // SAFETY: each function has the contract of the call of its number.
    let result = unsafe {
        match number {
            libc::SYS_open => open::open(at(a), int(b), uint(c)),
            libc::SYS_openat => open::openat(int(a), at(b), int(c), uint(d)),
            libc::SYS_creat => open::creat(at(a), uint(b)),
            libc::SYS_truncate => size::truncate(at(a), b),
            libc::SYS_close => close::close(int(a)),
            libc::SYS_close_range => close::close_range(uint(a), uint(b), int(c)),
            libc::SYS_dup => duplicate::dup(int(a)),
            libc::SYS_dup2 => duplicate::dup2(int(a), int(b)),
            libc::SYS_dup3 => duplicate::dup3(int(a), int(b), int(c)),
            libc::SYS_fcntl => control::fcntl(int(a), int(b), c),
            libc::SYS_rename => names::rename(at(a), at(b)),
            libc::SYS_renameat => names::renameat(int(a), at(b), int(c), at(d)),
            libc::SYS_renameat2 => names::renameat2(int(a), at(b), int(c), at(d), uint(e)),
            libc::SYS_link => names::link(at(a), at(b)),
            libc::SYS_linkat => names::linkat(int(a), at(b), int(c), at(d), int(e)),
            libc::SYS_symlink => names::symlink(at(a), at(b)),
            libc::SYS_symlinkat => names::symlinkat(at(a), int(b), at(c)),
            libc::SYS_unlink => names::unlink(at(a)),
            libc::SYS_unlinkat => names::unlinkat(int(a), at(b), int(c)),
            libc::SYS_rmdir => names::rmdir(at(a)),
            libc::SYS_chdir => names::chdir(at(a)),
            libc::SYS_fchdir => names::fchdir(int(a)),
            libc::SYS_setrlimit => limits::setrlimit(int(a), at(b)),
            libc::SYS_prlimit64 => {
                limits::prlimit(int(a), int(b), at(c), at::<rlimit>(d).cast_mut())
            }
            libc::SYS_madvise => map::madvise(at::<c_void>(a).cast_mut(), size(b), int(c)),
            libc::SYS_munmap => map::munmap(at::<c_void>(a).cast_mut(), size(b)),
            libc::SYS_mprotect => map::mprotect(at::<c_void>(a).cast_mut(), size(b), int(c)),
            libc::SYS_vfork => processes::vfork(),
            libc::SYS_fork => processes::fork_without_handlers(),
            libc::SYS_openat2 | libc::SYS_io_uring_setup | libc::SYS_io_setup => {
                raw::fail(Errno::NOSYS)
            }
            libc::SYS_open_by_handle_at => raw::fail(Errno::OPNOTSUPP),
            _ => return None,
        }
    };
    Some(result)
}

fn int(word: c_long) -> c_int {
    c_int::from_word(word)
}

fn uint(word: c_long) -> c_uint {
    c_int::from_word(word).cast_unsigned()
}

fn size(word: c_long) -> usize {
    isize::from_word(word).cast_unsigned()
}

fn at<T>(word: c_long) -> *const T {
    <*mut core::ffi::c_void>::from_word(word).cast_const().cast()
}
