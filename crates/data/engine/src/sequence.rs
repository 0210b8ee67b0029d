//! Sequence words: writers raise them before and lower them after, readers look whether they moved.
//!
//! A 16-byte block that is half written decrypts to garbage where a plain file would show old and
//! new bytes, and no alignment of buffers prevents it (docs/decisions/0003). WAL is read while it
//! is written, and base backups read pages that the server writes. Each 64 KiB of a file has a word
//! in memory shared by all processes of the directory; files share words by hash. The low 16 bits
//! count the writers at work, the rest counts writes, so a word only ever grows.
//!
//! A reader that is overtaken by writers again and again, or meets one that was stopped or killed,
//! waits for the file's gate and reads while nobody writes. What a killed writer counted is taken
//! back there. A change of several writes (a size that changes) shows in the generation of the
//! file's gate instead.

use core::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, fence,
};

use crate::errno::Errno;
use crate::gate::{self, Alone};
use crate::kernel::Kernel;
use crate::roster::{self, Areas, AtWork};
use crate::words::{Stripe, line};

/// How often a reader tries beside writers, before it keeps them out: half a millisecond or so.
const TRIES: u32 = 96;
/// After so many it sleeps for a moment: a disk takes longer to write than the page cache.
const SPINS: u32 = 16;
/// Each word stands for so many bytes of a file: 2 to this power.
const AREA: u32 = 16;
const WRITERS: u64 = 0xffff;
const ONE_WRITE: u64 = 1 << 16;

/// True if nobody writes.
pub(crate) fn is_quiet(word: &AtomicU64) -> bool {
    word.load(Relaxed) & WRITERS == 0
}

impl Areas {
    /// Those of the plain bytes from `start` to `end`.
    pub(crate) const fn new(stripe: Stripe, start: u64, end: u64) -> Self {
        let last = if end > start { end - 1 } else { start };
        Self { stripe, first: start >> AREA, last: last >> AREA }
    }

    fn numbers(self) -> impl Iterator<Item = u64> {
        (self.first..=self.last).map(move |area| Self::word(self.stripe, area))
    }

    fn words<K: Kernel>(self, kernel: &K) -> impl Iterator<Item = &AtomicU64> {
        let words = kernel.words(self.stripe.root);
        self.numbers().map(|number| line(&words.sequences, number))
    }

    /// The sum of the words, and whether anybody writes. Words only grow: equal sums are equal
    /// words.
    #[inline]
    fn survey<K: Kernel>(self, kernel: &K) -> (u64, bool) {
        self.words(kernel).fold((0, false), |(sum, writing), word| {
            let word = word.load(Acquire);
            (sum.wrapping_add(word), writing || word & WRITERS != 0)
        })
    }

    /// Says in the words that these bytes are about to change; [`lower`](Self::lower) says that
    /// they have.
    #[inline]
    pub(crate) fn raise<K: Kernel>(self, kernel: &K) {
        self.words(kernel).for_each(|word| {
            word.fetch_add(1, AcqRel);
        });
    }

    #[inline]
    pub(crate) fn lower<K: Kernel>(self, kernel: &K) {
        self.words(kernel).for_each(|word| {
            word.fetch_add(ONE_WRITE - 1, AcqRel);
        });
    }

    /// A number that moves with each write to one of them.
    pub(crate) fn writes<K: Kernel>(self, kernel: &K) -> u64 {
        self.survey(kernel).0
    }

    /// What the words say before a read; `None` if somebody writes, or a size changes.
    #[inline]
    pub(crate) fn before<K: Kernel>(self, kernel: &K) -> Option<Before> {
        let before = self.look(kernel);
        (!before.writing && before.generation.is_multiple_of(2)).then_some(before)
    }

    #[inline]
    fn look<K: Kernel>(self, kernel: &K) -> Before {
        let generation = gate::generation(kernel, self.stripe).load(Acquire);
        let (sum, writing) = self.survey(kernel);
        Before { areas: self, generation, sum, writing }
    }

    /// Takes back what killed writers counted. True if a writer of another thread is at work.
    #[cold]
    fn forget_the_dead<K: Kernel>(self, kernel: &K) -> bool {
        let mut others = false;
        for number in self.numbers() {
            let word = line(&kernel.words(self.stripe.root).sequences, number);
            let seen = word.load(Acquire);
            if seen & WRITERS == 0 {
                continue;
            }
            let found = roster::writers(kernel, self.stripe.root, number);
            if !found.others && !found.own {
                let rest = (seen & !WRITERS).wrapping_add(ONE_WRITE);
                // Unequal words mean that somebody came or left since.
                let _ = word.compare_exchange(seen, rest, AcqRel, Relaxed);
            }
            others |= found.others;
        }
        others
    }
}

/// What the words said before a read.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    areas: Areas,
    /// That of the sizes.
    pub(crate) generation: u64,
    sum: u64,
    writing: bool,
}

impl Before {
    /// After the read: true if nobody has written meanwhile, and no size has changed.
    #[inline]
    pub(crate) fn holds<K: Kernel>(&self, kernel: &K) -> bool {
        fence(Acquire);
        self.areas.survey(kernel) == (self.sum, self.writing)
            && gate::generation(kernel, self.areas.stripe).load(Acquire) == self.generation
    }
}

/// A write that is under way; over when dropped.
pub(crate) struct Writing<'a, 'k, K: Kernel> {
    kernel: &'k K,
    areas: Areas,
    by: &'a AtWork<'k, K>,
}

impl<'a, 'k, K: Kernel> Writing<'a, 'k, K> {
    #[inline]
    pub(crate) fn begin(by: &'a AtWork<'k, K>, areas: Areas) -> Self {
        let kernel = by.kernel();
        by.writes(areas);
        areas.raise(kernel);
        Self { kernel, areas, by }
    }
}

impl<K: Kernel> Drop for Writing<'_, '_, K> {
    #[inline]
    fn drop(&mut self) {
        if !self.by.is_ours() {
            return;
        }
        self.areas.lower(self.kernel);
        self.by.wrote();
    }
}

/// What was read while nobody wrote, and the generation of sizes that it belongs to.
pub(crate) struct Consistent {
    pub(crate) count: usize,
    pub(crate) generation: u64,
}

/// Reads until no writer of the range was at work meanwhile, and no size changed.
///
/// # Errors
/// Those of `read`.
#[inline]
pub(crate) fn consistent<K: Kernel>(
    kernel: &K,
    areas: Areas,
    mut read: impl FnMut() -> Result<usize, Errno>,
) -> Result<Consistent, Errno> {
    match attempt(kernel, areas, false, &mut read)? {
        Some(found) => Ok(found),
        None => wait_and_read(kernel, areas, &mut read),
    }
}

/// One read, if it can be relied on. With `in_own_write`, writers that are counted do not matter.
#[inline]
fn attempt<K: Kernel>(
    kernel: &K,
    areas: Areas,
    in_own_write: bool,
    read: &mut impl FnMut() -> Result<usize, Errno>,
) -> Result<Option<Consistent>, Errno> {
    let before = areas.look(kernel);
    if !before.generation.is_multiple_of(2) || before.writing && !in_own_write {
        return Ok(None);
    }
    let count = read()?;
    let generation = before.generation;
    Ok(before.holds(kernel).then_some(Consistent { count, generation }))
}

#[cold]
fn wait_and_read<K: Kernel>(
    kernel: &K,
    areas: Areas,
    read: &mut impl FnMut() -> Result<usize, Errno>,
) -> Result<Consistent, Errno> {
    let mut found = None;
    for tries in 1..=TRIES {
        (0..64).for_each(|_| core::hint::spin_loop());
        found = attempt(kernel, areas, false, read)?;
        if found.is_some() {
            break;
        }
        if tries.is_multiple_of(SPINS) {
            kernel.pause(tries / SPINS);
        }
    }
    match found {
        Some(found) => Ok(found),
        None => read_alone(kernel, areas, read),
    }
}

/// Keeps all writers of the file out for one read.
fn read_alone<K: Kernel>(
    kernel: &K,
    areas: Areas,
    read: &mut impl FnMut() -> Result<usize, Errno>,
) -> Result<Consistent, Errno> {
    let mut looks = 0;
    loop {
        if let Ok(_alone) = Alone::take(kernel, areas.stripe) {
            areas.forget_the_dead(kernel);
            let generation = gate::generation(kernel, areas.stripe).load(Acquire);
            return Ok(Consistent { count: read()?, generation });
        }
        // A signal handler above a write of its own thread: the kernel has done that write, or not
        // begun it.
        let others = areas.forget_the_dead(kernel);
        if !others && let Some(found) = attempt(kernel, areas, true, read)? {
            return Ok(found);
        }
        kernel.pause(looks);
        looks += 1;
    }
}
