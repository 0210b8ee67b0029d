//! Says that a test cannot run here. libtest has no word for it and counts the test among those
//! that passed.
//!
//! The line goes past libtest's capture, and to the file that `TIDELOCK_SKIPPED` names: `make test`
//! prints it at its end.

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::panic::Location;
use std::thread;

/// This machine or this user cannot do what the test needs, and no package would help.
///
/// # Panics
/// When the file cannot be written.
#[track_caller]
pub fn because(why: impl Display) {
    let line = line(Location::caller().file(), why);
    // The macros would be captured. Without a standard error there is the file.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(file) = env::var_os("TIDELOCK_SKIPPED") {
        let opened = OpenOptions::new().create(true).append(true).open(file);
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("a skipped test must not be lost");
    }
}

/// Says so unless this is root; whether it was said.
#[must_use]
#[track_caller]
pub fn unless_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        because(format_args!("{what} needs root"));
    }
    !root
}

/// Something that `ci/packages test` installs is not there.
///
/// # Panics
/// Where `CI` is set: there everything must be.
#[track_caller]
pub fn missing(what: &str) {
    assert!(env::var_os("CI").is_none(), "{what} is missing: ci/packages test");
    because(format_args!("{what} is missing: ci/packages test"));
}

/// libtest names the thread by its test, unless it runs only one at a time.
fn line(file: &str, why: impl Display) -> String {
    let thread = thread::current();
    let why = why.to_string().replace('\n', "; ");
    format!("skipped: {file}: {}: {why}\n", thread.name().unwrap_or("a test"))
}
