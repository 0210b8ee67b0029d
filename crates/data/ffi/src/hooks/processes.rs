//! fork and its kin: from then on every offset is shared with another process.
//!
//! fork itself is not hooked: libc runs the handlers that are registered at start, also for fork
//! calls of its own (daemon, forkpty). What does not run them is hooked.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_long, c_void};

use libc::pid_t;

use crate::hooks::{close, duplicate, unshare};
use crate::process::process;
use crate::raw::Outcome as _;
use crate::{fork, next, refresh_working_directory};

/// Registers the handlers; called once, when the library starts in a listed program.
pub(crate) fn watch_forks() {
    // SAFETY: functions that live as long as the process; libc copies the addresses.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    fork::before();
}

extern "C" fn in_parent() {
    fork::after_in_parent();
}

extern "C" fn in_child() {
    fork::after_in_child();
}

pub unsafe fn vfork() -> pid_t {
    // A child that shares our memory would change our table. fork is all that vfork promises.
    // SAFETY: takes nothing.
    unsafe { libc::fork() }
}

pub unsafe fn fork_without_handlers() -> pid_t {
    // SAFETY: takes nothing.
    let child = around_fork(|| i64::from(unsafe { next::_Fork() }));
    pid_t::from_word(child)
}

/// Runs a fork that does not run libc's handlers.
pub(crate) fn around_fork(run: impl FnOnce() -> i64) -> i64 {
    fork::before();
    let child = run();
    match child {
        0 => fork::after_in_child(),
        _ => fork::after_in_parent(),
    }
    child
}

pub unsafe fn clone(
    run: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    parent: *mut c_void,
    thread: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let kind = process().map_or(Child::Sharing, |_| Child::of(c_long::from(flags)));
    let flags = match kind {
        Child::Sharing => {
            unshare::note_child(flags.into());
            // SAFETY: the contract of clone.
            return unsafe { next::clone(run, stack, flags, arg, parent, thread, child) };
        }
        Child::Apart(flags) => c_int::from_word(flags),
        Child::Between => return unshare::refuse("clone"),
    };
    fork::before();
    // The child has a copy of it, in its copy of our stack.
    let mut begun = Begun { run, arg };
    let begin = begin as unsafe extern "C" fn(*mut c_void) -> c_int as *mut c_void;
    // SAFETY: the contract of clone.
    let child =
        unsafe { next::clone(begin, stack, flags, (&raw mut begun).cast(), parent, thread, child) };
    fork::after_in_parent();
    child
}

/// What a child of clone has of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Child {
    /// Descriptors and memory, as a thread: the table is as true for it as for us.
    Sharing,
    /// A copy of both, by these flags. The program asked for that, or for a child that it waits for
    /// as after vfork, which is all that such a child promises to use the memory for.
    Apart(c_long),
    /// Our memory, beside us, and descriptors of its own: it would change our table. Or our
    /// descriptors, and memory of its own: each would not know what the other opens.
    Between,
}

impl Child {
    pub(crate) const fn of(flags: c_long) -> Self {
        const MEMORY: c_long = libc::CLONE_VM as c_long;
        const TABLE: c_long = libc::CLONE_FILES as c_long;
        const WAITED_FOR: c_long = libc::CLONE_VFORK as c_long;
        // Only with the same memory.
        const HANDLERS: c_long = libc::CLONE_SIGHAND as c_long;
        // None is waited for: other threads would wait for the fork as long as that lasts.
        if flags & (MEMORY | TABLE) == 0 {
            Self::Apart(flags & !WAITED_FOR)
        } else if flags & MEMORY == 0 {
            Self::Between
        } else if flags & TABLE != 0 {
            Self::Sharing
        } else if flags & WAITED_FOR != 0 {
            Self::Apart(flags & !(MEMORY | HANDLERS | WAITED_FOR))
        } else {
            Self::Between
        }
    }
}

/// What a child of clone is to run.
struct Begun {
    run: *mut c_void,
    arg: *mut c_void,
}

/// The beginning of a child of clone that has memory of its own: libc's handlers do not run there.
unsafe extern "C" fn begin(begun: *mut c_void) -> c_int {
    fork::after_in_child();
    // SAFETY: `clone` passes it, and a copy of our memory has it in the same place.
    let begun = unsafe { &*begun.cast::<Begun>() };
    // SAFETY: the program gave clone a function of this type.
    let run = unsafe {
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(begun.run)
    };
    // SAFETY: the contract of clone.
    unsafe { run(begun.arg) }
}

pub unsafe fn daemon(stay: c_int, keep_open: c_int) -> c_int {
    // SAFETY: takes numbers only.
    let done = unsafe { next::daemon(stay, keep_open) };
    let Some(process) = process().filter(|_| done == 0) else { return done };
    // libc has gone to / and put /dev/null there without asking us.
    if stay == 0 {
        refresh_working_directory();
    }
    if keep_open == 0 {
        (0..=2).for_each(|fd| process.forget(fd));
    }
    done
}

pub unsafe fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> pid_t {
    // SAFETY: the contract of forkpty.
    let child = unsafe { next::forkpty(master, name, settings, size) };
    if child == 0
        && let Some(process) = process()
    {
        // libc has put the terminal there without asking us.
        (0..=2).for_each(|fd| process.forget(fd));
    }
    child
}

/// What libc's does, by the functions that know the table.
pub unsafe fn login_tty(fd: c_int) -> c_int {
    let _: c_int = numeric!(SYS_setsid);
    let taken: c_int = numeric!(SYS_ioctl, fd, libc::TIOCSCTTY, 0);
    if taken < 0 {
        return -1;
    }
    for onto in 0..=2 {
        // SAFETY: takes numbers only.
        if unsafe { duplicate::dup2(fd, onto) } < 0 {
            return -1;
        }
    }
    if fd > 2 {
        // SAFETY: takes a number only.
        unsafe { close::close(fd) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_with_our_memory_and_descriptors_of_its_own_is_a_copy_or_none() {
        let of = |flags: c_int| Child::of(c_long::from(flags));
        let (memory, end) = (libc::CLONE_VM, libc::SIGCHLD);
        assert_eq!(of(end), Child::Apart(c_long::from(end)));
        assert_eq!(of(libc::CLONE_VFORK | end), Child::Apart(c_long::from(end)));
        assert_eq!(of(memory | libc::CLONE_FILES), Child::Sharing);
        assert_eq!(of(memory | libc::CLONE_THREAD | libc::CLONE_SIGHAND), Child::Between);
        let waited_for = libc::CLONE_VFORK | end;
        let as_vfork = memory | libc::CLONE_SIGHAND | waited_for;
        assert_eq!(of(as_vfork), Child::Apart(c_long::from(end)));
        assert_eq!(of(memory | end), Child::Between);
        assert_eq!(of(libc::CLONE_FILES | end), Child::Between);
    }
}
