//! No garbage byte between writers and readers of one file, plain and sealed, on ext4 and XFS.
//!
//! `TIDELOCK_SECONDS=300` makes each run minutes long. Volumes need root.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use serde_json::Value;
use tidelock_servers::skip;
use tidelock_testkit::{
    torture::Torture,
    trial::Trial,
    volume::{FileSystem, Volume},
};

fn torture(fs: FileSystem, file: &str, sealed: bool) -> Option<Value> {
    if skip::unless_root("a volume of one's own") {
        return None;
    }
    let command = std::env::current_exe().unwrap().parent().unwrap().with_file_name("tidelock");
    let torture = Torture {
        file: file.into(),
        seconds: std::env::var("TIDELOCK_SECONDS").map_or(3, |seconds| seconds.parse().unwrap()),
        seed: 1,
        tidelock: sealed.then_some(command),
    };
    let trial = Trial::compile("torture").unwrap();
    let volume = Volume::create(fs, 400).unwrap();
    let line = torture.run(&trial, &volume).unwrap();
    eprintln!("{line}");
    Some(line)
}

fn shows_no_garbage(fs: FileSystem, file: &str, sealed: bool) {
    let Some(line) = torture(fs, file, sealed) else { return };
    assert!(line["changed"].as_u64().unwrap() > 0, "the reader saw no write: {line}");
    assert_eq!((&line["garbage"], &line["unsteady"]), (&0.into(), &0.into()), "{line}");
    // The file system's own half blocks stay; through the library each would be garbage.
    assert!(!sealed || line["half"] == 0, "{line}");
}

#[test]
fn an_untouched_kernel_shows_no_garbage_on_ext4() {
    shows_no_garbage(FileSystem::Ext4, Torture::LOG, false);
}

#[test]
fn an_untouched_kernel_shows_no_garbage_on_xfs() {
    shows_no_garbage(FileSystem::Xfs, Torture::LOG, false);
}

#[test]
fn a_sealed_log_shows_no_garbage_on_ext4() {
    shows_no_garbage(FileSystem::Ext4, Torture::LOG, true);
}

#[test]
fn a_sealed_log_shows_no_garbage_on_xfs() {
    shows_no_garbage(FileSystem::Xfs, Torture::LOG, true);
}

#[test]
fn a_sealed_paged_file_shows_no_garbage_on_ext4() {
    shows_no_garbage(FileSystem::Ext4, Torture::PAGED, true);
}

#[test]
fn a_sealed_paged_file_shows_no_garbage_on_xfs() {
    shows_no_garbage(FileSystem::Xfs, Torture::PAGED, true);
}

#[test]
fn sealed_bytes_show_no_garbage_on_ext4() {
    shows_no_garbage(FileSystem::Ext4, Torture::BYTES, true);
}

#[test]
fn sealed_bytes_show_no_garbage_on_xfs() {
    shows_no_garbage(FileSystem::Xfs, Torture::BYTES, true);
}
