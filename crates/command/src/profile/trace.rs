//! What strace wrote with `-f -y`: each call with the paths that it was about.
//!
//! Knows the form of the lines, not what calls mean. A relative path is taken from where its
//! process was: the directory descriptor of the call, else the last chdir.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// A call that had ended when it was written, or could be put together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Its name.
    pub(super) name: String,
    /// Its arguments, as strace prints them.
    pub(super) arguments: String,
    /// False if it failed.
    pub(super) done: bool,
    /// The files that it names, by path or by descriptor, in their order.
    pub(super) paths: Vec<PathBuf>,
}

/// All calls of a trace whose processes began in `start`.
pub(super) fn calls(trace: &str, start: &Path) -> Vec<Call> {
    let mut unfinished: HashMap<&str, String> = HashMap::new();
    let mut places: HashMap<String, PathBuf> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((process, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, begun.to_owned());
            continue;
        }
        let whole = match rest.strip_prefix("<... ").and_then(|it| it.split_once(" resumed>")) {
            Some((_, end)) => match unfinished.remove(process) {
                Some(begun) => begun + end,
                None => continue,
            },
            None => rest.to_owned(),
        };
        let place = places.get(process).map_or(start, PathBuf::as_path);
        let Some(call) = parse(&whole, place) else { continue };
        if matches!(call.name.as_str(), "chdir" | "fchdir") && call.done {
            if let Some(path) = call.paths.first() {
                places.insert(process.to_owned(), path.clone());
            }
        } else if matches!(call.name.as_str(), "clone" | "clone3" | "fork" | "vfork") {
            let child = whole.rsplit("= ").next().unwrap_or_default().trim().to_owned();
            places.insert(child, place.to_path_buf());
        }
        calls.push(call);
    }
    calls
}

/// `name(arguments) = result`.
fn parse(text: &str, place: &Path) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')').unwrap_or(arguments);
    let mut paths = Vec::new();
    // A directory descriptor, for the path that follows it.
    let mut base: Option<PathBuf> = None;
    for piece in pieces(arguments) {
        match piece {
            Piece::Descriptor(path) => {
                if let Some(earlier) = base.replace(path) {
                    paths.push(earlier);
                }
            }
            Piece::Text(text) => {
                let from = base.take();
                // AT_EMPTY_PATH: the descriptor itself.
                paths.push(without_dots(&from.as_deref().unwrap_or(place).join(text)));
            }
        }
    }
    paths.extend(base);
    // What a call gives is about a file too, unless it is the one that it named.
    let done = !result.trim_start().starts_with('-');
    Some(Call { name: name.to_owned(), arguments: arguments.to_owned(), done, paths })
}

/// Without `.` and `..`, by the text alone: a link in the middle is not followed.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

enum Piece {
    Descriptor(PathBuf),
    Text(String),
}

/// Descriptors with their paths, and texts, in their order. A text that was cut counts as data.
fn pieces(arguments: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let bytes = arguments.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let close = match byte {
            b'"' => b'"',
            b'<' => b'>',
            _ => {
                at += 1;
                continue;
            }
        };
        let Some((text, after)) = until(bytes, at + 1, close) else { break };
        let cut = arguments.get(after..).is_some_and(|rest| rest.starts_with("..."));
        if close == b'>' {
            if text.starts_with('/') {
                found.push(Piece::Descriptor(PathBuf::from(text)));
            }
        } else if !cut {
            found.push(Piece::Text(text));
        }
        at = after;
    }
    found
}

/// The text up to `close`, with its escapes undone as far as names need it, and where it goes on.
fn until(bytes: &[u8], start: usize, close: u8) -> Option<(String, usize)> {
    let mut text = Vec::new();
    let mut at = start;
    loop {
        match bytes.get(at)? {
            b'\\' => {
                let next = *bytes.get(at + 1)?;
                let digits = bytes.get(at + 1..)?.iter().take(3);
                let octal: Vec<u8> =
                    digits.take_while(|byte| matches!(byte, b'0'..=b'7')).copied().collect();
                if octal.is_empty() {
                    text.push(next);
                    at += 2;
                } else {
                    let value =
                        octal.iter().fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
                    text.push(u8::try_from(value).unwrap_or(b'?'));
                    at += 1 + octal.len();
                }
            }
            byte if *byte == close => {
                return Some((String::from_utf8_lossy(&text).into_owned(), at + 1));
            }
            byte => {
                text.push(*byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(line: &str) -> Vec<String> {
        let calls = calls(line, Path::new("/start"));
        calls.iter().flat_map(|call| &call.paths).map(|it| it.display().to_string()).collect()
    }

    #[test]
    fn paths_come_from_names_descriptors_and_directories() {
        let line = r#"7 openat(AT_FDCWD</data>, "dump.rdb", O_RDONLY) = 3</data/dump.rdb>"#;
        assert_eq!(paths(line), ["/data/dump.rdb"]);
        assert_eq!(paths(r#"7 write(3</data/dump.rdb>, ""..., 9) = 9"#), ["/data/dump.rdb"]);
        assert_eq!(
            paths(r#"7 rename("temp-1.rdb", "/data/dump.rdb") = 0"#),
            ["/start/temp-1.rdb", "/data/dump.rdb"]
        );
        let line = r#"7 renameat2(5</data/a>, "x", 6</data/b>, "y", 0) = 0"#;
        assert_eq!(paths(line), ["/data/a/x", "/data/b/y"]);
        assert_eq!(paths(r#"7 fstat(5</data/a\40b>, {st_size=1}) = 0"#), ["/data/a b"]);
        let line = r#"7 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</data/m>, 0) = 0x7f0000"#;
        assert_eq!(paths(line), ["/data/m"]);
        assert_eq!(paths(r#"7 openat(AT_FDCWD</data>, "../a/./b", O_RDONLY) = 3</a/b>"#), ["/a/b"]);
        let line = r#"7 copy_file_range(3</data/a>, NULL, 4</data/b>, NULL, 9, 0) = 9"#;
        assert_eq!(paths(line), ["/data/a", "/data/b"]);
        assert_eq!(paths(r#"7 read(5<socket:[1]>, ""..., 9) = 0"#), [""; 0]);
    }

    #[test]
    fn calls_that_another_process_cuts_in_two_are_put_together() {
        let trace = "7 unlink(\"a\" <unfinished ...>\n8 chdir(\"/other\") = 0\n7 <... unlink \
                     resumed>) = -1 ENOENT (No such file or directory)\n8 unlink(\"b\") = 0\n\
                     8 clone(child_stack=NULL) = 9\n9 unlink(\"c\") = 0\n9 +++ exited with 0 +++\n";
        let calls = calls(trace, Path::new("/start"));
        let unlinks: Vec<_> = calls.iter().filter(|call| call.name == "unlink").collect();
        let named: Vec<_> = unlinks.iter().map(|it| (it.paths[0].as_path(), it.done)).collect();
        assert_eq!(
            named,
            [
                (Path::new("/start/a"), false),
                (Path::new("/other/b"), true),
                (Path::new("/other/c"), true)
            ]
        );
    }
}
