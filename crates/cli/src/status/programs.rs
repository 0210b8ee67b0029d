//! The programs that have keys of a directory: each holds the anchor of its sealed files open.
//!
//! Asked of /proc, so only those are seen that the caller may look into: one's own, and for root all.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidelock_agent::alias;
use tidelock_format::KeyringId;
use tidelock_keys::{ANCHOR, FOLDER};

use crate::owner::Owner;

/// The library's file.
const LIBRARY: &[u8] = b"libtidelock_preload.so";

/// Programs that run with keys.
pub(crate) struct Programs(Vec<Program>);

struct Program {
    pid: u32,
    parent: u32,
}

impl Programs {
    /// Those of the protected directory `dir`, a canonical path.
    pub(crate) fn of(dir: &Path) -> Self {
        let anchor = dir.join(FOLDER).join(ANCHOR);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let holds = |pid: &u32| has_library(*pid) && holds(*pid, &anchor);
        let found =
            pids.filter(holds).filter_map(|pid| Some(Program { pid, parent: parent(pid)? }));
        Self(found.collect())
    }

    /// Those that none of the others has started: servers, not their children.
    pub(crate) fn heads(&self) -> Vec<i32> {
        let is_head = |one: &&Program| self.0.iter().all(|other| other.pid != one.parent);
        self.0.iter().filter(is_head).filter_map(|one| i32::try_from(one.pid).ok()).collect()
    }

    /// Where they look for the agent of this keyring, in the folder that is theirs.
    pub(crate) fn socket(&self, keyring: KeyringId) -> Option<PathBuf> {
        let name = format!("{keyring}.sock");
        let ours = |socket: PathBuf| match socket.file_name()?.to_str()? == name {
            true => Some(socket),
            // The name of a unit leads to it, or did.
            false => alias::is_alias(&socket).then(|| socket.with_file_name(&name)),
        };
        self.0.iter().flat_map(|one| sockets(one.pid)).find_map(ours)
    }

    /// Whose they are.
    pub(crate) fn user(&self) -> Option<Owner> {
        let found = fs::metadata(format!("/proc/{}", self.0.first()?.pid)).ok()?;
        Some(Owner { uid: found.uid(), gid: found.gid() })
    }
}

/// The sockets in the environment that a process was started with.
pub(super) fn sockets(pid: u32) -> Vec<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"TIDELOCK_AGENT="))
        .unwrap_or_default();
    let paths = value.split(|byte| *byte == b':').filter(|path| path.starts_with(b"/"));
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

fn has_library(pid: u32) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.windows(LIBRARY.len()).any(|window| window == LIBRARY)
}

fn holds(pid: u32, anchor: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == anchor)
}

/// proc(5): `PID (NAME) STATE PARENT`; a name may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
