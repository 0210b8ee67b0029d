//! The programs that have keys of a directory: each holds its lock file open.
//!
//! Asked of /proc, so only those are seen that the caller may look into: one's own, and for root
//! all.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::{Process, Stat, all_processes};
use tidelock_agent::alias;
use tidelock_contract::control::{FOLDER, LOCK};
use tidelock_format::KeyringId;

use crate::owner::Owner;
use crate::server::Loaded;
use crate::whereabouts::Identity;

/// Programs that run with keys.
pub(crate) struct Programs(Vec<Stat>);

impl Programs {
    /// Those of the protected directory `dir`, a canonical path.
    pub(crate) fn of(dir: &Path) -> Self {
        let Ok(lock) = Identity::of(&dir.join(FOLDER).join(LOCK)) else { return Self(Vec::new()) };
        let stats = all_processes().into_iter().flatten().filter_map(|one| one.ok()?.stat().ok());
        let with_keys = |one: &Stat| {
            let process = PathBuf::from(format!("/proc/{}", one.pid));
            Loaded::of(&process) == Loaded::Yes && holds(&process, lock)
        };
        Self(stats.filter(with_keys).collect())
    }

    /// Those that none of the others has started: servers, not their children.
    pub(crate) fn heads(&self) -> Vec<i32> {
        let is_head = |one: &&Stat| self.0.iter().all(|other| other.pid != one.ppid);
        self.0.iter().filter(is_head).map(|one| one.pid).collect()
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
pub(super) fn sockets(pid: i32) -> Vec<PathBuf> {
    let environment = Process::new(pid).and_then(|process| process.environ()).unwrap_or_default();
    let value = environment.get(OsStr::new("TIDELOCK_AGENT"));
    let value = value.map(|value| value.as_bytes()).unwrap_or_default();
    let paths = value.split(|byte| *byte == b':').filter(|path| path.starts_with(b"/"));
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

/// Has the process whose folder in /proc is `process` this file open?
fn holds(process: &Path, lock: Identity) -> bool {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    open.filter_map(|fd| Identity::of(&fd.path()).ok()).any(|file| file == lock)
}
