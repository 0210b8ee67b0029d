//! The agent that holds a directory's keyring, if one is alive where we may look.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use tidelock_agent::{RunDir, client};

use crate::owner::Owner;
use crate::protected::Protected;
use crate::server::Server;

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

impl Agent {
    /// Asks at the sockets where it can be: the caller's, the directory's owner's, the server's.
    pub(crate) fn of(protected: &Protected, server: &Server) -> Option<Self> {
        let name = format!("{}.sock", protected.keyring.id());
        let mut sockets = Vec::new();
        if let Ok(own) = RunDir::choose() {
            sockets.push(own.path().join(&name));
        }
        if let Ok(owner) = Owner::of(&protected.path) {
            sockets.push(format!("/run/tidelock/{}/{name}", owner.uid).into());
            sockets.push(format!("/tmp/tidelock-{}/{name}", owner.uid).into());
        }
        sockets.extend(of_server(server, &name));
        sockets.into_iter().find_map(ask)
    }
}

fn ask(socket: PathBuf) -> Option<Agent> {
    let status = client::connect(&socket).ok()??.status().ok()?;
    Some(Agent {
        pid: status.pid,
        socket,
        generation: status.generation.0,
        protection: status.protection,
        clients: status.client_count,
    })
}

/// The sockets in the environment of the server.
fn of_server(server: &Server, name: &str) -> Vec<PathBuf> {
    let Server::Running { pid, .. } = server else { return Vec::new() };
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"TIDELOCK_AGENT="))
        .unwrap_or_default();
    let paths = String::from_utf8_lossy(value).into_owned();
    paths.split(':').filter(|path| path.ends_with(name)).map(PathBuf::from).collect()
}
