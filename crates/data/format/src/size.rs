//! Sizes: the plain size is a pure function of the disk size and the layout, so that stat needs no
//! open.
//!
//! With r = size mod 16: a body of r = 0 is exactly as long as the plain file; otherwise its last
//! block is padded with zeros to 16 bytes, sealed, and followed by r bytes of zeros, which say how
//! many of the block's bytes count.

use crate::place::{DiskOffset, Layout};
use crate::span::BLOCK;

/// How many bytes the server sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PlainSize(pub u64);

/// How many bytes the kernel holds, the header included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiskSize(pub u64);

impl PlainSize {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// How many bytes of the last block count, 0 for "all": size mod 16.
    #[must_use]
    pub const fn remainder(self) -> u64 {
        self.0 % BLOCK
    }

    /// True if no block is cut by the end.
    #[must_use]
    pub const fn is_whole_blocks(self) -> bool {
        self.remainder() == 0
    }

    /// The end of the last block.
    #[must_use]
    pub const fn block_end(self) -> u64 {
        self.0.next_multiple_of(BLOCK)
    }

    /// The disk size of a file of this plain size that has a header.
    #[must_use]
    pub const fn on_disk(self, layout: Layout) -> DiskSize {
        let tail = self.remainder();
        DiskSize(layout.data_offset() as u64 + self.block_end() + tail)
    }
}

impl DiskSize {
    /// The plain size. A body that no plain size maps to (1 to 15 bytes) reads as none.
    #[must_use]
    pub const fn plain(self, layout: Layout) -> PlainSize {
        let body = self.0.saturating_sub(layout.data_offset() as u64);
        if body.is_multiple_of(BLOCK) {
            PlainSize(body)
        } else {
            PlainSize(body.saturating_sub(BLOCK))
        }
    }

    /// True if a plain size has exactly this disk size: nothing at all, the written part of a
    /// header, or a header and a whole body.
    #[must_use]
    pub const fn is_canonical(self, layout: Layout) -> bool {
        self.0 == 0
            || self.0 == layout.written_header().get()
            || self.0 >= layout.data_offset() as u64
                && self.plain(layout).on_disk(layout).0 == self.0
    }

    /// The place behind the last byte.
    #[must_use]
    pub const fn is_at_most(self, at: DiskOffset) -> bool {
        self.0 <= at.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_sizes_of_the_format_document() {
        let layout = Layout::DEFAULT;
        for (plain, disk) in [
            (0, 4096),
            (1, 4113),
            (15, 4127),
            (16, 4112),
            (17, 4129),
            (4095, 8207),
            (4096, 8192),
            (4097, 8209),
        ] {
            assert_eq!(PlainSize(plain).on_disk(layout), DiskSize(disk));
            assert_eq!(DiskSize(disk).plain(layout), PlainSize(plain));
        }
    }

    #[test]
    fn a_body_that_no_size_maps_to_reads_as_empty() {
        for body in 1..16 {
            assert_eq!(DiskSize(4096 + body).plain(Layout::DEFAULT), PlainSize(0));
            assert!(!DiskSize(4096 + body).is_canonical(Layout::DEFAULT));
        }
    }

    #[test]
    fn a_file_shorter_than_its_header_is_empty() {
        for disk in [0, 1, 255, 4095, 4096] {
            assert_eq!(DiskSize(disk).plain(Layout::DEFAULT), PlainSize(0));
        }
    }

    #[test]
    fn the_written_part_of_a_header_is_a_whole_empty_file() {
        for (offset, wholes) in [(4096, [0, 4096, 4096]), (8192, [0, 4096, 8192])] {
            let layout = Layout::new(offset).unwrap();
            for size in 0..=u64::from(offset) {
                assert_eq!(DiskSize(size).plain(layout), PlainSize(0));
                assert_eq!(DiskSize(size).is_canonical(layout), wholes.contains(&size), "{size}");
            }
        }
    }
}
