//! Working memory of the data path: a fixed pool, no allocation, never shared between two calls.
//!
//! UNSAFETY: a buffer is lent as `&mut [u8]` from a shared static while its owner word says so.
#![expect(unsafe_code, reason = "exclusive access by an atomic owner")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use tidelock_engine::SCRATCH_MAX;

use crate::sys;

const BUFFERS: usize = 48;

#[repr(C, align(4096))]
struct Bytes(UnsafeCell<[u8; SCRATCH_MAX]>);

// SAFETY: a buffer is used only by the holder of its owner word.
unsafe impl Sync for Bytes {}

static BYTES: [Bytes; BUFFERS] = [const { Bytes(UnsafeCell::new([0; SCRATCH_MAX])) }; BUFFERS];
/// The thread that holds each buffer, 0 for none.
static OWNERS: [AtomicU64; BUFFERS] = [const { AtomicU64::new(0) }; BUFFERS];

/// A buffer, aligned to a page, given back when dropped.
pub struct Scratch {
    index: usize,
    len: usize,
}

/// A buffer of `len` bytes, at most [`SCRATCH_MAX`]. Waits for another thread if all are in use.
#[inline]
pub(crate) fn take(len: usize) -> Scratch {
    let me = sys::thread();
    loop {
        for (index, owner) in OWNERS.iter().enumerate() {
            if owner.load(Relaxed) == 0 && owner.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                return Scratch { index, len: len.min(SCRATCH_MAX) };
            }
        }
        rustix::thread::sched_yield();
    }
}

/// In a forked child only the forking thread exists: what others held is free.
pub(crate) fn after_fork_in_child() {
    let me = sys::thread();
    for owner in &OWNERS {
        if owner.load(Relaxed) != me {
            owner.store(0, Relaxed);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        OWNERS[self.index].store(0, Release);
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: we hold the owner word; the borrow of self keeps `deref_mut` away.
        let all = unsafe { &*BYTES[self.index].0.get() };
        &all[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: we hold the owner word, and self is borrowed exclusively.
        let all = unsafe { &mut *BYTES[self.index].0.get() };
        &mut all[..self.len]
    }
}
