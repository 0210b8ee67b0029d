//! A row for each kind of file: how many, how many bytes, and what the search saw in them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kind::Kind;
use crate::scan::Seen;

/// The rows.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Coverage {
    rows: BTreeMap<Kind, Row>,
}

/// All files of one kind.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What people call them.
    pub kind: &'static str,
    /// How many.
    pub files: u64,
    /// Their bytes on the disk, all of which were read.
    pub bytes: u64,
    /// Units of sealed bytes whose statistic was judged.
    pub units: u64,
    /// Units that are holes.
    pub holes: u64,
    /// The mean of chi-square over the units: about 255 for random bytes.
    pub mean_chi_square: u64,
    /// The largest of one unit.
    pub worst_chi_square: u64,
    /// How often something was found that looks plain.
    pub found: u64,
    #[serde(skip)]
    sum: u64,
}

impl Coverage {
    /// Counts one file.
    pub fn add(&mut self, kind: Kind, seen: &Seen) {
        let row = self.rows.entry(kind).or_default();
        row.kind = kind.name();
        row.files += 1;
        row.bytes += seen.bytes;
        row.units += seen.judged;
        row.holes += seen.holes;
        row.found += seen.found;
        row.sum += seen.chi_square;
        row.worst_chi_square = row.worst_chi_square.max(seen.worst);
        row.mean_chi_square = row.sum.checked_div(row.units).unwrap_or(0);
    }

    /// In the order of [`Kind`].
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }
}

impl Serialize for Coverage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_means_and_sums_of_their_files() {
        let seen = |judged, chi_square, worst| Seen {
            bytes: 4096 * judged,
            judged,
            chi_square,
            worst,
            found: 1,
            ..Seen::default()
        };
        let mut coverage = Coverage::default();
        coverage.add(Kind::Wal, &seen(1, 200, 200));
        coverage.add(Kind::Wal, &seen(3, 840, 300));
        coverage.add(Kind::Relations, &Seen::default());
        let rows: Vec<_> = coverage.rows().collect();
        assert_eq!((rows[0].kind, rows[0].mean_chi_square), ("tables and indexes", 0));
        assert_eq!((rows[1].files, rows[1].bytes, rows[1].found), (2, 4 * 4096, 2));
        assert_eq!((rows[1].mean_chi_square, rows[1].worst_chi_square), (260, 300));
    }
}
