//! Power cuts under PostgreSQL: three in `make test`, `TIDELOCK_CUTS` or 50 in `make test-full`.
//!
//! Volumes need root.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::PathBuf;

use tidelock_servers::skip;
use tidelock_testkit::{
    powercut::{self, Arm, Plan, Tally},
    volume::FileSystem,
};

fn plan(fs: FileSystem, arms: &[Arm]) -> Option<Plan> {
    let postgres = PathBuf::from("/usr/lib/postgresql/15/bin");
    if skip::unless_root("a volume of one's own") {
        return None;
    }
    if !postgres.exists() {
        skip::missing("PostgreSQL 15");
        return None;
    }
    // Tests lie in target/PROFILE/deps, the command beside that directory.
    let tidelock = std::env::current_exe().unwrap().parent().unwrap().with_file_name("tidelock");
    let (arms, full_page_writes, fsync) = (arms.to_vec(), true, true);
    Some(Plan {
        fs,
        cycles: 3,
        arms,
        full_page_writes,
        fsync,
        postgres,
        tidelock,
        verify_every: 3,
        // Among three cycles is one with new databases, and one with segments that are not filled
        // with zeros.
        seed: 2,
    })
}

fn run(plan: &Plan) -> Vec<(Arm, Tally)> {
    let mut bad = Vec::new();
    let tallies = powercut::run(plan, &mut |line| {
        let empty = |key: &str| line[key].as_array().is_none_or(Vec::is_empty);
        if line["start"] != "done" || !empty("lost") || !empty("damage") {
            bad.push(line.to_string());
        }
    });
    for line in bad {
        eprintln!("{line}");
    }
    tallies.unwrap()
}

fn is_unharmed(tally: Tally, cycles: u32) -> bool {
    tally.cycles == cycles
        && tally.acknowledged > 0
        && (tally.starts_failed, tally.lost, tally.damaged) == (0, 0, 0)
}

fn a_plain_server_survives_cuts(fs: FileSystem) {
    let Some(plan) = plan(fs, &[Arm::Plain]) else { return };
    for (_, tally) in run(&plan) {
        assert!(is_unharmed(tally, plan.cycles), "{tally:?}");
    }
}

fn nothing_fails_only_when_sealed(fs: FileSystem, full_page_writes: bool) {
    let Some(mut plan) = plan(fs, &[Arm::Plain, Arm::Sealed]) else { return };
    plan.full_page_writes = full_page_writes;
    compare(&plan);
}

fn nothing_fails_only_when_sealed_in_many_cuts(fs: FileSystem) {
    let Some(mut plan) = plan(fs, &[Arm::Plain, Arm::Sealed]) else { return };
    plan.cycles = std::env::var("TIDELOCK_CUTS").map_or(50, |cuts| cuts.parse().unwrap());
    compare(&plan);
}

fn compare(plan: &Plan) {
    let tallies = run(plan);
    let (plain, sealed) = (tallies[0].1, tallies[1].1);
    assert!(sealed.acknowledged > 0 && sealed.databases > 0, "{sealed:?}");
    assert!(sealed.starts_failed <= plain.starts_failed, "{plain:?} {sealed:?}");
    assert!(sealed.lost <= plain.lost, "{plain:?} {sealed:?}");
    assert!(sealed.damaged <= plain.damaged, "{plain:?} {sealed:?}");
    // Recovery gives a file with a lost header a new key; verify lists those that stay.
    assert_eq!((sealed.replaced_headers, sealed.lost_headers), (0, 0), "{sealed:?}");
    assert_eq!(sealed.problems, 0, "{sealed:?}");
    assert!(!sealed.is_worse_than(&plain), "{plain:?} {sealed:?}");
}

#[test]
fn a_plain_server_survives_cuts_on_ext4() {
    a_plain_server_survives_cuts(FileSystem::Ext4);
}

#[test]
fn a_plain_server_survives_cuts_on_xfs() {
    a_plain_server_survives_cuts(FileSystem::Xfs);
}

#[test]
fn the_harness_sees_what_a_server_without_fsync_loses() {
    let Some(mut plan) = plan(FileSystem::Ext4, &[Arm::Plain]) else { return };
    (plan.fsync, plan.cycles) = (false, 1);
    for (_, tally) in run(&plan) {
        assert!(tally.starts_failed > 0 || tally.lost > 0 || tally.damaged > 0, "{tally:?}");
    }
}

#[test]
fn nothing_fails_only_when_sealed_on_ext4() {
    nothing_fails_only_when_sealed(FileSystem::Ext4, true);
}

#[test]
fn nothing_fails_only_when_sealed_on_xfs() {
    nothing_fails_only_when_sealed(FileSystem::Xfs, true);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_fails_only_when_sealed_in_many_cuts_on_ext4() {
    nothing_fails_only_when_sealed_in_many_cuts(FileSystem::Ext4);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_fails_only_when_sealed_in_many_cuts_on_xfs() {
    nothing_fails_only_when_sealed_in_many_cuts(FileSystem::Xfs);
}

#[test]
fn nothing_fails_only_when_sealed_on_ext4_without_full_page_writes() {
    nothing_fails_only_when_sealed(FileSystem::Ext4, false);
}

#[test]
fn nothing_fails_only_when_sealed_on_xfs_without_full_page_writes() {
    nothing_fails_only_when_sealed(FileSystem::Xfs, false);
}
