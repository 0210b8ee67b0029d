//! The agent that holds a directory's keyring, if one is there where we may look.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidelock_agent::{Error, RunDir, client};
use tidelock_format::KeyringId;

use super::programs::{self, Programs};
use crate::owner::Owner;
use crate::primitives::primitives;
use crate::protected::Protected;
use crate::server::Server;
use crate::whereabouts::{DELETED, Identity};

/// Where a user without /run/tidelock/UID has the agents.
const RUN_OF_HOME: &str = ".local/state/tidelock/run";

/// An agent that answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Agent {
    pub(crate) pid: i32,
    pub(crate) socket: PathBuf,
    /// The generation of the keyring that it holds.
    pub(crate) generation: u64,
    /// How its keys are kept: memfd_secret, mlock, none.
    pub(crate) protection: String,
    pub(crate) clients: u32,
    /// SHA-256 of the keyring file that it has opened.
    #[serde(skip)]
    pub(crate) file: [u8; 32],
    /// Its protected directory, by the path that it has there.
    #[serde(skip)]
    pub(crate) directory: PathBuf,
    /// Whose programs it gives keys to, beside root's.
    #[serde(skip)]
    pub(crate) user: Option<u32>,
    /// An upgrade has replaced the program that it runs. Only root may look.
    #[serde(skip)]
    pub(crate) is_from_before: bool,
}

impl Agent {
    /// True if it serves `dir`, canonical: a byte copy of that has the same keyring, and its agent
    /// the same socket.
    pub(crate) fn serves(&self, dir: &Path) -> bool {
        let there = Path::new("/proc").join(self.pid.to_string()).join("root");
        let below = self.directory.strip_prefix("/").unwrap_or(&self.directory);
        // By its path here, or as the agent sees it: a unit may have mounts of its own.
        let places = [self.directory.clone(), there.join(below)];
        let is_it = |place: &PathBuf| Some(Identity::of(place).ok()? == Identity::of(dir).ok()?);
        self.directory == dir || places.iter().any(|place| is_it(place) == Some(true))
    }

    /// Has an agent of `dir` without programs end now; by itself it would in a few seconds.
    /// Whoever listens gets the signal, also if another has taken its place.
    pub(crate) fn end(&self, dir: &Path) {
        if let Ok(Some(agent)) = client::connect_to(&self.socket, &users(dir)) {
            let _ = agent.terminate(&primitives());
        }
    }
}

/// An agent that is there and says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct SilentAgent {
    pub(crate) pid: Option<i32>,
    pub(crate) socket: PathBuf,
}

impl fmt::Display for SilentAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "the agent (process {pid})"),
            None => write!(f, "the agent at {}", self.socket.display()),
        }
    }
}

/// What is found where an agent can be.
pub(crate) enum Found {
    /// One that answers.
    Answers(Agent),
    /// One that does not.
    Silent(SilentAgent),
    /// None.
    Nobody,
}

impl Found {
    /// The first that answers and serves this directory, not another copy of it; else one that is
    /// silent.
    pub(crate) fn look(protected: &Protected, server: &Server, programs: &Programs) -> Self {
        let mut found = Self::Nobody;
        let users = users(&protected.path);
        for socket in sockets(&protected.path, protected.keyring.id(), server, programs) {
            match ask(socket, &users) {
                Self::Nobody => {}
                Self::Answers(agent) if !agent.serves(&protected.path) => {}
                answers @ Self::Answers(_) => return answers,
                silent @ Self::Silent(_) => found = silent,
            }
        }
        found
    }

    /// All that serve this directory: root may have one beside that of the server's user.
    pub(crate) fn all(dir: &Path, id: KeyringId, programs: &Programs) -> Vec<Self> {
        let mut all = Self::of_keyring(dir, id, programs);
        all.retain(|found| !matches!(found, Self::Answers(agent) if !agent.serves(dir)));
        all
    }

    /// Also those that serve another copy of the directory.
    pub(crate) fn of_keyring(dir: &Path, id: KeyringId, programs: &Programs) -> Vec<Self> {
        let (users, server) = (users(dir), Server::on(dir));
        let sockets = sockets(dir, id, &server, programs).into_iter();
        let asked = sockets.map(|socket| ask(socket, &users));
        asked.filter(|found| !matches!(found, Self::Nobody)).collect()
    }
}

/// Where it can be: the caller's folder, that of the directory's owner, those of the server and of
/// the programs that have keys. Each once: one that does not answer takes its time.
fn sockets(dir: &Path, id: KeyringId, server: &Server, programs: &Programs) -> Vec<PathBuf> {
    let name = format!("{id}.sock");
    let mut sockets = Vec::new();
    if let Ok(own) = RunDir::choose() {
        sockets.push(own.path().join(&name));
    }
    if let Ok(owner) = Owner::of(dir) {
        sockets.push(format!("/run/tidelock/{}/{name}", owner.uid).into());
        sockets.push(format!("/tmp/tidelock-{}/{name}", owner.uid).into());
        sockets.extend(owner.home().map(|home| home.join(RUN_OF_HOME).join(&name)));
        // What systemd calls $XDG_RUNTIME_DIR.
        sockets.push(format!("/run/user/{}/tidelock/{name}", owner.uid).into());
    }
    sockets.extend(of_server(server, &name));
    sockets.extend(programs.socket(id));
    let mut seen: Vec<PathBuf> = Vec::new();
    sockets.retain(|socket| {
        let real = fs::canonicalize(socket).unwrap_or_else(|_| socket.clone());
        let new = !seen.contains(&real);
        if new {
            seen.push(real);
        }
        new
    });
    sockets
}

/// Whose agents are believed, and may be told a key: in /tmp, and in the home of the owner, anybody
/// or another may be listening.
pub(crate) fn users(dir: &Path) -> Vec<u32> {
    let owner = Owner::of(dir).map(|owner| owner.uid);
    [Some(0), Some(Owner::caller().uid), owner.ok()].into_iter().flatten().collect()
}

fn ask(socket: PathBuf, users: &[u32]) -> Found {
    // Somebody else's folder could hold us up, and has no agent of ours.
    let folder = socket.parent().and_then(|folder| fs::metadata(folder).ok());
    if !folder.is_some_and(|folder| users.contains(&folder.uid())) {
        return Found::Nobody;
    }
    let answer = client::connect_to(&socket, users)
        .and_then(|agent| agent.map(|it| Ok((it.pid(), it.uid(), it.status()?))).transpose());
    match answer {
        Ok(Some((pid, user, status))) => Found::Answers(Agent {
            is_from_before: runs_what_is_gone(pid.unwrap_or(status.pid)),
            pid: pid.unwrap_or(status.pid),
            socket,
            generation: status.generation.0,
            protection: status.protection,
            clients: status.client_count,
            file: status.file,
            directory: status.directory,
            user,
        }),
        Err(Error::Silent { pid, .. }) => Found::Silent(SilentAgent { pid, socket }),
        _ => Found::Nobody,
    }
}

fn runs_what_is_gone(pid: i32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| path.as_os_str().as_encoded_bytes().ends_with(DELETED.as_bytes()))
}

/// The sockets in the environment of the server.
fn of_server(server: &Server, name: &str) -> Vec<PathBuf> {
    let Server::Running { pid, .. } = server else { return Vec::new() };
    let sockets = i32::try_from(*pid).map(programs::sockets).unwrap_or_default();
    sockets.into_iter().filter(|path| path.ends_with(name)).collect()
}
