//! Whatever processes and threads do to one file at one time, a sealed file ends as a plain one
//! could.
//!
//! `TIDELOCK_SEED=7` repeats a seed that a run has printed; without it the clock chooses.
//! `TIDELOCK_SECONDS=600` makes the short run longer. The sources say how a single episode is
//! repeated: `trials/differential.c`.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tidelock_testkit::{
    differential::{Differential, Shown},
    trial::Trial,
};

/// Runs that share the processors with each other overlap less.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn run(seconds: u64, more: &[&'static str]) -> Differential {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = number("TIDELOCK_SEED").unwrap_or_else(clock);
    println!("seed {seed} {more:?}");
    Differential { seconds, seed, more: more.to_vec() }
}

fn must_be_explained(shown: Result<Shown, String>) {
    match shown.unwrap_or_else(|error| panic!("{error}")) {
        Shown::Explained(figures) => {
            println!("{figures}");
            assert!(figures["overlaps"].as_u64().unwrap() > 0, "no calls met: {figures}");
        }
        Shown::Unexplained(round) => panic!("{round}"),
    }
}

fn sealed(seconds: u64, more: &[&'static str]) {
    let (trial, _alone) = (Trial::compile("differential").unwrap(), alone());
    must_be_explained(run(seconds, more).run_sealed(&trial));
}

/// Otherwise the shadow is too strict.
#[test]
fn a_plain_file_is_always_explained() {
    let _alone = alone();
    let (trial, place) = (Trial::compile("differential").unwrap(), tempfile::tempdir().unwrap());
    must_be_explained(run(8, &[]).run_plain(&trial, place.path()));
}

/// Otherwise the shadow is too lax: a program that does one thing wrongly is found out.
#[test]
fn what_a_careless_library_would_do_is_not_explained() {
    let (trial, _alone) = (Trial::compile("differential").unwrap(), alone());
    for wrong in ["units", "end", "append", "cut", "stale"] {
        let place = tempfile::tempdir().unwrap();
        let shown = run(60, &["--spoil", wrong]).run_plain(&trial, place.path());
        let Shown::Unexplained(round) = shown.unwrap() else { panic!("\"{wrong}\" passed") };
        assert!(round.contains("again: --seed"), "{round}");
    }
}

#[test]
fn a_sealed_file_is_explained_as_a_plain_one() {
    sealed(number("TIDELOCK_SECONDS").unwrap_or(36), &[]);
}

#[test]
#[ignore = "long (make test-full)"]
fn a_sealed_file_is_explained_as_a_plain_one_for_ten_minutes() {
    sealed(600, &[]);
}

/// The classes by themselves: all workers meet on two files.
#[test]
#[ignore = "long (make test-full)"]
fn each_class_is_explained_with_descriptions_of_each_kind() {
    for class in ["paged", "log", "bytes"] {
        for share in ["own", "fork"] {
            sealed(100, &["--class", class, "--share", share]);
        }
    }
}
