//! Names that tell which lab made something, so that what a dead lab left can be told from the
//! living.
//!
//! `tidelock-lab-PID-START-WHAT`: START is the lab's start time in clock ticks since boot (proc(5),
//! field 22 of /proc/PID/stat), without which a later process with the same id would be taken for
//! it. In a container it is `tidelock-lab-PID-START-nsSPACE-WHAT`, with the number of the PID
//! namespace (pid_namespaces(7)): in another one its id says nothing, so a lab in a container and
//! one beside it leave each other alone. Sockets lie below such names, so they are short.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use procfs::process::Process;
use tempfile::TempDir;

/// Start of the name of every directory and control group that a lab makes.
const PREFIX: &str = "tidelock-lab-";
/// What a PID namespace begins with in it.
const SPACE: &str = "ns";
/// The inode of the machine's own PID namespace (Linux, `PROC_PID_INIT_INO`); others come after it.
const MACHINE: u64 = 0xEFFF_FFFC;

/// A name of this lab.
pub(super) fn name(what: &str) -> String {
    let lab = std::process::id();
    let space = space().map(|space| format!("{SPACE}{space}-")).unwrap_or_default();
    format!("{PREFIX}{lab}-{}-{space}{what}", start_of(lab).unwrap_or(0))
}

/// A directory of this lab in `base`, which belongs to us and is removed on drop.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn private_dir(base: &Path, what: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(&name(&format!("{what}-"))).tempdir_in(base)
}

/// Whether a lab of this PID namespace made this and no longer lives.
pub(super) fn is_left(name: &str) -> bool {
    let Some((lab, rest)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else {
        return false;
    };
    let Some((start, what)) = rest.split_once('-') else { return false };
    let (Ok(lab), Ok(start)) = (lab.parse(), start.parse::<u64>()) else { return false };
    space_of(what) == space() && start_of(lab) != Some(start)
}

/// The namespace that a name has after its start.
fn space_of(what: &str) -> Option<u64> {
    what.strip_prefix(SPACE)?.split_once('-')?.0.parse().ok()
}

/// The PID namespace that we are in; `None` for the machine's own, and where /proc does not tell.
fn space() -> Option<u64> {
    let inode = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    (inode != MACHINE).then(|| inode.wrapping_sub(MACHINE))
}

/// When a process started, in clock ticks since boot; `None` if there is none.
fn start_of(process: u32) -> Option<u64> {
    let process = Process::new(i32::try_from(process).ok()?).ok()?;
    Some(process.stat().ok()?.starttime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_not_left_and_what_a_dead_lab_made_is() {
        assert!(!is_left(&name("volume-x")));
        let base = tempfile::tempdir().unwrap();
        let made = private_dir(base.path(), "on").unwrap();
        let made = made.path().file_name().unwrap().to_str().unwrap();
        assert!(made.contains("-on-") && !is_left(made), "{made}");
        // What the next lab sees once this one is dead.
        let me = std::process::id();
        let dead = made.replacen(&me.to_string(), "4194305", 1);
        assert!(is_left(&dead), "{dead}");
        let start = start_of(me).unwrap();
        let before = made.replacen(&format!("-{start}-"), "-1-", 1);
        assert!(is_left(&before), "another process had this id: {before}");
        for other in ["tidelock-lab", "tidelock-lab-", "tidelock-lab-x-1-y", "tidelock-lab-7", "a"]
        {
            assert!(!is_left(other), "{other}");
        }
    }

    #[test]
    fn what_a_lab_of_another_pid_namespace_made_is_not_left() {
        let dead = name("group").replacen(&std::process::id().to_string(), "4194305", 1);
        assert!(is_left(&dead), "{dead}");
        // There its process id means another process, or none.
        let made_in = |space: &str| is_left(&format!("{PREFIX}4194305-77-{space}group"));
        assert_eq!(made_in(""), space().is_none());
        assert!(!(made_in("ns509-") && made_in("ns510-")));
        assert!(!(made_in("") && made_in("ns509-")));
    }
}
