//! Asynchronous I/O: direct reads and writes of whole units, which the kernel carries out while the
//! program goes on.
//!
//! ```text
//!   OpenFile::begin_write   takes gate and words, seals   -> WriteRequest, what the kernel gets
//!   OpenFile::begin_read    notes what the words say      -> ReadRequest, the same
//!   (the kernel is at work; nobody waits)
//!   WriteRequest dropped    words and gate given back, as soon as anybody sees that it is done
//!   ReadRequest::open       opens the bytes, if nobody wrote them meanwhile
//! ```
//!
//! A request has the gate as a writer of its own, not as the thread that made it: that thread may
//! go on to want the file alone. Whoever waits looks whether requests of its process are done
//! ([`Kernel::sleep`]), so that nobody waits for the program to fetch events. Another process waits
//! until they are fetched. All else is carried out on the spot, by `read` and `write`.

use tidelock_cipher::{KeySlot, Sealed, UnitCipher, open_units, seal_units};
use tidelock_format::{BLOCK_USIZE, DiskOffset, PlainOffset, Span};

use crate::file::OpenFile;
use crate::gate::Shared;
use crate::kernel::{Fd, Kernel, System};
use crate::roots::Decide;
use crate::roster::Areas;
use crate::sequence::Before;

/// Where the kernel shall read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handed {
    /// The real descriptor.
    pub file: Fd,
    /// The place in the file.
    pub at: DiskOffset,
}

/// A write that was handed to the kernel. Others see that it is under way until this is dropped.
pub struct WriteRequest<'p, K: Kernel> {
    shared: Shared<'p, K>,
    areas: Areas,
}

impl<K: Kernel> Drop for WriteRequest<'_, K> {
    fn drop(&mut self) {
        if self.shared.at_work.is_ours() {
            self.areas.lower(self.shared.kernel());
        }
    }
}

impl<K: Kernel> WriteRequest<'_, K> {
    /// The kernel has stopped within a unit, or perhaps: sizes are looked at again. Before the
    /// request is dropped.
    pub fn stopped(&self) {
        self.shared.move_sizes();
    }
}

/// A read that was handed to the kernel.
pub struct ReadRequest {
    key: KeySlot,
    span: Span,
    before: Before,
}

impl<'p, S: System, C: UnitCipher, P: Decide> OpenFile<'p, S, C, P> {
    /// Seals whole units into `into`, which is as long, for the kernel to write them; the `number`
    /// tells requests apart. `None` for what has to be written on the spot.
    pub fn begin_write<'o>(
        &self,
        from: &[u8],
        at: u64,
        into: &'o mut [u8],
        number: u32,
    ) -> Option<(WriteRequest<'p, S>, Sealed<'o>, Handed)> {
        let (span, handed) = self.hand_over(from.len(), at)?;
        self.may_write().ok()?;
        let is_whole = || self.whole_since().is_ok_and(|since| since.is_some());
        if self.appends() || !is_whole() || !Self::are_sectors(into, handed.at) {
            return None;
        }
        let key = self.key().ok()??;
        let shared = Shared::try_take_for_request(self.kernel(), self.stripe(), number)?;
        // Nobody can make it odd from here on.
        if !is_whole() {
            return None;
        }
        let sealed = seal_units(self.cipher(), key, span.first_unit(), from, 0, into)?;
        let areas = Areas::new(self.stripe(), span.start(), span.end());
        shared.at_work.writes(areas);
        areas.raise(self.kernel());
        Some((WriteRequest { shared, areas }, sealed, handed))
    }

    /// Prepares a read of whole units into `into` by the kernel. `None` for what has to be read on
    /// the spot.
    pub fn begin_read(&self, into: &[u8], at: u64) -> Option<(ReadRequest, Handed)> {
        let (span, handed) = self.hand_over(into.len(), at)?;
        self.may_read().ok()?;
        if !Self::are_sectors(into, handed.at) {
            return None;
        }
        let key = self.key().ok()??;
        let before = Areas::new(self.stripe(), span.start(), span.end()).before(self.kernel())?;
        let is_whole = self.whole_since().ok()? == Some(before.generation);
        is_whole.then_some((ReadRequest { key, span, before }, handed))
    }

    /// Whole units, and a descriptor for direct access: what the kernel can be handed. (Through the
    /// page cache it would copy before it returns.)
    fn hand_over(&self, len: usize, at: u64) -> Option<(Span, Handed)> {
        let start = PlainOffset::new(at)?;
        let span = Span::new(start, len).filter(|span| len > 0 && span.is_whole_units())?;
        let file = self.direct().ok()??;
        Some((span, Handed { file, at: self.layout().disk(start) }))
    }
}

impl ReadRequest {
    /// Opens the `count` bytes that the kernel has put into `into`; how many they are. `None` if
    /// they cannot be relied on: then they are to be read again.
    #[must_use]
    pub fn open<S: System, C: UnitCipher, P: Decide>(
        &self,
        file: &OpenFile<'_, S, C, P>,
        into: &mut [u8],
        count: usize,
    ) -> Option<usize> {
        // A failing disk can end a read within a block.
        if !self.before.holds(file.kernel()) || !count.is_multiple_of(BLOCK_USIZE) {
            return None;
        }
        let found = into.get_mut(..count)?;
        let rule = file.traits().zero_rule;
        open_units(file.cipher(), self.key, self.span.first_unit(), rule, found);
        Some(count)
    }
}
