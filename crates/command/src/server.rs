//! Does a server run on a protected directory, and is the library really loaded in it?
//!
//! ld.so only warns when it cannot load a library; what /proc says of the running process decides.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::mysqld;
use crate::whereabouts::works_in;

/// The library's file; the kernel marks one that was replaced meanwhile as deleted.
const LIBRARY: &[u8] = b"libtidelock_preload.so";

/// The server of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Server {
    /// None runs.
    Stopped,
    /// This process.
    Running {
        /// Its id.
        pid: u32,
        /// Its program, if it can be seen.
        program: Option<PathBuf>,
        /// Is the library in it?
        library: Loaded,
    },
}

/// Is the library in a process?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Loaded {
    /// It is.
    #[serde(rename = "loaded")]
    Yes,
    /// No: the process does not see sealed files as plain.
    #[serde(rename = "not_loaded")]
    No,
    /// The process is somebody else's, or hidden.
    CannotBeTold,
}

impl Server {
    /// The server that works in `dir`: PostgreSQL's says so in a file, another is looked for. One
    /// that may work there and is hidden counts: that none runs is not said on a guess.
    pub(crate) fn on(dir: &Path) -> Self {
        match mysqld::server_on(dir).or_else(|| mysqld::hidden_server_on(dir)) {
            Some(pid) => Self::process(pid),
            None => Self::of_postmaster(dir),
        }
    }

    /// The server that wrote `postmaster.pid` in `dir`, if it lives and works there.
    fn of_postmaster(dir: &Path) -> Self {
        let Ok(text) = fs::read_to_string(dir.join("postmaster.pid")) else {
            return Self::Stopped;
        };
        let Some(pid) = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok()) else {
            return Self::Stopped;
        };
        if !Path::new(&format!("/proc/{pid}")).is_dir() {
            return Self::Stopped;
        }
        // A number that was given away since: servers work in their directory.
        if works_in(pid, dir).is_ok_and(|works| !works) {
            return Self::Stopped;
        }
        Self::process(pid)
    }

    /// This process, whatever it is.
    pub(crate) fn process(pid: u32) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let program = fs::read_link(process.join("exe")).ok();
        Self::Running { pid, program, library: Loaded::of(&process) }
    }
}

impl Loaded {
    /// Is it in the process whose folder in /proc is `process`? Read as bytes: mapped files have
    /// any names.
    pub(crate) fn of(process: &Path) -> Self {
        match fs::read(process.join("maps")) {
            // A process that ended, or a kernel thread, has no maps.
            Ok(maps) if maps.is_empty() => Self::CannotBeTold,
            Ok(maps) => {
                let ours = |line: &[u8]| {
                    line.rsplit(|byte| *byte == b'/')
                        .next()
                        .is_some_and(|name| name.starts_with(LIBRARY))
                };
                if maps.split(|byte| *byte == b'\n').any(ours) { Self::Yes } else { Self::No }
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Self::No,
            Err(_) => Self::CannotBeTold,
        }
    }
}

/// The unit of systemd that a process runs in, by its control group.
pub(crate) fn unit_of(pid: u32) -> Option<String> {
    service_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// The innermost service, but for those of user sessions.
fn service_in(groups: &str) -> Option<String> {
    let line = groups.lines().find(|line| line.contains("/system.slice/"))?;
    let unit = line.rsplit('/').find(|name| name.ends_with(".service"))?;
    Some(unit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_server_is_that_of_its_control_group() {
        let groups = "0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        assert_eq!(service_in(groups).as_deref(), Some("postgresql@15-main.service"));
        assert_eq!(service_in("0::/user.slice/user-0.slice/session-1.scope\n"), None);
    }
}
