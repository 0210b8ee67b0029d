//! What this crate needs that safe code cannot do.

use core::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::Pid;
use tidelock_cipher::DataKey;
use tidelock_engine::{Fd, Process, Words};

use crate::directory::Directory;

/// The engine whose table holds [`Directory`]s.
pub type Engine<S, C> = Process<S, C, Directory>;

/// The process around the engine.
pub trait Host: Sync {
    /// Ends the process at once: no handlers, no buffers.
    fn exit(&self, code: i32) -> !;

    /// Starts a program with the environment of this one, without the library and its variables,
    /// with no standard input, and with no signal blocked or ignored.
    ///
    /// # Errors
    /// What the system says.
    fn spawn(&self, program: &CStr, arguments: &[&CStr]) -> Result<Pid, Errno>;

    /// Maps the shared words of a directory for good.
    ///
    /// # Errors
    /// What the system says.
    fn map_words(&self, memory: &OwnedFd) -> Result<&'static Words, Errno>;

    /// Puts keys where not even root can read them; `None` if there is no memory.
    fn store_keys(&self, keys: &[&[u8; 32]]) -> Option<Vec<&'static DataKey>>;

    /// Moves a descriptor of the library's own to where the program does not find it.
    fn conceal(&self, fd: OwnedFd) -> Fd;

    /// True if nothing can be written by this descriptor of the program.
    fn is_read_only(&self, fd: Fd) -> bool;

    /// Takes the record lock on one byte of a file; true if nobody else has it.
    fn lock_byte(&self, file: Fd, at: u64) -> bool;

    /// True if another process has the record lock on this byte.
    ///
    /// # Errors
    /// Of a system without record locks.
    fn is_byte_locked(&self, file: Fd, at: u64) -> Result<bool, Errno>;
}
