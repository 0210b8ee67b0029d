//! What pg_upgrade is told: its options as getopt_long(3) reads them.
//!
//! Knows the options of PostgreSQL 13 to 18. One that it does not know takes no value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// Short options with a value.
const SHORT: &[u8] = b"bBdDjoOpPsU";
/// Long options, and whether they have a value.
const LONG: &[(&str, bool)] = &[
    ("old-datadir", true),
    ("new-datadir", true),
    ("old-bindir", true),
    ("new-bindir", true),
    ("old-options", true),
    ("new-options", true),
    ("old-port", true),
    ("new-port", true),
    ("username", true),
    ("jobs", true),
    ("socketdir", true),
    ("sync-method", true),
    ("check", false),
    ("link", false),
    ("clone", false),
    ("copy", false),
    ("copy-file-range", false),
    ("swap", false),
    ("retain", false),
    ("verbose", false),
    ("no-sync", false),
    ("no-statistics", false),
    ("set-char-signedness", true),
    ("version", false),
    ("help", false),
];
/// Modes in which files are not copied byte by byte.
const MODES: &[&str] = &["link", "clone", "copy-file-range", "swap"];

/// What of it concerns us.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Told {
    pub(super) old: Option<OsString>,
    pub(super) new: Option<OsString>,
    /// `--link` and its like.
    pub(super) mode: Option<String>,
    asks: bool,
}

impl Told {
    pub(super) fn read(arguments: &[OsString]) -> Self {
        let mut told = Self::default();
        let mut rest = arguments.iter().map(|argument| argument.as_bytes());
        while let Some(argument) = rest.next() {
            if argument == b"--" {
                break;
            } else if let Some(long) = argument.strip_prefix(b"--") {
                told.long(long, &mut rest);
            } else if let Some(letters) = argument.strip_prefix(b"-") {
                told.short(letters, &mut rest);
            }
        }
        told
    }

    /// True for `--version` and `--help`, after which it does nothing.
    pub(super) fn asks_only(&self) -> bool {
        self.asks
    }

    fn long<'a>(&mut self, option: &'a [u8], rest: &mut impl Iterator<Item = &'a [u8]>) {
        let equals = option.iter().position(|byte| *byte == b'=');
        let (name, attached) = match equals {
            Some(at) => (&option[..at], Some(&option[at + 1..])),
            None => (option, None),
        };
        // A part of a name will do if it is that of one alone.
        let mut begin = LONG.iter().filter(|(long, _)| long.as_bytes().starts_with(name));
        let exact = LONG.iter().find(|(long, _)| long.as_bytes() == name);
        let one = match (begin.next(), begin.next()) {
            (Some(one), None) => Some(one),
            _ => exact,
        };
        let Some((long, has_value)) = one else { return };
        let value = if *has_value { attached.or_else(|| rest.next()) } else { None };
        self.take(long, value);
    }

    fn short<'a>(&mut self, letters: &'a [u8], rest: &mut impl Iterator<Item = &'a [u8]>) {
        for (index, letter) in letters.iter().enumerate() {
            let value = SHORT.contains(letter).then(|| match &letters[index + 1..] {
                [] => rest.next(),
                attached => Some(attached),
            });
            match letter {
                b'd' => self.take("old-datadir", value.flatten()),
                b'D' => self.take("new-datadir", value.flatten()),
                b'k' => self.take("link", None),
                b'V' => self.take("version", None),
                b'?' => self.take("help", None),
                _ => {}
            }
            if value.is_some() {
                break;
            }
        }
    }

    fn take(&mut self, long: &str, value: Option<&[u8]>) {
        let value = || value.map(|value| OsStr::from_bytes(value).to_owned());
        match long {
            "old-datadir" => self.old = value(),
            "new-datadir" => self.new = value(),
            "version" | "help" => self.asks = true,
            mode if MODES.contains(&mode) => self.mode = Some(format!("--{mode}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Told {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Told::read(&arguments)
    }

    #[test]
    fn every_way_to_name_the_clusters_is_known() {
        for line in [
            "-d /old -D /new -U postgres",
            "-b /d -B/D -d/old -D/new",
            "-rd /old -cvD/new",
            "--old-datadir=/old --new-datadir /new",
            "--old-d /old --new-d=/new --jobs 2",
            "-d /other -d /old -j 2 -D /new -s -k",
        ] {
            let both =
                Told { old: Some("/old".into()), new: Some("/new".into()), ..Told::default() };
            assert_eq!(told(line), both, "{line}");
        }
        assert_eq!(told("-o -D/x -- -D /new"), Told::default());
    }

    #[test]
    fn modes_that_do_not_copy_are_seen() {
        for (line, mode) in [
            ("-k", "--link"),
            ("-rk -d /old", "--link"),
            ("--li", "--link"),
            ("--clone", "--clone"),
            ("--copy-file-range", "--copy-file-range"),
            ("--swap", "--swap"),
        ] {
            assert_eq!(told(line).mode.as_deref(), Some(mode), "{line}");
        }
        assert_eq!(told("--copy -U --link").mode, None);
        assert!(told("--version").asks_only() && told("-V").asks_only());
    }
}
