//! Removes what a lab that was killed left behind: mounts, LUKS devices, loop devices,
//! directories, control groups.
//!
//! Only what carries the name of a lab that no longer lives (`owner`), and directories only if they
//! belong to us. Servers and tools of a dead lab that still run there are ended: nobody else can.
//! Whoever else has a file open there, an administrator's shell or a backup, is told of and left
//! alone; the mount goes from under them once they are done.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use procfs::process as proc;
use rustix::process::Signal;
use tidelock_servers::home::end_agents;
use tidelock_servers::{Account, Process};

use super::device::DeviceNumber;
use super::gocryptfs;
use super::group;
use super::hierarchy::Hierarchy;
use super::luks;
use super::mounts;
use super::owner;
use super::program::run_program;
use super::throttle::Throttle;
use super::volume::users_of;

/// Removes them wherever they are mounted, and directories below `bases` that nothing is mounted
/// in, once what the dead lab runs there was ended; a sentence for each.
#[must_use]
pub fn remove_leftovers(bases: &[&Path]) -> Vec<String> {
    let mut told = Vec::new();
    let mut dirs = BTreeSet::new();
    for point in left_mounts() {
        told.extend(unmount(&point));
        dirs.extend(left_part(&point));
    }
    // Those of a volume that was mounted were closed with it.
    for name in luks::left() {
        let closed = luks::close_unused(&name);
        told.push(said(&format!("the LUKS device {name}"), closed.err()));
    }
    for (device, image) in left_loops() {
        dirs.extend(left_part(&image));
        let detached = run_program(Command::new("losetup").arg("--detach").arg(&device));
        told.push(said(&format!("{} of {}", device.display(), image.display()), detached.err()));
    }
    for dir in bases.iter().flat_map(|base| left_in(base)).filter(|dir| owned(dir)) {
        told.extend(end_users(&dir));
        dirs.insert(dir);
    }
    told.extend(dirs.iter().filter(|dir| owned(dir)).map(|dir| remove_dir(dir)));
    for tree in Hierarchy::here().trees() {
        remove_groups(&tree.root, &tree.own, &mut told);
    }
    told
}

/// Removes a directory of a dead lab, never through a mount that could not be undone; a sentence
/// about it.
#[must_use]
pub fn remove_dir(dir: &Path) -> String {
    let mounted = mount_points().into_iter().find(|point| point.starts_with(dir));
    let failed = match mounted {
        Some(point) => Some(format!("{} is still mounted", point.display())),
        None => fs::remove_dir_all(dir).err().map(|error| error.to_string()),
    };
    said(&dir.display().to_string(), failed)
}

/// Ends the servers and tools of a dead lab whose private directory `dir` is, and waits until they
/// are gone. A sentence for each process that is there and is not the lab's: it is left alone.
#[must_use]
pub fn end_users(dir: &Path) -> Vec<String> {
    end_ours(dir, dir)
}

/// Those of the lab in `dir`, among the users of `place`.
fn end_ours(place: &Path, dir: &Path) -> Vec<String> {
    // Twice: a tool that is ended may have started another meanwhile.
    for _ in 0..2 {
        let ours: Vec<Process> =
            users_of(place).into_iter().filter(|process| is_of_lab(*process, dir)).collect();
        for process in &ours {
            let _ = process.signal(Signal::KILL);
        }
        for process in ours {
            let _ = process.wait_gone(Duration::from_secs(10));
        }
        end_agents(&dir.join("home"));
    }
    let others = users_of(place).into_iter().filter(|process| process.lives());
    others
        .map(|process| {
            let stat = proc::Process::new(process.id()).and_then(|process| process.stat());
            let name = stat.map_or_else(|_| String::new(), |stat| stat.comm);
            format!(
                "{} is used by {} (process {}), which no lab started: it is left alone",
                place.display(),
                name,
                process.id()
            )
        })
        .collect()
}

/// Whether a lab started this for its directory `dir`: by the home directory that its tools get,
/// or, as servers write over their environment, by what runs and as whom.
fn is_of_lab(process: Process, dir: &Path) -> bool {
    let Ok(process) = proc::Process::new(process.id()) else { return false };
    let Ok(owner) = process.uid() else { return false };
    let us = rustix::process::geteuid().as_raw();
    let servers = Account::of_servers().ok().and_then(|account| account.uid());
    if owner != us && Some(owner) != servers {
        return false;
    }
    let environment = process.environ().unwrap_or_default();
    let home = environment.get(OsStr::new("HOME"));
    let at_home = home.is_some_and(|home| Path::new(home).starts_with(dir));
    let program = process.exe().unwrap_or_default();
    let program = program.file_name().map(|name| name.to_string_lossy().into_owned());
    // An executable that was replaced meanwhile.
    let program = program.unwrap_or_default();
    at_home || SERVERS.contains(&program.trim_end_matches(" (deleted)"))
}

/// What keeps running on a lab's directories.
const SERVERS: [&str; 4] = ["postgres", "mariadbd", "mysqld", "gocryptfs"];

/// A sentence about the mount, and one for each bystander in it.
fn unmount(point: &Path) -> Vec<String> {
    if let Ok(device) = DeviceNumber::of(point) {
        Throttle::clear(device);
    }
    let lab = left_part(point).unwrap_or_else(|| point.to_path_buf());
    // Tools have their home in the place that the volume lies in.
    let mut told = end_ours(point, lab.parent().unwrap_or(&lab));
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        if gocryptfs::unmounted(point, false) {
            told.push(said(&point.display().to_string(), None::<String>));
            return told;
        }
        if !told.is_empty() || Instant::now() > until {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let failed = (!gocryptfs::unmounted(point, true)).then_some("it is in use");
    told.push(said(&point.display().to_string(), failed));
    told
}

fn said(what: &str, failed: Option<impl std::fmt::Display>) -> String {
    match failed {
        None => format!("removed what an earlier lab left: {what}"),
        Some(why) => format!("cannot remove what an earlier lab left: {what}: {why}"),
    }
}

fn mount_points() -> Vec<PathBuf> {
    mounts::here().into_iter().map(|mount| mount.mount_point).collect()
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
