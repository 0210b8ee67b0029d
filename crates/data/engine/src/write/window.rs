//! Writes that have the file alone: pass by pass through scratch memory, each read where its edges
//! cut units, sealed and written once.
//!
//! ```text
//!   write_windows      size, gap, header; then for each window
//!     carry_out
//!       load_edges     what has to be sealed beside the data
//!       put            one write, the first one with the header
//!       settle         the kernel has stopped: the size must count only what is there
//!       cut_behind     the end lies between blocks: nothing stays behind it
//! ```

use tidelock_cipher::{KeySlot, Sealed, SealedHeader, UnitCipher, is_zero, open_units, seal_units};
use tidelock_format::{BLOCK_USIZE, PlainSize, UNIT, UNIT_USIZE, UnitNumber, ZeroRule};

use super::{Seen, Target, span};
use crate::end::Cut;
use crate::errno::Errno;
use crate::file::{OpenFile, place};
use crate::gate::Alone;
use crate::kernel::System;
use crate::read::Window;
use crate::roots::Decide;

/// What a pass knows of the disk before it looks.
struct Known<'s> {
    /// The first bytes of the first unit, as they are on the disk.
    unit: &'s [u8],
    /// The block that the end cuts, where the pass begins there.
    cut: Option<Cut>,
}

/// What a pass has written.
struct Written {
    count: usize,
    /// The block that the last byte lies in, if all went well.
    last: Option<Cut>,
}

/// What stands on the disk of a unit that is to be changed.
struct Existing {
    /// Bytes of whole blocks, from the unit's start.
    blocks: usize,
    /// The unit is a hole by zero rule 2.
    hole: bool,
}

/// A write that goes on pass by pass through scratch memory.
struct Passes<'w, 'p, S: System, C: UnitCipher, P: Decide> {
    file: &'w OpenFile<'p, S, C, P>,
    alone: &'w Alone<'w, S>,
    key: KeySlot,
    /// The header that is to be on the disk before any byte.
    pending: &'w mut Option<SealedHeader>,
    /// The size before the pass.
    size: PlainSize,
}

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    pub(super) fn write_windows(
        &self,
        alone: &Alone<'_, S>,
        key: KeySlot,
        pending: &mut Option<SealedHeader>,
        from: &[u8],
        target: Target,
        seen: &Seen<S>,
    ) -> Result<(usize, u64), Errno> {
        let size = match seen.size {
            Some(size) => size,
            None if pending.is_none() => self.size_to_write(alone)?,
            None => self.size_now()?,
        };
        let at = match target {
            Target::At(at) => at,
            Target::End => size.0,
        };
        let cut = self.remembered_cut(alone, size).filter(|_| at == size.0);
        if span(at, from.len())?.end() > size.0 {
            alone.begin_change();
            self.forget_end();
        }
        if at >= UNIT {
            self.put_header(&alone.at_work, pending)?;
        }
        let jumps = at > size.0 && at / UNIT != size.0 / UNIT;
        if jumps {
            self.close_last_unit(alone, key, size, at)?;
        }
        let mut passes = Passes { file: self, alone, key, pending, size };
        let (mut done, mut last) = (0, None);
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            let start = at + done as u64;
            let window = Window::at(start, rest.len())?;
            let data = rest.get(..window.wanted).unwrap_or_default();
            // Where a unit was seen, all bytes belong to it, and this is the only pass.
            let known = Known { unit: seen.bytes(), cut: cut.filter(|_| done == 0) };
            match passes.carry_out(data, &window, &known) {
                Ok(Written { count, last: block }) => {
                    done += count;
                    last = block;
                    passes.size = passes.size.max(PlainSize(start + count as u64));
                    if count < window.wanted {
                        break;
                    }
                }
                Err(error) if done == 0 => {
                    if jumps {
                        self.kernel().set_size(self.hidden(), size.on_disk(self.layout()))?;
                    }
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        let (size, end) = (passes.size, at + done as u64);
        // Seen without a change, only the size of a whole-unit file is good for more than now:
        // another's write of such units may have stopped within one, and not be settled yet.
        let lasts = alone.changes() || size.0.is_multiple_of(UNIT);
        if done == from.len() && last.is_some() && lasts {
            self.remember_end(alone, size, last.filter(|_| end == size.0));
        }
        Ok((done, end))
    }
}

impl<S: System, C: UnitCipher, P: Decide> Passes<'_, '_, S, C, P> {
    /// One pass: reads what the edges need, seals, writes once.
    fn carry_out(
        &mut self,
        data: &[u8],
        window: &Window,
        known: &Known<'_>,
    ) -> Result<Written, Errno> {
        let file = self.file;
        let end = window.skip + data.len();
        let mut image = file.kernel().scratch(window.len)?;
        let image = image.get_mut(..window.len).ok_or(Errno::IO)?;
        let (from, to) = self.load_edges(window, end, known, image)?;
        image.get_mut(window.skip..end).ok_or(Errno::IO)?.copy_from_slice(data);

        let start = window.first.0 * UNIT;
        let plain_end = PlainSize(start + end as u64);
        let grows = plain_end > self.size;
        let zeros = if grows { usize::try_from(plain_end.remainder()).unwrap_or(0) } else { 0 };
        let mut out = file.kernel().scratch(to + zeros)?;
        let plain = image.get(..to).ok_or(Errno::IO)?;
        let sealed = seal_units(file.cipher(), self.key, window.first, plain, zeros, &mut out)
            .ok_or(Errno::IO)?
            .skip(from);
        let there = self.put(sealed, start + from as u64)?;
        if there < sealed.len() {
            return self.settle(window, plain_end, to, from + there);
        }
        if grows {
            self.cut_behind(plain_end)?;
        }
        let block = (end - 1) - (end - 1) % BLOCK_USIZE;
        let last = image.get(block..).and_then(|rest| rest.first_chunk()).copied();
        Ok(Written { count: data.len(), last })
    }

    /// Puts into `image` what has to be sealed beside the data, which go from `window.skip` to
    /// `end`: what stands on the disk of units that they cut, and zeros. Which bytes of the image
    /// are to be written: from, to.
    fn load_edges(
        &self,
        window: &Window,
        end: usize,
        known: &Known<'_>,
        image: &mut [u8],
    ) -> Result<(usize, usize), Errno> {
        let (file, size) = (self.file, self.size);
        let by_unit = file.traits().zero_rule == ZeroRule::Unit;
        let last = (end - 1) - (end - 1) % UNIT_USIZE;
        let mut from = window.skip - window.skip % BLOCK_USIZE;
        let mut to = end.next_multiple_of(BLOCK_USIZE);
        let bare = self.pending.is_none()
            && (known.cut.is_some() || file.needs_nothing(window, end, size));
        if let Some(cut) = known.cut {
            let (block, there) = (from..window.skip, window.skip - from);
            let there = cut.get(..there).ok_or(Errno::IO)?;
            image.get_mut(block).ok_or(Errno::IO)?.copy_from_slice(there);
        }
        image.get_mut(end..to).ok_or(Errno::IO)?.fill(0);
        if !bare && (window.skip > 0 || (last == 0 && end < UNIT_USIZE)) {
            let head = image.get_mut(..UNIT_USIZE).ok_or(Errno::IO)?;
            let existing = file.load_unit(self.key, window.first, size, known.unit, head)?;
            if by_unit {
                from = if existing.hole { 0 } else { from.min(existing.blocks) };
                if existing.hole && last == 0 {
                    to = to.max(existing.blocks);
                }
            }
        }
        if !bare && last > 0 && end < last + UNIT_USIZE {
            let number = UnitNumber(window.first.0 + (last / UNIT_USIZE) as u64);
            let tail = image.get_mut(last..last + UNIT_USIZE).ok_or(Errno::IO)?;
            let existing = file.load_unit(self.key, number, size, &[], tail)?;
            if by_unit && existing.hole {
                to = to.max(last + existing.blocks);
            }
        }
        if self.pending.is_some() && window.first.0 == 0 {
            from = 0;
        }
        let start = window.first.0 * UNIT;
        let grows = start + end as u64 > size.0;
        let cut_block = size.0 - size.remainder();
        if grows && !size.is_whole_blocks() && cut_block >= start {
            // What a crash may have left behind the old end is not to be seen.
            from = from.min(usize::try_from(cut_block - start).map_err(|_| Errno::INVAL)?);
        }
        Ok((from, to))
    }

    /// Hands the bytes from `at` on to the kernel, the first ones of a file with its header; how
    /// many are there.
    fn put(&mut self, sealed: Sealed<'_>, at: u64) -> Result<usize, Errno> {
        let (file, by) = (self.file, &self.alone.at_work);
        let disk = file.layout().disk(place(at)?);
        if at == 0
            && let Some(header) = self.pending.take()
        {
            return file.put_first(by, self.pending, header, sealed);
        }
        file.put_header(by, self.pending)?;
        file.put(by, sealed, disk)
    }

    /// The kernel has stopped after `there` of the `to` bytes of a window, which was to end the
    /// file at `plain_end` if it grows: what stands there is made whole, and the size says so.
    fn settle(
        &self,
        window: &Window,
        plain_end: PlainSize,
        to: usize,
        there: usize,
    ) -> Result<Written, Errno> {
        let start = window.first.0 * UNIT;
        let stopped = start + there as u64;
        let whole = self.file.settle_inside(self.alone, self.key, self.size, stopped)?;
        let whole = usize::try_from(whole.saturating_sub(start)).map_err(|_| Errno::INVAL)?;
        let count = self.settle_size(window, plain_end, to, whole)?;
        Ok(Written { count, last: None })
    }

    /// Only `whole` of the `to` bytes of a window are there: the size must say so.
    fn settle_size(
        &self,
        window: &Window,
        plain_end: PlainSize,
        to: usize,
        whole: usize,
    ) -> Result<usize, Errno> {
        let (file, size, layout) = (self.file, self.size, self.file.layout());
        let mut whole = whole;
        let mut why = Errno::NOSPC;
        if whole >= to {
            // All blocks are there, only the zeros that tell the size are missing.
            match file.kernel().set_size(file.hidden(), plain_end.on_disk(layout)) {
                Ok(()) => return file.keep_promise().map(|()| window.wanted),
                // A limit is just there. Without them the size would count the whole last block.
                Err(refused) => (why, whole) = (refused, to - BLOCK_USIZE),
            }
        }
        let reached = PlainSize(window.first.0 * UNIT + whole as u64);
        // A write that fails leaves the end where it was.
        let right = if reached > size && whole > window.skip { reached } else { size };
        // Where it does not grow, `size` may be less than what others have made of it since.
        if plain_end > size && file.stat()?.size != right.on_disk(layout) {
            file.kernel().set_size(file.hidden(), right.on_disk(layout))?;
            file.keep_promise()?;
        }
        match whole.saturating_sub(window.skip) {
            0 => Err(why),
            count => Ok(count.min(window.wanted)),
        }
    }

    /// The file has grown to `plain_end`. Where that lies between blocks, what told the old size
    /// is cut off.
    fn cut_behind(&self, plain_end: PlainSize) -> Result<(), Errno> {
        let (file, layout) = (self.file, self.file.layout());
        if plain_end.is_whole_blocks() && self.size.on_disk(layout) > plain_end.on_disk(layout) {
            file.kernel().set_size(file.hidden(), plain_end.on_disk(layout))?;
            file.keep_promise()?;
        }
        Ok(())
    }
}

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// True if no byte beside those of the window is sealed again: its edges lie between blocks, or
    /// behind the end, which cuts none either; and the zero rule asks for nothing more. What the
    /// scratch memory holds before the window is then sealed with it, but not written.
    fn needs_nothing(&self, window: &Window, end: usize, size: PlainSize) -> bool {
        let plain_end = window.first.0 * UNIT + end as u64;
        self.traits().zero_rule == ZeroRule::Block
            && window.skip.is_multiple_of(BLOCK_USIZE)
            && size.is_whole_blocks()
            && (end.is_multiple_of(BLOCK_USIZE) || plain_end >= size.0)
    }

    /// Reads and opens what there is of one unit into `image`; zeros behind it. `seen` are the
    /// first bytes of the unit on the disk, where they are known.
    fn load_unit(
        &self,
        key: KeySlot,
        unit: UnitNumber,
        size: PlainSize,
        seen: &[u8],
        image: &mut [u8],
    ) -> Result<Existing, Errno> {
        let start = unit.0 * UNIT;
        let within = |end: u64| usize::try_from(end.saturating_sub(start).min(UNIT));
        let blocks = within(size.block_end()).map_err(|_| Errno::INVAL)?;
        let valid = within(size.0).map_err(|_| Errno::INVAL)?;
        let (body, behind) = image.split_at_mut_checked(blocks).ok_or(Errno::IO)?;
        behind.fill(0);
        if blocks == 0 {
            return Ok(Existing { blocks, hole: true });
        }
        let rule = self.traits().zero_rule;
        let mut count = 0;
        if let Some(known) = seen.get(..blocks) {
            body.copy_from_slice(known);
            count = blocks;
        }
        while count < blocks {
            let at = self.layout().disk(place(start + count as u64)?);
            let rest = body.get_mut(count..).unwrap_or_default();
            match self.kernel().pread(self.hidden(), rest, at)? {
                0 => return Err(Errno::IO),
                more => count += more,
            }
        }
        let hole = rule == ZeroRule::Unit && is_zero(body);
        open_units(self.cipher(), key, unit, rule, body);
        body.get_mut(valid..).unwrap_or_default().fill(0);
        Ok(Existing { blocks, hole })
    }

    /// Before the end moves up to `new_end`, away from a block or unit that it cuts: the last block
    /// is sealed again with zeros behind the end, since a crash may have left other bytes there;
    /// and (zero rule 2) zeros follow up to the unit's end, or up to `new_end` if that is in the
    /// same unit. In one write.
    pub(crate) fn close_last_unit(
        &self,
        alone: &Alone<'_, S>,
        key: KeySlot,
        size: PlainSize,
        new_end: u64,
    ) -> Result<(), Errno> {
        let cut_block = size.0 - size.remainder();
        let unit = UnitNumber(cut_block / UNIT);
        let start = unit.0 * UNIT;
        let end = match self.traits().zero_rule {
            ZeroRule::Block => PlainSize(size.block_end()),
            ZeroRule::Unit if cut_block == start && size.is_whole_blocks() => size,
            ZeroRule::Unit => PlainSize(new_end.min(start + UNIT)),
        };
        if new_end <= size.0 || end <= size {
            return Ok(());
        }
        let cut = usize::try_from(cut_block - start).map_err(|_| Errno::INVAL)?;
        let mut image = self.kernel().scratch(UNIT_USIZE)?;
        let image = image.get_mut(..UNIT_USIZE).ok_or(Errno::IO)?;
        if self.load_unit(key, unit, size, &[], image)?.hole {
            return self.clear_tail(size);
        }
        let to = usize::try_from(end.block_end() - start).map_err(|_| Errno::INVAL)?;
        // Where the block is all that is written, the zeros that tell the size are written again
        // too.
        let tail = if end.0 == size.block_end() { size } else { end };
        let zeros = usize::try_from(tail.remainder()).unwrap_or(0);
        let mut out = self.kernel().scratch(to + zeros)?;
        let plain = image.get(..to).ok_or(Errno::IO)?;
        let sealed = seal_units(self.cipher(), key, unit, plain, zeros, &mut out)
            .ok_or(Errno::IO)?
            .skip(cut);
        let at = self.layout().disk(place(start + cut as u64)?);
        let there = self.put(&alone.at_work, sealed, at)?;
        if there < sealed.len() {
            self.kernel().set_size(self.hidden(), size.on_disk(self.layout()))?;
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    /// Behind a hole that the end cuts, the bytes that tell the size must be zeros before the end
    /// moves up.
    fn clear_tail(&self, size: PlainSize) -> Result<(), Errno> {
        let mut tail = [0u8; BLOCK_USIZE];
        let len = usize::try_from(size.remainder()).map_err(|_| Errno::INVAL)?;
        let tail = tail.get_mut(..len).unwrap_or_default();
        let block_end = PlainSize(size.block_end());
        if !tail.is_empty() {
            self.kernel().pread(self.hidden(), tail, self.layout().disk(place(block_end.0)?))?;
        }
        if is_zero(tail) {
            return Ok(());
        }
        self.kernel().set_size(self.hidden(), block_end.on_disk(self.layout()))
    }
}
