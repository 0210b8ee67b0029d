//! The words that all processes of a directory share, and who this process is among them.
//!
//! ```text
//!       0  the words of the engine (tidelock_engine::Words), one map for each protected directory
//!   behind  byte N + the map's length is record-locked by the living process with number N
//! ```
//!
//! A process takes a number at its first lock and holds a POSIX record lock on its byte of the file
//! in memory, which the kernel drops when it dies, however it dies. That file lies in memory, where
//! such locks are always to be had, and nothing else ever opens it, so no close can drop them.

use core::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use tidelock_engine::{Actor, Fd, LARGEST_NUMBER, Words};

use crate::host::Host;

/// The length of the map.
pub(crate) const MAP: u64 = size_of::<Words>() as u64;

/// The words of a process that shares with nobody.
static OWN: Words = Words::new();

/// The words of a directory, and this process's number among those that share them.
pub struct Sharing {
    words: &'static Words,
    /// The file in memory; `None` if the words are this process's own.
    memory: Option<Fd>,
    /// 0 until the first lock.
    number: AtomicU32,
}

impl Sharing {
    /// With all processes that have mapped this file.
    pub(crate) const fn with_others(words: &'static Words, memory: Fd) -> Self {
        Self { words, memory: Some(memory), number: AtomicU32::new(0) }
    }

    /// With nobody: a read-only directory that no other process uses.
    #[must_use]
    pub const fn with_nobody() -> Self {
        Self { words: &OWN, memory: None, number: AtomicU32::new(0) }
    }

    /// The words.
    #[inline]
    pub const fn words(&self) -> &'static Words {
        self.words
    }

    /// True if other processes have the same words.
    pub const fn is_shared(&self) -> bool {
        self.memory.is_some()
    }

    /// The calling thread; `thread` is where its control block lies.
    #[inline]
    pub fn actor(&self, host: &dyn Host, thread: u64) -> Actor {
        let number = match self.number.load(Relaxed) {
            0 => self.take_number(host),
            number => number,
        };
        Actor::new(number, thread)
    }

    /// True if the process with this number lives: it holds the record lock on its byte. When in
    /// doubt it lives.
    pub fn lives(&self, host: &dyn Host, number: u32) -> bool {
        match self.memory {
            // A thread of our own gives back what it holds, or all of us end with it.
            Some(file) if number != self.number.load(Relaxed) => {
                host.is_byte_locked(file, byte(number)).unwrap_or(true)
            }
            _ => true,
        }
    }

    /// True if this process can have a number: whether others live is asked by record locks.
    pub(crate) fn can_have_number(&self, host: &dyn Host) -> bool {
        self.memory.is_none_or(|file| host.is_byte_locked(file, byte(LARGEST_NUMBER + 1)).is_ok())
    }

    /// A number of this process's own: taken at its first lock, and again after a fork, since
    /// record locks are not inherited.
    #[cold]
    fn take_number(&self, host: &dyn Host) -> u32 {
        loop {
            let numbered = self.words.next_number();
            let number = numbered.number;
            let Some(file) = self.memory else {
                // Nobody else has these words.
                self.number.store(number, Relaxed);
                return number;
            };
            if host.lock_byte(file, byte(number)) {
                self.words.inherit(numbered);
                // Another thread may have been faster; its number is as good, ours stays locked and
                // unused.
                let first = self.number.compare_exchange(0, number, AcqRel, Acquire);
                return first.map_or_else(|other| other, |_| number);
            }
            // A process with this number still lives, four million later, or the kernel has no
            // memory for a lock just now.
            rustix::thread::sched_yield();
        }
    }

    /// In a forked child: a number of its own, and nothing that the parent's threads hold in words
    /// that are not shared.
    pub fn after_fork_in_child(&self) {
        self.number.store(0, Relaxed);
        if self.memory.is_none() {
            self.words.forget_all();
        }
    }
}

fn byte(number: u32) -> u64 {
    MAP + u64::from(number)
}
