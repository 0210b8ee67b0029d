//! Removes what a lab that was killed left behind: mounts, loop devices, directories, control groups.
//!
//! Only what carries the name of a lab that no longer lives (`owner`), and directories only if they
//! belong to us. Servers that still run on a dead lab's volume are ended: nobody else can.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::device::DeviceNumber;
use super::group;
use super::hierarchy::Hierarchy;
use super::owner;
use super::throttle::Throttle;
use super::volume::{run_program, users_of};

/// Removes them wherever they are mounted, and directories below `bases` that nothing is mounted in; a
/// sentence for each.
#[must_use]
pub fn remove_leftovers(bases: &[&Path]) -> Vec<String> {
    let mut told = Vec::new();
    let mut dirs = BTreeSet::new();
    for point in left_mounts() {
        told.push(unmount(&point));
        dirs.extend(left_part(&point));
    }
    for (device, image) in left_loops() {
        dirs.extend(left_part(&image));
        let detached = run_program(Command::new("losetup").arg("--detach").arg(&device));
        told.push(said(&format!("{} of {}", device.display(), image.display()), detached.err()));
    }
    dirs.extend(bases.iter().flat_map(|base| left_in(base)));
    let mounted = mount_points();
    for dir in dirs {
        // Never through a mount that could not be undone.
        if owned(&dir) && !mounted.iter().any(|point| point.starts_with(&dir)) {
            told.push(said(&dir.display().to_string(), fs::remove_dir_all(&dir).err()));
        }
    }
    for tree in Hierarchy::here().trees() {
        remove_groups(&tree.root, &tree.own, &mut told);
    }
    told
}

/// Ends every process whose directory or open files lie below `dir`, and waits until they are gone. For
/// private directories of a lab that is dead.
pub fn end_users(dir: &Path) {
    let users = users_of(dir);
    for process in &users {
        let _ = process.signal(Signal::KILL);
    }
    for process in users {
        let _ = process.wait_gone(Duration::from_secs(10));
    }
}

fn unmount(point: &Path) -> String {
    if let Ok(device) = DeviceNumber::of(point) {
        Throttle::clear(device);
    }
    for process in users_of(point) {
        let _ = process.signal(Signal::KILL);
    }
    for _ in 0..100 {
        if run_program(Command::new("umount").arg(point)).is_ok() {
            return said(&point.display().to_string(), None::<String>);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let lazy = run_program(Command::new("umount").arg("--lazy").arg(point));
    said(&point.display().to_string(), lazy.err())
}

fn said(what: &str, failed: Option<impl std::fmt::Display>) -> String {
    match failed {
        None => format!("removed what an earlier lab left: {what}"),
        Some(why) => format!("cannot remove what an earlier lab left: {what}: {why}"),
    }
}

fn mount_points() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(|point| point.replace("\\040", " ").into()).collect()
}

/// The last mounts first: one may lie on another.
fn left_mounts() -> Vec<PathBuf> {
    let ours = |point: &PathBuf| left_part(point).is_some_and(|dir| owned(&dir));
    mount_points().into_iter().rev().filter(ours).collect()
}

/// Loop devices whose image a dead lab made: it died between attaching and mounting.
fn left_loops() -> Vec<(PathBuf, PathBuf)> {
    let Ok(blocks) = fs::read_dir("/sys/block") else { return Vec::new() };
    let loops = blocks.flatten().filter_map(|entry| {
        let image = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let image = PathBuf::from(image.trim_end());
        left_part(&image)?;
        Some((Path::new("/dev").join(entry.file_name()), image))
    });
    loops.collect()
}

/// The directory of a dead lab that `path` lies in.
fn left_part(path: &Path) -> Option<PathBuf> {
    let is_left = |dir: &&Path| match dir.components().next_back() {
        Some(Component::Normal(name)) => name.to_str().is_some_and(owner::is_left),
        _ => false,
    };
    path.ancestors().find(is_left).map(Path::to_path_buf)
}

fn left_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let left = |name: &std::ffi::OsStr| name.to_str().is_some_and(owner::is_left);
    entries.flatten().filter(|entry| left(&entry.file_name())).map(|entry| entry.path()).collect()
}

fn owned(dir: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
}

fn remove_groups(dir: &Path, home: &Path, told: &mut Vec<String>) {
    for left in left_in(dir) {
        let gone = group::remove(&left, home);
        let failed = (!gone).then_some("it is still in use");
        told.push(said(&left.display().to_string(), failed));
    }
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path(), home, told);
        }
    }
}
