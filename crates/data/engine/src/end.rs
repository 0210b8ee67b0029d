//! What a process remembers of a file's end, so that a small append need not ask for it.
//!
//! Whoever writes at the end has to know the size and, where the end cuts a block, the bytes of
//! that block. Who had the gate alone remembers both, and who has it alone may use them:
//!
//! * The size holds while the generation of sizes is the same (`gate`): no size of the stripe's
//!   files has changed since, other than by whole units. A size that is a multiple of the unit may
//!   have grown by such writes, so it is the least that the size can be. Any other size is exact:
//!   it was seen while nobody took the file for one of whole units.
//! * The bytes hold while nobody has written to the area of the end either (`sequence`).
//!
//! A program without the library moves nothing: `> FILE` or `logrotate` with `copytruncate` takes
//! the header too. So the header is looked for now and then, and put there again (`lost`).
//!
//! Once a process has forked, nothing is remembered of the files that both have: a thread may have
//! been about to write it down.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, fence};

use tidelock_cipher::UnitCipher;
use tidelock_format::{BLOCK_USIZE, PlainSize, UNIT, ZeroRule};

use crate::file::OpenFile;
use crate::gate::Alone;
use crate::kernel::System;
use crate::roots::Decide;
use crate::roster::Areas;

/// The block that the end cuts: what precedes the end in it, and anything behind.
pub(crate) type Cut = [u8; BLOCK_USIZE];

/// More writes than an area can have had: no block is known.
const NEVER: u64 = u64::MAX;

/// How long a header that is gone stays unseen at most, while a file is written.
const LOOKS_MS: u64 = 1000;

/// What is remembered of the end of one open file; all zeros for nothing.
pub struct End {
    /// The generation of sizes, and one; 0 for nothing.
    generation: AtomicU64,
    size: AtomicU64,
    /// How many writes the area of the block has had, or [`NEVER`].
    writes: AtomicU64,
    cut: [AtomicU64; 2],
    /// When a small write last looked for the header, by [`Kernel::clock`](crate::Kernel::clock).
    looked: AtomicU64,
}

impl End {
    /// Nothing; all of its bytes are zero.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "the value that arrays of it begin with"
    )]
    pub const UNKNOWN: Self = Self {
        generation: AtomicU64::new(0),
        size: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        cut: [AtomicU64::new(0), AtomicU64::new(0)],
        looked: AtomicU64::new(0),
    };

    /// Nothing is left of it.
    pub(crate) fn wipe(&self) {
        self.generation.store(0, Relaxed);
        fence(Release);
        self.set_cut([0; BLOCK_USIZE]);
    }

    /// A look at the header is due, now and then, and is taken for done. The first time it is not:
    /// the open has looked.
    fn is_look_due(&self, now: u64) -> bool {
        let last = self.looked.load(Relaxed);
        let due = now.wrapping_sub(last) >= LOOKS_MS;
        if due {
            self.looked.store(now.max(1), Relaxed);
        }
        due && last != 0
    }

    fn look_again(&self) {
        self.looked.store(1, Relaxed);
    }

    /// Of another open file from now on.
    pub(crate) fn forget_look(&self) {
        self.looked.store(0, Relaxed);
    }

    fn set_cut(&self, cut: Cut) {
        let halves = u128::from_ne_bytes(cut);
        let [first, second] = &self.cut;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        first.store(halves as u64, Relaxed);
        second.store((halves >> 64) as u64, Relaxed);
    }

    fn cut(&self) -> Cut {
        let [first, second] = &self.cut;
        let halves = u128::from(second.load(Relaxed)) << 64 | u128::from(first.load(Relaxed));
        halves.to_ne_bytes()
    }
}

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// True if a small write should look whether the header is there still.
    pub(crate) fn is_look_due(&self) -> bool {
        let Some(end) = self.process.table.end(self.index) else { return false };
        self.slot.mark_end_known();
        end.is_look_due(self.kernel().clock())
    }

    /// The next small write looks too.
    pub(crate) fn look_again(&self) {
        if let Some(end) = self.process.table.end(self.index) {
            self.slot.mark_end_known();
            end.look_again();
        }
    }

    /// The size, if it is remembered and known well enough for a write up to `end`.
    pub(crate) fn remembered_size(&self, alone: &Alone<'_, S>, end: u64) -> Option<PlainSize> {
        let known = self.known(alone)?;
        let size = known.size.load(Relaxed);
        (!size.is_multiple_of(UNIT) || end <= size).then_some(PlainSize(size))
    }

    /// The block that the end cuts at `size`, if it is remembered.
    pub(crate) fn remembered_cut(&self, alone: &Alone<'_, S>, size: PlainSize) -> Option<Cut> {
        let known = self.known(alone)?;
        let holds = !size.is_whole_blocks()
            && known.size.load(Relaxed) == size.0
            && known.writes.load(Relaxed) == self.area_of_end(size).writes(self.kernel());
        holds.then(|| known.cut())
    }

    /// Remembers the size, and the block that it cuts.
    pub(crate) fn remember_end(&self, alone: &Alone<'_, S>, size: PlainSize, cut: Option<Cut>) {
        let traits = self.traits();
        if traits.shared || !self.kernel().shares_words(traits.root()) {
            return;
        }
        let Some(known) = self.process.table.end(self.index) else { return };
        let cut = cut.filter(|_| !size.is_whole_blocks() && traits.zero_rule == ZeroRule::Block);
        known.size.store(size.0, Relaxed);
        known.set_cut(cut.unwrap_or_default());
        let writes = cut.map_or(NEVER, |_| self.area_of_end(size).writes(self.kernel()));
        known.writes.store(writes, Relaxed);
        known.generation.store(alone.generation_behind() + 1, Release);
        self.slot.mark_end_known();
    }

    /// The end is about to move, and may come to lie anywhere.
    pub(crate) fn forget_end(&self) {
        if let Some(known) = self.end() {
            known.wipe();
        }
    }

    fn known(&self, alone: &Alone<'_, S>) -> Option<&End> {
        let known = self.end().filter(|_| !self.traits().shared)?;
        (known.generation.load(Relaxed) == alone.generation_behind() + 1).then_some(known)
    }

    fn end(&self) -> Option<&End> {
        self.slot.is_end_known().then(|| self.process.table.end(self.index)).flatten()
    }

    fn area_of_end(&self, size: PlainSize) -> Areas {
        Areas::new(self.stripe(), size.0 - size.remainder(), size.0)
    }
}
