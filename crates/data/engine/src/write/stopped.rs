//! What a write of whole units leaves behind that the kernel stopped within a unit: at a limit of
//! the file's size, on some full disks.
//!
//! Such a write did not have the gate alone, so others may have written behind it meanwhile. A unit
//! that is then half sealed and half a hole would read as garbage; nobody else has written to it.

use tidelock_cipher::{KeySlot, UnitCipher, is_zero, seal_units};
use tidelock_format::{BLOCK_USIZE, DiskSize, UNIT, UNIT_USIZE, ZeroRule};

use crate::errno::Errno;
use crate::file::{OpenFile, place, whole_blocks};
use crate::gate::Alone;
use crate::kernel::System;
use crate::roots::Decide;

const KEEP_SIZE_AND_PUNCH_HOLE: i32 = 3;

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// Makes whole what stopped at `end`, after `done` bytes; how many of them count, and the
    /// offset behind them.
    pub(super) fn settle_stopped(
        &self,
        key: KeySlot,
        end: u64,
        done: usize,
    ) -> Result<(usize, u64), Errno> {
        let alone = self.alone()?;
        alone.begin_change();
        let start = end - end % UNIT;
        let part = usize::try_from(end - start).map_err(|_| Errno::INVAL)?;
        let whole = whole_blocks(part);
        let mut lost = part - whole;
        let disk_end = self.layout().disk(place(end)?);
        let size = self.stat()?.size;
        if size == DiskSize(disk_end.get()) {
            // The size must not count the part of a block.
            self.kernel().set_size(self.hidden(), DiskSize(size.0 - lost as u64))?;
            self.keep_promise()?;
        } else if size.is_at_most(disk_end) {
            // Somebody has cut it since: nothing that stopped there is left.
        } else if !self.fill_up(&alone, key, start, whole, lost > 0)? {
            // No room: a hole again, as if the unit had not been reached.
            let from = self.layout().disk(place(start)?);
            self.kernel().allocate(self.hidden(), KEEP_SIZE_AND_PUNCH_HOLE, from, part as u64)?;
            lost = part;
        }
        match done.saturating_sub(lost) {
            0 => Err(Errno::NOSPC),
            count => Ok((count, end - lost as u64)),
        }
    }

    /// Seals zeros behind the first `whole` bytes of a unit that others have left a hole; false if
    /// there is no room. Where old bytes stand there is nothing to do.
    fn fill_up(
        &self,
        alone: &Alone<'_, S>,
        key: KeySlot,
        start: u64,
        whole: usize,
        torn: bool,
    ) -> Result<bool, Errno> {
        let mut image = self.kernel().scratch(2 * UNIT_USIZE)?;
        let (found, zeros) = image.split_at_mut_checked(UNIT_USIZE).ok_or(Errno::IO)?;
        let count = self.kernel().pread(self.hidden(), found, self.layout().disk(place(start)?))?;
        let behind = whole + if torn { BLOCK_USIZE } else { 0 };
        let is_hole = is_zero(found.get(behind..count).unwrap_or_default());
        let to = match self.traits().zero_rule {
            ZeroRule::Unit if is_hole && (whole > 0 || torn) => UNIT_USIZE,
            ZeroRule::Block if is_hole && torn => behind,
            _ => return Ok(true),
        };
        zeros.fill(0);
        let unit = place(start)?.unit();
        let plain = zeros.get(..to).ok_or(Errno::IO)?;
        let sealed =
            seal_units(self.cipher(), key, unit, plain, 0, found).ok_or(Errno::IO)?.skip(whole);
        let at = self.layout().disk(place(start + whole as u64)?);
        Ok(self.put(&alone.at_work, sealed, at) == Ok(sealed.len()))
    }
}
