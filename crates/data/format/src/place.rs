//! Places: where the server thinks a byte is, where the kernel will look, and which unit it is in.

use crate::span::UNIT;

/// Where the server thinks it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PlainOffset(u64);

/// Where the kernel will look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DiskOffset(u64);

/// Counts units from the start of the plain file; the tweak of the unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnitNumber(pub u64);

/// Where the sealed units of a file begin. A field of the header and of the directory's policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    data_offset: u32,
}

/// The block that a header takes on the disk.
const HEADER_WRITTEN: u32 = 4096;

/// A data offset that this format does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a data offset of {0} bytes is not one of 4096, 8192, 16384, 65536, 131072")]
pub struct LayoutError(pub u32);

impl Layout {
    /// Units from byte 4096 on.
    pub const DEFAULT: Self = Self { data_offset: 4096 };

    /// The layout whose units begin at `data_offset`.
    ///
    /// # Errors
    /// [`LayoutError`] unless it is 4, 8, 16, 64 or 128 KiB.
    pub const fn new(data_offset: u32) -> Result<Self, LayoutError> {
        match data_offset {
            4096 | 8192 | 16_384 | 65_536 | 131_072 => Ok(Self { data_offset }),
            other => Err(LayoutError(other)),
        }
    }

    /// Where the units begin, in bytes.
    #[must_use]
    pub const fn data_offset(self) -> u32 {
        self.data_offset
    }

    /// Where unit 0 begins.
    #[must_use]
    pub const fn start(self) -> DiskOffset {
        DiskOffset(self.data_offset as u64)
    }

    /// How much of the header is written: its first 4096 bytes. What lies between them and unit 0
    /// stays a hole, so that no header takes more than one block of a disk.
    #[must_use]
    pub const fn written_header(self) -> DiskOffset {
        DiskOffset(
            if self.data_offset < HEADER_WRITTEN { self.data_offset } else { HEADER_WRITTEN }
                as u64,
        )
    }

    /// Where this plain byte lies on the disk.
    #[must_use]
    pub const fn disk(self, at: PlainOffset) -> DiskOffset {
        DiskOffset(at.0 + self.data_offset as u64)
    }

    /// `count` bytes further on.
    #[must_use]
    pub const fn advance(at: DiskOffset, count: u64) -> DiskOffset {
        DiskOffset(at.0 + count)
    }

    /// Which plain byte lies here, or `None` within the header.
    #[must_use]
    pub const fn plain(self, at: DiskOffset) -> Option<PlainOffset> {
        match at.0.checked_sub(self.data_offset as u64) {
            Some(plain) => Some(PlainOffset(plain)),
            None => None,
        }
    }
}

impl PlainOffset {
    /// The first byte.
    pub const ZERO: Self = Self(0);

    /// The place `at`, or `None` if no layout could hold it.
    #[must_use]
    pub const fn new(at: u64) -> Option<Self> {
        if at <= i64::MAX as u64 - 262_144 { Some(Self(at)) } else { None }
    }

    /// The offset as a number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The unit that holds this byte.
    #[must_use]
    pub const fn unit(self) -> UnitNumber {
        UnitNumber(self.0 / UNIT)
    }
}

impl DiskOffset {
    /// The start of the file: its header.
    pub const HEADER: Self = Self(0);

    /// The offset as a number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}
