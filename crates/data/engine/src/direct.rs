//! O_DIRECT: a second real descriptor of the file, by which whole sectors go past the page cache.
//!
//! ```text
//!   whole sectors of sealed bytes    the second descriptor     on the disk when the call returns
//!   a size that cuts a sector, the   the hidden one, then      the same, after a wait
//!   first header, no such descriptor   sync_file_range
//! ```
//!
//! What goes through the page cache is written by who has the gate alone, and waited for before the
//! gate is given back: so no page is dirty while others write it directly (docs/decisions/0023).
//! The one exception is the rest of a write that the kernel has cut short within a sector.
//! Whether a file system can do it is tried, not asked: it answers EINVAL where it cannot.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tidelock_cipher::{Root, UnitCipher};
use tidelock_format::DiskOffset;

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::flags::{O_CLOEXEC, O_DIRECT, O_RDWR, O_SYNC};
use crate::kernel::{Fd, Links, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::roots::Decide;
use crate::table::Slot;

/// What devices write at the least. One with larger sectors answers EINVAL to smaller writes.
const SECTOR: u64 = 512;

/// In the place of a descriptor's number plus one: this file gets none.
const REFUSED: u16 = u16::MAX;

impl Slot {
    /// The descriptor for direct access, if there is one.
    pub(crate) fn direct(&self) -> Option<Fd> {
        match self.direct.load(Acquire) {
            0 | REFUSED => None,
            behind => Some(Fd(i32::from(behind) - 1)),
        }
    }
}

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// True if the program wants direct access.
    #[inline]
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.flags().0 & O_DIRECT != 0
    }

    /// True if nothing has to be opened or derived before bytes are read or written.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_keyed() && !(self.is_direct() && self.slot.direct.load(Relaxed) == 0)
    }

    /// The descriptor for direct access, which is opened at its first use; `None` where the program
    /// wants none, the file has no header yet, or the file system refuses. The caller has no gate.
    ///
    /// # Errors
    /// As [`alone`](Self::alone).
    #[inline]
    pub(crate) fn direct(&self) -> Result<Option<Fd>, Errno> {
        if !self.is_direct() {
            Ok(None)
        } else if self.is_ready() {
            Ok(self.direct_at_hand())
        } else {
            self.open_direct()
        }
    }

    /// The same, for who has the gate: one that is open.
    #[inline]
    pub(crate) fn direct_at_hand(&self) -> Option<Fd> {
        if !self.is_direct() {
            return None;
        }
        self.slot.direct()
    }

    /// True if a direct descriptor may be asked for these bytes.
    #[inline]
    pub(crate) fn are_sectors(bytes: &[u8], at: DiskOffset) -> bool {
        (bytes.as_ptr().addr() as u64 | bytes.len() as u64 | at.get()).is_multiple_of(SECTOR)
    }

    #[cold]
    fn open_direct(&self) -> Result<Option<Fd>, Errno> {
        if !self.is_keyed() {
            return Ok(None);
        }
        let _change = self.process.change();
        // Whoever writes through the page cache has done so, and whoever comes finds it open.
        let alone = self.alone()?;
        if self.slot.direct.load(Acquire) == 0 {
            // The header first: bytes that reach the disk before it would be lost with it
            // (docs/decisions/0004). It never changes after that.
            self.kernel().write_out(
                self.hidden(),
                DiskOffset::HEADER,
                self.layout().start().get(),
            )?;
            let opened = self.process.open_again(self.slot, self.hidden(), self.again());
            let behind = opened.map_or(REFUSED, |fd| u16::try_from(fd.0 + 1).unwrap_or(REFUSED));
            self.slot.direct.store(behind, Release);
        }
        drop(alone);
        Ok(self.direct_at_hand())
    }

    /// With which flags the second descriptor is opened.
    fn again(&self) -> i32 {
        let access = if self.flags().access().write { O_RDWR } else { 0 };
        // O_DSYNC is one of the bits of O_SYNC.
        access | O_DIRECT | O_CLOEXEC | self.flags().0 & O_SYNC
    }
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// One more real descriptor of an open file, hidden as the first: at a number that no program
    /// meets, unless record locks forbid to move it there.
    fn open_again(&self, slot: &Slot, file: Fd, flags: i32) -> Result<Fd, Errno> {
        let mut path = PathBuffer::new();
        Self::path_of_number(file, &mut path)?;
        let root = slot.traits().root();
        let spare = if self.moving.is_forbidden() {
            None
        } else {
            let spare = self.system.reserve_hidden(root)?;
            self.table.hide(spare);
            Some(spare)
        };
        let opened = self.system.open(Fd::CWD, path.as_c(), flags, 0, Links::Follow);
        let hidden = opened.and_then(|fd| {
            self.forget(fd.0);
            if let Some(spare) = spare
                && let Some(_move) = self.moving.begin(&slot.mover, self.system.actor(Root::FIRST))
            {
                let moved = self.system.duplicate_onto(fd, spare, true);
                self.system.close(fd)?;
                return moved.map(|()| spare);
            }
            if fd.0 >= REFUSED.into() {
                // To close it would drop record locks that came up since: it stays, unused.
                return Err(Errno::MFILE);
            }
            self.table.hide(fd);
            Ok(fd)
        });
        if let Some(spare) = spare.filter(|spare| hidden != Ok(*spare)) {
            self.retire(root, spare);
        }
        hidden
    }
}
