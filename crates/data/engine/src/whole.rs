//! Is a file a whole-unit file? What a process knows of that, and for how long it is true.
//!
//! Its size is a multiple of the unit: then an aligned access needs no look at the size. Each
//! change of a size other than by whole units moves the generation of the file's gate, so what was
//! seen under one generation holds until that moves. Sizes are looked at between changes only,
//! since a change may be several writes.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use tidelock_cipher::UnitCipher;
use tidelock_format::{PlainSize, UNIT};

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::gate;
use crate::kernel::System;
use crate::process::Process;
use crate::roots::Decide;
use crate::words::Stripe;

const KNOWN: u64 = 1;
const WHOLE: u64 = 2;

/// What is remembered of a file whose size was seen under a generation.
pub(crate) const fn memo(generation: u64, size: PlainSize) -> u64 {
    generation << 2 | KNOWN | if size.0.is_multiple_of(UNIT) { WHOLE } else { 0 }
}

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// The generation of sizes under which it is a whole-unit file; `None` if it is not one, or
    /// changes at this moment.
    ///
    /// # Errors
    /// Those of fstat, which is called once for each generation.
    #[inline]
    pub(crate) fn whole_since(&self) -> Result<Option<u64>, Errno> {
        let generation = gate::generation(self.kernel(), self.stripe()).load(Acquire);
        let known = self.slot.wholeness.load(Relaxed);
        if known & KNOWN != 0 && known & !(KNOWN | WHOLE) == generation << 2 {
            return Ok((known & WHOLE != 0).then_some(generation));
        }
        self.look_at_size(generation)
    }

    #[cold]
    fn look_at_size(&self, generation: u64) -> Result<Option<u64>, Errno> {
        let memo = memo(generation, self.size_now()?);
        let now = gate::generation(self.kernel(), self.stripe()).load(Acquire);
        if now != generation || !generation.is_multiple_of(2) {
            return Ok(None);
        }
        self.slot.wholeness.store(memo, Relaxed);
        Ok((memo & WHOLE != 0).then_some(generation))
    }

    /// The size that the program sees, never one in the middle of a change.
    ///
    /// # Errors
    /// Those of fstat.
    pub fn size(&self) -> Result<PlainSize, Errno> {
        self.between_changes(|| self.stat().map(|stat| stat.size))
            .map(|size| size.plain(self.layout()))
    }

    /// What `look` finds of this file while its size does not change. For calls that ask for more
    /// than the size.
    ///
    /// # Errors
    /// Those of `look`; EDEADLK in a signal handler that interrupted a write of its own thread to
    /// the file.
    pub fn between_changes<T>(&self, look: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        gate::between_changes(self.kernel(), self.stripe(), look)
    }
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// How many changes of sizes have begun or ended in all protected directories: taken before a
    /// file is looked at by its path, whose words are not known yet.
    #[inline]
    pub fn size_changes(&self) -> u64 {
        let count = |root| self.system.words(root).moves.0.load(Acquire);
        self.roots.numbers().fold(0, |sum, root| sum.wrapping_add(count(root)))
    }

    /// The generation of sizes that `stat` belongs to, which was taken after
    /// [`size_changes`](Self::size_changes) gave `before`; `None` if the file may have been in the
    /// middle of a change.
    pub(crate) fn generation_since(&self, stripe: Stripe, before: u64) -> Option<u64> {
        let generation = gate::generation(&self.system, stripe).load(Acquire);
        (generation.is_multiple_of(2) && self.size_changes() == before).then_some(generation)
    }
}
