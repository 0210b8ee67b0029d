//! The names that PostgreSQL gives to files of its archive; everything else is refused.
//!
//! Names come from a server, and are looked up in a directory: none of them has a slash or begins
//! with a dot. xlog_internal.h of PostgreSQL defines them.

use std::ffi::OsStr;
use std::fmt;

/// The name of a file in an archive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WalName {
    text: String,
    kind: Kind,
}

/// What a file in an archive is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// `TTTTTTTTHHHHHHHHLLLLLLLL`: timeline, and the high and low half of the segment's number.
    Segment(SegmentName),
    /// The same with `.partial`: the last segment of a timeline that was left.
    Partial(SegmentName),
    /// `TTTTTTTT.history`: where a timeline comes from.
    History,
    /// A segment's name with the offset of a backup's start, `.backup`.
    Backup,
}

/// Which segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SegmentName {
    pub(super) timeline: u32,
    pub(super) high: u32,
    pub(super) low: u32,
}

impl SegmentName {
    /// Its number, if segments have this size; none if no segment of that size has such a name.
    pub(super) fn number(self, size: u64) -> Option<u64> {
        let each = (1u64 << 32).checked_div(size)?;
        let low = u64::from(self.low);
        (low < each).then(|| u64::from(self.high) * each + low)
    }

    /// The name of the segment with this number.
    pub(super) fn of(timeline: u32, number: u64, size: u64) -> Option<Self> {
        let each = (1u64 << 32).checked_div(size)?;
        let high = u32::try_from(number.checked_div(each)?).ok()?;
        let low = u32::try_from(number.checked_rem(each)?).ok()?;
        Some(Self { timeline, high, low })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}{:08X}{:08X}", self.timeline, self.high, self.low)
    }
}

impl WalName {
    /// The name, if it is one.
    pub(super) fn parse(name: &OsStr) -> Option<Self> {
        let text = name.to_str()?;
        let (first, rest) = text.split_once('.').map_or((text, None), |(a, b)| (a, Some(b)));
        let kind = match (first.len(), rest) {
            (8, Some("history")) if hex(first).is_some() => Kind::History,
            (24, None) => Kind::Segment(segment(first)?),
            (24, Some("partial")) => Kind::Partial(segment(first)?),
            (24, Some(rest)) if segment(first).is_some() => {
                let offset = rest.strip_suffix(".backup")?;
                (offset.len() == 8 && hex(offset).is_some()).then_some(Kind::Backup)?
            }
            _ => return None,
        };
        Some(Self { text: text.to_owned(), kind })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The timeline whose history this is.
    pub(super) fn history(&self) -> Option<u32> {
        self.text.strip_suffix(".history").and_then(hex)
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for WalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn segment(text: &str) -> Option<SegmentName> {
    let part = |from: usize| text.get(from..from + 8).and_then(hex);
    Some(SegmentName { timeline: part(0)?, high: part(8)?, low: part(16)? })
}

/// Eight digits as PostgreSQL writes them.
fn hex(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte));
    if digits { u32::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Option<Kind> {
        WalName::parse(OsStr::new(name)).map(|name| name.kind)
    }

    #[test]
    fn the_four_kinds_are_known_and_nothing_else_is_a_name() {
        let first = SegmentName { timeline: 1, high: 0xA, low: 0xFF };
        assert_eq!(kind("000000010000000A000000FF"), Some(Kind::Segment(first)));
        assert_eq!(kind("000000010000000A000000FF.partial"), Some(Kind::Partial(first)));
        assert_eq!(kind("0000000A.history"), Some(Kind::History));
        assert_eq!(kind("000000010000000A000000FF.00000028.backup"), Some(Kind::Backup));
        assert_eq!(first.to_string(), "000000010000000A000000FF");
        for name in [
            "",
            ".",
            "..",
            "../000000010000000A000000FF",
            "000000010000000A000000FF/",
            "000000010000000a000000ff",
            "000000010000000A000000F",
            "000000010000000A000000FF.",
            "000000010000000A000000FF.partial.partial",
            "000000010000000A000000FF.gz",
            "000000010000000A000000FF.0000002.backup",
            "+0000001.history",
            "0000000A.history\n",
            ".tidelock",
            "RECOVERYXLOG",
        ] {
            assert_eq!(kind(name), None, "{name:?}");
        }
    }

    #[test]
    fn numbers_and_names_agree_for_all_sizes() {
        for size in [1u64 << 20, 16 << 20, 1 << 30] {
            let each = (1 << 32) / size;
            for number in [0, 1, each - 1, each, each + 1, 7 * each - 1] {
                let name = SegmentName::of(3, number, size).unwrap();
                assert_eq!(name.number(size), Some(number));
            }
        }
        let beyond = SegmentName { timeline: 1, high: 0, low: 256 };
        assert_eq!(beyond.number(16 << 20), None);
    }
}
