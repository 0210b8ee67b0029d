//! Many threads that write odd lengths to files of their own: none waits for ever, each byte is
//! right.
//!
//! `trials/crowd.c` has the limit of time: threads that do not come back are a failure, not a hang
//! of the test.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tidelock_servers::Bounded as _;
use tidelock_testkit::trial::Trial;
use tidelock_testkit::twins::{Product, Workspace};

const SECONDS: &str = "4";
/// Below a protected directory of the profile `postgres`.
const PAGED: &str = "base/1";
const BYTES: &str = "loose";

fn nobody_waits_for_ever(class: &str, threads: u32, files: u32) {
    let trial = Trial::compile("crowd").unwrap();
    let place = Workspace::new("crowd").unwrap();
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    fs::create_dir_all(dir.join(class)).unwrap();
    let mut command = trial.sealed(&product, &place, &dir);
    command.arg(dir.join(class)).args([threads.to_string(), files.to_string(), SECONDS.to_owned()]);
    let output = command.finish_within(Duration::from_secs(200)).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{class}: {printed}{said}");
    assert!(output.status.success(), "{}: {printed}{said}", output.status);
    let line: Value = serde_json::from_str(&printed).unwrap();
    assert!(line["writes"].as_u64().unwrap() > u64::from(threads), "{line}");
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn sixty_four_threads_with_pages_of_their_own() {
    nobody_waits_for_ever(PAGED, 64, 1);
}

#[test]
fn sixty_four_threads_with_bytes_of_their_own() {
    nobody_waits_for_ever(BYTES, 64, 1);
}

#[test]
fn sixty_four_threads_with_many_files_each() {
    nobody_waits_for_ever(PAGED, 64, 8);
    nobody_waits_for_ever(BYTES, 64, 8);
}

#[test]
fn a_thousand_threads_with_pages_of_their_own() {
    nobody_waits_for_ever(PAGED, 1000, 1);
}

#[test]
fn a_thousand_threads_with_bytes_of_their_own() {
    nobody_waits_for_ever(BYTES, 1000, 1);
}
