//! The names of files that the agent, the command and the library must agree on.
//!
//! In a protected directory they lie in `.tidelock`; the others lie beside the agent's socket.

use std::path::{Path, PathBuf};

/// The folder in a protected directory.
pub const FOLDER: &str = ".tidelock";
/// The file in it by which the processes that use the directory meet, see [`meet`](crate::meet).
pub const LOCK: &str = "lock";
/// Where in [`LOCK`] the keyring's generation is announced to running programs: 8 bytes, native
/// order.
pub const ANNOUNCED_AT: u64 = 8;
/// A symbolic link that is everywhere: descriptors of sealed files that a program holds refer to
/// the link itself. Not one in the directory: some tools of backup stop at links.
pub const ANCHOR: &str = "/proc/self";

/// The last line of [`programs_beside`], the name of no program: a file without a byte is what a
/// power cut has left, and no list.
pub const LIST_END: &[u8] = b"# the end";

/// The list of programs beside a socket, one a line: who may ask for keys.
#[must_use]
pub fn programs_beside(socket: &Path) -> PathBuf {
    socket.with_extension("programs")
}

/// The [`Notice`](crate::Notice) beside a socket, for programs without keys.
#[must_use]
pub fn notice_beside(socket: &Path) -> PathBuf {
    socket.with_extension("policy")
}

/// The [`Starter`](crate::Starter) beside a socket: how an agent is started where none is alive.
#[must_use]
pub fn starter_beside(socket: &Path) -> PathBuf {
    socket.with_extension("start")
}
