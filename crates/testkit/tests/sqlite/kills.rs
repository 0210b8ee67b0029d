//! Nothing acknowledged is lost: writers killed at random moments and at each of their calls, and
//! power cuts.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::skip;
use tidelock_testkit::acknowledged::{self, Promises};
use tidelock_testkit::volume::{FileSystem, Volume};

use super::{Place, ended_well, run, traced};

/// More than any test waits for.
const ENDLESS: u32 = 1_000_000;

impl Place {
    /// On a volume instead.
    fn on(volume: &Volume) -> Option<Self> {
        let mut place = Self::new()?;
        place.dir = volume.root().join("sealed");
        let key = place.place.plain().join("key");
        let mut init = place.place.command(&place.product);
        init.arg("init").arg(&place.dir).args(["--profile", "sqlite", "--no-recovery"]);
        ended_well(init.arg("--provider").arg(format!("file:{}", key.display())));
        Some(place)
    }

    fn writer(&self, mode: &str, record: &Path, name: &str, count: u32) -> Command {
        let mut writer = self.python("sqlite.py");
        writer.args(["write", &self.database(), mode]).arg(record).args([name, &count.to_string()]);
        writer
    }

    fn check(&self) -> Command {
        let mut check = self.python("sqlite.py");
        check.args(["check", &self.database()]);
        check
    }
}

fn nothing_acknowledged_is_lost(mode: &str, rounds: usize) {
    let Some(place) = Place::new() else { return };
    let record = place.dir.with_extension("record");
    let mut promises = Promises::new(&record);
    for round in 0..rounds {
        let mut writers = ["a", "b"].map(|name| place.writer(mode, &record, name, ENDLESS));
        acknowledged::kill_after(&mut writers, &record, 5 + round * 7 % 13).unwrap();
        promises.check(&mut place.check()).unwrap();
    }
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    nothing_acknowledged_is_lost("delete", 1);
    nothing_acknowledged_is_lost("wal", 1);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_acknowledged_is_lost_by_a_hundred_kills_of_each_mode() {
    for mode in ["delete", "truncate", "persist", "wal"] {
        nothing_acknowledged_is_lost(mode, 100);
    }
}

/// Kills a writer of a few transactions at its N-th call that changes a file, for each N: from
/// `first` on in steps of `step`, until it ends unharmed. How many were killed.
fn killed_at_each_call(mode: &str, first: usize, step: usize) -> usize {
    let Some(place) = Place::new() else { return 1 };
    if run(Command::new("strace").arg("-V")).status.code() != Some(0) {
        skip::missing("strace");
        return 1;
    }
    let record = place.dir.with_extension("record");
    let mut promises = Promises::new(&record);
    for (killed, number) in (first..).step_by(step).enumerate() {
        let writer = place.writer(mode, &record, "a", 3);
        let (calls, kill) = (format!("trace={CHANGES}"), format!("inject={CHANGES}:signal=KILL:"));
        let options = ["-e", &calls, "-e", &format!("{kill}when={number}")];
        let done = run(&mut traced(&writer, Path::new("/dev/null"), &options));
        promises.check(&mut place.check()).unwrap_or_else(|why| panic!("{mode} {number}: {why}"));
        if done.status.success() {
            return killed;
        }
        let by_kill = done.status.signal() == Some(9) || done.status.code() == Some(128 + 9);
        assert!(by_kill, "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    0
}

/// Of the library and of SQLite, none of the command before it.
const CHANGES: &str = "pwrite64,pwritev,ftruncate,fdatasync,unlink,unlinkat";

#[test]
#[ignore = "long: make test-full"]
fn nothing_acknowledged_is_lost_whatever_the_call_at_which_it_is_killed() {
    for mode in ["delete", "truncate", "persist", "wal"] {
        let killed = killed_at_each_call(mode, 1, 1);
        assert!(killed > 20, "{mode}: only {killed} calls");
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_some_of_its_calls() {
    assert!(killed_at_each_call("wal", 3, 17) > 0);
}

/// Commits that a writer heard of are there after the power is gone.
fn nothing_acknowledged_is_lost_by_power_cuts(fs: FileSystem) {
    for mode in ["delete", "truncate", "persist", "wal"] {
        nothing_acknowledged_is_lost_in_mode(fs, mode);
    }
}

fn nothing_acknowledged_is_lost_in_mode(fs: FileSystem, mode: &str) {
    let rounds = std::env::var("TIDELOCK_CUTS").map_or(50, |cuts| cuts.parse().unwrap());
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let mut volume = Volume::create(fs, 400).unwrap();
    let Some(place) = Place::on(&volume) else { return };
    // On another file system, which keeps its power.
    let record = place.place.plain().join("record");
    let mut promises = Promises::new(&record);
    let mut last = 0;
    for round in 0..rounds {
        let mut writer = [place.writer(mode, &record, "a", ENDLESS)];
        let cut = || volume.stop_users_and_cut().map_err(std::io::Error::other);
        acknowledged::cut_after(&mut writer, &record, 3 + round * 7 % 19, cut).unwrap();
        volume.unmount().unwrap();
        mount(&mut volume);
        last = promises
            .check(&mut place.check())
            .unwrap_or_else(|why| panic!("{fs} {mode} {round}: {why}"));
    }
    println!("{mode} on {fs}: {rounds} cuts, {last} commits were acknowledged, none is lost");
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

/// XFS refuses a file system that the kernel has not quite let go: another process may have a copy
/// of the mount for a moment.
fn mount(volume: &mut Volume) {
    let begin = Instant::now();
    while let Err(why) = volume.mount() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{why}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_acknowledged_is_lost_by_power_cuts_on_ext4() {
    nothing_acknowledged_is_lost_by_power_cuts(FileSystem::Ext4);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_acknowledged_is_lost_by_power_cuts_on_xfs() {
    nothing_acknowledged_is_lost_by_power_cuts(FileSystem::Xfs);
}
