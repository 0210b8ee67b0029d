//! Real files are moved to high numbers when they are opened; record locks forbid it.
//!
//! Moving a descriptor closes the number that the kernel gave, and closing any descriptor of a file drops every POSIX
//! record lock that the process holds on it. So from the first record lock on, real files stay where they were opened.
//! Knows nothing of the locks themselves.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// Whether real files may move, and how many are on their way.
pub(crate) struct Moving {
    under_way: AtomicU32,
    forbidden: AtomicBool,
}

/// The right to move one file; given back when dropped.
pub(crate) struct Leave<'m>(&'m Moving);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, SeqCst);
    }
}

/// How often the first lock waits for a move: some milliseconds in all. A move takes a few microseconds, unless its
/// open waits for a pipe, or a signal handler that locks stands in front of it.
const WAITS: u32 = 200;

impl Moving {
    pub(crate) const fn new() -> Self {
        Self { under_way: AtomicU32::new(0), forbidden: AtomicBool::new(false) }
    }

    /// Leave to move a file that will be opened now; `None` once the process may hold record locks.
    pub(crate) fn begin(&self) -> Option<Leave<'_>> {
        self.under_way.fetch_add(1, SeqCst);
        let leave = Leave(self);
        if self.is_forbidden() { None } else { Some(leave) }
    }

    /// The process may hold record locks.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.forbidden.load(SeqCst)
    }

    /// From now on nothing moves: the process is about to take a record lock.
    pub(crate) fn forbid(&self, pause: impl Fn()) {
        if self.forbidden.swap(true, SeqCst) {
            return;
        }
        for _ in 0..WAITS {
            if self.under_way.load(SeqCst) == 0 {
                return;
            }
            pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_waits_for_moves_and_forbids_them() {
        let moving = Moving::new();
        let first = moving.begin();
        assert!(first.is_some());
        let waited = core::cell::Cell::new(0);
        moving.forbid(|| waited.set(waited.get() + 1));
        assert_eq!(waited.get(), WAITS);
        drop(first);
        assert!(moving.begin().is_none());
        assert_eq!(moving.under_way.load(SeqCst), 0);
        moving.forbid(|| panic!("the second lock does not wait"));
    }
}
