//! The offset of an open file: one user at a time, as the kernel has it.
//!
//! Duplicates and forked children share it (`offset`). A read or write at the offset is several
//! steps here, so each open file has a lock among the shared words, by a number that a forked child
//! inherits with the table.

use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};

use crate::gate::Signals;
use crate::kernel::Kernel;
use crate::words::{Actor, Stripe, Words, line};

const AWAITED: u64 = 1 << 63;
const SPINS: u32 = 100;

/// The turn of one thread; over when dropped.
pub(crate) struct Turn<'k, K: Kernel> {
    kernel: &'k K,
    of: Stripe,
    actor: Actor,
    /// The signal mask to go back to.
    mask: Option<u64>,
    /// A signal handler within a turn of its own thread.
    nested: bool,
}

fn word<K: Kernel>(kernel: &K, of: Stripe) -> &AtomicU64 {
    line(&kernel.words(of.root).turns, of.number.into())
}

impl<'k, K: Kernel> Turn<'k, K> {
    /// For calls that look at the offset and move it later; signals are blocked meanwhile.
    pub(crate) fn take(kernel: &'k K, of: Stripe) -> Self {
        let mask = kernel.block_signals();
        let mut turn = Self::brief(kernel, of);
        turn.mask = Some(mask);
        turn
    }

    /// For calls that change the offset by one system call: a signal handler may come before or
    /// behind it, and has its turn within ours.
    #[inline]
    pub(crate) fn brief(kernel: &'k K, of: Stripe) -> Self {
        let actor = kernel.actor(of.root);
        let word = word(kernel, of);
        let free = word.compare_exchange(0, actor.code(), AcqRel, Relaxed);
        let nested = free.is_err_and(|seen| seen & !AWAITED == actor.code());
        if free.is_err() && !nested {
            wait(kernel, of, word, actor);
        }
        Self { kernel, of, actor, mask: None, nested }
    }

    /// What it has done about signals.
    pub(crate) const fn signals(&self) -> Signals {
        if self.mask.is_some() { Signals::Blocked } else { Signals::Open }
    }
}

impl<K: Kernel> Drop for Turn<'_, K> {
    #[inline]
    fn drop(&mut self) {
        let ours = self.kernel.actor(self.of.root).number() == self.actor.number();
        if !self.nested && ours {
            let word = word(self.kernel, self.of);
            if word.swap(0, Release) & AWAITED != 0 {
                self.kernel.wake(word);
            }
        }
        if let Some(mask) = self.mask {
            self.kernel.restore_signals(mask);
        }
    }
}

/// Gives back the turns of a process whose number is given to another now.
pub(crate) fn dismiss_number(words: &Words, number: u32) {
    for turn in &words.turns {
        let mut seen = turn.0.load(Relaxed);
        // Who waits looks again by itself, or has taken it from the dead already.
        while seen != 0 && Actor::from_code(seen & !AWAITED).number() == number {
            match turn.0.compare_exchange(seen, 0, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
    }
}

#[cold]
fn wait<K: Kernel>(kernel: &K, of: Stripe, word: &AtomicU64, actor: Actor) {
    let mut looks = 0;
    let mut mine = actor.code();
    loop {
        let seen = word.load(Relaxed);
        if seen == 0 {
            // Others may wait too: whoever takes it after a wait wakes them when it is done.
            if word.compare_exchange(0, mine, AcqRel, Relaxed).is_ok() {
                return;
            }
        } else if looks < SPINS {
            looks += 1;
            core::hint::spin_loop();
        } else if seen & AWAITED != 0
            || word.compare_exchange(seen, seen | AWAITED, AcqRel, Relaxed).is_ok()
        {
            mine = actor.code() | AWAITED;
            kernel.sleep(word, seen | AWAITED);
            let holder = Actor::from_code(seen & !AWAITED).number();
            let gone = holder != actor.number() && !kernel.lives(of.root, holder);
            if gone && word.compare_exchange(seen | AWAITED, mine, AcqRel, Relaxed).is_ok() {
                return;
            }
        }
    }
}
