//! Real files are moved to high numbers when they are opened; record locks forbid it.
//!
//! Moving a descriptor closes the number that the kernel gave, and closing any descriptor of a file
//! drops every POSIX record lock that the process holds on it. So from the first record lock on,
//! real files stay where they were opened. A move is two system calls, which wait for nothing: the
//! first locks wait until those under way are done, whichever thread has forbidden them. Knows
//! nothing of the locks themselves.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::errno::Errno;
use crate::words::Actor;

/// Whether real files may move.
pub(crate) struct Moving {
    /// None begins any more.
    forbidden: AtomicBool,
    /// None is under way either.
    settled: AtomicBool,
}

/// A move that is under way, in the place where it is announced; over when dropped.
pub(crate) struct Move<'m>(&'m AtomicU64);

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

impl Moving {
    pub(crate) const fn new() -> Self {
        Self { forbidden: AtomicBool::new(false), settled: AtomicBool::new(false) }
    }

    /// The process may hold record locks.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.forbidden.load(SeqCst)
    }

    /// Announces a move; `None` if there may be locks.
    pub(crate) fn begin<'m>(&self, place: &'m AtomicU64, by: Actor) -> Option<Move<'m>> {
        place.store(by.code(), SeqCst);
        let begun = Move(place);
        (!self.is_forbidden()).then_some(begun)
    }

    /// From now on nothing moves: the process is about to take a record lock.
    ///
    /// # Errors
    /// EDEADLK in a signal handler that interrupted a move of its own thread. Moves stay forbidden:
    /// another thread may rely on it by then.
    pub(crate) fn forbid<'m>(
        &self,
        places: impl Iterator<Item = &'m AtomicU64>,
        by: Actor,
        pause: impl Fn(u32),
    ) -> Result<(), Errno> {
        if self.settled.load(SeqCst) {
            return Ok(());
        }
        self.forbidden.store(true, SeqCst);
        for place in places {
            let mut looks = 0;
            loop {
                match place.load(SeqCst) {
                    0 => break,
                    own if own == by.code() => return Err(Errno::DEADLK),
                    _ => pause(looks),
                }
                looks += 1;
            }
        }
        self.settled.store(true, SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_lock_waits_for_moves_and_forbids_them() {
        let moving = Moving::new();
        let (here, there) = (Actor::new(1, 64), Actor::new(1, 128));
        let place = AtomicU64::new(0);
        let under_way = Cell::new(moving.begin(&place, there));
        assert!(place.load(SeqCst) != 0);
        let waited = Cell::new(0);
        let done = moving.forbid(core::iter::once(&place), here, |looks| {
            waited.set(looks + 1);
            if looks == 4 {
                drop(under_way.take());
            }
        });
        assert_eq!((done, waited.get()), (Ok(()), 5));
        assert!(moving.begin(&place, there).is_none());
        assert_eq!(place.load(SeqCst), 0);
        let again =
            moving.forbid(core::iter::once(&place), here, |_| panic!("nothing to wait for"));
        assert_eq!(again, Ok(()));
    }

    #[test]
    fn a_lock_in_a_signal_handler_does_not_wait_for_its_own_thread() {
        let moving = Moving::new();
        let here = Actor::new(1, 64);
        let place = AtomicU64::new(0);
        let under_way = moving.begin(&place, here);
        let refused =
            moving.forbid(core::iter::once(&place), here, |_| panic!("it would wait for ever"));
        assert_eq!(refused, Err(Errno::DEADLK));
        drop(under_way);
        let done = moving.forbid(core::iter::once(&place), here, |_| panic!("all are done"));
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn the_second_lock_waits_too_while_a_move_is_under_way() {
        let moving = Moving::new();
        let [here, there, opener] = [64, 128, 192].map(|thread| Actor::new(1, thread));
        let place = AtomicU64::new(0);
        let under_way = Cell::new(moving.begin(&place, opener));
        let waited = Cell::new(false);
        let first = moving.forbid(core::iter::once(&place), here, |looks| {
            if looks == 0 {
                // Another thread takes a lock meanwhile.
                let second = moving.forbid(core::iter::once(&place), there, |_| {
                    waited.set(true);
                    drop(under_way.take());
                });
                assert_eq!(second, Ok(()));
            }
        });
        assert_eq!((first, waited.get()), (Ok(()), true));
    }
}
