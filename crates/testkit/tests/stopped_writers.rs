//! Whoever meets a writer in the middle of its write waits for as long as it lives, and no longer.
//!
//! `trials/stopped.c` stops the writer where it enters the system call. Time says nothing of life:
//! a processor quota, a debugger or a full disk queue stops a writer for longer than any limit.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tidelock_servers::Bounded as _;
use tidelock_testkit::trial::Trial;
use tidelock_testkit::twins::{Product, Workspace};

/// A place of class paged in the profile of PostgreSQL, and one of class bytes.
const FILES: [&str; 2] = ["base/1/16384", "loose"];
/// How long the writer stands still.
const STOP_MS: &str = "5000";

/// What one run of the trial says.
fn stopped(file: &str, arguments: [&str; 3], prepare: impl Fn(&Path) -> Option<String>) -> Value {
    let trial = Trial::compile("stopped").unwrap();
    let place = Workspace::new("stopped").unwrap();
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    fs::create_dir_all(dir.join("base/1")).unwrap();
    // The first use makes the lock file.
    let first = place.run_sealed(&product, Path::new("/bin/true"), &[], &dir).unwrap();
    assert!(first.good(), "{first}");
    let mut command = trial.sealed(&product, &place, &dir);
    command.arg(dir.join(file)).args(arguments).arg(STOP_MS).args(prepare(&dir));
    answer(command)
}

fn answer(mut command: Command) -> Value {
    let output = command.finish_within(Duration::from_secs(90)).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let line = serde_json::from_slice(&output.stdout).unwrap();
    println!("{line}");
    line
}

fn must_wait(line: &Value, there: &str) {
    assert_eq!(line["early"], false, "did not wait for a writer that lives: {line}");
    assert_eq!(line["hangs"], false, "waits for a writer that is gone: {line}");
    assert!(line["after_ms"].as_i64().unwrap() < 2000, "waited for long after it: {line}");
    assert!(line["cpu_ms"].as_i64().unwrap() < 1000, "was busy while it waited: {line}");
    assert_eq!(line["there"], there, "{line}");
}

#[test]
fn a_reader_waits_for_a_stopped_writer_that_goes_on() {
    for (file, what) in [(FILES[0], "units"), (FILES[0], "odd"), (FILES[1], "odd")] {
        let line = stopped(file, [what, "read", "go"], |_| None);
        must_wait(&line, "new");
        assert_eq!(line["read"], "new", "{line}");
    }
}

#[test]
fn a_reader_goes_on_when_a_stopped_writer_is_killed() {
    for (file, what) in [(FILES[0], "units"), (FILES[0], "odd"), (FILES[1], "odd")] {
        let line = stopped(file, [what, "read", "kill"], |_| None);
        must_wait(&line, "old");
        assert_eq!(line["read"], "old", "{line}");
    }
}

#[test]
fn a_writer_waits_for_a_stopped_writer_that_goes_on() {
    for file in FILES {
        must_wait(&stopped(file, ["odd", "write", "go"], |_| None), "new and own");
    }
}

#[test]
fn a_writer_goes_on_when_the_holder_of_the_lock_is_killed() {
    for file in FILES {
        must_wait(&stopped(file, ["odd", "write", "kill"], |_| None), "own");
    }
}

#[test]
fn others_wait_for_a_request_until_its_event_is_fetched() {
    for what in ["request", "unfetched"] {
        let line = stopped(FILES[0], [what, "read", "go"], |_| None);
        must_wait(&line, "new");
        assert_eq!(line["read"], "new", "{line}");
        must_wait(&stopped(FILES[1], [what, "write", "go"], |_| None), "new and own");
    }
}

#[test]
fn others_go_on_when_the_owner_of_a_request_is_killed() {
    must_wait(&stopped(FILES[0], ["request", "read", "kill"], |_| None), "old");
    must_wait(&stopped(FILES[0], ["unfetched", "read", "kill"], |_| None), "new");
    must_wait(&stopped(FILES[1], ["unfetched", "write", "kill"], |_| None), "new and own");
}

/// Closing any descriptor of a file drops every POSIX lock that the process holds on it.
#[test]
fn a_copy_of_the_lock_file_that_a_server_reads_does_not_make_it_look_dead() {
    let link = |dir: &Path| {
        let copy = dir.with_extension("copy");
        fs::hard_link(dir.join(".tidelock/lock"), &copy).unwrap();
        Some(copy.display().to_string())
    };
    for end in [["odd", "write", "go"], ["odd", "read", "go"]] {
        let line = stopped(FILES[0], end, link);
        must_wait(&line, if end[1] == "write" { "new and own" } else { "new" });
    }
}

/// As on a file system that knows none: it is said before anything starts, or killed holders do not
/// matter.
#[test]
fn where_locks_are_refused_a_killed_holder_hangs_nobody() {
    let (trial, wrapper) =
        (Trial::compile("stopped").unwrap(), Trial::compile("lockless").unwrap());
    let place = Workspace::new("lockless").unwrap();
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    let sealed = trial.sealed(&product, &place, &dir);
    let mut command = Command::new(sealed.get_program());
    command.env_clear().envs(sealed.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir("/").arg(wrapper.program()).args(sealed.get_args());
    command.arg(dir.join("loose")).args(["odd", "write", "kill", STOP_MS]);
    let output = command.finish_within(Duration::from_secs(90)).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{}: {said}", output.status);
    if output.status.success() {
        must_wait(&serde_json::from_slice(&output.stdout).unwrap(), "own");
    } else {
        let code = output.status.code();
        assert!(code.is_some_and(|code| code < 128), "not refused: {}", output.status);
        assert!(said.contains("lock") && said.contains("hint:"), "not refused by name: {said}");
    }
}
