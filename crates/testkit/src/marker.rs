//! The leak search: bytes that cannot occur by chance, and a search for them in every file.
//!
//! Found are the marker itself, each of its halves, its bytes reversed, swapped within words of 2,
//! 4 and 8 bytes wherever the words begin, as UTF-16 and as hexadecimal digits. Not found is text
//! that was compressed: keep marked values short or their storage external. Names of files are not
//! searched; they are not protected.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use data_encoding::{HEXLOWER, HEXUPPER};

/// A random ASCII text and everything to look for.
#[derive(Debug)]
pub struct Marker {
    text: String,
    patterns: Vec<(String, Vec<u8>)>,
    search: AhoCorasick,
}

/// One place where a form of the marker was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Offset of the first byte.
    pub offset: u64,
    /// Which form, for people.
    pub form: String,
}

/// What a search saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Regular files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The first finding in each file.
    pub findings: Vec<Finding>,
}

impl Marker {
    /// A marker that no other run has.
    ///
    /// # Panics
    /// Never: two dozen short patterns always make an automaton.
    #[must_use]
    pub fn new() -> Self {
        Self::of(std::iter::repeat_with(fastrand::alphanumeric).take(LENGTH).collect())
    }

    /// A text that something else writes, as long as a marker or longer.
    ///
    /// # Panics
    /// Never: two dozen short patterns always make an automaton.
    #[must_use]
    pub fn of(text: String) -> Self {
        let patterns = forms(text.as_bytes());
        let search = AhoCorasick::new(patterns.iter().map(|(_, bytes)| bytes))
            .expect("a few short patterns fit any automaton");
        Self { text, patterns, search }
    }

    /// The marker: 32 letters and digits.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads every byte of every regular file at or below the paths; symlinks are not followed.
    ///
    /// # Errors
    /// When something cannot be read. Files that vanish meanwhile are no error.
    pub fn search<P: AsRef<Path>>(&self, paths: &[P]) -> io::Result<Searched> {
        let mut seen = Searched::default();
        let mut waiting: Vec<PathBuf> = paths.iter().map(|p| p.as_ref().to_path_buf()).collect();
        for path in &waiting {
            fs::symlink_metadata(path)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        }
        while let Some(path) = waiting.pop() {
            match self.visit(&path, &mut waiting, &mut seen) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
                Ok(()) => {}
            }
        }
        Ok(seen)
    }

    /// Reads every byte of one file, also behind a link: an entry of /proc/PID/fd.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn search_file(&self, path: &Path) -> io::Result<Searched> {
        let mut seen = Searched { files: 1, ..Searched::default() };
        self.read(path, &mut seen)?;
        Ok(seen)
    }

    fn visit(
        &self,
        path: &Path,
        waiting: &mut Vec<PathBuf>,
        seen: &mut Searched,
    ) -> io::Result<()> {
        let kind = fs::symlink_metadata(path)?.file_type();
        if kind.is_dir() {
            for entry in fs::read_dir(path)? {
                waiting.push(entry?.path());
            }
        } else if kind.is_file() {
            seen.files += 1;
            self.read(path, seen)?;
        }
        Ok(())
    }

    fn read(&self, path: &Path, seen: &mut Searched) -> io::Result<()> {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 20];
        let (mut kept, mut at, mut found) = (0, 0_u64, false);
        loop {
            let got = file.read(&mut buffer[kept..])?;
            if got == 0 {
                return Ok(());
            }
            seen.bytes += got as u64;
            let filled = &buffer[..kept + got];
            if let Some(hit) = self.search.find(filled).filter(|_| !found) {
                found = true;
                seen.findings.push(Finding {
                    path: path.to_path_buf(),
                    offset: at + hit.start() as u64,
                    form: self.patterns[hit.pattern().as_usize()].0.clone(),
                });
            }
            // The longest pattern may begin in what was read and end in what follows.
            let longest = self.patterns.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(1);
            let keep = filled.len().min(longest - 1);
            let from = filled.len() - keep;
            at += from as u64;
            buffer.copy_within(from..from + keep, 0);
            kept = keep;
        }
    }
}

impl Default for Marker {
    fn default() -> Self {
        Self::new()
    }
}

/// Long enough that no two words of it are equal by chance and that a half is no accident.
const LENGTH: usize = 32;

fn forms(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut forms = vec![
        ("as it is".to_owned(), text.to_vec()),
        ("first half".to_owned(), text[..LENGTH / 2].to_vec()),
        ("second half".to_owned(), text[LENGTH / 2..].to_vec()),
        ("reversed".to_owned(), text.iter().rev().copied().collect()),
        ("UTF-16, little-endian".to_owned(), text.iter().flat_map(|b| [*b, 0]).collect()),
        ("UTF-16, big-endian".to_owned(), text.iter().flat_map(|b| [0, *b]).collect()),
        ("hexadecimal".to_owned(), HEXLOWER.encode(text).into_bytes()),
        ("HEXADECIMAL".to_owned(), HEXUPPER.encode(text).into_bytes()),
    ];
    for word in [2, 4, 8] {
        for begin in 0..word {
            let swapped = text[begin..].chunks_exact(word).flat_map(|w| w.iter().rev().copied());
            let form = format!("swapped in words of {word} that begin at byte {begin}");
            forms.push((form, swapped.collect()));
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(marker: &Marker, bytes: &[u8]) -> Vec<Finding> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), bytes).unwrap();
        marker.search(&[dir.path()]).unwrap().findings
    }

    fn with_noise(before: usize, form: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; before];
        fastrand::Rng::with_seed(7).fill(&mut bytes);
        // Behind a zero, UTF-16 begins one byte earlier in its other order.
        if let Some(last) = bytes.last_mut() {
            *last |= 1;
        }
        bytes.extend_from_slice(form);
        bytes.extend_from_slice(&[0x5a; 100]);
        bytes
    }

    #[test]
    fn each_form_is_found_at_its_offset_also_across_the_edge_of_a_read() {
        let marker = Marker::new();
        for (form, bytes) in &marker.patterns {
            for before in [0, 1, 4095, (1 << 20) - 3, (1 << 20) - 1, 1 << 20, (2 << 20) - 20] {
                let findings = found(&marker, &with_noise(before, bytes));
                assert_eq!(findings.len(), 1, "{form} at {before}");
                // A longer form may begin with a shorter one; both begin here.
                assert_eq!(findings[0].offset, before as u64, "{form}");
            }
        }
    }

    #[test]
    fn words_swapped_on_a_grid_that_the_marker_does_not_fit_are_found() {
        let marker = Marker::new();
        for word in [2, 4, 8] {
            for begin in 0..word {
                let mut bytes = vec![b'-'; begin];
                bytes.extend_from_slice(marker.text().as_bytes());
                bytes.resize(64, b'-');
                let swapped: Vec<u8> =
                    bytes.chunks_exact(word).flat_map(|w| w.iter().rev().copied()).collect();
                assert_eq!(found(&marker, &swapped).len(), 1, "words of {word} from {begin}");
            }
        }
    }

    #[test]
    fn random_bytes_hold_no_marker_and_everything_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), with_noise(3 << 20, b"")).unwrap();
        fs::write(dir.path().join("b"), b"").unwrap();
        let seen = Marker::new().search(&[dir.path()]).unwrap();
        assert_eq!(seen, Searched { files: 2, bytes: (3 << 20) + 100, findings: vec![] });
    }

    #[test]
    fn a_path_that_is_not_there_is_an_error() {
        assert!(Marker::new().search(&["/nonexistent/tidelock"]).is_err());
    }
}
