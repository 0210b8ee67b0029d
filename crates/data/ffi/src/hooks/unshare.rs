//! unshare, and what else would give a thread descriptors of its own: the library has one table of
//! them for the whole process, so it would take one thread's file for another's.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_long};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::os::fd::{AsFd as _, IntoRawFd as _};

use rustix::fs::{CWD, Mode, OFlags, RawDir};
use tidelock_engine::Errno;
use tidelock_runtime::messages;

use crate::{raw, sys, system};

/// A process that is no thread of this one has its memory and descriptors too.
static LENT: AtomicBool = AtomicBool::new(false);

pub unsafe fn unshare(flags: c_int) -> c_int {
    let _process = process_or!(numeric!(SYS_unshare, flags));
    if flags & libc::CLONE_FILES != 0 && is_shared() {
        return refuse("unshare(CLONE_FILES)");
    }
    if flags & DIRECTORY != 0 {
        system::working_directories_part();
    }
    numeric!(SYS_unshare, flags)
}

/// What gives the calling thread a working directory of its own.
const DIRECTORY: c_int = libc::CLONE_FS | libc::CLONE_NEWNS | libc::CLONE_NEWUSER;

/// Refuses what would part the descriptors of one process.
pub(crate) fn refuse(call: &str) -> c_int {
    messages::one_table(call);
    raw::fail(Errno::INVAL)
}

/// Before a child of clone that shares memory and descriptors. The list of threads shows it only if
/// it is one.
pub(crate) fn note_child(flags: c_long) {
    let has = |flag: c_int| flags & c_long::from(flag) != 0;
    if has(libc::CLONE_FILES) && !has(libc::CLONE_THREAD) {
        LENT.store(true, Relaxed);
    }
    if has(libc::CLONE_FILES) && !has(libc::CLONE_FS) {
        system::working_directories_part();
    }
}

/// In a forked child, which shares nothing.
pub(crate) fn after_fork_in_child() {
    LENT.store(false, Relaxed);
}

/// True if descriptors of its own would part the calling thread from others. Alone it keeps the
/// table that it has.
pub(super) fn is_shared() -> bool {
    // Who was joined is a thread for a moment still.
    !(0..LOOKS).any(|look| {
        if look > 0 {
            let moment = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::thread::nanosleep(&moment);
        }
        is_alone()
    })
}

/// Memory of its own is nothing that the kernel would give: it only looks whether others have it.
/// A filter of system calls may forbid to ask.
fn is_alone() -> bool {
    let flags = c_long::from(libc::CLONE_VM);
    match sys::plain(sys::nr::UNSHARE, [flags, 0, 0, 0, 0, 0]) {
        Ok(_) => true,
        Err(Errno::INVAL) => false,
        Err(_) => !LENT.load(Relaxed) && is_only_thread(),
    }
}

const LOOKS: u32 = 10;

/// False also where nobody can tell.
fn is_only_thread() -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = rustix::fs::openat(CWD, c"/proc/self/task", flags, Mode::empty());
    let Ok(list) = list else { return false };
    let mut room = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(list.as_fd(), &mut room);
    let mut threads = 0;
    while let Some(Ok(entry)) = entries.next() {
        threads += u32::from(!entry.file_name().to_bytes().starts_with(b"."));
    }
    // std's own close would be our hook.
    let _ = sys::plain(sys::nr::CLOSE, [list.into_raw_fd().into(), 0, 0, 0, 0, 0]);
    threads == 1
}
