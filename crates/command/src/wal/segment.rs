//! Is a file what its name says? A look at its beginning and its size, before anybody relies on it.
//!
//! The server takes WAL that it cannot read for the end of WAL. So what was opened with a wrong
//! key, put under another name or is something else must be told here. What the records say is the
//! server's to check: they have CRCs.

use crate::wal::name::{Kind, SegmentName, WalName};

/// So many bytes of the beginning are looked at.
pub(super) const HEAD: usize = 40;
/// XLP_LONG_HEADER: the first page of a segment has it.
const LONG_HEADER: u16 = 2;
/// WalSegMinSize and WalSegMaxSize.
const SIZES: std::ops::RangeInclusive<u64> = (1 << 20)..=(1 << 30);

/// Why a file is not what its name says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NotWal {
    /// No header of a WAL page.
    #[error("it does not begin as a WAL segment does")]
    Head,
    /// A segment of another place.
    #[error("it is another segment than its name says: its first page lies at {found:X}")]
    Other {
        /// Where it lies in the WAL.
        found: u64,
    },
    /// Cut, or too long.
    #[error("it has {found} bytes, but its first page says {must}")]
    Size {
        /// How many there are.
        found: u64,
        /// How many there must be.
        must: u64,
    },
    /// No text as PostgreSQL writes it.
    #[error("it is not the text that PostgreSQL writes there")]
    Text,
}

/// What the first page of a segment says; XLogLongPageHeaderData of xlog_internal.h.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FirstPage {
    pub(super) timeline: u32,
    pub(super) address: u64,
    pub(super) system: u64,
    pub(super) size: u64,
}

impl FirstPage {
    /// Of the first [`HEAD`] bytes of a segment.
    pub(super) fn parse(head: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        // XLOG_PAGE_MAGIC: D0xx and D1xx up to PostgreSQL 18.
        let known = matches!(u16_at(0)? >> 8, 0xD0..=0xD3);
        let size = u64::from(u32_at(32)?);
        let whole = known
            && u16_at(2)? & LONG_HEADER != 0
            && SIZES.contains(&size)
            && size.is_power_of_two()
            && u32_at(36)?.is_power_of_two();
        let page = Self { timeline: u32_at(4)?, address: u64_at(8)?, system: u64_at(24)?, size };
        whole.then_some(page)
    }
}

/// Checks the first bytes, at least [`HEAD`] if there are as many, and the size of a file.
///
/// # Errors
/// [`NotWal`].
pub(super) fn check(name: &WalName, head: &[u8], size: u64) -> Result<(), NotWal> {
    match name.kind() {
        Kind::Segment(segment) | Kind::Partial(segment) => check_segment(segment, head, size),
        Kind::History => {
            let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let behind = line.get(digits);
            let text = digits > 0 && matches!(behind, Some(b'\t' | b' '));
            if text && !head.contains(&0) { Ok(()) } else { Err(NotWal::Text) }
        }
        // One that a power cut has left empty is archived all the same: nobody reads it to recover.
        Kind::Backup if head.is_empty() || head.starts_with(b"START WAL LOCATION: ") => Ok(()),
        Kind::Backup => Err(NotWal::Text),
    }
}

fn check_segment(segment: SegmentName, head: &[u8], size: u64) -> Result<(), NotWal> {
    let page = FirstPage::parse(head).ok_or(NotWal::Head)?;
    let place = segment.number(page.size).map(|number| number * page.size);
    // A segment in which a timeline begins starts with the pages of the one before.
    if place != Some(page.address) || page.timeline > segment.timeline {
        return Err(NotWal::Other { found: page.address });
    }
    if size != page.size {
        return Err(NotWal::Size { found: size, must: page.size });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn name(text: &str) -> WalName {
        WalName::parse(OsStr::new(text)).unwrap()
    }

    fn page(timeline: u32, address: u64, size: u32) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        head[..2].copy_from_slice(&0xD110u16.to_le_bytes());
        head[2..4].copy_from_slice(&LONG_HEADER.to_le_bytes());
        head[4..8].copy_from_slice(&timeline.to_le_bytes());
        head[8..16].copy_from_slice(&address.to_le_bytes());
        head[32..36].copy_from_slice(&size.to_le_bytes());
        head[36..40].copy_from_slice(&8192u32.to_le_bytes());
        head
    }

    #[test]
    fn a_segment_is_what_its_name_says_or_it_is_refused() {
        let segment = name("000000020000000100000003");
        let address = (256 + 3) << 24;
        let size = 16 << 20;
        assert_eq!(check(&segment, &page(2, address, 16 << 20), size), Ok(()));
        assert_eq!(check(&segment, &page(1, address, 16 << 20), size), Ok(()));
        let other = Err(NotWal::Other { found: address });
        assert_eq!(check(&segment, &page(3, address, 16 << 20), size), other);
        let next = Err(NotWal::Other { found: address + size });
        assert_eq!(check(&segment, &page(2, address + size, 16 << 20), size), next);
        let cut = Err(NotWal::Size { found: size - 1, must: size });
        assert_eq!(check(&segment, &page(2, address, 16 << 20), size - 1), cut);
        let mut garbage = page(2, address, 16 << 20);
        garbage[..16].fill(0x5A);
        assert_eq!(check(&segment, &garbage, size), Err(NotWal::Head));
        assert_eq!(check(&segment, &[0; HEAD], size), Err(NotWal::Head));
        assert_eq!(check(&segment, b"", 0), Err(NotWal::Head));
    }

    #[test]
    fn texts_begin_as_postgresql_writes_them() {
        let history = name("00000002.history");
        assert_eq!(check(&history, b"1\t0/3000000\tno recovery target", 30), Ok(()));
        for text in [&b""[..], b"\x89TDLK\r\n", b"1", b"x\t0/3", b"1\t0/3\n\0\0"] {
            assert_eq!(check(&history, text, 9), Err(NotWal::Text), "{text:?}");
        }
        let backup = name("000000010000000000000002.00000028.backup");
        assert_eq!(check(&backup, b"START WAL LOCATION: 0/2000028 (file", 400), Ok(()));
        assert_eq!(check(&backup, b"STOP", 4), Err(NotWal::Text));
        assert_eq!(check(&backup, b"", 0), Ok(()));
    }
}
