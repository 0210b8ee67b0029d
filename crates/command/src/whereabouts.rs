//! Where a process works and which files it has open, by device and inode.
//!
//! The kernel shows the paths of a process in another mount namespace as that namespace has them: a
//! container's /var/lib/mysql reads like the machine's. So equal texts prove nothing, and different
//! ones neither.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::{FDTarget, MMapPath, Process};

/// A file or directory, whatever its paths are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// What a path leads to, also one of /proc into another mount namespace.
    ///
    /// # Errors
    /// There is nothing, or it is somebody else's.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}

/// What the kernel adds to the path of a file that has another name now, or none.
pub(crate) const DELETED: &str = " (deleted)";

/// The name of a program, as the kernel tells that of a process: without the mark of one that was
/// replaced while it runs. Empty for a name that is not UTF-8.
pub(crate) fn program_name(program: &Path) -> &str {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_suffix(DELETED).unwrap_or(name)
}

/// True if `dir` is the current directory of a process.
///
/// # Errors
/// The process is gone, or somebody else's; there is no such directory.
pub(crate) fn works_in(pid: u32, dir: &Path) -> io::Result<bool> {
    let cwd = Path::new("/proc").join(pid.to_string()).join("cwd");
    Ok(Identity::of(&cwd)? == Identity::of(dir)?)
}

/// True if the current directory of a process is `dir` or below it.
pub(crate) fn works_below(process: &Process, dir: &Path) -> bool {
    let proc = Path::new("/proc").join(process.pid.to_string());
    let Ok(path) = fs::read_link(proc.join("cwd")) else { return false };
    let root = if is_elsewhere(&proc) { proc.join("root") } else { PathBuf::from("/") };
    let there = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    path.ancestors().any(|above| is_one(&there(above), dir))
}

/// The files below `dir`, a canonical path, that a process has open or mapped, by their paths
/// there.
pub(crate) fn used_below(process: &Process, dir: &Path) -> impl Iterator<Item = PathBuf> {
    open_below(process, dir).chain(mapped_below(process, dir))
}

/// A map stays when its descriptor is closed.
fn mapped_below(process: &Process, dir: &Path) -> impl Iterator<Item = PathBuf> {
    let proc = Path::new("/proc").join(process.pid.to_string());
    let their_root = is_elsewhere(&proc).then(|| proc.join("root"));
    let maps = process.maps().into_iter().flatten();
    let mut seen = HashSet::new();
    maps.filter_map(move |map| {
        let MMapPath::Path(path) = map.pathname else { return None };
        // A library has several maps.
        if !seen.insert(path.clone()) {
            return None;
        }
        // Btrfs shows another device here.
        let is_it = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|it| it.is_file() && it.ino() == map.inode)
        };
        let ours = path.starts_with(dir).then(|| path.clone());
        let theirs = || below(&path, their_root.as_deref()?, dir);
        ours.filter(is_it).or_else(|| theirs().filter(is_it))
    })
}

/// The files below `dir`, a canonical path, that a process has open, by their paths there.
fn open_below(process: &Process, dir: &Path) -> impl Iterator<Item = PathBuf> {
    let proc = Path::new("/proc").join(process.pid.to_string());
    let their_root = is_elsewhere(&proc).then(|| proc.join("root"));
    let open = process.fd().into_iter().flatten().flatten();
    open.filter_map(move |fd| {
        let FDTarget::Path(path) = fd.target else { return None };
        let file = proc.join("fd").join(fd.fd.to_string());
        let ours = path.starts_with(dir).then(|| path.clone());
        let theirs = || below(&path, their_root.as_deref()?, dir);
        let is_it = |path: &PathBuf| path.is_file() && is_one(path, &file);
        ours.filter(is_it).or_else(|| theirs().filter(is_it))
    })
}

/// A path of another mount namespace as the caller has it, if a folder on the way is `dir`.
fn below(path: &Path, their_root: &Path, dir: &Path) -> Option<PathBuf> {
    let there = |path: &Path| their_root.join(path.strip_prefix("/").unwrap_or(path));
    let above = path.ancestors().skip(1).find(|above| is_one(&there(above), dir))?;
    Some(dir.join(path.strip_prefix(above).ok()?))
}

fn is_one(path: &Path, other: &Path) -> bool {
    matches!((Identity::of(path), Identity::of(other)), (Ok(one), Ok(two)) if one == two)
}

/// The process of this folder in /proc has a mount namespace that is not the caller's.
fn is_elsewhere(proc: &Path) -> bool {
    let ours = fs::read_link("/proc/self/ns/mnt");
    let theirs = fs::read_link(proc.join("ns/mnt"));
    matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours != theirs)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use tidelock_servers::skip;

    use super::*;

    /// `tail` in a mount namespace of its own where `from` is mounted on `to`: it works in `to`
    /// and has the file `to/log` open. Nothing where that is not allowed.
    fn elsewhere(from: &Path, to: &Path) -> Option<Child> {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c"]).stdout(Stdio::piped()).stderr(Stdio::null());
        command.arg("mount --bind \"$1\" \"$2\" && cd \"$2\" && exec tail -f \"$2/log\"");
        let mut child = command.arg("sh").arg(from).arg(to).spawn().ok()?;
        // It has printed the line, and so has the file open.
        match child.stdout.as_mut()?.read_exact(&mut [0; 5]) {
            Ok(()) => Some(child),
            Err(_) => {
                let _ = child.wait();
                None
            }
        }
    }

    #[test]
    fn a_process_of_another_namespace_counts_by_what_it_has_and_not_by_its_paths() {
        if skip::unless_root("a mount namespace") {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let (ours, theirs) = (home.join("ours"), home.join("theirs"));
        for dir in [&ours, &theirs] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("log"), "line\n").unwrap();
        }
        // A container's directory at the path of ours; then ours at another path.
        for (from, to, is_ours) in [(&theirs, &ours, false), (&ours, &theirs, true)] {
            let Some(mut child) = elsewhere(from, to) else {
                skip::because("no mount namespace can be made here");
                return;
            };
            let shown = fs::read_link(format!("/proc/{}/cwd", child.id()));
            let works = works_in(child.id(), &ours);
            let process = Process::new(child.id().cast_signed()).unwrap();
            let open: Vec<_> = open_below(&process, &ours).collect();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(&shown.unwrap(), to, "the kernel shows their path");
            assert_eq!(works.unwrap(), is_ours);
            assert_eq!(open, if is_ours { vec![ours.join("log")] } else { Vec::new() });
        }
    }
}
