//! What a write through `O_DSYNC` or `O_SYNC` has acknowledged is on the disk, and so is the size
//! that shows it. What one through `O_DIRECT` has acknowledged is there too, within a file that was
//! synced.
//!
//! Two looks at `trials/synced.c`: the order of its system calls, as strace sees them, and its
//! files after power cuts on a volume of their own (as root; otherwise the tests of cuts say so and
//! pass).
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_servers::{Bounded as _, alone, skip};
use tidelock_testkit::trial::Trial;
use tidelock_testkit::twins::{Product, Workspace, sections};
use tidelock_testkit::volume::{FileSystem, Volume};

/// Where the files lie below a protected directory of the profile `postgres`: class paged, log and
/// bytes.
const CLASSES: [&str; 3] = ["base/1", "pg_wal", "loose"];

/// Cases that change the size in ways of their own; each gets a power cut.
const CASES: [&str; 12] = [
    "odd-append",
    "to-a-block",
    "to-a-block-by-one",
    "from-a-block-to-a-block",
    "to-a-unit",
    "to-the-next-unit",
    "behind-a-gap-to-a-unit",
    "a-unit-behind-an-odd-end",
    "the-first-odd-bytes",
    "direct",
    "direct-from-the-start",
    "direct-by-fcntl",
];

fn product() -> Product {
    Product::find().unwrap_or_else(|error| panic!("{error}"))
}

/// One call after the sync, and a power cut loses what was acknowledged.
#[test]
fn nothing_is_changed_after_the_call_that_syncs() {
    let (trial, place, product) =
        (Trial::compile("synced").unwrap(), Workspace::new("synced").unwrap(), product());
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    for class in CLASSES {
        let files = dir.join(class);
        fs::create_dir_all(&files).unwrap();
        let make = [files.as_os_str(), OsStr::new("make")];
        let made = place.run_sealed(&product, trial.program(), &make, &dir).unwrap();
        assert!(made.good(), "{made}");
        let trace = dir.with_extension("trace");
        let sealed = trial.sealed(&product, &place, &dir);
        let mut strace = Command::new("strace");
        strace.env_clear().envs(sealed.get_envs().filter_map(|(name, value)| Some((name, value?))));
        strace.args(["-f", "-o"]).arg(&trace).arg(sealed.get_program()).args(sealed.get_args());
        let output = strace.arg(&files).arg("write").finish().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(&trace).unwrap();
        let sections = sections(&text);
        assert!(sections.len() > CASES.len(), "the trace has no marks");
        for (case, calls) in sections {
            let changes: Vec<_> = calls.iter().filter(|call| changes_a_file(call)).collect();
            let last = changes.last().unwrap_or_else(|| panic!("{case}: nothing was written"));
            // The descriptor itself carries O_DSYNC: each write through it syncs. Sizes and holes
            // do not. Only the second descriptor carries O_DIRECT.
            let direct = !case.contains("direct") || is_direct(last, &calls);
            let is_told = last.contains("sync") || last.contains("write") && direct;
            if !is_told {
                wrong.push(format!("{class} {case}: {changes:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// True if a write goes by a descriptor that was opened with O_DIRECT, and moved.
fn is_direct(write: &str, calls: &[String]) -> bool {
    let answer = |call: &String| call.rsplit("= ").next().map(str::to_owned);
    let opened = calls.iter().find(|call| call.contains("/proc/self/fd/") && is_open(call));
    let moved = opened.and_then(answer).and_then(|fd| {
        calls.iter().find(|call| call.starts_with(&format!("dup3({fd}, "))).and_then(answer)
    });
    moved.is_some_and(|fd| write.starts_with(&format!("pwrite64({fd}, ")))
}

fn is_open(call: &str) -> bool {
    call.starts_with("open") && call.contains("O_DIRECT")
}

fn changes_a_file(call: &str) -> bool {
    let name = call.split('(').next().unwrap_or_default();
    let names = ["write", "pwrite64", "pwritev", "pwritev2", "writev"];
    let others = ["ftruncate", "fallocate", "fsync", "fdatasync", "sync_file_range"];
    names.contains(&name) || others.contains(&name)
}

/// Where one program runs: plainly, or by the command in a protected directory.
struct Arm {
    trial: Trial,
    place: Workspace,
    sealed: Option<(Product, PathBuf)>,
}

impl Arm {
    fn run(&self, files: &Path, more: &[&str]) -> String {
        let mut command = match &self.sealed {
            None => alone(self.trial.program()),
            Some((product, dir)) => self.trial.sealed(product, &self.place, dir),
        };
        let output = command.arg(files).args(more).finish().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{more:?}: {}: {said}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    fn read(&self, file: &Path) -> String {
        let bytes = match &self.sealed {
            None => fs::read(file).unwrap(),
            Some((product, _)) => {
                self.place.cat(product, file).unwrap_or_else(|error| panic!("{error}"))
            }
        };
        bytes.iter().map(|&byte| if byte == 0 { '.' } else { char::from(byte) }).collect()
    }
}

fn a_power_cut_loses_nothing_acknowledged(fs: FileSystem, class: &str, sealed: bool) {
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let mut volume = Volume::create(fs, 400).unwrap();
    let (arm, dir) = arm_on(&volume, sealed);
    let files = dir.join(class);
    fs::create_dir_all(&files).unwrap();
    arm.run(&files, &["make"]);
    let mut lost = Vec::new();
    for case in CASES {
        let acknowledged = arm.run(&files, &["write", case]);
        let should = acknowledged.trim_end().strip_prefix(case).unwrap().trim_start().to_owned();
        volume.cut().unwrap();
        volume.remount().unwrap();
        let is = arm.read(&files.join(case));
        if is != should {
            lost.push(format!("{case}: {} bytes, should be {}", is.len(), should.len()));
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

/// The arm on a volume, and its directory.
fn arm_on(volume: &Volume, sealed: bool) -> (Arm, PathBuf) {
    let place = Workspace::new("cut").unwrap();
    let dir = volume.root().join("data");
    let sealed = sealed.then(|| {
        let product = product();
        let key = format!("file:{}", place.programs().join("key").display());
        let mut init = place.command(&product);
        init.arg("init").arg(&dir).args([
            "--profile",
            "postgres",
            "--no-recovery",
            "--provider",
            &key,
        ]);
        let output = init.finish().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (product, dir.clone())
    });
    (Arm { trial: Trial::compile("synced").unwrap(), place, sealed }, dir)
}

/// A header that another descriptor has left in the page cache.
fn a_cut_keeps_what_was_written_behind_an_unsynced_header(fs: FileSystem, sealed: bool) {
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let mut volume = Volume::create(fs, 400).unwrap();
    let (arm, dir) = arm_on(&volume, sealed);
    for class in CLASSES {
        let files = dir.join(class);
        fs::create_dir_all(&files).unwrap();
        fs::File::open(volume.root()).unwrap().sync_all().unwrap();
        // The names of the files too.
        arm.run(&files, &["behind"]);
        volume.cut().unwrap();
        volume.remount().unwrap();
        for name in ["behind-before", "behind-after"] {
            let is = arm.read(&files.join(name));
            let written = is.get(1 << 20..).unwrap_or_default();
            assert_eq!(written, "B".repeat(4096), "{fs} {class} {name}: {} bytes", is.len());
        }
    }
}

#[test]
fn a_cut_keeps_what_was_written_behind_an_unsynced_header_on_ext4() {
    a_cut_keeps_what_was_written_behind_an_unsynced_header(FileSystem::Ext4, true);
}

#[test]
fn a_cut_keeps_what_was_written_behind_an_unsynced_header_on_xfs() {
    a_cut_keeps_what_was_written_behind_an_unsynced_header(FileSystem::Xfs, true);
}

#[test]
fn a_cut_keeps_what_was_written_behind_unsynced_bytes_of_plain_files() {
    a_cut_keeps_what_was_written_behind_an_unsynced_header(FileSystem::Ext4, false);
}

#[test]
fn a_cut_loses_nothing_of_plain_files_on_ext4() {
    a_power_cut_loses_nothing_acknowledged(FileSystem::Ext4, "loose", false);
}

#[test]
fn a_cut_loses_nothing_of_paged_files_on_ext4() {
    a_power_cut_loses_nothing_acknowledged(FileSystem::Ext4, CLASSES[0], true);
}

#[test]
fn a_cut_loses_nothing_of_bytes_on_ext4() {
    a_power_cut_loses_nothing_acknowledged(FileSystem::Ext4, CLASSES[2], true);
}

#[test]
fn a_cut_loses_nothing_of_logs_on_xfs() {
    a_power_cut_loses_nothing_acknowledged(FileSystem::Xfs, CLASSES[1], true);
}
