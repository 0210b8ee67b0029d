//! close, close_range and closefrom: what is sealed is closed in the table too, what is hidden
//! stays.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_uint};

use tidelock_engine::Errno;

use crate::hooks::{none, unshare};
use crate::process::ActiveProcess;
use crate::raw;

pub unsafe fn close(fd: c_int) -> c_int {
    let process = process_or!(numeric!(SYS_close, fd));
    none(process.close(fd))
}

pub unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let straight = |first: c_uint, last: c_uint| numeric!(SYS_close_range, first, last, flags);
    let process = process_or!(straight(first, last));
    let flagged = |flag| flags.cast_unsigned() & flag != 0;
    if last >= first && flagged(libc::CLOSE_RANGE_UNSHARE) && unshare::is_shared() {
        return unshare::refuse("close_range(CLOSE_RANGE_UNSHARE)");
    }
    if last < first || flagged(libc::CLOSE_RANGE_CLOEXEC) {
        // Hidden descriptors are closed on exec anyway.
        return straight(first, last);
    }
    close_visible(process, first, last, straight)
}

pub unsafe fn closefrom(lowest: c_int) {
    let first = lowest.max(0).cast_unsigned();
    let before = raw::errno();
    // SAFETY: takes numbers only.
    let done = unsafe { close_range(first, c_uint::MAX, 0) };
    if done != 0 {
        // Before Linux 5.9: one by one, as far as a descriptor can lie.
        for fd in first.cast_signed()..MOST_DESCRIPTORS {
            // SAFETY: takes a number only.
            unsafe { close(fd) };
        }
        raw::set_errno(before);
    }
}

const MOST_DESCRIPTORS: c_int = 65_536;

/// Sealed descriptors one by one, then everything between the hidden ones.
fn close_visible(
    process: &ActiveProcess,
    first: c_uint,
    last: c_uint,
    straight: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    for fd in process.sealed_in(first, last) {
        // close_range tells nobody about the files that it closes either.
        let _: Result<(), Errno> = process.close(fd);
    }
    let mut from = first;
    for hidden in process.hidden_in(first, last) {
        let hidden = hidden.cast_unsigned();
        if from < hidden && straight(from, hidden - 1) != 0 {
            return -1;
        }
        from = hidden + 1;
    }
    if from <= last { straight(from, last) } else { 0 }
}
