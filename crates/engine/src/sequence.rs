//! Sequence words: writers raise them before and lower them after, readers look whether they moved.
//!
//! A 16-byte block that is half written decrypts to garbage where a plain file would show old and new
//! bytes, and no alignment of buffers prevents it (docs/decisions/0003). WAL is read while it is written, and
//! base backups read pages that the server writes. Each 64 KiB of a file has a word in memory shared by
//! all processes of the directory; files share words by hash. The low 16 bits count the writers at
//! work, the rest counts writes, so a word only ever grows.

use core::sync::atomic::{
    AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, fence,
};

use crate::errno::Errno;
use crate::kernel::{Kernel, Stripe};

/// How often a reader looks at a writer that does not move before it takes it for dead.
const PATIENCE: u32 = 2000;
/// How often a reader tries at all.
const ENDURANCE: u32 = 100_000;
/// Before this many looks it spins, afterwards it sleeps a moment between them.
const SPIN: u32 = 200;
/// Each word stands for so many bytes of a file: 2 to this power.
const AREA: u32 = 16;
const WRITERS: u64 = 0xffff;
const ONE_WRITE: u64 = 1 << 16;

/// The words of one range of a file.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    stripe: Stripe,
    first: u64,
    last: u64,
}

impl Range {
    /// The words of the plain bytes from `start` to `end`.
    pub(crate) const fn new(stripe: Stripe, start: u64, end: u64) -> Self {
        let last = if end > start { end - 1 } else { start };
        Self { stripe, first: start >> AREA, last: last >> AREA }
    }

    fn words<K: Kernel>(self, kernel: &K) -> impl Iterator<Item = &AtomicU64> {
        (self.first..=self.last).map(move |area| {
            let [step, ..] = area.wrapping_mul(0x9d).to_le_bytes();
            let byte = self.stripe.byte.wrapping_add(step);
            kernel.sequence(Stripe { root: self.stripe.root, byte })
        })
    }

    /// The sum of the words, and whether anybody writes. Words only grow: equal sums are equal words.
    fn survey<K: Kernel>(self, kernel: &K) -> (u64, bool) {
        self.words(kernel).fold((0, false), |(sum, writing), word| {
            let word = word.load(Acquire);
            (sum.wrapping_add(word), writing || word & WRITERS != 0)
        })
    }
}

impl Range {
    /// The writer was killed in its write: nobody changes the bytes now, and nobody else should wait.
    fn forget_writers<K: Kernel>(self, kernel: &K) {
        for word in self.words(kernel) {
            let seen = word.load(Acquire);
            if seen & WRITERS != 0 {
                let rest = (seen & !WRITERS).wrapping_add(ONE_WRITE);
                let _ = word.compare_exchange(seen, rest, AcqRel, Relaxed);
            }
        }
    }
}

/// A write that is under way; over when dropped.
pub(crate) struct Writing<'k, K: Kernel> {
    kernel: &'k K,
    range: Range,
}

impl<'k, K: Kernel> Writing<'k, K> {
    #[inline]
    pub(crate) fn begin(kernel: &'k K, range: Range) -> Self {
        range.words(kernel).for_each(|word| {
            word.fetch_add(1, AcqRel);
        });
        Self { kernel, range }
    }
}

impl<K: Kernel> Drop for Writing<'_, K> {
    fn drop(&mut self) {
        // A reader may have taken us for dead meanwhile: never below zero.
        let lower = |word: u64| Some((word - (word & WRITERS).min(1)).wrapping_add(ONE_WRITE));
        for word in self.range.words(self.kernel) {
            // `lower` always gives a value.
            let _ = word.fetch_update(AcqRel, Acquire, lower);
        }
    }
}

/// Reads until no writer of the range was at work meanwhile.
#[inline]
pub(crate) fn consistent<K: Kernel>(
    kernel: &K,
    range: Range,
    mut read: impl FnMut() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut before = range.survey(kernel);
    let mut looks = 0;
    for _ in 0..ENDURANCE {
        if looks >= PATIENCE {
            range.forget_writers(kernel);
            return read();
        }
        if !before.1 {
            let count = read()?;
            fence(Acquire);
            if range.survey(kernel) == before {
                return Ok(count);
            }
        }
        wait(kernel, looks);
        let now = range.survey(kernel);
        looks = if now.0 == before.0 { looks + 1 } else { looks.min(SPIN) };
        before = now;
    }
    // Written all the time: as good as a plain file would be.
    read()
}

#[cold]
fn wait<K: Kernel>(kernel: &K, looks: u32) {
    if looks < SPIN {
        (0..64).for_each(|_| core::hint::spin_loop());
    } else {
        kernel.pause();
    }
}
