//! The gate of a file: writers of whole units of a whole-unit file share it, every other writer has
//! it alone.
//!
//! A write of whole units touches no other unit, and leaves a whole-unit file one: such writes need
//! not know of each other. All else (parts of units, growth to an odd size, cuts, the first header)
//! reads what it changes, or moves the end, and would cut off or garble what others write
//! meanwhile. Readers never take a gate, except one that was overtaken by writers again and again.
//!
//! ```text
//!   bits 0..14  how many share it   14  somebody sleeps   16..38  the process that has it, or 0
//!   bits 38..64  how many have left it: tells two words with the same sharers apart
//! ```
//!
//! Whoever wants it alone puts its number there first, which keeps further sharers out, and then
//! waits until those at work have left; they wait for nothing themselves. The word of a process
//! that was killed is taken over.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::roster::{self, AtWork};
use crate::words::{LARGEST_NUMBER, Stripe, Words, line};

const SHARERS: u64 = (1 << 14) - 1;
const AWAITED: u64 = 1 << 14;
const HOLDER_AT: u32 = 16;
const HOLDER: u64 = (LARGEST_NUMBER as u64) << HOLDER_AT;
const ONE_LEFT: u64 = 1 << 38;
/// How often a waiter looks before it sleeps.
const SPINS: u32 = 100;

/// True if nobody has, shares or wants it.
pub(crate) fn is_free(word: &AtomicU64) -> bool {
    word.load(Relaxed) & (HOLDER | SHARERS) == 0
}

fn word<K: Kernel>(kernel: &K, stripe: Stripe) -> &AtomicU64 {
    line(&kernel.words(stripe.root).gates, stripe.number.into())
}

/// How often the sizes of a stripe's files have begun or ceased to change; odd while one changes.
#[inline]
pub(crate) fn generation<K: Kernel>(kernel: &K, stripe: Stripe) -> &AtomicU64 {
    line(&kernel.words(stripe.root).generations, stripe.number.into())
}

/// A gate that is shared, until dropped.
pub(crate) struct Shared<'k, K: Kernel> {
    kernel: &'k K,
    stripe: Stripe,
    pub(crate) at_work: AtWork<'k, K>,
}

impl<'k, K: Kernel> Shared<'k, K> {
    /// Shares the gate, unless somebody has it or waits to have it alone.
    #[inline]
    pub(crate) fn try_take(kernel: &'k K, stripe: Stripe) -> Option<Self> {
        let word = word(kernel, stripe);
        loop {
            let wanted = word.load(Relaxed) & HOLDER != 0;
            // A thread that shares it already, below a signal handler, must not wait for whoever
            // waits for it. One that the word does not count any more would pass the gate beside
            // who has it.
            if wanted && !roster::is_inside(kernel, stripe) {
                return None;
            }
            let at_work = AtWork::begin(kernel, stripe.root);
            at_work.shares(stripe);
            let shared = Self { kernel, stripe, at_work };
            let before = word.fetch_add(1, AcqRel);
            if wanted || before & HOLDER == 0 {
                shared.at_work.is_counted();
                return Some(shared);
            }
        }
    }
}

impl<'k, K: Kernel> Shared<'k, K> {
    /// Shares the gate for a request that the kernel carries out, unless somebody has it or waits
    /// to have it alone, or there is no post. No thread is at work at it: all of them can wait for
    /// it.
    pub(crate) fn try_take_for_request(
        kernel: &'k K,
        stripe: Stripe,
        request: u32,
    ) -> Option<Self> {
        let word = word(kernel, stripe);
        if word.load(Relaxed) & HOLDER != 0 {
            return None;
        }
        let actor = kernel.actor(stripe.root).request(request);
        let at_work = AtWork::try_of(kernel, stripe.root, actor)?;
        at_work.shares(stripe);
        let shared = Self { kernel, stripe, at_work };
        (word.fetch_add(1, AcqRel) & HOLDER == 0).then_some(shared)
    }

    pub(crate) const fn kernel(&self) -> &'k K {
        self.kernel
    }

    /// A write that shares the gate has stopped within a unit: sizes are looked at again. Before
    /// the gate is given back, so that a thread that is killed in between leaves nobody who takes
    /// the file for one of whole units.
    pub(crate) fn move_sizes(&self) {
        if self.at_work.is_ours() {
            generation(self.kernel, self.stripe).fetch_add(2, AcqRel);
            self.kernel.words(self.stripe.root).moves.0.fetch_add(2, AcqRel);
        }
    }
}

impl<K: Kernel> Drop for Shared<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if !self.at_work.is_ours() {
            return;
        }
        let word = word(self.kernel, self.stripe);
        self.at_work.ceases_to_count();
        let before = word.fetch_add(ONE_LEFT - 1, AcqRel);
        // A handler from here on may wait for who has the gate.
        self.at_work.end();
        if before & (AWAITED | SHARERS) == AWAITED | 1 {
            self.kernel.wake(word);
        }
    }
}

/// A gate that nobody else passes, until dropped. Signals are blocked meanwhile: a handler that
/// writes to the same file would wait for ever.
pub(crate) struct Alone<'k, K: Kernel> {
    kernel: &'k K,
    stripe: Stripe,
    /// To go back to; none if the caller has blocked signals itself.
    mask: Option<u64>,
    pub(crate) at_work: AtWork<'k, K>,
    /// The size changes, or several writes are one change.
    changes: Cell<bool>,
}

/// What the caller has done about signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signals {
    /// Nothing: they are blocked with the gate.
    Open,
    /// They are blocked for longer than the gate is had.
    Blocked,
}

/// Why a gate could not be had at once.
pub(crate) enum Denied {
    /// Somebody has it.
    Busy,
    /// The thread itself shares it, below a signal handler.
    Own,
}

impl<'k, K: Kernel> Alone<'k, K> {
    /// Waits until the gate can be had; the caller holds nothing that others wait for.
    ///
    /// # Errors
    /// EDEADLK in a signal handler that interrupted a write of its own thread to the same file.
    pub(crate) fn take(kernel: &'k K, stripe: Stripe) -> Result<Self, Errno> {
        loop {
            match Self::try_take(kernel, stripe, Signals::Open) {
                Ok(alone) => return Ok(alone),
                Err(Denied::Own) => return Err(Errno::DEADLK),
                Err(Denied::Busy) => wait_until_free(kernel, stripe)?,
            }
        }
    }

    /// Has the gate if nobody else has it; waits only for whole-unit writes that are under way.
    pub(crate) fn try_take(
        kernel: &'k K,
        stripe: Stripe,
        signals: Signals,
    ) -> Result<Self, Denied> {
        let alone = Self::prepare(kernel, stripe, signals);
        let word = word(kernel, stripe);
        let me = u64::from(kernel.actor(stripe.root).number()) << HOLDER_AT;
        let mut seen = word.load(Relaxed);
        loop {
            if seen & HOLDER != 0 {
                alone.forget();
                return Err(Denied::Busy);
            }
            match word.compare_exchange_weak(seen, seen | me, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        alone.wait_for_sharers()
    }

    /// All but the word itself.
    fn prepare(kernel: &'k K, stripe: Stripe, signals: Signals) -> Self {
        let mask = (signals == Signals::Open).then(|| kernel.block_signals());
        let at_work = AtWork::begin(kernel, stripe.root);
        Self { kernel, stripe, mask, at_work, changes: Cell::new(false) }
    }

    fn wait_for_sharers(self) -> Result<Self, Denied> {
        let word = word(self.kernel, self.stripe);
        let mut looks = 0;
        loop {
            let seen = word.load(Acquire);
            if seen & SHARERS == 0 {
                return Ok(self);
            }
            if looks < SPINS {
                looks += 1;
                core::hint::spin_loop();
                continue;
            }
            let found = roster::sharers(self.kernel, self.stripe);
            if found.own {
                return Err(Denied::Own);
            }
            if !found.others {
                // Killed in mid-write: equal words mean that nobody came or left since.
                if word.compare_exchange(seen, seen & !SHARERS, AcqRel, Relaxed).is_ok() {
                    // It may not have settled a write that the kernel stopped within a unit: sizes
                    // are looked at again.
                    self.begin_change();
                }
            } else if seen & AWAITED != 0
                || word.compare_exchange(seen, seen | AWAITED, AcqRel, Relaxed).is_ok()
            {
                self.kernel.sleep(word, seen | AWAITED);
            }
        }
    }

    /// From now on the size may change, or what several writes do together is half done: readers
    /// and who asks for the size wait until the gate is given back.
    pub(crate) fn begin_change(&self) {
        if !self.changes.replace(true) {
            generation(self.kernel, self.stripe).fetch_add(1, AcqRel);
            self.kernel.words(self.stripe.root).moves.0.fetch_add(1, AcqRel);
        }
    }

    /// True if a change has begun.
    pub(crate) fn changes(&self) -> bool {
        self.changes.get()
    }

    /// The generation of sizes once the gate is given back, if nothing more begins to change.
    pub(crate) fn generation_behind(&self) -> u64 {
        let now = generation(self.kernel, self.stripe).load(Relaxed);
        now.wrapping_add(u64::from(self.changes.get()))
    }

    /// Not taken after all.
    fn forget(self) {
        let mut this = core::mem::ManuallyDrop::new(self);
        this.at_work.end();
        if let Some(mask) = this.mask {
            this.kernel.restore_signals(mask);
        }
    }
}

impl<K: Kernel> Drop for Alone<'_, K> {
    fn drop(&mut self) {
        if self.changes.get() {
            self.kernel.words(self.stripe.root).moves.0.fetch_add(1, AcqRel);
            generation(self.kernel, self.stripe).fetch_add(1, AcqRel);
        }
        let word = word(self.kernel, self.stripe);
        if word.fetch_and(!(HOLDER | AWAITED), AcqRel) & AWAITED != 0 {
            self.kernel.wake(word);
        }
        self.at_work.end();
        if let Some(mask) = self.mask {
            self.kernel.restore_signals(mask);
        }
    }
}

/// What `look` finds while no size of the stripe's files changes.
///
/// # Errors
/// Those of `look`, and as [`wait_until_free`].
pub(crate) fn between_changes<K: Kernel, T>(
    kernel: &K,
    stripe: Stripe,
    mut look: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let sizes = generation(kernel, stripe);
    loop {
        let before = sizes.load(Acquire);
        if before.is_multiple_of(2) {
            let found = look()?;
            if sizes.load(Acquire) == before {
                return Ok(found);
            }
        } else {
            wait_until_free(kernel, stripe)?;
        }
    }
}

/// Waits until nobody has the gate alone. The caller holds nothing that others wait for.
///
/// # Errors
/// EDEADLK in a signal handler whose thread shares the gate: whoever has it may wait for that.
#[cold]
pub(crate) fn wait_until_free<K: Kernel>(kernel: &K, stripe: Stripe) -> Result<(), Errno> {
    let word = word(kernel, stripe);
    let mut looks = 0;
    loop {
        let seen = word.load(Acquire);
        if seen & HOLDER == 0 {
            return Ok(());
        }
        if looks < SPINS {
            looks += 1;
            core::hint::spin_loop();
            continue;
        }
        if roster::sharers(kernel, stripe).own {
            return Err(Errno::DEADLK);
        }
        if seen & AWAITED == 0
            && word.compare_exchange(seen, seen | AWAITED, AcqRel, Relaxed).is_err()
        {
            continue;
        }
        kernel.sleep(word, seen | AWAITED);
        if word.load(Acquire) == seen | AWAITED {
            take_from_the_dead(kernel, stripe, seen | AWAITED);
        }
    }
}

/// If the process that has the gate was killed: takes the gate over, ends the change that it left
/// half done, and gives the gate back.
fn take_from_the_dead<K: Kernel>(kernel: &K, stripe: Stripe, seen: u64) {
    let holder = u32::try_from((seen & HOLDER) >> HOLDER_AT).unwrap_or(0);
    let me = kernel.actor(stripe.root).number();
    if holder == me || kernel.lives(stripe.root, holder) {
        return;
    }
    let heir = Alone::prepare(kernel, stripe, Signals::Open);
    let taken = seen & !HOLDER | u64::from(me) << HOLDER_AT;
    if word(kernel, stripe).compare_exchange(seen, taken, AcqRel, Relaxed).is_err() {
        return heir.forget();
    }
    let half_done = !generation(kernel, stripe).load(Acquire).is_multiple_of(2);
    heir.changes.set(half_done);
}

/// Gives back the gates that a process had alone whose number is given to another now: that one
/// lives, and would count as who has them. A change that it left half done ends.
pub(crate) fn dismiss_number(words: &Words, number: u32) {
    for (gate, sizes) in words.gates.iter().zip(&words.generations) {
        let mut seen = gate.0.load(Acquire);
        let ours = loop {
            if (seen & HOLDER) >> HOLDER_AT != u64::from(number) {
                break false;
            }
            // Another word for the same: whoever takes it from the dead at this moment fails.
            let next = seen.wrapping_add(ONE_LEFT);
            match gate.0.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => break true,
                Err(now) => seen = now,
            }
        };
        if !ours {
            continue;
        }
        if !sizes.0.load(Acquire).is_multiple_of(2) {
            words.moves.0.fetch_add(1, AcqRel);
            sizes.0.fetch_add(1, AcqRel);
        }
        // Who waits looks again by itself.
        gate.0.fetch_and(!(HOLDER | AWAITED), AcqRel);
    }
}

#[cfg(test)]
mod tests;
