//! What pg_upgrade is told.

use std::ffi::{OsStr, OsString};

use crate::exec::arguments::Spelling;

const OPTIONS: Spelling = Spelling {
    short: b"bBdDjoOpPsU",
    long: &[
        "old-datadir",
        "new-datadir",
        "old-bindir",
        "new-bindir",
        "old-options",
        "new-options",
        "old-port",
        "new-port",
        "username",
        "jobs",
        "socketdir",
        "sync-method",
        "set-char-signedness",
    ],
    bare: &[
        "check",
        "link",
        "clone",
        "copy",
        "copy-file-range",
        "swap",
        "retain",
        "verbose",
        "no-sync",
        "no-statistics",
        "version",
        "help",
    ],
    alike: &[
        (b'd', "old-datadir"),
        (b'D', "new-datadir"),
        (b'k', "link"),
        (b'V', "version"),
        (b'?', "help"),
    ],
};
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
        for (option, value) in OPTIONS.read(arguments) {
            told.take(option, value);
        }
        told
    }

    /// True for `--version` and `--help`, after which it does nothing.
    pub(super) fn asks_only(&self) -> bool {
        self.asks
    }

    fn take(&mut self, option: &str, value: Option<&OsStr>) {
        let value = || value.map(OsStr::to_owned);
        match option {
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
