//! Sleeping at a word until somebody wakes.
//!
//! UNSAFETY: futex(2) compares 32 bits of a word of 64.
#![expect(unsafe_code, reason = "half of a word")]

use core::sync::atomic::{AtomicU32, AtomicU64};

use rustix::thread::futex;

/// Sleeps at a word, see the engine's `Kernel`.
pub(crate) fn sleep(word: &AtomicU64, seen: u64, ns: i64) {
    let pause = futex::Timespec { tv_sec: 0, tv_nsec: ns };
    #[expect(clippy::cast_possible_truncation, reason = "the kernel compares the lower half")]
    let low = seen as u32;
    let _ = futex::wait(lower_half(word), futex::Flags::empty(), low, Some(&pause));
}

/// Wakes all that sleep at a word: one that is killed after being woken must not take the wake with
/// it.
pub(crate) fn wake(word: &AtomicU64) {
    let _ = futex::wake(lower_half(word), futex::Flags::empty(), u32::MAX >> 1);
}

/// The lower half comes first on this machine.
const fn lower_half(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: the first four of the word's eight bytes, aligned as it is; only the kernel reads
    // them by this reference.
    unsafe { &*core::ptr::from_ref(word).cast::<AtomicU32>() }
}
