//! Talks to an agent: is this program listed, and what is granted to it?

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use tidelock_agent::wire;

/// What an agent gave.
pub(crate) struct Granted {
    /// The directory, its policy and its keys.
    pub(crate) grant: wire::Grant,
    /// The memory with the sequence words.
    pub(crate) sequences: Option<OwnedFd>,
    /// Stays open as long as this process lives: the agent ends with its last client.
    pub(crate) connection: OwnedFd,
}

/// True if the list beside the socket names this program. The agent decides; this only tells who may ask.
/// Without the list, everybody must ask.
pub(crate) fn lists(socket: &[u8], exe: &[u8]) -> bool {
    let stem = socket.strip_suffix(b".sock").unwrap_or(socket);
    let path = [stem, b".programs"].concat();
    match read_file(&path) {
        Some(list) => list
            .split(|&byte| byte == b'\n')
            .any(|entry| !entry.is_empty() && tidelock_keys::names_program(entry, exe)),
        None => true,
    }
}
