//! One file's raw bytes, from the first to the last, searched for what must not be readable.
//!
//! Sealed bytes of AES-256-XTS look like random ones. Each unit of them is tested for that: the sum
//! over all byte values of (seen - expected)^2 / expected (Pearson's chi-square, 255 degrees of
//! freedom) is about 255 for random bytes, above [`LIMIT`] by chance once in 10^28 units, and
//! thousands for text, pages and most other things that programs write. Blocks of zeros are holes
//! and are left out.

use aho_corasick::AhoCorasick;
use serde::Serialize;

use crate::signature::{STEP, Signature};

/// What a search cannot show, for whoever reads its result.
pub const NOT_SHOWN: &str = "Bytes that look random are not thereby sealed: compressed or \
    otherwise encrypted data looks the same. That a file is sealed is shown by its header's MAC, \
    which the same run checks. Markers are found as they were given and as UTF-16, not compressed, \
    encoded or split over blocks that do not follow each other in the file. Of a unit with fewer \
    than 1,024 bytes in blocks that are not zero no statistic is made; it counts as a hole, and \
    only markers and signatures are looked for in it. An empty folder of the server's own user may \
    be the place of a disk that is not mounted: then its files were not looked at.";

/// Bytes of a unit.
const UNIT: usize = 4096;
const BLOCK: usize = 16;
/// Of fewer bytes that are no holes, no statistic is made.
const ENOUGH: usize = 1024;
/// Chi-square of 255 degrees of freedom; p = 2e-29 (Wilson and Hilferty's approximation).
const LIMIT: u64 = 600;
/// Sights that are kept of each file.
const KEPT: usize = 5;
/// Shorter ones would be found by chance.
const SHORTEST: usize = 8;
const LONGEST: usize = 4096;

/// What may not be found anywhere on the disk.
pub struct Markers {
    search: Option<AhoCorasick>,
    count: usize,
    longest: usize,
}

/// Why markers cannot be looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkersError {
    /// Too short or too long.
    #[error("a marker has {length} bytes; it must have {SHORTEST} to {LONGEST}")]
    Length {
        /// Its bytes.
        length: usize,
    },
    /// Too many of them.
    #[error("the markers are too many to be looked for at once")]
    TooMany,
}

/// What the bytes of a file should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A header of so many bytes, then sealed units.
    Sealed {
        /// Where the units begin.
        data_offset: usize,
    },
    /// Plain by the policy: only markers are looked for.
    Plain,
}

/// Something that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Sight {
    /// The byte of the file where it begins.
    pub offset: u64,
    /// For programs; stays the same: `marker`, `signature`, `not_random`.
    pub kind: &'static str,
    /// For people.
    pub what: &'static str,
}

/// What one file was seen to be.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Seen {
    /// Bytes read.
    pub bytes: u64,
    /// Units that were judged by their statistic.
    pub judged: u64,
    /// Units that are holes for the most part.
    pub holes: u64,
    /// The sum of chi-square over the judged units.
    pub chi_square: u64,
    /// The largest one.
    pub worst: u64,
    /// How much was found in all.
    pub found: u64,
    /// The first of it.
    pub sights: Vec<Sight>,
}

/// A search of one file. Feed it all bytes in their order, in pieces of whole units but for the
/// last.
pub struct Scan<'m> {
    markers: &'m Markers,
    form: Form,
    /// The end of the last piece: a marker may go on in the next one.
    edge: Vec<u8>,
    seen: Seen,
}

impl Markers {
    /// Each as it is and as UTF-16 of both orders. Without a marker, nothing is looked for.
    ///
    /// # Errors
    /// [`MarkersError`].
    pub fn new(texts: &[Vec<u8>]) -> Result<Self, MarkersError> {
        if texts.is_empty() {
            return Ok(Self { search: None, count: 0, longest: 0 });
        }
        let wrong = |text: &&Vec<u8>| !(SHORTEST..=LONGEST).contains(&text.len());
        if let Some(text) = texts.iter().find(wrong) {
            return Err(MarkersError::Length { length: text.len() });
        }
        let forms: Vec<Vec<u8>> = texts.iter().flat_map(|text| forms(text)).collect();
        let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        let search = AhoCorasick::new(&forms).map_err(|_| MarkersError::TooMany)?;
        Ok(Self { search: Some(search), count: texts.len(), longest })
    }

    /// How many texts were given.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }
}

fn forms(text: &[u8]) -> [Vec<u8>; 3] {
    let wide = |order: fn(u16) -> [u8; 2]| {
        String::from_utf8_lossy(text).encode_utf16().flat_map(order).collect()
    };
    [text.to_vec(), wide(u16::to_le_bytes), wide(u16::to_be_bytes)]
}

impl<'m> Scan<'m> {
    /// Of a file that has this form.
    #[must_use]
    pub fn new(markers: &'m Markers, form: Form) -> Self {
        Self { markers, form, edge: Vec::new(), seen: Seen::default() }
    }

    /// The next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.mark(bytes);
        if let Form::Sealed { data_offset } = self.form {
            self.signatures(bytes);
            self.statistics(bytes, data_offset);
        }
        self.seen.bytes += bytes.len() as u64;
    }

    /// All that was seen.
    #[must_use]
    pub fn end(self) -> Seen {
        self.seen
    }

    /// From the edge of the last piece on: a marker may lie across it.
    fn mark(&mut self, bytes: &[u8]) {
        let Some(search) = &self.markers.search else { return };
        let edge = self.edge.len();
        let before = self.seen.bytes - edge as u64;
        let mut text = std::mem::take(&mut self.edge);
        text.extend_from_slice(bytes);
        // What ends within the edge was counted with the last piece.
        let new = search.find_iter(&text).filter(|found| found.end() > edge);
        let places: Vec<usize> = new.map(|found| found.start()).collect();
        for place in places {
            self.sight(before + place as u64, "marker", "a marker that was given");
        }
        text.drain(..text.len().saturating_sub(self.markers.longest - 1));
        self.edge = text;
    }

    fn signatures(&mut self, bytes: &[u8]) {
        let begin = self.seen.bytes;
        for (index, piece) in bytes.chunks(STEP).enumerate() {
            if let Some(signature) = Signature::of(piece) {
                self.sight(begin + (index * STEP) as u64, "signature", signature.name());
            }
        }
    }

    fn statistics(&mut self, bytes: &[u8], data_offset: usize) {
        let begin = self.seen.bytes;
        for (index, unit) in bytes.chunks(UNIT).enumerate() {
            let at = begin + (index * UNIT) as u64;
            if at < data_offset as u64 {
                continue;
            }
            let Some(measured) = chi_square(unit) else {
                self.seen.holes += 1;
                continue;
            };
            self.seen.judged += 1;
            self.seen.chi_square += measured;
            self.seen.worst = self.seen.worst.max(measured);
            if measured > LIMIT {
                self.sight(at, "not_random", "a unit whose bytes do not look random");
            }
        }
    }

    fn sight(&mut self, offset: u64, kind: &'static str, what: &'static str) {
        self.seen.found += 1;
        if self.seen.sights.len() < KEPT {
            self.seen.sights.push(Sight { offset, kind, what });
        }
    }
}

/// Of the blocks that are not zero; `None` if they are too few.
fn chi_square(unit: &[u8]) -> Option<u64> {
    let mut counts = [0u64; 256];
    let mut total = 0u64;
    for block in unit.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0)) {
        total += block.len() as u64;
        for byte in block {
            counts[usize::from(*byte)] += 1;
        }
    }
    if total < ENOUGH as u64 {
        return None;
    }
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    Some((squares * 256 / total).saturating_sub(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEALED: Form = Form::Sealed { data_offset: 8192 };

    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        bytes
    }

    fn scan(markers: &Markers, form: Form, bytes: &[u8], piece: usize) -> Seen {
        let mut scan = Scan::new(markers, form);
        bytes.chunks(piece).for_each(|piece| scan.feed(piece));
        scan.end()
    }

    fn unmarked(bytes: &[u8]) -> Seen {
        scan(&Markers::new(&[]).unwrap(), SEALED, bytes, 64 * UNIT)
    }

    #[test]
    fn random_units_are_found_random_each_of_them() {
        let seen = unmarked(&noise(16 << 20, 11));
        assert_eq!((seen.found, seen.judged, seen.holes), (0, (16 << 20) / 4096 - 2, 0));
        let mean = seen.chi_square / seen.judged;
        assert!((250..=260).contains(&mean), "{mean}");
        assert!(seen.worst < 450, "{}", seen.worst);
    }

    #[test]
    fn text_in_a_quarter_of_one_unit_is_found_at_its_unit() {
        let text = b"Every sentence of this page is plain, and nothing in it was ever sealed. ";
        let text: Vec<u8> = text.iter().copied().cycle().take(1024).collect();
        for unit in [2, 3, 100] {
            let mut bytes = noise(1 << 20, 5);
            let at = unit * UNIT + 700;
            bytes[at..at + text.len()].copy_from_slice(&text);
            let seen = unmarked(&bytes);
            let offset = (unit * UNIT) as u64;
            assert_eq!(seen.found, 1, "unit {unit}: worst {}", seen.worst);
            assert_eq!((seen.sights[0].offset, seen.sights[0].kind), (offset, "not_random"));
        }
    }

    #[test]
    fn holes_are_not_judged_and_what_stands_between_them_is() {
        let mut bytes = noise(16 * UNIT, 2);
        bytes[4 * UNIT..8 * UNIT].fill(0);
        // Half a hole: the rest of it is random.
        bytes[9 * UNIT..9 * UNIT + 2048].fill(0);
        let seen = unmarked(&bytes);
        assert_eq!((seen.found, seen.holes, seen.judged), (0, 4, 10));
    }

    #[test]
    fn a_page_that_is_mostly_zeros_is_found_by_its_header() {
        let mut bytes = noise(16 * UNIT, 9);
        let mut page = [0; 2 * UNIT];
        page[..20].copy_from_slice(&[
            0, 0, 0, 0, 0x60, 0x23, 0x4b, 1, 0x9a, 0x53, 5, 0, 0xe8, 0, 0x28, 1, 0, 0x20, 4, 0x20,
        ]);
        bytes[6 * UNIT..8 * UNIT].copy_from_slice(&page);
        let seen = unmarked(&bytes);
        assert_eq!(seen.found, 1);
        let sight = Sight { offset: 6 * 4096, kind: "signature", what: "the header of a page" };
        assert_eq!(seen.sights, [sight]);
    }

    #[test]
    fn a_marker_is_found_in_each_form_also_across_pieces_and_in_plain_files() {
        let marker = b"Ada Lovelace, 1815".to_vec();
        let markers = Markers::new(std::slice::from_ref(&marker)).unwrap();
        for form in forms(&marker) {
            for at in [0, 4096 - 1, 4096 - 17, 8191, 40_000 - 40] {
                let mut bytes = noise(40_000, 8);
                let end = (at + form.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&form[..end - at]);
                for shape in [SEALED, Form::Plain] {
                    let seen = scan(&markers, shape, &bytes, UNIT);
                    let marks = seen.sights.iter().filter(|it| it.kind == "marker");
                    let places: Vec<u64> = marks.map(|it| it.offset).collect();
                    assert_eq!(places, [at as u64], "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn markers_that_chance_would_find_are_refused() {
        for length in [0, 7, 4097] {
            let error = Markers::new(&[vec![b'x'; length]]).err();
            assert_eq!(error, Some(MarkersError::Length { length }));
        }
        assert!(Markers::new(&[vec![b'x'; 8], vec![b'x'; 4096]]).is_ok());
    }

    #[test]
    fn many_sights_are_counted_and_the_first_are_kept() {
        let seen = unmarked(&vec![b'a'; 64 * UNIT]);
        assert_eq!((seen.found, seen.sights.len()), (62, KEPT));
        assert_eq!(seen.sights[0].offset, 8192);
    }
}
