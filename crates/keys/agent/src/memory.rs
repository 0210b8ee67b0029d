//! Where the agent keeps what it hands over, and the few system calls that need unsafe code.
//!
//! This crate has none of that: the command passes them in from `ffi`. The defaults do what safe
//! code can.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::mm::{MlockAllFlags, mlockall};
use zeroize::Zeroizing;

/// Secret bytes in memory that is not swapped and not dumped, as far as the system allows.
pub trait LockedBytes: Send {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// How they are protected, for status: "memfd_secret", "mlock", "none".
    fn protection(&self) -> &'static str;
}

/// What safe code cannot do.
#[derive(Clone, Copy)]
pub struct Primitives {
    /// Moves bytes into locked memory; the original is wiped.
    pub lock: fn(Zeroizing<Vec<u8>>) -> Box<dyn LockedBytes>,
    /// The number of the process at the other end of a socket; 0 for one in another PID namespace.
    pub peer_pid: fn(BorrowedFd<'_>) -> Option<i32>,
    /// SO_PEERPIDFD of a connected socket, where the kernel has it.
    pub peer_pidfd: fn(BorrowedFd<'_>) -> Option<OwnedFd>,
    /// Closes every descriptor from this number on, those without close-on-exec too.
    pub close_from: fn(u32),
    /// Wipes what ended calls have left on the stack: keys that were moved leave copies there.
    pub wipe_stack: fn(),
}

impl Default for Primitives {
    fn default() -> Self {
        Self {
            lock: lock_everything,
            peer_pid: |_| None,
            peer_pidfd: |_| None,
            close_from: |_| {},
            wipe_stack: || {},
        }
    }
}

struct OnHeap {
    bytes: Zeroizing<Vec<u8>>,
    locked: bool,
}

impl LockedBytes for OnHeap {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn protection(&self) -> &'static str {
        if self.locked { "mlock" } else { "none" }
    }
}

/// Locks what the process has mapped now, the heap with the bytes among it.
fn lock_everything(bytes: Zeroizing<Vec<u8>>) -> Box<dyn LockedBytes> {
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT).is_ok();
    Box::new(OnHeap { bytes, locked })
}
