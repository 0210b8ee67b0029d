//! A full disk never ends a program by a signal: what lacks room is said before anything starts, or
//! all works.
//!
//! The memory that processes of a directory share once was a file on that disk: a page of it
//! without a block behind it (a fresh or sparse file, a snapshot) needs one at the first touch.
//! Needs root.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::trial::Trial;
use tidelock_testkit::twins::{Product, Workspace};
use tidelock_testkit::volume::{FileSystem, Volume};

/// Writes until there is no room for one more byte. What is not yet allocated is counted for more
/// than it takes: after each sync there may be room again.
fn fill(root: &Path) {
    let mut file = File::create(root.join("fill")).unwrap();
    let mut written = 1;
    while written > 0 {
        written = 0;
        for size in [1 << 20, 1 << 16, 1024, 1] {
            while let Ok(count @ 1..) = file.write(&vec![7; size]) {
                written += count;
            }
        }
        file.sync_all().unwrap();
    }
}

/// All blocks of the file become a hole; its length stays.
fn make_sparse(file: &Path) {
    // Nothing to do where no such file is needed any more.
    let Ok(file) = File::options().write(true).open(file) else { return };
    let length = file.metadata().unwrap().len();
    file.set_len(0).unwrap();
    file.set_len(length).unwrap();
    file.sync_all().unwrap();
}

/// `lock` prepares the lock file while no program runs.
fn a_full_disk_kills_nobody(fs: FileSystem, lock: impl Fn(&Path)) {
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let mut volume = Volume::create(fs, if fs == FileSystem::Xfs { 320 } else { 64 }).unwrap();
    let (place, trial) = (Workspace::new("full").unwrap(), Trial::compile("in_place").unwrap());
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = volume.root().join("data");
    let key = format!("file:{}", place.programs().join("key").display());
    let mut init = place.command(&product);
    init.arg("init").arg(&dir).args(["--profile", "postgres", "--no-recovery", "--provider", &key]);
    assert!(init.finish().unwrap().status.success());
    let run = |what: &str| {
        let mut command = trial.sealed(&product, &place, &dir);
        command.arg(&dir).arg(what).finish_within(Duration::from_secs(60)).unwrap()
    };
    for class in ["base/1", "pg_wal", "loose"] {
        fs::create_dir_all(dir.join(class)).unwrap();
    }
    let made = run("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // Ends the agent, as a restart of the machine would.
    volume.remount().unwrap();
    lock(&dir.join(".tidelock/lock"));
    fill(volume.root());
    let output = run("overwrite");
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{}: {}{said}", output.status, String::from_utf8_lossy(&output.stdout));
    let code = output.status.code().filter(|&code| code < 128);
    assert_eq!(output.status.signal(), None, "{}: {said}", output.status);
    match code {
        Some(0) => {}
        Some(_) => assert!(said.contains("No space") || said.contains("room"), "{said}"),
        None => panic!("died of a signal: {}: {said}", output.status),
    }
    // With room again, everything is there.
    fs::remove_file(volume.root().join("fill")).unwrap();
    let after = run("check");
    assert!(after.status.success(), "{}", String::from_utf8_lossy(&after.stderr));
}

#[test]
fn a_sparse_lock_file_on_a_full_ext4_kills_nobody() {
    a_full_disk_kills_nobody(FileSystem::Ext4, make_sparse);
}

#[test]
fn a_sparse_lock_file_on_a_full_xfs_kills_nobody() {
    a_full_disk_kills_nobody(FileSystem::Xfs, make_sparse);
}

#[test]
fn an_empty_lock_file_on_a_full_ext4_kills_nobody() {
    a_full_disk_kills_nobody(FileSystem::Ext4, |lock| {
        let _not_needed =
            File::options().write(true).open(lock).map(|file| file.set_len(0).unwrap());
    });
}
