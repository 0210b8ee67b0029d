//! One directory that takes the place of a user's home for the command: configuration, logs and
//! sockets are below it, and nothing of the caller's is used.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with,
};
use rustix::process::{Signal, getpid};
use tidelock_contract::control::{FOLDER, LOCK};
use tidelock_contract::part;

use crate::process::Process;

/// What the command goes by at `home`. The directory of sockets is made by the first agent, of mode
/// 0700.
#[must_use]
pub fn variables(home: &Path) -> [(&'static str, PathBuf); 4] {
    [
        ("HOME", home.to_path_buf()),
        ("XDG_CONFIG_HOME", home.join(".config")),
        ("XDG_STATE_HOME", home.join("state")),
        ("TIDELOCK_RUN_DIR", home.join(SOCKETS)),
    ]
}

/// The agents of a home, which end with this, and what they and their programs share.
#[derive(Debug)]
pub struct Agents {
    home: PathBuf,
    root: PathBuf,
}

impl Agents {
    /// Those that `home` will have, for protected directories below `root`.
    #[must_use]
    pub fn of(home: &Path, root: &Path) -> Self {
        Self { home: home.to_path_buf(), root: root.to_path_buf() }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        end_agents(&self.home);
        free_memory(&self.root);
    }
}

/// Frees what an agent that was killed has left: the shared memory of protected directories below
/// `root` that nobody uses.
pub(crate) fn free_memory(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name() == FOLDER {
            // No link of the servers' account is followed.
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let lock = open(entry.path().join(LOCK), flags, Mode::empty());
            let _ = lock.is_ok_and(|lock| part(lock.as_fd()));
        } else if is_folder {
            free_memory(&entry.path());
        }
    }
}

/// Ends the agents of `home` and waits for them: they would stay for ten seconds after their last
/// client.
pub fn end_agents(home: &Path) {
    let Ok(folder) = fs::symlink_metadata(home.join(SOCKETS)) else { return };
    for socket in sockets(home) {
        // Whoever owns the folder may put there a way to another's socket, and gains nothing.
        let Ok(UCred { pid, uid, .. }) = listener(&socket) else { continue };
        let Some(agent) = Process::new(pid.as_raw_nonzero().get()) else { continue };
        let theirs = uid.as_raw() == folder.uid() && pid != getpid();
        if theirs && agent.signal(Signal::TERM).is_ok() {
            let _ = agent.wait_gone(Duration::from_secs(10));
            agent.reap();
        }
    }
}

/// Whether somebody listens at a socket of `home`. An agent takes whoever connects for a client,
/// and stays for it: so nobody is asked.
pub(crate) fn agents_listen(home: &Path) -> bool {
    let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let listens =
        |path: &PathBuf| listed.lines().any(|it| it.ends_with(&path.display().to_string()));
    sockets(home).iter().any(listens)
}

const SOCKETS: &str = "run";

fn sockets(home: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(home.join(SOCKETS)) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|it| it == "sock")).collect()
}

/// Who listens at this socket.
fn listener(socket: &Path) -> rustix::io::Result<UCred> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    let connection = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    socket_peercred(&connection)
}
