//! What two runs must have in common: output, files and their bytes; and what the disk must not
//! have.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Ended, Result, failed};

/// The expectation beside a program that is refused: its first lines, with `#`, give the reason.
pub(super) fn without_reason(text: &str) -> String {
    let lines = text.split_inclusive('\n').skip_while(|line| line.starts_with('#'));
    lines.collect()
}

/// The first lines in which the second run differs from what is expected, if it does.
pub(super) fn outputs(expected: &str, second: &Ended) -> Option<String> {
    if expected == second.output && second.good() {
        return None;
    }
    let (want, have): (Vec<_>, Vec<_>) =
        (expected.lines().collect(), second.output.lines().collect());
    let mut text = format!("differs; the second run ended with {second}");
    let differing = (0..want.len().max(have.len())).filter(|i| want.get(*i) != have.get(*i));
    for i in differing.take(SHOWN) {
        // The line before tells which call it was.
        if let Some(before) = i.checked_sub(1).and_then(|before| want.get(before)) {
            text += &format!("line {:4}:            {before}\n", i);
        }
        text += &format!("line {:4}: expected   {}\n", i + 1, want.get(i).unwrap_or(&"(ended)"));
        text += &format!("           second run {}\n", have.get(i).unwrap_or(&"(ended)"));
    }
    Some(text)
}

/// Compares what two runs left behind: names, kinds, modes, links, and the bytes, which
/// `plain_bytes` reads in the second tree. `.tidelock` does not count. Lines of `*.unordered` are
/// sorted first.
pub(super) fn trees(
    first: &Path,
    second: &Path,
    plain_bytes: impl Fn(&Path) -> Result<Vec<u8>>,
) -> Result<Option<String>> {
    let (one, two) = (list(first)?, list(second)?);
    for name in one.keys().chain(two.keys()) {
        let (a, b) = (one.get(name), two.get(name));
        if a != b {
            let shown = name.display();
            return Ok(Some(format!("leaves {shown} as {a:?} plain, as {b:?} in the second run")));
        }
    }
    for (name, entry) in &one {
        if !matches!(entry, Entry::File { .. }) {
            continue;
        }
        let path = first.join(name);
        let mut a = fs::read(&path).map_err(failed(format!("reading {}", path.display())))?;
        let mut b = plain_bytes(&second.join(name))?;
        if name.extension().is_some_and(|e| e == "unordered") {
            (a, b) = (sorted_lines(&a), sorted_lines(&b));
        }
        if a != b {
            let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
            return Ok(Some(format!(
                "leaves other bytes in {}: {} bytes plain, {} in the second run, different at {at}",
                name.display(),
                a.len(),
                b.len()
            )));
        }
    }
    Ok(None)
}

/// Searches every file below `dir` for the word that is in all that twin programs write.
pub(super) fn leaks(dir: &Path) -> Result<Option<String>> {
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let error = || format!("searching {}", path.display());
        let kind = fs::symlink_metadata(&path).map_err(failed(error()))?.file_type();
        if kind.is_dir() {
            for entry in fs::read_dir(&path).map_err(failed(error()))? {
                waiting.push(entry.map_err(failed(error()))?.path());
            }
        } else if kind.is_file() {
            let bytes = fs::read(&path).map_err(failed(error()))?;
            if let Some((at, how)) = find_marker(&bytes) {
                let shown = path.display();
                return Ok(Some(format!("leaks: the marker lies {how} in {shown} at {at}")));
            }
        }
    }
    Ok(None)
}

/// Differing lines that a message shows.
const SHOWN: usize = 8;

/// `MARKER` of twin.h.
const MARKER: &[u8] = b"tidelock-twin";

/// Where the marker is, straight, backwards, or swapped in words of 2, 4 or 8 bytes on any grid.
fn find_marker(bytes: &[u8]) -> Option<(usize, &'static str)> {
    let mut forms = vec![(MARKER.to_vec(), "as it is")];
    forms.push((MARKER.iter().rev().copied().collect(), "backwards"));
    for (word, how) in [(2, "in swapped pairs"), (4, "in swapped words"), (8, "in swapped octets")]
    {
        for begin in 0..word {
            let words = MARKER[begin..].chunks_exact(word);
            let form: Vec<u8> = words.flat_map(|w| w.iter().rev().copied()).collect();
            // Fewer bytes than this turn up by chance.
            if form.len() >= 8 {
                forms.push((form, how));
            }
        }
    }
    let found = |form: &[u8]| bytes.windows(form.len()).position(|window| window == form);
    forms.iter().find_map(|(form, how)| found(form).map(|at| (at, *how)))
}

fn sorted_lines(bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<_> = bytes.split_inclusive(|b| *b == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, links: u64 },
    Symlink { to: PathBuf },
    Other,
}

fn list(top: &Path) -> Result<BTreeMap<PathBuf, Entry>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        let error = || format!("listing {}", top.join(&dir).display());
        for entry in fs::read_dir(top.join(&dir)).map_err(failed(error()))? {
            let name = dir.join(entry.map_err(failed(error()))?.file_name());
            if name == Path::new(".tidelock") {
                continue;
            }
            let path = top.join(&name);
            let meta = fs::symlink_metadata(&path).map_err(failed(error()))?;
            let mode = meta.mode() & 0o7777;
            let entry = if meta.is_dir() {
                waiting.push(name.clone());
                Entry::Directory { mode }
            } else if meta.is_file() {
                Entry::File { mode, links: meta.nlink() }
            } else if meta.is_symlink() {
                Entry::Symlink { to: fs::read_link(&path).map_err(failed(error()))? }
            } else {
                Entry::Other
            };
            found.insert(name, entry);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_in_every_order_of_its_bytes() {
        let noise = vec![b'.'; 37];
        for word in [1, 2, 4, 8] {
            for shift in 0..word {
                let mut bytes = [&noise[..shift], MARKER, &noise].concat();
                bytes.truncate(48);
                let swapped: Vec<u8> =
                    bytes.chunks_exact(word).flat_map(|w| w.iter().rev().copied()).collect();
                // Only five of the marker's bytes fill a word of eight on this grid.
                if word == 8 && shift > 0 && shift < 3 {
                    continue;
                }
                assert!(find_marker(&swapped).is_some(), "words of {word}, shifted by {shift}");
            }
        }
        assert_eq!(find_marker(&noise), None);
        assert_eq!(find_marker(b"xniwt-kcoledit."), Some((1, "backwards")));
    }

    #[test]
    fn the_reason_is_no_part_of_the_expected_output() {
        assert_eq!(without_reason("# why\n# more\nread = -1\n# no\n"), "read = -1\n# no\n");
    }

    #[test]
    fn lines_of_several_writers_compare_in_any_order() {
        assert_eq!(sorted_lines(b"b\na\n"), sorted_lines(b"a\nb\n"));
        assert_ne!(sorted_lines(b"b\na"), sorted_lines(b"a\nb"));
    }
}
