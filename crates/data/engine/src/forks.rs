//! Forks and changes of the table exclude each other.
//!
//! The kernel copies a process's descriptors first and its memory later, page by page. A file that
//! another thread opens or closes in between is in one of the two copies only: the child would have
//! a number of ours that is something else to the kernel, or one file's key for another file. So
//! whoever gives a number to a sealed file, or takes it away, announces it for that moment, and a
//! fork waits until nobody does; until it is over, nobody begins.
//!
//! Both waits end, a fork's after a tenth of a second, the others' later: a signal handler may fork
//! above such a moment of its own thread, or open a file above its own fork. Such a child is as
//! good as without this.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// How many forks and changes are under way.
pub(crate) struct Forks {
    under_way: AtomicU32,
    changes: AtomicU32,
}

/// A change that is under way; over when dropped.
pub(crate) struct Change<'f>(&'f Forks);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        less(&self.0.changes);
    }
}

impl Forks {
    pub(crate) const fn new() -> Self {
        Self { under_way: AtomicU32::new(0), changes: AtomicU32::new(0) }
    }

    /// Announces a change, once no fork is under way. Not within another one: that would wait for
    /// a fork which waits for it.
    #[inline]
    pub(crate) fn change(&self, pause: impl Fn(u32)) -> Change<'_> {
        self.changes.fetch_add(1, SeqCst);
        if self.under_way.load(SeqCst) != 0 {
            self.wait_for_forks(pause);
        }
        Change(self)
    }

    #[cold]
    fn wait_for_forks(&self, pause: impl Fn(u32)) {
        for looks in 0..LATER {
            less(&self.changes);
            pause(looks);
            self.changes.fetch_add(1, SeqCst);
            if self.under_way.load(SeqCst) == 0 {
                return;
            }
        }
    }

    /// A fork is about to happen.
    pub(crate) fn begin(&self, pause: impl Fn(u32)) {
        self.under_way.fetch_add(1, SeqCst);
        for looks in (0..LOOKS).take_while(|_| self.changes.load(SeqCst) != 0) {
            pause(looks);
        }
    }

    /// It has happened, or failed: in the parent.
    pub(crate) fn end(&self) {
        less(&self.under_way);
    }

    /// In the child, where only the forking thread exists.
    pub(crate) fn forget(&self) {
        for count in [&self.under_way, &self.changes] {
            if count.load(SeqCst) != 0 {
                count.store(0, SeqCst);
            }
        }
    }
}

/// One less. A child that was forked from a handler above a change ends one that it has forgotten.
fn less(count: &AtomicU32) {
    let _ = count.fetch_update(SeqCst, SeqCst, |many| many.checked_sub(1));
}

/// A tenth of a second, as the kernel below pauses.
const LOOKS: u32 = 100;
/// Half a second: a fork that has waited is over by then.
const LATER: u32 = 3 * LOOKS;

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};

    #[test]
    fn a_fork_waits_for_a_change_and_a_change_for_a_fork() {
        let forks = Forks::new();
        let under_way = RefCell::new(Some(forks.change(|_| panic!("no fork is under way"))));
        let waited = Cell::new(0);
        forks.begin(|looks| {
            waited.set(looks + 1);
            if looks == 4 {
                drop(under_way.take());
            }
        });
        assert_eq!(waited.get(), 5);
        let waited = Cell::new(0);
        let change = forks.change(|looks| {
            waited.set(looks + 1);
            assert_eq!(forks.changes.load(SeqCst), 0, "the fork would wait for it");
            if looks == 4 {
                forks.end();
            }
        });
        assert_eq!((waited.get(), forks.changes.load(SeqCst)), (5, 1));
        drop(change);
        forks.begin(|_| panic!("no change is under way"));
        forks.end();
        drop(forks.change(|_| panic!("no fork is under way")));
    }

    #[test]
    fn neither_waits_for_ever_and_a_child_begins_with_none() {
        let forks = Forks::new();
        let outer = forks.change(|_| ());
        forks.begin(|_| ());
        drop(forks.change(|_| ()));
        // The child: the handler goes on, and then what it interrupted.
        forks.forget();
        drop(forks.change(|_| panic!("no fork is under way")));
        drop(outer);
        forks.begin(|_| panic!("no change is under way"));
    }
}
