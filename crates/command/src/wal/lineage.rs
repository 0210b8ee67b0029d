//! Where a timeline comes from, and which segments lie on the way to it.
//!
//! ```text
//!   timeline 1   ..09 ..0A  0B   0C | left inside of 0D
//!   timeline 2                      | 0D  0E ..        0D begins with the bytes of timeline 1
//! ```
//!
//! A segment below the one in which a timeline was left belongs to that timeline, all others to its
//! child. Knows names and numbers only, and reads no file. The form of a history file is that of
//! readTimeLineHistory() of PostgreSQL.

use std::collections::BTreeMap;

use crate::wal::name::SegmentName;

/// The timelines before one, the oldest first; the last one is its parent.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Lineage(Vec<Left>);

/// A timeline, and the place in the WAL where it was left.
#[derive(PartialEq, Eq, Debug)]
struct Left {
    timeline: u32,
    at: u64,
}

/// A timeline and the numbers of the segments that are its own: the first, and the one behind the
/// last.
type Reach = (u32, u64, u64);

impl Lineage {
    /// Of the text of the history file of `child`; none if PostgreSQL would not take it.
    pub(super) fn parse(child: u32, text: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let all: Vec<Left> = lines.map(Left::parse).collect::<Option<_>>()?;
        let rises = all.windows(2).all(|pair| match pair {
            [a, b] => a.timeline < b.timeline,
            _ => true,
        });
        (rises && all.last()?.timeline < child).then_some(Self(all))
    }

    /// First and last segment of each run that is missing between what the archive has of the
    /// timelines before and the first segment of `child`. Nothing is, where it has none of those:
    /// an archive may begin at any place.
    pub(super) fn missing(
        &self,
        child: u32,
        segments: &BTreeMap<u32, Vec<SegmentName>>,
        size: u64,
    ) -> Vec<(SegmentName, SegmentName)> {
        let numbers = |(timeline, from, to): Reach| {
            let own = segments.get(&timeline).into_iter().flatten();
            own.filter_map(move |it| it.number(size)).filter(move |it| (from..to).contains(it))
        };
        let mut reaches = self.reaches(size);
        let begins = reaches.last().map_or(0, |(_, _, to)| *to);
        let Some(first) = numbers((child, begins, u64::MAX)).min() else { return Vec::new() };
        let Some(last) = reaches.iter().flat_map(|reach| numbers(*reach)).max() else {
            return Vec::new();
        };
        reaches.push((child, begins, first));
        let runs = reaches.into_iter().map(|(own, from, to)| (own, from.max(last + 1), to));
        runs.filter(|(_, from, to)| from < to)
            .filter_map(|(own, from, to)| {
                Some((SegmentName::of(own, from, size)?, SegmentName::of(own, to - 1, size)?))
            })
            .collect()
    }

    fn reaches(&self, size: u64) -> Vec<Reach> {
        let mut from = 0;
        let reach = |left: &Left| {
            let to = left.at.checked_div(size).unwrap_or(0);
            (left.timeline, std::mem::replace(&mut from, to), to)
        };
        self.0.iter().map(reach).collect()
    }
}

impl Left {
    /// `1<tab>0/3000000<tab>reason`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let timeline = words.next()?.parse().ok()?;
        let (high, low) = words.next()?.split_once('/')?;
        let half = |digits| u32::from_str_radix(digits, 16).ok().map(u64::from);
        Some(Self { timeline, at: half(high)? << 32 | half(low)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    /// What is missing before timeline `child`, of segments as `(timeline, number)`.
    fn missing(child: u32, history: &str, have: &[(u32, u64)]) -> Vec<String> {
        let mut segments: BTreeMap<u32, Vec<SegmentName>> = BTreeMap::new();
        for (timeline, number) in have {
            let name = SegmentName::of(*timeline, *number, SIZE).unwrap();
            segments.entry(*timeline).or_default().push(name);
        }
        let runs = Lineage::parse(child, history).unwrap().missing(child, &segments, SIZE);
        let shown = |name: SegmentName| format!("{}:{:X}", name.timeline, name.low);
        runs.into_iter().map(|(a, b)| format!("{} {}", shown(a), shown(b))).collect()
    }

    #[test]
    fn a_text_that_postgresql_would_not_take_is_no_history() {
        let left = |timeline, at| Left { timeline, at };
        let parse = |text| Lineage::parse(3, text);
        assert_eq!(
            parse("# a comment\n\n1\t0/3000000\tno target\n\n 2\t1/0D000028\tx y\n"),
            Some(Lineage(vec![left(1, 0x0300_0000), left(2, 0x1_0D00_0028)]))
        );
        for text in ["", "#\n", "1", "1\t3000000\tx", "1\t0/x\tx", "3\t0/1\tx", "2\t0/1\n1\t0/2\n"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn segments_that_the_old_primary_did_not_archive_are_missing() {
        let history = "1\t0/D000028\tno recovery target specified\n";
        assert_eq!(missing(2, history, &[(1, 0xA), (2, 0xD), (2, 0xE)]), ["1:B 1:C"]);
        assert_eq!(missing(2, history, &[(1, 0xC), (2, 0xD)]), [""; 0]);
        // It archived beyond the switch.
        assert_eq!(missing(2, history, &[(1, 0xC), (1, 0xD), (1, 0xE), (2, 0xD)]), [""; 0]);
    }

    #[test]
    fn the_segment_of_the_switch_is_the_childs() {
        let history = "1\t0/D000028\tx\n";
        assert_eq!(missing(2, history, &[(1, 0xC), (1, 0xD), (2, 0xF)]), ["2:D 2:E"]);
        assert_eq!(missing(2, history, &[(1, 0xB), (2, 0xE)]), ["1:C 1:C", "2:D 2:D"]);
        // At a segment's first byte the timeline before has none of it.
        assert_eq!(missing(2, "1\t0/D000000\tx\n", &[(1, 0xC), (2, 0xD)]), [""; 0]);
        assert_eq!(missing(2, "1\t0/D000000\tx\n", &[(1, 0xB), (2, 0xD)]), ["1:C 1:C"]);
    }

    #[test]
    fn a_timeline_without_segments_between_two_hides_no_gap() {
        let history = "1\t0/B000028\tx\n2\t0/D000028\tx\n";
        assert_eq!(missing(3, history, &[(1, 0x9), (3, 0xD)]), ["1:A 1:A", "2:B 2:C"]);
        assert_eq!(missing(3, history, &[(1, 0x9), (2, 0xC), (3, 0xD)]), [""; 0]);
        let same = "1\t0/B000028\tx\n2\t0/B000100\tx\n";
        assert_eq!(missing(3, same, &[(1, 0xA), (3, 0xB)]), [""; 0]);
    }

    #[test]
    fn an_archive_that_begins_at_a_later_timeline_has_no_gap() {
        let history = "1\t0/D000028\tx\n";
        assert_eq!(missing(2, history, &[(2, 0xF), (2, 0x10)]), [""; 0]);
        // What is older was cleaned away, names of timeline 1 behind the switch stay.
        assert_eq!(missing(2, history, &[(1, 0xE), (2, 0xE)]), [""; 0]);
    }
}
