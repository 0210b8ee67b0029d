//! A keyring that changes while this process runs: another current data key, adopted ones, another generation.
//!
//! ```text
//!   tidelock key ... --keyring key--> agent: unlocks the new keyring, writes its generation into the lock file
//!   here: a new file, or a header with a key or generation unknown here --> is that ahead of us? --> ask the agent
//! ```
//!
//! The number is a hint that anybody who can write the disk may forge: it makes a process ask, nothing else.
//! Asking allocates (in our own memory) and makes a connection; it happens at most once for each change. Where no
//! agent is alive one is started, as when a program starts. What cannot be done now is tried again, but not at every file.
//!
//! UNSAFETY: the environment, as the process got it, is kept as a pointer.
#![expect(unsafe_code, reason = "a pointer to a copy of the environment")]

use core::ffi::c_char;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use crate::environment::Environment;
use crate::{datakeys, handshake, start, starter, sys, words};

const ROOTS: usize = 8;

static SOCKETS: [OnceLock<Box<[u8]>>; ROOTS] = [const { OnceLock::new() }; ROOTS];
/// The announcement that was last followed.
static FOLLOWED: [AtomicU64; ROOTS] = [const { AtomicU64::new(0) }; ROOTS];
static BUSY: AtomicU32 = AtomicU32::new(0);
/// When the next attempt may be made, in seconds of the monotonic clock.
static NOT_BEFORE: [AtomicU64; ROOTS] = [const { AtomicU64::new(0) }; ROOTS];
/// Seconds between an attempt that failed and the next: an agent that does not answer, or cannot be started, costs
/// seconds each.
const REST: u64 = 30;
/// What an agent is started with: a copy, since programs write over their environment (setproctitle).
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());

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

/// Remembers what an agent is started with.
pub(crate) fn keep_environment(environment: Environment) {
    let copied = environment.copied(&starter::OURS);
    ENVIRONMENT.store(copied.array().cast_mut(), Release);
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
    let not_before = &NOT_BEFORE[usize::from(root) % ROOTS];
    if seconds() < not_before.load(Acquire) {
        return false;
    }
    let _asking = Asking::begin();
    if !is_behind(root) {
        return true;
    }
    let announced = words::announced(root);
    // SAFETY: null, or a copy that is never freed or changed.
    let environment = unsafe { Environment::new(ENVIRONMENT.load(Acquire)) };
    let Ok(granted) = handshake::ask_again(socket, environment) else {
        not_before.store(seconds() + REST, Release);
        return false;
    };
    let taken = datakeys::take_granted(root, &granted.grant);
    FOLLOWED[usize::from(root) % ROOTS].swap(announced, AcqRel);
    if granted.started {
        // It ends with its last client, which would be this one.
        start::conceal(granted.connection);
    }
    taken
}

fn seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::MonotonicCoarse).tv_sec).unwrap_or(0)
}
