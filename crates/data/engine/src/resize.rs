//! Truncating, extending, allocating and seeking: what the end of a sealed file means.
//!
//! A cut to a size within a block cuts to the end of the last block first and then writes that
//! block again with zeros and the zeros that tell the size: a crash between leaves up to 15 bytes
//! more, never garbage.

use tidelock_cipher::{KeySlot, UnitCipher, is_zero, open_units, seal_units};
use tidelock_format::{BLOCK, BLOCK_USIZE, PlainSize, UNIT, UNIT_USIZE, UnitNumber};

use crate::errno::Errno;
use crate::file::{OpenFile, place};
use crate::gate::Alone;
use crate::kernel::System;
use crate::roots::Decide;

const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const SEEK_SET: i32 = 0;
const SEEK_CUR: i32 = 1;
const SEEK_END: i32 = 2;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// ftruncate(2), both ways.
    ///
    /// # Errors
    /// EINVAL if not open for writing or `size` is impossible, and those of the kernel.
    pub fn set_len(&self, size: u64) -> Result<(), Errno> {
        if !self.flags().access().write {
            return Err(Errno::INVAL);
        }
        let wanted = PlainSize(place(size).map_err(|_| Errno::FBIG)?.get());
        let alone = self.alone()?;
        self.set_len_alone(&alone, wanted)
    }

    fn set_len_alone(&self, alone: &Alone<'_, S>, wanted: PlainSize) -> Result<(), Errno> {
        let mut disk = self.stat()?.size;
        let header = self.layout().written_header().get();
        if self.is_keyed() && disk.0 < header && self.mend_lost(alone)? {
            disk = self.stat()?.size;
        }
        let now = disk.plain(self.layout());
        if wanted == now {
            // The kernel gives back what was allocated beyond the end, and notes the time.
            return self.kernel().set_size(self.hidden(), disk);
        }
        alone.begin_change();
        let (key, mut pending) = self.key_or_new_header()?;
        let fresh = pending.is_some();
        let result = self.put_header(&alone.at_work, &mut pending).and_then(|()| {
            if wanted < now {
                self.cut(alone, key, wanted)
            } else {
                self.extend(alone, key, now, wanted)
            }
        });
        if fresh {
            self.settle_key(key, pending.is_none());
        }
        result
    }

    fn cut(&self, alone: &Alone<'_, S>, key: KeySlot, wanted: PlainSize) -> Result<(), Errno> {
        let layout = self.layout();
        let whole = PlainSize(wanted.block_end());
        // Before anything changes: whatever may run out.
        let mut memory = self.kernel().scratch(2 * UNIT_USIZE + BLOCK_USIZE)?;
        let (image, out) = memory.split_at_mut_checked(UNIT_USIZE).ok_or(Errno::IO)?;
        self.kernel().set_size(self.hidden(), whole.on_disk(layout))?;
        if wanted.is_whole_blocks() {
            return Ok(());
        }
        let unit = UnitNumber(wanted.0 / UNIT);
        let start = unit.0 * UNIT;
        let to = usize::try_from(whole.0 - start).map_err(|_| Errno::INVAL)?;
        let keep = usize::try_from(wanted.0 - start).map_err(|_| Errno::INVAL)?;
        let image = image.get_mut(..to).ok_or(Errno::IO)?;
        let count = self.kernel().pread(self.hidden(), image, layout.disk(place(start)?))?;
        if count < to {
            return Err(Errno::IO);
        }
        let last = to - usize::try_from(BLOCK).unwrap_or(16);
        let rule = self.traits().zero_rule;
        let hole = match rule {
            tidelock_format::ZeroRule::Unit => is_zero(image),
            tidelock_format::ZeroRule::Block => is_zero(image.get(last..).unwrap_or_default()),
        };
        if hole {
            return self.kernel().set_size(self.hidden(), wanted.on_disk(layout));
        }
        open_units(self.cipher(), key, unit, rule, image);
        image.get_mut(keep..).unwrap_or_default().fill(0);
        let zeros = usize::try_from(wanted.remainder()).unwrap_or(0);
        let sealed =
            seal_units(self.cipher(), key, unit, image, zeros, out).ok_or(Errno::IO)?.skip(last);
        let there = self.put(&alone.at_work, sealed, layout.disk(place(start + last as u64)?))?;
        if there < sealed.len() {
            // The block is there (or the old one is); the size needs no room on the disk.
            self.kernel().set_size(self.hidden(), wanted.on_disk(layout))?;
        }
        Ok(())
    }

    fn extend(
        &self,
        alone: &Alone<'_, S>,
        key: KeySlot,
        now: PlainSize,
        wanted: PlainSize,
    ) -> Result<(), Errno> {
        self.close_last_unit(alone, key, now, wanted.0)?;
        let disk = wanted.on_disk(self.layout());
        if self.stat()?.size == disk {
            return Ok(());
        }
        self.kernel().set_size(self.hidden(), disk).or_else(|why| {
            // The unit that was closed may be all there is room for.
            self.kernel().set_size(self.hidden(), now.on_disk(self.layout()))?;
            Err(why)
        })
    }

    /// fallocate(2): mode 0, FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
    ///
    /// # Errors
    /// EOPNOTSUPP for other modes, EBADF if not open for writing, and those of the kernel.
    pub fn allocate(&self, mode: i32, at: u64, len: u64) -> Result<(), Errno> {
        self.may_write()?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let end = at.checked_add(len).ok_or(Errno::FBIG)?;
        place(end).map_err(|_| Errno::FBIG)?;
        let alone = self.alone()?;
        match mode {
            0 | FALLOC_KEEP_SIZE => {
                let first = self.layout().disk(place(at - at % BLOCK)?);
                // One block more tells a size within a block; the size here is no less than `end`.
                let more = if mode == 0 && end.is_multiple_of(BLOCK) { 0 } else { BLOCK };
                let blocks = end.next_multiple_of(BLOCK) - (at - at % BLOCK) + more;
                self.kernel().allocate(self.hidden(), FALLOC_KEEP_SIZE, first, blocks)?;
                if mode == 0 && end > self.size_now()?.0 {
                    self.set_len_alone(&alone, PlainSize(end))?;
                }
                Ok(())
            }
            _ if mode == FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE => self.punch(&alone, at, end),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Grows to `end` at least, and takes no room on the disk: what posix_fallocate can do where
    /// the file system allocates nothing.
    ///
    /// # Errors
    /// EBADF if not open for writing, EFBIG, and those of the kernel.
    pub fn reach(&self, end: u64) -> Result<(), Errno> {
        self.may_write()?;
        place(end).map_err(|_| Errno::FBIG)?;
        // Before the size is asked for: another one may be writing behind it.
        let alone = self.alone()?;
        if end > self.size_now()?.0 {
            self.set_len_alone(&alone, PlainSize(end))?;
        }
        Ok(())
    }

    /// Whole units become holes again; their neighbours' bytes are written as zeros.
    fn punch(&self, alone: &Alone<'_, S>, at: u64, end: u64) -> Result<(), Errno> {
        let size = self.size_now()?;
        self.free_behind(size, at, end)?;
        let end = end.min(size.0);
        if end <= at {
            return Ok(());
        }
        // Not the size, but blocks that readers could see half cleared.
        alone.begin_change();
        let (first, last) = (at.next_multiple_of(UNIT), end - end % UNIT);
        if first < last {
            let from = self.layout().disk(place(first)?);
            let mode = FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE;
            self.kernel().allocate(self.hidden(), mode, from, last - first)?;
            self.zero_range(alone, at, first)?;
            self.zero_range(alone, last, end)
        } else {
            self.zero_range(alone, at, end)
        }
    }

    /// Gives back what was allocated beyond the end: nothing has been written there.
    fn free_behind(&self, size: PlainSize, at: u64, end: u64) -> Result<(), Errno> {
        // Behind the bytes that tell the size, up to where `allocate` reaches.
        let from = at.max(size.block_end() + BLOCK);
        let end = end.next_multiple_of(BLOCK) + BLOCK;
        if from >= end {
            return Ok(());
        }
        let mode = FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE;
        self.kernel().allocate(self.hidden(), mode, self.layout().disk(place(from)?), end - from)
    }

    fn zero_range(&self, alone: &Alone<'_, S>, at: u64, end: u64) -> Result<(), Errno> {
        let zeros = [0u8; 512];
        let mut at = at;
        while at < end {
            // Up to a block's end each time: no block is half zeros in between.
            let count = (end - at).min(512 - at % 512);
            let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
            at += self.write_in_gate(alone, zeros.get(..count).unwrap_or_default(), at)? as u64;
        }
        Ok(())
    }

    /// lseek(2).
    ///
    /// # Errors
    /// EINVAL, ENXIO and those of the kernel.
    pub fn seek(&self, offset: i64, whence: i32) -> Result<u64, Errno> {
        let (_turn, at) = match whence {
            SEEK_SET => (self.brief_turn(), u64::try_from(offset).map_err(|_| Errno::INVAL)?),
            SEEK_CUR if offset == 0 => {
                let _turn = self.brief_turn();
                return self.offset();
            }
            SEEK_CUR => {
                let turn = self.turn();
                (turn, offset_from(self.offset()?, offset)?)
            }
            SEEK_END => {
                let turn = self.brief_turn();
                if offset == 0
                    && let Some(end) = self.seek_to_end()?
                {
                    self.note_offset(end);
                    return Ok(end);
                }
                let end = self.size()?.0;
                (turn, offset_from(end, offset)?)
            }
            SEEK_DATA | SEEK_HOLE => {
                let _turn = self.turn();
                return self.seek_data(offset, whence);
            }
            _ => return Err(Errno::INVAL),
        };
        let at = place(at)?.get();
        self.move_offset(at)?;
        Ok(at)
    }

    /// The plain end in one call, for servers that ask for it with every query: a whole-unit file
    /// ends where the disk's does, less what precedes unit 0. `None` if it is not one; the offset
    /// may be anywhere then.
    fn seek_to_end(&self) -> Result<Option<u64>, Errno> {
        // Without a header it is shorter than that.
        if !self.is_keyed() {
            return Ok(None);
        }
        let Some(generation) = self.whole_since()? else { return Ok(None) };
        let before_units = self.layout().data_offset().into();
        let Ok(end) = self.kernel().seek_back(self.hidden(), before_units) else { return Ok(None) };
        Ok((self.whole_since()? == Some(generation)).then_some(end))
    }

    fn seek_data(&self, offset: i64, whence: i32) -> Result<u64, Errno> {
        let at = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let size = self.size()?.0;
        if at >= size {
            return Err(Errno::NXIO);
        }
        let before = self.offset()?;
        let found = self.kernel().seek(self.hidden(), self.layout().disk(place(at)?), whence);
        let found = match found {
            Ok(found) => self.layout().plain(found).map_or(at, tidelock_format::PlainOffset::get),
            Err(error) => {
                self.move_offset(before)?;
                return Err(error);
            }
        };
        let found = if whence == SEEK_HOLE { found.min(size) } else { found };
        if found >= size && whence == SEEK_DATA {
            self.move_offset(before)?;
            return Err(Errno::NXIO);
        }
        self.move_offset(found)?;
        Ok(found)
    }
}

fn offset_from(base: u64, offset: i64) -> Result<u64, Errno> {
    base.checked_add_signed(offset).ok_or(Errno::INVAL)
}
