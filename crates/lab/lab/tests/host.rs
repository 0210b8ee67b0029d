//! Limits and volumes of the real kernel: a quota, a memory cap and provisioned I/O truly limit,
//! and nothing stays behind.
//!
//! Without root each test says so and checks that the answer is a reason and no error. Tolerances
//! are wide: what matters is that a limit is in force, and the same for everybody.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_lab::experiment::VolumeType;
use tidelock_lab::host::{
    Caps, FileSystem, Group, Image, Sampler, Volume, VolumeError, end_users, remove_leftovers,
};
use tidelock_servers::{Process, skip};

/// Keeps the other tests out: version 2 moves all of this process, so that what another test starts
/// meanwhile would be born in the group.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group, or `None` with the reason printed and checked.
fn group(name: &str) -> Option<Group> {
    match (Group::create(name), rustix::process::geteuid().is_root()) {
        (Ok(group), true) => Some(group),
        (Err(why), true) => {
            skip::because(why);
            None
        }
        (created, false) => {
            skip::because("a control group needs root");
            let why = created.unwrap_err().why;
            assert!(why.contains("root"), "{why}");
            None
        }
    }
}

/// A volume, or `None` with the reason printed and checked.
fn volume(fs: FileSystem) -> Option<Volume> {
    match Volume::create(&std::env::temp_dir(), fs, 400, Image::Direct) {
        Ok(volume) => Some(volume),
        Err(error) => {
            let root = rustix::process::geteuid().is_root();
            skip::because(&error);
            assert!(!root && matches!(error, VolumeError::NotRoot), "{error}");
            None
        }
    }
}

/// Whether `caps` are in force; where a container forbids one, the reason is printed.
fn limited(group: &mut Group, caps: &Caps, volume: Option<&Volume>) -> bool {
    let told = group.apply(caps, volume.map(|volume| volume.device().unwrap()));
    told.iter().for_each(|why| skip::because(why));
    told.is_empty()
}

fn sh(script: &str) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sh
}

/// Seconds that a `dd` on the volume takes inside the group.
fn dd(group: &Group, volume: &Volume, options: &str) -> f64 {
    let file = volume.root().join("file");
    let start = Instant::now();
    let run = || sh(&format!("dd if=/dev/zero of={} {options}", file.display())).status();
    assert!(group.inside(run).unwrap().unwrap().success(), "dd {options}");
    start.elapsed().as_secs_f64()
}

fn iops(rate: u64) -> Caps {
    Caps { iops: Some(rate), ..Caps::default() }
}

#[test]
fn a_quarter_of_a_processor_is_no_more() {
    let _alone = alone();
    let Some(mut group) = group("cpu") else { return };
    let caps = Caps { cpus: Some(0.25), ..Caps::default() };
    if !limited(&mut group, &caps, None) {
        return;
    }
    let sampler = Sampler::every(Duration::from_millis(200), None, Some(&group));
    let start = Instant::now();
    let mut busy = group.inside(|| sh("while :; do :; done").spawn()).unwrap().unwrap();
    thread::sleep(Duration::from_millis(1500));
    busy.kill().unwrap();
    busy.wait().unwrap();
    let (used, seconds) = (group.cpu_seconds().unwrap(), start.elapsed().as_secs_f64());
    assert!(used > 0.0 && used < 0.25 * seconds + 0.2, "{used} s of CPU time in {seconds} s");
    let samples = sampler.finish();
    assert!(samples.metrics["throttled_seconds"] > 0.0);
    let kinds: Vec<_> = samples.warnings.iter().map(|warning| warning.kind).collect();
    let throttled = tidelock_lab::trial::WarningKind::Throttling;
    assert!(!kinds.contains(&throttled), "this throttling was asked for: {kinds:?}");
}

#[test]
fn the_page_cache_counts_as_memory() {
    let _alone = alone();
    let Some(mut group) = group("memory") else { return };
    let caps = Caps { memory_mib: Some(24), ..Caps::default() };
    if !limited(&mut group, &caps, None) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file").display().to_string();
    let write = format!("dd if=/dev/zero of={file} bs=256k count=256");
    assert!(group.inside(|| sh(&write).status()).unwrap().unwrap().success());
    let hoard = || sh("dd if=/dev/zero of=/dev/null bs=64M count=1").status();
    assert!(!group.inside(hoard).unwrap().unwrap().success(), "64 MiB fitted into 24");
}

#[test]
fn two_hundred_writes_a_second_are_no_more() {
    let _alone = alone();
    let (Some(mut group), Some(volume)) = (group("iops"), volume(FileSystem::Ext4)) else { return };
    if !limited(&mut group, &iops(200), Some(&volume)) {
        return;
    }
    let sampler =
        Sampler::every(Duration::from_millis(500), Some(volume.device().unwrap()), Some(&group));
    let seconds = dd(&group, &volume, "bs=4k count=400 oflag=direct");
    let samples = sampler.finish();
    assert!(seconds > 1.5, "400 writes took {seconds} s");
    let rate = samples.metrics["write_iops"];
    assert!((1.0..=260.0).contains(&rate), "{rate} writes a second");
    assert!(!samples.series["write_iops"].is_empty());
    drop(group);
    let free = Group::create("free").unwrap();
    // One of several: the disk may be busy with others.
    let again = || dd(&free, &volume, "bs=4k count=400 oflag=direct");
    let again: Vec<f64> = std::iter::repeat_with(again).take(5).collect();
    assert!(again.iter().any(|again| *again < 1.5), "the rule outlived its group: {again:?} s");
}

#[test]
fn what_the_page_cache_writes_is_limited_too() {
    let _alone = alone();
    let (Some(mut group), Some(volume)) = (group("bytes"), volume(FileSystem::Xfs)) else { return };
    let caps = Caps { throughput_mib: Some(4), ..Caps::default() };
    if limited(&mut group, &caps, Some(&volume)) {
        let seconds = dd(&group, &volume, "bs=64k count=128 conv=fsync");
        assert!(seconds > 1.0, "8 MiB took {seconds} s");
    }
}

#[test]
fn syncs_of_a_log_are_limited_too() {
    let _alone = alone();
    let (Some(mut group), Some(volume)) = (group("syncs"), volume(FileSystem::Ext4)) else {
        return;
    };
    if limited(&mut group, &iops(50), Some(&volume)) {
        let seconds = dd(&group, &volume, "bs=8k count=60 oflag=dsync");
        assert!(seconds > 0.8, "60 synced writes took {seconds} s");
    }
}

#[test]
fn children_are_born_in_the_group_and_the_lab_is_not_left_in_it() {
    let _alone = alone();
    let Some(group) = group("birth") else { return };
    let before = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
    let mut child = group.inside(|| sh("sleep 600 & wait").spawn()).unwrap().unwrap();
    assert_eq!(fs::read_to_string("/proc/thread-self/cgroup").unwrap(), before);
    let process = Process::new(i32::try_from(child.id()).unwrap()).unwrap();
    let start = Instant::now();
    while process.children().is_empty() && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    let family = [process, process.children()[0]];
    let listed = group.processes();
    assert!(family.iter().all(|process| listed.contains(process)), "{listed:?}");

    // Those that still live when the group ends are not killed: they are ours again.
    drop(group);
    assert!(family.iter().all(|process| process.lives()));
    for process in family {
        process.signal(rustix::process::Signal::KILL).unwrap();
    }
    child.wait().unwrap();
}

#[test]
fn a_volume_has_a_device_and_leaves_nothing() {
    let _alone = alone();
    for fs_of_volume in FileSystem::ALL {
        let Some(mut volume) = volume(fs_of_volume) else { return };
        let device = volume.device().unwrap();
        assert_eq!(device.major, 7, "a loop device");
        fs::write(volume.root().join("file"), b"here").unwrap();
        let root = volume.root().to_path_buf();
        let open = fs::File::open(root.join("file")).unwrap();
        let held = volume.unmount(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(held, VolumeError::Refused { .. }), "{held}");
        drop(open);
        volume.unmount(Duration::from_secs(60)).unwrap();
        volume.mount().unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), b"here");
        drop(volume);
        assert!(!root.parent().unwrap().exists());
        assert!(!mounted(&root));
    }
}

#[test]
fn a_volume_that_the_kernel_encrypts_holds_no_plaintext_and_leaves_nothing() {
    let _alone = alone();
    for kind in [VolumeType::Ext4, VolumeType::Fscrypt, VolumeType::Luks] {
        let make = || Volume::of_type(&std::env::temp_dir(), kind, 64, Image::Cached);
        if let Some(why) = Volume::missing(kind) {
            skip::because(format!("{kind:?}: {why}"));
            assert!(make().is_err(), "{kind:?} is not missing");
            continue;
        }
        let mut volume = make().unwrap();
        let file = volume.data().join("file");
        let marker = b"a marker that must not be found";
        fs::write(&file, marker).unwrap();
        let root = volume.root().to_path_buf();
        let (image, key) = (root.with_file_name("image"), root.with_file_name("key"));
        volume.unmount(Duration::from_secs(60)).unwrap();
        let stored = fs::read(&image).unwrap();
        let found = stored.windows(marker.len()).any(|bytes| bytes == marker);
        assert_eq!(found, kind == VolumeType::Ext4, "{kind:?}");
        if kind != VolumeType::Ext4 {
            let mode = fs::metadata(&key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{kind:?}");
        }
        volume.mount().unwrap();
        assert_eq!(fs::read(&file).unwrap(), marker);
        drop(volume);
        assert!(!root.parent().unwrap().exists());
        assert!(!mounted(&root) && !attached(&image), "{kind:?}");
        assert_eq!(mappings(), Vec::<String>::new());
    }
}

#[test]
fn what_a_killed_lab_left_is_removed_and_what_a_living_one_has_is_not() {
    let _alone = alone();
    let base = tempfile::tempdir().unwrap();
    // The helper below is a lab that dies at once: nothing of it is dropped.
    let mut dying = Command::new(std::env::current_exe().unwrap());
    dying.args(["--exact", "--ignored", "a_lab_that_dies"]).env("LAB_BASE", base.path());
    let said = dying.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(!said.success());
    let left = || fs::read_dir(base.path()).unwrap().flatten().map(|e| e.path()).next();
    let mine = group("mine");
    // A mount leads to its directory; a directory alone is looked for where the caller says.
    let bases = [base.path()];
    let told = remove_leftovers(if mine.is_some() { &[] } else { &bases });
    assert_eq!(left(), None, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("removed")), "{told:?}");
    if mine.is_none() {
        return;
    }
    assert_eq!(mappings(), Vec::<String>::new(), "{told:?}");
    let about = |what: &str| told.iter().any(|line| line.contains(what));
    assert!(about("-dies") && about("-volume-"), "{told:?}");
    assert!(!about("-mine"), "{told:?}");
    assert!(!mounted(base.path()));

    // Again, with somebody who looks around in the volume: it goes, they stay.
    dying.status().unwrap();
    let root = left().unwrap().join("root");
    let mut bystander = sleeper("sleep", &root, Path::new("/root"));
    let told = remove_leftovers(&[]);
    let lives = process_of(&bystander).lives();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert!(lives && !mounted(base.path()), "{told:?}");
    let about = |what: &str| told.iter().any(|line| line.contains(what));
    assert!(about(&format!("used by sleep (process {})", bystander.id())), "{told:?}");
}

/// A copy of `sleep` in `dir`.
fn sleeper(program: &str, dir: &Path, home: &Path) -> std::process::Child {
    let mut command = Command::new(program);
    command.arg("600").current_dir(dir).env("HOME", home).stdin(Stdio::null()).spawn().unwrap()
}

fn process_of(child: &std::process::Child) -> Process {
    Process::new(i32::try_from(child.id()).unwrap()).unwrap()
}

#[test]
fn only_what_a_lab_started_is_ended_in_its_directory() {
    let _alone = alone();
    let programs = tempfile::tempdir().unwrap();
    let postgres = programs.path().join("postgres");
    fs::copy("/bin/sleep", &postgres).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = Path::new("/nowhere");
    let mut server = sleeper(&postgres.display().to_string(), dir.path(), elsewhere);
    let mut tool = sleeper("sleep", dir.path(), &dir.path().join("home"));
    let mut bystander = sleeper("sleep", dir.path(), elsewhere);
    let mut uninvolved = sleeper(&postgres.display().to_string(), programs.path(), elsewhere);
    let told = end_users(dir.path());
    assert!(server.try_wait().unwrap().is_some() && tool.try_wait().unwrap().is_some(), "{told:?}");
    for spared in [&mut bystander, &mut uninvolved] {
        let lives = spared.try_wait().unwrap().is_none();
        spared.kill().unwrap();
        spared.wait().unwrap();
        assert!(lives, "a bystander was ended: {told:?}");
    }
    assert!(told.len() == 1 && told[0].contains(&bystander.id().to_string()), "{told:?}");
}

#[test]
#[ignore = "started by the test above"]
fn a_lab_that_dies() {
    let Some(base) = std::env::var_os("LAB_BASE") else { return };
    if rustix::process::geteuid().is_root() {
        let volume = Volume::create(Path::new(&base), FileSystem::Ext4, 32, Image::Cached).unwrap();
        let mut group = Group::create("dies").unwrap();
        let _reasons = group.apply(&iops(100), Some(volume.device().unwrap()));
        let luks = || Volume::of_type(Path::new(&base), VolumeType::Luks, 64, Image::Cached);
        let _luks = Volume::missing(VolumeType::Luks).is_none().then(|| luks().unwrap());
        std::process::abort();
    }
    fs::create_dir(Path::new(&base).join("tidelock-lab-4194305-1-volume-x")).unwrap();
    std::process::abort();
}

/// Whether something is mounted at or below `dir`.
fn mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4).is_some_and(|p| Path::new(p).starts_with(dir)))
}

/// Whether a loop device still has this image.
fn attached(image: &Path) -> bool {
    let blocks = fs::read_dir("/sys/block").unwrap().flatten();
    let mut images = blocks.filter_map(|block| {
        let image = fs::read_to_string(block.path().join("loop/backing_file")).ok()?;
        Some(image.trim_end().to_owned())
    });
    images.any(|attached| Path::new(&attached) == image)
}

/// LUKS devices that are open, by name, and names without one in /dev.
fn mappings() -> Vec<String> {
    let blocks = fs::read_dir("/sys/block").unwrap().flatten();
    let open = blocks.filter_map(|block| fs::read_to_string(block.path().join("dm/name")).ok());
    let nodes = fs::read_dir("/dev/mapper").into_iter().flatten().flatten();
    let nodes = nodes.map(|node| node.file_name().to_string_lossy().into_owned());
    open.chain(nodes).filter(|name| name.starts_with("tidelock-lab-")).collect()
}
