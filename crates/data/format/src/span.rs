//! Splits a byte range of a file into units: a partial head, a run of whole units, a partial tail.
//!
//! Pure arithmetic. Knows nothing of keys or descriptors, never allocates, and cannot fail.

use crate::place::{PlainOffset, UnitNumber};

/// The AES block: what a byte access can touch at least.
pub const BLOCK: u64 = 16;
/// [`BLOCK`] for slices.
pub const BLOCK_USIZE: usize = 16;
/// The unit: the bytes that are sealed at once, under one tweak.
pub const UNIT: u64 = 4096;
/// [`UNIT`] for slices.
pub const UNIT_USIZE: usize = 4096;

/// A range of plain bytes, `start..end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// The `len` bytes from `start`, or `None` if they end beyond the largest offset.
    #[must_use]
    pub const fn new(start: PlainOffset, len: usize) -> Option<Self> {
        match start.get().checked_add(len as u64) {
            Some(end) if PlainOffset::new(end).is_some() => Some(Self { start: start.get(), end }),
            _ => None,
        }
    }

    /// The first byte.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The place behind the last byte.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// True if both ends lie between units, so that no other byte is touched.
    #[must_use]
    pub const fn is_whole_units(self) -> bool {
        (self.start | self.end).is_multiple_of(UNIT)
    }

    /// True if both ends lie between blocks, so that no other byte is sealed again.
    #[must_use]
    pub const fn is_whole_blocks(self) -> bool {
        (self.start | self.end).is_multiple_of(BLOCK)
    }

    /// The unit that holds the first byte.
    #[must_use]
    pub const fn first_unit(self) -> UnitNumber {
        UnitNumber(self.start / UNIT)
    }

    /// The start of the first unit touched.
    #[must_use]
    pub const fn unit_start(self) -> u64 {
        self.start - self.start % UNIT
    }

    /// The start of the first block touched.
    #[must_use]
    pub const fn block_start(self) -> u64 {
        self.start - self.start % BLOCK
    }

    /// The end of the last block touched.
    #[must_use]
    pub const fn block_end(self) -> u64 {
        self.end.next_multiple_of(BLOCK)
    }
}
