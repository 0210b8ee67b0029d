//! Working memory of a simulated process: it begins a page, and is full of what must never reach
//! the disk.

use std::ops::{Deref, DerefMut};

/// A buffer that begins a page.
pub struct Scratch {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

impl Scratch {
    pub(super) fn new(len: usize) -> Self {
        assert!(len <= tidelock_engine::SCRATCH_MAX, "too much working memory is asked for: {len}");
        let bytes = vec![b'q'; len + 4096];
        let from = bytes.as_ptr().align_offset(4096);
        Self { bytes, from, len }
    }
}
