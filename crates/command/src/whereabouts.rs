//! Where a process works and which files it has open, by device and inode.
//!
//! The kernel shows the paths of a process in another mount namespace as that namespace has them: a
//! container's /var/lib/mysql reads like the machine's. So equal texts prove nothing, and different
//! ones neither.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::Process;

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
    let maps = fs::read(proc.join("maps")).unwrap_or_default();
    let maps: Vec<_> = maps.split(|byte| *byte == b'\n').filter_map(mapped).collect();
    let mut seen = HashSet::new();
    maps.into_iter().filter_map(move |(inode, path)| {
        // A library has several maps.
        if !seen.insert(path.clone()) {
            return None;
        }
        // Btrfs shows another device here.
        let is_it =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.is_file() && it.ino() == inode);
        let ours = path.starts_with(dir).then(|| path.clone());
        let theirs = || below(&path, their_root.as_deref()?, dir);
        ours.filter(is_it).or_else(|| theirs().filter(is_it))
    })
}

/// Inode and path of a mapped file. proc(5): `ADDRESS PERMS OFFSET DEVICE INODE   PATH`. As bytes:
/// files have any names, and the kernel writes `\012` for a line break in one.
fn mapped(line: &[u8]) -> Option<(u64, PathBuf)> {
    let (mut inode, mut rest) = (None, line);
    for _ in 0..5 {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let (field, behind) = rest.split_at(end);
        (inode, rest) = (Some(field), behind.trim_ascii_start());
    }
    let inode = std::str::from_utf8(inode?).ok()?.parse().ok()?;
    let mut path = Vec::with_capacity(rest.len());
    while let Some((byte, behind)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(behind) => {
                path.push(b'\n');
                rest = behind;
            }
            None => {
                path.push(*byte);
                rest = behind;
            }
        }
    }
    path.starts_with(b"/").then(|| (inode, PathBuf::from(OsString::from_vec(path))))
}

/// The files below `dir`, a canonical path, that a process has open, by their paths there.
fn open_below(process: &Process, dir: &Path) -> impl Iterator<Item = PathBuf> {
    let proc = Path::new("/proc").join(process.pid.to_string());
    let their_root = is_elsewhere(&proc).then(|| proc.join("root"));
    let open = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    open.filter_map(move |fd| {
        let file = fd.path();
        // What is no file has no absolute path: `socket:[1234]`.
        let path = fs::read_link(&file).ok().filter(|path| path.is_absolute())?;
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
    use std::os::unix::ffi::OsStrExt as _;
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
    fn files_whose_names_are_no_text_are_seen() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let odd = home.join(OsStr::from_bytes(b"\xff a\nb"));
        let open = fs::File::create(&odd).unwrap();
        let myself = Process::myself().unwrap();
        assert_eq!(open_below(&myself, &home).collect::<Vec<_>>(), [odd]);
        drop(open);
        for (line, path) in [
            (&b"7f00-7f01 r--p 00000000 08:01 1234      /data/\xff a"[..], &b"/data/\xff a"[..]),
            (b"7f00-7f01 rw-s 00001000 00:1f 1234 /data/a\\012b", b"/data/a\nb"),
        ] {
            assert_eq!(mapped(line), Some((1234, OsStr::from_bytes(path).into())));
        }
        for line in ["", "7f00-7f01 rw-p 00000000 00:00 0", "7f00-7f01 rw-p 0 00:00 0  [heap]"] {
            assert_eq!(mapped(line.as_bytes()), None, "{line}");
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
