//! Groups of version 2 on a made-up tree; those of the kernel are in tests/host.rs.

use super::*;

/// A tree as the kernel shows it, `own` being where the lab is.
fn fake(own: &str, hands_down: &[&str]) -> (tempfile::TempDir, Hierarchy) {
    let fake = tempfile::tempdir().unwrap();
    let root = fake.path();
    fs::write(root.join("cgroup.controllers"), "cpu io memory\n").unwrap();
    fs::create_dir_all(root.join(own)).unwrap();
    for dir in hands_down {
        fs::write(root.join(dir).join(SUBTREE), "cpu io memory pids\n").unwrap();
    }
    let mounts = format!("30 23 0:9 / {} rw - cgroup2 cgroup2 rw\n", root.display());
    let hierarchy = Hierarchy::parse(&mounts, &format!("0::/{own}\n"));
    (fake, hierarchy)
}

fn made(fake: &Path) -> PathBuf {
    let here = fs::read_dir(fake).unwrap().flatten().map(|entry| entry.path());
    here.into_iter().find(|path| path.to_str().unwrap().contains("tidelock-lab-")).unwrap()
}

#[test]
fn limits_of_version_2_are_written_as_the_kernel_wants_them() {
    let (root, hierarchy) = fake("user.slice/session", &["user.slice"]);
    let mut group = Group::create_in(hierarchy, "server").unwrap();
    let dir = made(&root.path().join("user.slice"));
    fs::write(dir.join("memory.swap.max"), "max").unwrap();
    let caps =
        Caps { cpus: Some(0.5), memory_mib: Some(64), iops: Some(200), throughput_mib: Some(3) };
    assert_eq!(group.apply(&caps, Some(DeviceNumber { major: 7, minor: 3 })), []);
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(text("cpu.max"), "50000 100000");
    assert_eq!((text("memory.max"), text("memory.swap.max")), ("67108864".into(), "0".into()));
    assert_eq!(text("io.max"), "7:3 riops=200 wiops=200 rbps=3145728 wbps=3145728");

    fs::write(dir.join("cpu.stat"), "usage_usec 1500000\nthrottled_usec 250000\n").unwrap();
    assert_eq!((group.cpu_seconds(), throttled_seconds(&dir)), (Some(1.5), 0.25));
    assert!(!group.foreign_quotas().contains(&dir), "its own quota was asked for");
    assert!(group.foreign_quotas().contains(&root.path().join("user.slice")));

    group.throttle = None;
    assert_eq!(text("io.max"), "7:3 riops=max wiops=max rbps=max wbps=max");
    // The kernel removes a group with its files; a directory wants to be empty.
    fs::read_dir(&dir).unwrap().for_each(|file| fs::remove_file(file.unwrap().path()).unwrap());
    drop(group);
    assert!(!dir.exists());
}

#[test]
fn a_tree_that_hands_nothing_down_is_asked_at_its_root() {
    let (root, hierarchy) = fake("scope", &[]);
    let group = Group::create_in(hierarchy, "server").unwrap();
    made(root.path());
    assert_eq!(fs::read_to_string(root.path().join(SUBTREE)).unwrap(), "+cpu");
    drop(group);
}

#[test]
fn a_missing_device_or_controller_is_a_reason_and_no_error() {
    let none = Group::create_in(Hierarchy::default(), "server").unwrap_err();
    assert_eq!(none.why, "this kernel has no control groups mounted");
    let (_root, hierarchy) = fake("scope", &[]);
    let mut group = Group::create_in(hierarchy, "server").unwrap();
    let caps = Caps { iops: Some(200), ..Caps::default() };
    let told = group.apply(&caps, None);
    assert_eq!(told.len(), 1);
    assert!(told[0].why.contains("volume"), "{}", told[0]);
    assert_eq!(told[0].warning().kind, crate::trial::WarningKind::Unlimited);
}

#[test]
fn a_limit_of_memory_that_the_kernel_refused_is_not_in_force() {
    let (root, hierarchy) = fake("scope", &[]);
    let mut group = Group::create_in(hierarchy, "server").unwrap();
    let caps = Caps { memory_mib: Some(64), ..Caps::default() };
    // Nothing can be written into a directory.
    let limit = made(root.path()).join("memory.max");
    fs::create_dir(&limit).unwrap();
    assert_eq!(group.apply(&caps, None).len(), 1);
    assert!(!group.limits_memory());
    fs::remove_dir(&limit).unwrap();
    assert_eq!(group.apply(&caps, None), []);
    assert!(group.limits_memory());
    fs::remove_file(&limit).unwrap();
}
