//! `--deep`: the raw bytes of each file, searched for what must not be readable in them.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use tidelock_contract::Decision;
use tidelock_evidence::{Coverage, Form, Kind, Markers, Scan, Seen};
use tidelock_keyring::Keyring;

use super::examine::{self, Finding, Outcome};
use super::open::{Unopened, open};
use crate::console;
use crate::error::{Error, Result};
use crate::walk::Found;

/// Read at once: whole units.
const CHUNK: usize = 1024 * 1024;
/// Of all markers together.
const MAX_MARKERS: usize = 1024 * 1024;

/// Whether and for what raw bytes are searched
#[derive(clap::Args, Default)]
pub(crate) struct Deep {
    /// Search the raw bytes of every file for plaintext: headers of pages and WAL, units that do
    /// not look random
    #[arg(long)]
    deep: bool,
    /// Search all files for these texts too: one a line, each of at least 8 bytes (-: standard
    /// input)
    #[arg(long, value_name = "FILE", requires = "deep")]
    markers: Option<PathBuf>,
}

/// A search that goes through all files.
pub(crate) struct Search<'m> {
    markers: &'m Markers,
}

impl Deep {
    /// The markers that were given.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] for markers that chance would find.
    pub(crate) fn markers(&self) -> Result<Markers> {
        let texts = self.texts()?;
        let source = self.markers.as_deref().unwrap_or_else(|| "-".as_ref()).display();
        Markers::new(&texts).map_err(|why| {
            Error::usage(format!("{source}: {why}"), "one marker a line, 8 to 4096 bytes each")
        })
    }

    fn texts(&self) -> Result<Vec<Vec<u8>>> {
        let Some(path) = &self.markers else { return Ok(Vec::new()) };
        let failed = || Error::io("read the markers from", path);
        let (most, mut bytes) = (MAX_MARKERS as u64 + 1, Vec::new());
        if path.as_os_str() == "-" {
            io::stdin().take(most).read_to_end(&mut bytes).map_err(failed())?;
        } else {
            let file = File::open(path).map_err(failed())?;
            file.take(most).read_to_end(&mut bytes).map_err(failed())?;
        }
        if bytes.len() > MAX_MARKERS {
            return Err(Error::usage(
                format!("{} has more than 1 MiB of markers", path.display()),
                "search for them in several runs",
            ));
        }
        // Windows begins a text file so. UTF-16 would be looked for as it is, and never found.
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return Err(Error::usage(
                format!("{} is a text in UTF-16", path.display()),
                "save it as UTF-8: markers are looked for in UTF-16 too",
            ));
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let lines = bytes.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let texts: Vec<_> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        if texts.is_empty() {
            return Err(Error::usage(
                format!("{} has no marker", path.display()),
                "one marker a line, 8 to 4096 bytes each, or leave --markers out",
            ));
        }
        Ok(texts)
    }

    /// A search, if one was asked for.
    pub(crate) fn search<'m>(&self, markers: &'m Markers) -> Option<Search<'m>> {
        self.deep.then_some(Search { markers })
    }
}

impl Search<'_> {
    /// How many markers are looked for.
    pub(super) fn markers(&self) -> usize {
        self.markers.count()
    }

    /// Reads one file past header and key, counts it, and adds what looks plain to the problems of
    /// its `outcome`. One that is not there any more is missing, whatever it was before.
    pub(super) fn file(
        &self,
        found: &Found,
        keyring: &Keyring,
        coverage: &mut Coverage,
        outcome: &mut Outcome,
    ) {
        if outcome.kind.is_missing() {
            return;
        }
        let problems = &mut outcome.problems;
        let policy = keyring.policy();
        let (form, plain) = match policy.decide(found.name_bytes()) {
            Decision::Plain(_) => (Form::Plain, true),
            Decision::Seal(_) => {
                let offset = usize::try_from(keyring.layout().data_offset()).unwrap_or(usize::MAX);
                (Form::Sealed { data_offset: offset }, false)
            }
        };
        let seen = match self.read(found, form) {
            Ok(seen) => seen,
            Err(Unopened::Gone) => {
                outcome.kind = examine::Kind::Gone;
                return;
            }
            Err(Unopened::Changed) => {
                outcome.kind = examine::Kind::Changed;
                return;
            }
            // The same file was read just before.
            Err(Unopened::Failed(why)) => {
                return problems.push(Finding::unreadable(&found.path, &why));
            }
        };
        if seen.bytes == 0 {
            return;
        }
        coverage.add(Kind::of(policy.profile(), &found.name.to_string_lossy(), plain), &seen);
        for sight in &seen.sights {
            problems.push(Finding {
                file: found.path.display().to_string(),
                kind: "plaintext",
                what: format!("{} at byte {}", sight.what, sight.offset),
            });
        }
        let more = seen.found - seen.sights.len() as u64;
        if more > 0 {
            problems.push(Finding {
                file: found.path.display().to_string(),
                kind: "plaintext",
                what: format!("{more} more places that look plain"),
            });
        }
    }

    fn read(&self, found: &Found, form: Form) -> std::result::Result<Seen, Unopened> {
        let mut file = open(found)?;
        let mut scan = Scan::new(self.markers, form);
        let mut chunk = vec![0u8; CHUNK];
        loop {
            let count = fill(&mut file, &mut chunk).map_err(Unopened::Failed)?;
            scan.feed(chunk.get(..count).unwrap_or_default());
            if count < CHUNK {
                return Ok(scan.end());
            }
        }
    }
}

/// Reads until `into` is full or the file ends.
fn fill(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(done)
}

/// Coverage by kind of file, for people.
pub(super) fn table(coverage: &Coverage) -> String {
    let mut text = format!(
        "{:<22} {:>7} {:>11} {:>9} {:>10} {:>7} {:>11}\n",
        "kind of file", "files", "bytes", "units", "chi-square", "largest", "looks plain"
    );
    for row in coverage.rows() {
        let number = |value: u64| if row.units == 0 { "-".to_owned() } else { value.to_string() };
        text += &format!(
            "{:<22} {:>7} {:>11} {:>9} {:>10} {:>7} {:>11}\n",
            row.kind,
            row.files,
            console::bytes(row.bytes),
            number(row.units),
            number(row.mean_chi_square),
            number(row.worst_chi_square),
            row.found,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &[u8]) -> Result<Vec<Vec<u8>>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), of).unwrap();
        Deep { deep: true, markers: Some(file.path().into()) }.texts()
    }

    #[test]
    fn a_marker_is_a_line_whatever_its_end_is() {
        let found = texts(b"Ada Lovelace\r\n\r\n\nCharles Babbage\nthe last\r").unwrap();
        assert_eq!(found, [&b"Ada Lovelace"[..], b"Charles Babbage", b"the last"]);
    }

    #[test]
    fn markers_that_could_never_be_found_are_refused() {
        for text in [&b""[..], b"\n\r\n", b"\xef\xbb\xbf\n", b"\xff\xfeA\0d\0a\0"] {
            assert!(matches!(texts(text), Err(Error::Usage { .. })), "{text:?}");
        }
        let windows = texts(b"\xef\xbb\xbfAda Lovelace\r\n").unwrap();
        assert_eq!(windows, [b"Ada Lovelace"]);
    }

    #[test]
    fn markers_beyond_the_limit_are_refused_and_not_dropped() {
        let mut many = b"a marker\n".repeat(MAX_MARKERS / 9);
        many.resize(MAX_MARKERS, b'x');
        assert_eq!(texts(&many).unwrap().len(), MAX_MARKERS / 9 + 1);
        many.push(b'x');
        assert!(matches!(texts(&many), Err(Error::Usage { .. })));
    }
}
