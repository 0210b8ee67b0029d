//! What kind of writer a file has, and what its unwritten blocks mean.

/// The class of a file, chosen by its path in the profile and recorded in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Class {
    /// Whole pages at page boundaries: relation forks, tablespaces, SLRUs.
    Paged = 1,
    /// A log that is read while it is written: WAL, redo.
    Log = 2,
    /// Text and everything else: any offset, any length.
    Bytes = 3,
}

/// What a stretch of zeros on the disk means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum ZeroRule {
    /// Each 16-byte block of zeros reads as zeros.
    Block = 1,
    /// A unit that is all zeros reads as zeros; no unit is ever half a hole.
    Unit = 2,
}

impl Class {
    /// The class with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Paged),
            2 => Some(Self::Log),
            3 => Some(Self::Bytes),
            _ => None,
        }
    }

    /// The zero rule of new files of this class.
    #[must_use]
    pub const fn zero_rule(self) -> ZeroRule {
        match self {
            Self::Paged | Self::Log => ZeroRule::Unit,
            Self::Bytes => ZeroRule::Block,
        }
    }

    /// The name used in profiles and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paged => "paged",
            Self::Log => "log",
            Self::Bytes => "bytes",
        }
    }
}

impl ZeroRule {
    /// The rule with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Block),
            2 => Some(Self::Unit),
            _ => None,
        }
    }
}
