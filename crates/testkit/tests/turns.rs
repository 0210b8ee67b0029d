//! Two processes that take strict turns on one file see what they would see on a plain one: every
//! call after every other, with no race at all. So whatever a process remembers of a file, another
//! may have changed.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;

use tidelock_servers::{Bounded as _, alone};
use tidelock_testkit::trial::Trial;
use tidelock_testkit::twins::{Product, Workspace};

fn answers_as_a_plain_file_does(class: &str) {
    let (trial, place) = (Trial::compile("turns").unwrap(), Workspace::new("turns").unwrap());
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    let mut plain = alone(trial.program());
    plain.arg(place.plain());
    let mut sealed = trial.sealed(&product, &place, &dir);
    fs::create_dir_all(dir.join(class)).unwrap();
    sealed.arg(dir.join(class));
    let [plain, sealed] = [plain, sealed].map(|mut command| {
        let output = command.finish().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    });
    assert!(plain.lines().count() > 3000, "{plain}");
    assert_eq!(plain.lines().count(), sealed.lines().count());
    let differ: Vec<_> = plain.lines().zip(sealed.lines()).filter(|(a, b)| a != b).collect();
    let shown: Vec<_> =
        differ.iter().take(10).map(|(a, b)| format!("plain:  {a}\nsealed: {b}")).collect();
    assert!(differ.is_empty(), "{} differ in {class}:\n{}", differ.len(), shown.join("\n"));
}

#[test]
fn turns_on_a_paged_file_are_answered_as_on_a_plain_one() {
    answers_as_a_plain_file_does("base/1");
}

#[test]
fn turns_on_a_log_are_answered_as_on_a_plain_one() {
    answers_as_a_plain_file_does("pg_wal");
}

#[test]
fn turns_on_bytes_are_answered_as_on_a_plain_file() {
    answers_as_a_plain_file_does("loose");
}
