//! What a write leaves behind that the kernel stopped within a unit: at a limit of the file's size,
//! on some full disks. A unit that is then half sealed and half a hole would read as garbage.
//!
//! A write of whole units did not have the gate alone, so others may have written behind it
//! meanwhile, but not to that unit.

use tidelock_cipher::{KeySlot, UnitCipher, is_zero, seal_units};
use tidelock_format::{BLOCK, BLOCK_USIZE, DiskSize, PlainSize, UNIT, UNIT_USIZE, ZeroRule};

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
        } else if !self.fill_up(&alone, key, start, part)? {
            self.make_hole(start, UNIT)?;
            lost = part;
        }
        match done.saturating_sub(lost) {
            0 => Err(Errno::NOSPC),
            count => Ok((count, end - lost as u64)),
        }
    }

    /// The same for a write that had the gate alone and stopped at `end`, in a file that had `size`
    /// before: where the bytes end that count.
    pub(super) fn settle_inside(
        &self,
        alone: &Alone<'_, S>,
        key: KeySlot,
        size: PlainSize,
        end: u64,
    ) -> Result<u64, Errno> {
        let start = end - end % UNIT;
        let part = usize::try_from(end - start).map_err(|_| Errno::INVAL)?;
        let whole = whole_blocks(part);
        let reached = start + whole as u64;
        if reached >= size.block_end() {
            return Ok(reached);
        }
        alone.begin_change();
        if self.fill_up(alone, key, start, part)? {
            return Ok(reached);
        }
        match self.traits().zero_rule {
            ZeroRule::Unit => self.make_hole(start, UNIT).map(|()| start),
            ZeroRule::Block => self.make_hole(reached, BLOCK).map(|()| reached),
        }
    }

    /// No room: a hole again, as if it had not been reached.
    fn make_hole(&self, start: u64, len: u64) -> Result<(), Errno> {
        let from = self.layout().disk(place(start)?);
        self.kernel().allocate(self.hidden(), KEEP_SIZE_AND_PUNCH_HOLE, from, len)
    }

    /// Seals zeros behind the first whole blocks of the `part` bytes that arrived of a unit, if the
    /// rest of it is a hole; false if there is no room. Where old bytes stand there is nothing to
    /// do.
    fn fill_up(
        &self,
        alone: &Alone<'_, S>,
        key: KeySlot,
        start: u64,
        part: usize,
    ) -> Result<bool, Errno> {
        let mut image = self.kernel().scratch(2 * UNIT_USIZE)?;
        let (found, zeros) = image.split_at_mut_checked(UNIT_USIZE).ok_or(Errno::IO)?;
        let count = self.kernel().pread(self.hidden(), found, self.layout().disk(place(start)?))?;
        // The end of the file may lie within the unit; the zeros that tell the size prove nothing.
        let (whole, there) = (whole_blocks(part), whole_blocks(count));
        let is_hole = there > part && is_zero(found.get(part..there).unwrap_or_default());
        let to = match self.traits().zero_rule {
            ZeroRule::Unit if is_hole && part > 0 => there,
            ZeroRule::Block if is_hole && part > whole => whole + BLOCK_USIZE,
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
