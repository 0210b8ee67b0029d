//! What the command prints, and the code it ends with: each file of tests/cmd is a session that is
//! run for real.
//!
//! A line `$ COMMAND` is run by sh in a private directory that is also HOME; what follows is its
//! output, standard output and standard error together, and `[exit N]` unless it ends with 0. What
//! differs from run to run is replaced by names in brackets; `change FILE OFFSET` makes a byte
//! another one. With TIDELOCK_BLESS=1 the files are written again.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use std::fs;
use std::path::{Path, PathBuf};

use place::Shell;

/// One test for each file.
macro_rules! cases {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })+

        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

cases! {
    audit
    auto_init
    cat
    convert
    exec
    init
    inspect
    key
    key_check
    key_rotate
    keyring
    keys_that_do_not_open
    migrate
    passphrases
    profile
    protect
    report
    seal
    service
    status
    tampered_files
    tampered_keyring
    usage
    verify
    wal
}

#[test]
fn every_session_is_run() {
    let mut files: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, NAMES);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd")
}

fn run(name: &str) {
    let file = folder().join(name).with_extension("session");
    let expected = fs::read_to_string(&file).unwrap();
    let place = Shell::new();
    let mut found = String::new();
    for line in expected.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found += &format!("{line}\n{}", place.run(command));
        } else if line.starts_with('#') || line.is_empty() {
            found += &format!("{line}\n");
        }
    }
    // Blank lines stand before comments and at the end of outputs alike: they do not count.
    let dense = |text: &str| {
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    if std::env::var_os("TIDELOCK_BLESS").is_some() {
        fs::write(&file, found).unwrap();
    } else if dense(&found) != dense(&expected) {
        panic!(
            "{} says otherwise:\n{}",
            file.display(),
            difference(&dense(&expected), &dense(&found))
        );
    }
}

/// From the first line that differs.
fn difference(expected: &[String], found: &[String]) -> String {
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let from = |lines: &[String]| lines.iter().skip(same).take(12).cloned().collect::<Vec<_>>();
    let before = same.saturating_sub(4);
    format!(
        "{}\n--- expected\n{}\n--- found\n{}",
        expected.get(before..same).unwrap_or_default().join("\n"),
        from(expected).join("\n"),
        from(found).join("\n")
    )
}
