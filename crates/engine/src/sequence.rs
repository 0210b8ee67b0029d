//! The sequence word of a log: writers raise it before and lower it after, readers look whether it moved.
//!
//! A 16-byte block that is half written decrypts to garbage where a plain file would show old and new
//! bytes; WAL is read while it is written. The low 16 bits count the writers at work, the rest counts writes.

use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

const WRITERS: u64 = 0xffff;
const ONE_WRITE: u64 = 1 << 16;

/// True if a writer is at work.
pub(crate) const fn is_writing(word: u64) -> bool {
    word & WRITERS != 0
}

/// A write that is under way; lowered when dropped.
pub(crate) struct Writing<'w>(&'w AtomicU64);

impl<'w> Writing<'w> {
    pub(crate) fn begin(word: &'w AtomicU64) -> Self {
        word.fetch_add(1, AcqRel);
        Self(word)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // A reader may have taken us for dead meanwhile: never below zero.
        let lower = |word| {
            let writers = if is_writing(word) { 1 } else { 0 };
            Some((word - writers).wrapping_add(ONE_WRITE))
        };
        let _ = self.0.fetch_update(AcqRel, Acquire, lower);
    }
}

/// Takes the writers that `seen` counts for dead, if nothing has moved since.
pub(crate) fn forget_writers(word: &AtomicU64, seen: u64) {
    if is_writing(seen) {
        let rest = (seen & !WRITERS).wrapping_add(ONE_WRITE);
        let _ = word.compare_exchange(seen, rest, AcqRel, Relaxed);
    }
}
