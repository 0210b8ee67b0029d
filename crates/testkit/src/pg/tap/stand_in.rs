//! What a call of one of PostgreSQL's programs works on: data directories that it makes, starts or
//! names.
//!
//! Reads the options as the programs of PostgreSQL 15 do, and looks at the disk only for keyrings.
//! Runs nothing: `bin/stand-in.rs` does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Programs of PostgreSQL 15 that open files of a data directory, or make one.
pub const PROGRAMS: &[&str] = &[
    "initdb",
    "pg_archivecleanup",
    "pg_basebackup",
    "pg_checksums",
    "pg_controldata",
    "pg_ctl",
    "pg_receivewal",
    "pg_recvlogical",
    "pg_resetwal",
    "pg_rewind",
    "pg_upgrade",
    "pg_verifybackup",
    "pg_waldump",
    "postgres",
];

/// The file beside the keys that names each data directory that came out sealed.
pub const SEALED: &str = "sealed";

/// What a call does with data directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// It fills this directory, which must be absent or empty.
    Makes(PathBuf),
    /// It starts a server there.
    Starts(PathBuf),
    /// It stops the server there.
    Stops(PathBuf),
    /// It works on whatever its arguments name.
    Other,
}

impl Work {
    /// Of the call `name ARGUMENTS`; `pgdata` is the variable of the environment.
    #[must_use]
    pub fn of(name: &str, arguments: &[OsString], pgdata: Option<&OsStr>) -> Self {
        let words = Words::read(name, arguments);
        let dir = words.directory.clone().or(pgdata.map(OsStr::to_owned)).map(PathBuf::from);
        // Options that only tell something come first.
        let asks = ["--help", "-?", "--version", "-V"];
        if arguments.first().is_some_and(|it| asks.iter().any(|ask| it == ask)) {
            return Self::Other;
        }
        let said = |word: &str| words.others.iter().any(|other| other == word);
        match (name, dir) {
            ("initdb", dir) => {
                let looks = ["-s", "--show", "-S", "--sync-only"];
                let target = dir.or(words.others.first().map(PathBuf::from));
                match target {
                    Some(dir) if !looks.iter().any(|it| words.switches.contains(it)) => {
                        Self::Makes(dir)
                    }
                    _ => Self::Other,
                }
            }
            ("pg_basebackup", Some(dir)) if !words.tar => Self::Makes(dir),
            ("pg_ctl", Some(dir)) if said("init") || said("initdb") => Self::Makes(dir),
            ("pg_ctl", Some(dir)) if said("start") || said("restart") => Self::Starts(dir),
            ("pg_ctl", Some(dir)) if said("stop") => Self::Stops(dir),
            ("postgres", Some(dir)) => Self::Starts(dir),
            _ => Self::Other,
        }
    }
}

/// The options of a call, as far as they matter here.
struct Words<'a> {
    directory: Option<OsString>,
    tar: bool,
    switches: Vec<&'a str>,
    others: Vec<OsString>,
}

impl<'a> Words<'a> {
    fn read(name: &str, arguments: &'a [OsString]) -> Self {
        let mut found =
            Words { directory: None, tar: false, switches: Vec::new(), others: Vec::new() };
        let (short, long) = valued(name);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_str().unwrap_or_default();
            let (option, value) = match text.split_once('=') {
                Some((option, value)) if text.starts_with("--") => {
                    (option, Some(OsString::from(value)))
                }
                _ if long.contains(&text) => (text, rest.next().cloned()),
                _ => match text.get(..2) {
                    Some(option) if is_short(option) && short.contains(&option[1..]) => {
                        let attached = (text.len() > 2).then(|| OsString::from(&text[2..]));
                        (option, attached.or_else(|| rest.next().cloned()))
                    }
                    _ => (text, None),
                },
            };
            match (option, value) {
                ("-D" | "--pgdata", Some(value)) => found.directory = Some(value),
                ("-F" | "--format", Some(value)) => {
                    found.tar = matches!(value.to_str(), Some("t" | "tar"));
                }
                (option, None) if option.starts_with('-') => found.switches.push(option),
                (_, None) => found.others.push(argument.clone()),
                _ => {}
            }
        }
        found
    }
}

fn is_short(option: &str) -> bool {
    option.starts_with('-') && option != "--"
}

/// The letters and long options of a program that take a value.
fn valued(name: &str) -> (&'static str, &'static [&'static str]) {
    match name {
        "initdb" => (
            "ADEdTUX",
            &[
                "--pgdata",
                "--encoding",
                "--locale",
                "--auth",
                "--auth-local",
                "--auth-host",
                "--username",
                "--waldir",
                "--wal-segsize",
                "--pwfile",
                "--text-search-config",
                "--lc-collate",
                "--lc-ctype",
                "--lc-messages",
                "--lc-monetary",
                "--lc-numeric",
                "--lc-time",
                "--icu-locale",
                "--locale-provider",
            ],
        ),
        "pg_basebackup" => (
            "DFrtTXZcldhpsUSCiE",
            &[
                "--pgdata",
                "--format",
                "--max-rate",
                "--target",
                "--tablespace-mapping",
                "--waldir",
                "--wal-method",
                "--compress",
                "--checkpoint",
                "--label",
                "--dbname",
                "--host",
                "--port",
                "--status-interval",
                "--username",
                "--slot",
                "--manifest-checksums",
            ],
        ),
        "pg_ctl" => ("DclmopPtUNeS", &["--pgdata", "--log", "--mode", "--options", "--timeout"]),
        "postgres" => ("BCDcdfhkNprStvW", &[]),
        _ => ("", &[]),
    }
}

/// The protected directories that a call's arguments, or `PGDATA`, lie in; each once.
#[must_use]
pub fn protected(arguments: &[OsString], pgdata: Option<&OsStr>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for argument in arguments.iter().map(OsString::as_os_str).chain(pgdata) {
        let bytes = argument.as_bytes();
        let after = |mark: u8| {
            let at = bytes.iter().position(|byte| *byte == mark)?;
            bytes.get(at + 1..)
        };
        let attached = if bytes.starts_with(b"-") { bytes.get(2..) } else { None };
        for candidate in [Some(bytes), after(b'='), attached].into_iter().flatten() {
            let Some(dir) = around(Path::new(OsStr::from_bytes(candidate))) else { continue };
            if !found.contains(&dir) {
                found.push(dir);
            }
        }
    }
    found
}

/// The protected directory that is `path`, or that is above it.
#[must_use]
pub fn around(path: &Path) -> Option<PathBuf> {
    if path.as_os_str().is_empty() {
        return None;
    }
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find_map(|above| above.canonicalize().ok())?;
    there.ancestors().find(|dir| is_protected(dir)).map(Path::to_path_buf)
}

/// Whether a keyring is there.
#[must_use]
pub fn is_protected(dir: &Path) -> bool {
    dir.join(".tidelock/keyring").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(call: &str) -> Work {
        let mut words = call.split(' ').map(OsString::from);
        let name = words.next().unwrap_or_default();
        Work::of(name.to_str().unwrap(), &words.collect::<Vec<_>>(), None)
    }

    #[test]
    fn the_directory_that_a_call_makes_starts_or_stops_is_found() {
        let makes = |dir: &str| Work::Makes(dir.into());
        assert_eq!(work("initdb -D d -A trust -N"), makes("d"));
        assert_eq!(work("initdb -N -T german -X wal d"), makes("d"));
        assert_eq!(work("initdb --pgdata=d --no-sync"), makes("d"));
        assert_eq!(work("initdb -S d"), Work::Other);
        assert_eq!(work("initdb --help"), Work::Other);
        assert_eq!(work("pg_basebackup -D d -h s --checkpoint fast --no-sync"), makes("d"));
        assert_eq!(work("pg_basebackup --no-sync -cfast -D d -Ft"), Work::Other);
        assert_eq!(work("pg_basebackup -D d --format tar"), Work::Other);
        assert_eq!(work("pg_basebackup -t blackhole -X fetch"), Work::Other);
        assert_eq!(work("pg_ctl initdb -D d -o -N"), makes("d"));
        assert_eq!(
            work("pg_ctl -w -D d -l log -o --cluster-name=x start"),
            Work::Starts("d".into())
        );
        assert_eq!(work("pg_ctl -D d -m fast stop"), Work::Stops("d".into()));
        assert_eq!(work("pg_ctl status -D d"), Work::Other);
        assert_eq!(work("postgres --single -F -D d postgres"), Work::Starts("d".into()));
        assert_eq!(work("postgres -V"), Work::Other);
    }

    #[test]
    fn a_protected_directory_is_found_from_what_lies_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir_all(root.join(name).join(".tidelock")).unwrap();
            std::fs::create_dir_all(root.join(name).join("pg_wal")).unwrap();
            std::fs::write(root.join(name).join(".tidelock/keyring"), "").unwrap();
        }
        let found = |words: &[String]| {
            protected(&words.iter().map(OsString::from).collect::<Vec<_>>(), None)
        };
        let (a, b) = (root.join("a"), root.join("b"));
        let shown = |path: &Path| path.display().to_string();
        assert_eq!(
            found(&["-p".into(), shown(&a.join("pg_wal/000000010000"))]),
            std::slice::from_ref(&a)
        );
        assert_eq!(
            found(&[
                format!("--source-pgdata={}", shown(&b)),
                format!("-D{}", shown(&a)),
                format!("--target-pgdata={}", shown(&a)),
            ]),
            [b, a]
        );
        assert!(found(&[shown(&root), String::new(), "start".into()]).is_empty());
    }
}
