//! A keyring that changes while this process runs: another current data key, adopted ones, another generation.
//!
//! ```text
//!   tidelock key ... --keyring key--> agent: unlocks the new keyring, writes its generation into the lock file
//!   here: a new file, or a header with a key or generation unknown here --> is that ahead of us? --> ask the agent
//! ```
//!
//! The number is a hint that anybody who can write the disk may forge: it makes a process ask, nothing else.
//! Asking allocates (in our own memory) and makes a connection; it happens at most once for each change.

use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::OnceLock;

use crate::{datakeys, handshake, sys, words};

const ROOTS: usize = 8;

static SOCKETS: [OnceLock<Box<[u8]>>; ROOTS] = [const { OnceLock::new() }; ROOTS];
/// The announcement that was last followed.
static FOLLOWED: [AtomicU64; ROOTS] = [const { AtomicU64::new(0) }; ROOTS];
static BUSY: AtomicU32 = AtomicU32::new(0);

/// One thread asks; its signals wait, since a handler may open files.
struct Asking(u64);

impl Asking {
    fn begin() -> Self {
        let mask = sys::block_signals();
        while BUSY.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            rustix::thread::sched_yield();
        }
        Self(mask)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        BUSY.store(0, Release);
        sys::restore_signals(self.0);
    }
}

/// Remembers whom to ask about a directory.
pub(crate) fn watch(root: u8, socket: &[u8]) {
    if let Some(place) = SOCKETS.get(usize::from(root)) {
        let _ = place.set(socket.into());
    }
}

/// After a fork, in the child: the thread that asked is not here.
pub(crate) fn after_fork_in_child() {
    BUSY.store(0, Release);
}

/// Catches up with the keyring of `root` if it was changed; true if its keys here may be others now.
#[inline]
pub(crate) fn follow(root: u8) -> bool {
    is_behind(root) && ask(root)
}

/// As [`follow`], for all directories.
#[cold]
pub(crate) fn follow_all() -> bool {
    let mut changed = false;
    for root in 0..8 {
        changed |= follow(root);
    }
    changed
}

fn is_behind(root: u8) -> bool {
    let announced = words::announced(root);
    announced > datakeys::generation(root).0
        && FOLLOWED[usize::from(root) % ROOTS].load(Acquire) != announced
}

#[cold]
fn ask(root: u8) -> bool {
    let Some(socket) = SOCKETS.get(usize::from(root)).and_then(OnceLock::get) else { return false };
    let _asking = Asking::begin();
    if !is_behind(root) {
        return true;
    }
    let announced = words::announced(root);
    // An agent that cannot be asked now is asked again at the next occasion.
    let Ok(granted) = handshake::ask_running(socket) else { return false };
    let taken = datakeys::take_granted(root, &granted);
    FOLLOWED[usize::from(root) % ROOTS].swap(announced, AcqRel);
    taken
}
