//! unshare, and what else would give a thread descriptors of its own: the library has one table of
//! them for the whole process, so it would take one thread's file for another's.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_long};

use tidelock_engine::Errno;
use tidelock_runtime::messages;

use crate::{raw, sys, system};

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

/// Before a child of clone that shares descriptors, and so memory too.
pub(crate) fn note_child(flags: c_long) {
    let has = |flag: c_int| flags & c_long::from(flag) != 0;
    if has(libc::CLONE_FILES) && !has(libc::CLONE_FS) {
        system::working_directories_part();
    }
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

const LOOKS: u32 = 10;

/// Memory of its own is nothing that the kernel would give: it only looks whether others have it.
/// False also where a filter of system calls forbids to ask.
fn is_alone() -> bool {
    let flags = c_long::from(libc::CLONE_VM);
    sys::plain(sys::nr::UNSHARE, [flags, 0, 0, 0, 0, 0]).is_ok()
}
