//! Lines of a flat file with their numbers and offsets. A line may be of any length; no more than
//! [`LONGEST`] bytes of it are kept in memory.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;

/// A line may have this many bytes.
pub(super) const LONGEST: usize = 1024;

/// A file that is read line by line. Positions are signed, as the ledger keeps them.
#[derive(Debug)]
pub(super) struct Lines {
    input: BufReader<File>,
    /// Lines that were read.
    number: i64,
    /// Bytes that were read.
    offset: i64,
    kept: Vec<u8>,
}

/// One line without its end.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Number, from 1.
    pub(super) number: i64,
    /// The first [`LONGEST`] bytes.
    pub(super) bytes: &'a [u8],
    /// How many bytes it has in the file, without its end.
    pub(super) length: usize,
    /// Whether it has an end; only the last line of a file may lack it.
    pub(super) ended: bool,
}

impl Lines {
    /// Opens `path` behind the first `number` lines, which end at `offset`.
    pub(super) fn open(path: &Path, number: i64, offset: i64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let start = u64::try_from(offset).map_err(io::Error::other)?;
        file.seek(SeekFrom::Start(start))?;
        let input = BufReader::with_capacity(1 << 16, file);
        Ok(Self { input, number, offset, kept: Vec::with_capacity(LONGEST) })
    }

    /// Number of the last line that was read.
    pub(super) fn number(&self) -> i64 {
        self.number
    }

    /// Where the next line starts.
    pub(super) fn offset(&self) -> i64 {
        self.offset
    }

    /// The next line, or `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.kept.clear();
        let mut length = 0;
        let mut ended = false;
        while !ended {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = LONGEST.saturating_sub(self.kept.len()).min(part.len());
            self.kept.extend_from_slice(&part[..room]);
            length += part.len();
            ended = end.is_some();
            let used = part.len() + usize::from(ended);
            self.offset += i64::try_from(used).map_err(io::Error::other)?;
            self.input.consume(used);
        }
        if length == 0 && !ended {
            return Ok(None);
        }
        self.number += 1;
        if length <= LONGEST && self.kept.last() == Some(&b'\r') {
            self.kept.pop();
            length -= 1;
        }
        Ok(Some(Line { number: self.number, bytes: &self.kept, length, ended }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_offsets_lead_back_to_the_same_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(200_000);
        std::fs::write(file.path(), format!("a\r\n\n{long}\nlast")).unwrap();
        let mut lines = Lines::open(file.path(), 0, 0).unwrap();
        assert_eq!(lines.next().unwrap().unwrap().bytes, b"a");
        assert_eq!(lines.next().unwrap().unwrap().bytes, b"");
        let (number, offset) = (lines.number(), lines.offset());
        for mut lines in [lines, Lines::open(file.path(), number, offset).unwrap()] {
            let line = lines.next().unwrap().unwrap();
            assert_eq!((line.number, line.length, line.bytes.len()), (3, 200_000, LONGEST));
            let line = lines.next().unwrap().unwrap();
            assert_eq!((line.number, line.bytes, line.ended), (4, &b"last"[..], false));
            assert!(lines.next().unwrap().is_none());
        }
    }
}
