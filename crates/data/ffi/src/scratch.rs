//! Working memory of the data path: a fixed pool, and a map of its own for whom the pool has
//! nothing left.
//!
//! No allocation, no waiting, never shared between two calls: a call that waited for memory while
//! it holds a lock, or other memory, could wait for ever. Left out of core dumps, since plain bytes
//! pass through.
//!
//! UNSAFETY: a buffer is lent as `&mut [u8]` while its owner word says so, or while its map lives.
#![expect(unsafe_code, reason = "exclusive access by an atomic owner, and anonymous maps")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use tidelock_engine::{Errno, SCRATCH_MAX};

use crate::{allowance, sys};

const BUFFERS: usize = 48;

#[repr(C, align(4096))]
struct Bytes(UnsafeCell<[u8; SCRATCH_MAX]>);

// SAFETY: a buffer is used only by the holder of its owner word.
unsafe impl Sync for Bytes {}

static BYTES: [Bytes; BUFFERS] = [const { Bytes(UnsafeCell::new([0; SCRATCH_MAX])) }; BUFFERS];
/// The thread that holds each buffer, [`FREE`] or [`WITHHELD`].
static OWNERS: [AtomicU64; BUFFERS] = [const { AtomicU64::new(WITHHELD) }; BUFFERS];
const FREE: u64 = 0;
/// Nobody has needed the buffer yet, and it may not be written.
const WITHHELD: u64 = u64::MAX;

/// A buffer, aligned to a page, given back when dropped.
pub struct Scratch {
    start: NonNull<u8>,
    len: usize,
    from: Source,
}

enum Source {
    Pool(usize),
    Map,
}

/// A buffer of `len` bytes, at most [`SCRATCH_MAX`]; waits for nobody.
///
/// # Errors
/// `ENOMEM` where the pool is used up and the kernel gives no memory.
#[inline]
pub(crate) fn take(len: usize) -> Result<Scratch, Errno> {
    let me = sys::thread();
    let len = len.min(SCRATCH_MAX);
    for (index, owner) in OWNERS.iter().enumerate() {
        if owner.load(Relaxed) == FREE && owner.compare_exchange(FREE, me, Acquire, Relaxed).is_ok()
        {
            let start = NonNull::from(&BYTES[index]).cast();
            return Ok(Scratch { start, len, from: Source::Pool(index) });
        }
    }
    one_more(me, len).map_or_else(|| map(len), Ok)
}

/// A buffer that nobody has had so far.
#[cold]
fn one_more(me: u64, len: usize) -> Option<Scratch> {
    let is_withheld = |owner: &AtomicU64| owner.load(Relaxed) == WITHHELD;
    for (index, owner) in OWNERS.iter().enumerate().filter(|(_, owner)| is_withheld(owner)) {
        // First, since a child of another thread's fork takes what has an owner for usable.
        allowance::grant(&BYTES[index..=index]).ok()?;
        if owner.compare_exchange(WITHHELD, me, Acquire, Relaxed).is_ok() {
            let start = NonNull::from(&BYTES[index]).cast();
            return Some(Scratch { start, len, from: Source::Pool(index) });
        }
    }
    None
}

#[cold]
fn map(len: usize) -> Result<Scratch, Errno> {
    let len = len.max(1);
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh private memory wherever the kernel likes.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, rights, MapFlags::PRIVATE)
    };
    let start = mapped.ok().and_then(|at| NonNull::new(at.cast::<u8>())).ok_or(Errno::NOMEM)?;
    // SAFETY: the map that was just made.
    let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxDontDump) };
    Ok(Scratch { start, len, from: Source::Map })
}

/// Keeps the pool out of core dumps, and takes back what nobody has needed. Once, while the library
/// starts.
pub(crate) fn start() {
    if OWNERS.iter().all(|owner| owner.load(Relaxed) == WITHHELD) {
        allowance::withhold(&BYTES);
    }
    let pool = (&raw const BYTES).cast_mut().cast();
    // SAFETY: the pool is ours, whole pages, and the advice changes no byte.
    let _ = unsafe { rustix::mm::madvise(pool, size_of_val(&BYTES), Advice::LinuxDontDump) };
}

/// In a forked child only the forking thread exists: what others held is free.
pub(crate) fn after_fork_in_child() {
    let me = sys::thread();
    for owner in &OWNERS {
        // Written only where it must be: each first write of a child copies a page.
        if ![FREE, WITHHELD, me].contains(&owner.load(Relaxed)) {
            owner.store(FREE, Relaxed);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match self.from {
            Source::Pool(index) => OWNERS[index].store(FREE, Release),
            Source::Map => {
                // SAFETY: the map is this buffer's alone, and nobody sees it again.
                let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
            }
        }
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: we hold the owner word or the map; the borrow of self keeps `deref_mut` away.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: we hold the owner word or the map, and self is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_finds_the_pool_used_up_does_not_wait() {
        let mut held: Vec<Scratch> =
            (0..4 * BUFFERS).map(|_| take(SCRATCH_MAX).expect("memory")).collect();
        for (value, buffer) in (0u8..).zip(&mut held) {
            buffer.fill(value);
        }
        for (value, buffer) in (0u8..).zip(&held) {
            assert_eq!(buffer.len(), SCRATCH_MAX);
            assert!(buffer.iter().all(|&byte| byte == value), "buffer {value} is shared");
        }
    }
}
