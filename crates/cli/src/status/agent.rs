//! The agent that holds a directory's keyring, if one is there where we may look.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use tidelock_agent::{Error, RunDir, client};

use crate::owner::Owner;
use crate::protected::Protected;
use crate::server::Server;
use crate::status::Programs;

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
    /// Asks at the sockets where it can be: the caller's, the directory's owner's, those of the server and of the programs
    /// that have keys.
    pub(crate) fn look(protected: &Protected, server: &Server, programs: &Programs) -> Self {
        let id = protected.keyring.id();
        let name = format!("{id}.sock");
        let mut sockets = Vec::new();
        if let Ok(own) = RunDir::choose() {
            sockets.push(own.path().join(&name));
        }
        if let Ok(owner) = Owner::of(&protected.path) {
            sockets.push(format!("/run/tidelock/{}/{name}", owner.uid).into());
            sockets.push(format!("/tmp/tidelock-{}/{name}", owner.uid).into());
        }
        sockets.extend(of_server(server, &name));
        sockets.extend(programs.socket(id));
        let mut asked: Vec<PathBuf> = Vec::new();
        let mut found = Self::Nobody;
        for socket in sockets {
            // Each once: one that does not answer takes its time.
            let real = fs::canonicalize(&socket).unwrap_or_else(|_| socket.clone());
            if asked.contains(&real) {
                continue;
            }
            asked.push(real);
            match ask(socket) {
                Self::Nobody => {}
                answers @ Self::Answers(_) => return answers,
                silent @ Self::Silent(_) => found = silent,
            }
        }
        found
    }
}

fn ask(socket: PathBuf) -> Found {
    let status = client::connect(&socket).and_then(|agent| agent.map(|it| it.status()).transpose());
    match status {
        Ok(Some(status)) => Found::Answers(Agent {
            pid: status.pid,
            socket,
            generation: status.generation.0,
            protection: status.protection,
            clients: status.client_count,
        }),
        Err(Error::Silent { pid, .. }) => Found::Silent(SilentAgent { pid, socket }),
        _ => Found::Nobody,
    }
}

/// The sockets in the environment of the server.
fn of_server(server: &Server, name: &str) -> Vec<PathBuf> {
    let Server::Running { pid, .. } = server else { return Vec::new() };
    super::programs::sockets(*pid).into_iter().filter(|path| path.ends_with(name)).collect()
}
