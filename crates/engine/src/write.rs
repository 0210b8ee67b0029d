//! Writing: whole units of even files with one system call and no lock, all others under the file's lock.
//!
//! Never more is written than the 16-byte blocks that the call touches, except where a unit that was a hole
//! gets its first bytes (zero rule 2): then all of it is sealed, so that no unit is ever half a hole.
//! The count returned is that of plain bytes that are really there.

use std::io::IoSlice;

use tidelock_cipher::{KeySlot, Sealed, SealedHeader, UnitCipher, is_zero, open_units, seal_units};
use tidelock_format::{
    BLOCK, BLOCK_USIZE, DiskOffset, PlainSize, Span, UNIT, UNIT_USIZE, UnitNumber, ZeroRule,
};

use crate::errno::Errno;
use crate::file::{Held, O_APPEND, OpenFile, place, whole_blocks};
use crate::kernel::{Reach, SCRATCH_MAX, System};
use crate::read::Window;
use crate::refusal::Refusal;
use crate::roots::Decide;
use crate::sequence::{Range, Writing};

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    At(u64),
    End,
}

/// What stands on the disk of a unit that is to be changed.
struct Existing {
    /// Bytes of whole blocks, from the unit's start.
    blocks: usize,
    /// The unit is a hole by zero rule 2.
    hole: bool,
}

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// pwrite(2). With O_APPEND it appends, whatever the offset, as Linux does.
    ///
    /// # Errors
    /// EBADF if not open for writing, EFBIG beyond the largest offset, and those of the kernel.
    #[inline]
    pub fn pwrite(&self, from: &[u8], at: u64) -> Result<usize, Errno> {
        self.may_write()?;
        if from.is_empty() {
            return Ok(0);
        }
        if self.appends() {
            let held = self.lock(Reach::Everyone)?;
            return self.write_held(&held, from, Target::End).map(|(count, _)| count);
        }
        if let Some(key) = self.fast(from.len(), at)? {
            return self.write_aligned(key, from, at);
        }
        let held = self.lock(Reach::Everyone)?;
        self.write_held(&held, from, Target::At(at)).map(|(count, _)| count)
    }

    /// write(2): at the file's offset, or at the end with O_APPEND; moves the offset.
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite).
    pub fn write(&self, from: &[u8]) -> Result<usize, Errno> {
        self.writev(&[IoSlice::new(from)])
    }

    /// writev(2): one after another at the file's offset, nothing of other writers in between.
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite).
    pub fn writev(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.may_write()?;
        let mut reach = if self.appends() { Reach::Everyone } else { self.offset_reach() };
        loop {
            let held = self.lock(reach)?;
            let at = self.kernel().position(self.hidden())?;
            if reach == Reach::Process && !self.all_fast(from, at)? {
                reach = Reach::Everyone;
                continue;
            }
            let (count, end) = self.write_all(&held, from, at, reach)?;
            if count > 0 {
                self.kernel().set_position(self.hidden(), end)?;
            }
            return Ok(count);
        }
    }

    /// pwritev(2).
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite).
    pub fn pwritev(&self, from: &[IoSlice<'_>], at: u64) -> Result<usize, Errno> {
        self.may_write()?;
        if let [one] = from {
            return self.pwrite(one, at);
        }
        let held = self.lock(Reach::Everyone)?;
        self.write_all(&held, from, at, Reach::Everyone).map(|(count, _)| count)
    }

    /// Writes `from` at `at`; the caller holds the file's lock.
    pub(crate) fn write_zeros(&self, from: &[u8], at: u64) -> Result<usize, Errno> {
        self.write_locked(from, Target::At(at)).map(|(count, _)| count)
    }

    fn appends(&self) -> bool {
        self.flags().0 & O_APPEND != 0
    }

    /// The key, if these bytes can be written without a lock.
    #[inline]
    fn fast(&self, len: usize, at: u64) -> Result<Option<KeySlot>, Errno> {
        let span = Span::new(place(at)?, len).ok_or(Errno::FBIG)?;
        if !span.is_whole_units() {
            return Ok(None);
        }
        Ok(self.key()?.filter(|&key| self.is_even(key)))
    }

    fn all_fast(&self, from: &[IoSlice<'_>], at: u64) -> Result<bool, Errno> {
        let mut at = at;
        for piece in from.iter().filter(|piece| !piece.is_empty()) {
            if self.fast(piece.len(), at)?.is_none() {
                return Ok(false);
            }
            at += piece.len() as u64;
        }
        Ok(true)
    }

    /// Writes all pieces; how many bytes, and the offset behind the last.
    fn write_all(
        &self,
        held: &Held<'_, S>,
        from: &[IoSlice<'_>],
        at: u64,
        reach: Reach,
    ) -> Result<(usize, u64), Errno> {
        let (mut done, mut end) = (0, at);
        for piece in from.iter().filter(|piece| !piece.is_empty()) {
            let target = if self.appends() { Target::End } else { Target::At(end) };
            let result = match self.fast(piece.len(), end)? {
                Some(key) if target != Target::End => {
                    self.write_aligned(key, piece, end).map(|count| (count, end + count as u64))
                }
                // Somebody made the file uneven meanwhile; the caller comes again with the rest.
                _ if reach == Reach::Process => break,
                _ => self.write_held(held, piece, target),
            };
            match result {
                Ok((count, behind)) => {
                    (done, end) = (done + count, behind);
                    if count < piece.len() {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((done, end))
    }

    fn write_aligned(&self, key: KeySlot, from: &[u8], at: u64) -> Result<usize, Errno> {
        let mut done = 0;
        let mut scratch = self.kernel().scratch(from.len().min(SCRATCH_MAX));
        for piece in from.chunks(SCRATCH_MAX) {
            let start = place(at + done as u64)?;
            let sealed = seal_units(self.cipher(), key, start.unit(), piece, 0, &mut scratch)
                .ok_or(Errno::IO)?;
            match self.put(sealed, self.layout().disk(start)) {
                Ok(count) if count == piece.len() => done += count,
                Ok(short) => {
                    self.cut_torn_block(self.layout().disk(start), short)?;
                    done += whole_blocks(short);
                    break;
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if done == 0 { Err(Errno::NOSPC) } else { Ok(done) }
    }

    /// Writes under the file's lock; how many bytes, and the offset behind them.
    fn write_held(
        &self,
        _held: &Held<'_, S>,
        from: &[u8],
        target: Target,
    ) -> Result<(usize, u64), Errno> {
        self.write_locked(from, target)
    }

    fn write_locked(&self, from: &[u8], target: Target) -> Result<(usize, u64), Errno> {
        if let Target::At(at) = target
            && let Some(done) = self.write_inside(from, at)?
        {
            return Ok((done, at + done as u64));
        }
        let (key, mut pending) = self.key_or_new_header()?;
        let result = self.write_windows(key, &mut pending, from, target);
        self.settle_key(key, pending.is_none());
        result
    }

    /// The common case of a small write: within one unit that has bytes, and not at the end of the file. The read
    /// of what the edges need shows that, so the size need not be asked for. `None` if it is another case.
    fn write_inside(&self, from: &[u8], at: u64) -> Result<Option<usize>, Errno> {
        let span = Span::new(place(at)?, from.len()).ok_or(Errno::FBIG)?;
        let start = span.unit_start();
        let Some(key) = self.key()?.filter(|_| span.end() <= start + UNIT) else { return Ok(None) };
        let inside = |at: u64| usize::try_from(at - start).map_err(|_| Errno::INVAL);
        let (first, to) = (inside(span.block_start())?, inside(span.block_end())?);
        let mut image = self.kernel().scratch(to + BLOCK_USIZE);
        let count =
            self.kernel().pread(self.hidden(), &mut image, self.layout().disk(place(start)?))?;
        let rule = self.traits().zero_rule;
        let image = image.get_mut(..to).ok_or(Errno::IO)?;
        let hole = rule == ZeroRule::Unit
            && image.first_chunk().is_none_or(|first| *first == [0; BLOCK_USIZE]);
        if count < to + BLOCK_USIZE || hole {
            return Ok(None);
        }
        open_units(self.cipher(), key, span.first_unit(), rule, image);
        image.get_mut(inside(at)?..inside(span.end())?).ok_or(Errno::IO)?.copy_from_slice(from);
        let mut out = self.kernel().scratch(to);
        let sealed = seal_units(self.cipher(), key, span.first_unit(), image, 0, &mut out)
            .ok_or(Errno::IO)?
            .skip(first);
        let there = self.put(sealed, self.layout().disk(place(start + first as u64)?))?;
        if there == sealed.len() {
            return Ok(Some(from.len()));
        }
        match (first + whole_blocks(there)).saturating_sub(inside(at)?) {
            0 => Err(Errno::NOSPC),
            count => Ok(Some(count.min(from.len()))),
        }
    }

    fn write_windows(
        &self,
        key: KeySlot,
        pending: &mut Option<SealedHeader>,
        from: &[u8],
        target: Target,
    ) -> Result<(usize, u64), Errno> {
        let mut size = self.size()?;
        let at = match target {
            Target::At(at) => at,
            Target::End => size.0,
        };
        Span::new(place(at)?, from.len()).ok_or(Errno::FBIG)?;
        if at >= UNIT {
            self.put_header(pending)?;
        }
        let before = size;
        let jumps = at > size.0 && at / UNIT != size.0 / UNIT;
        if jumps {
            self.close_last_unit(key, size, at)?;
        }
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            let start = at + done as u64;
            let window = Window::at(start, rest.len())?;
            let wanted = window.wanted;
            let data = rest.get(..wanted).unwrap_or_default();
            match self.write_window(key, pending, data, &window, size) {
                Ok(count) => {
                    done += count;
                    size = size.max(PlainSize(start + count as u64));
                    if count < wanted {
                        break;
                    }
                }
                Err(error) if done == 0 => {
                    if jumps {
                        self.kernel().set_size(self.hidden(), before.on_disk(self.layout()))?;
                    }
                    return Err(error);
                }
                Err(_) => break,
            }
        }
        Ok((done, at + done as u64))
    }

    /// One pass through scratch memory: reads what the edges need, seals, writes once.
    fn write_window(
        &self,
        key: KeySlot,
        pending: &mut Option<SealedHeader>,
        data: &[u8],
        window: &Window,
        size: PlainSize,
    ) -> Result<usize, Errno> {
        let traits = self.traits();
        let unit_start = window.first.0 * UNIT;
        let end = window.skip + data.len();
        let last = (end - 1) - (end - 1) % UNIT_USIZE;
        let mut image = self.kernel().scratch(window.len);
        let image = image.get_mut(..window.len).ok_or(Errno::IO)?;

        let mut from = window.skip - window.skip % BLOCK_USIZE;
        let mut to = end.next_multiple_of(BLOCK_USIZE);
        if window.skip > 0 || (last == 0 && end < UNIT_USIZE) {
            let head = image.get_mut(..UNIT_USIZE).ok_or(Errno::IO)?;
            let existing = self.load_unit(key, window.first, size, head)?;
            if traits.zero_rule == ZeroRule::Unit {
                from = if existing.hole { 0 } else { from.min(existing.blocks) };
                if existing.hole && last == 0 {
                    to = to.max(existing.blocks);
                }
            }
        }
        if last > 0 && end < last + UNIT_USIZE {
            let number = UnitNumber(window.first.0 + (last / UNIT_USIZE) as u64);
            let tail = image.get_mut(last..last + UNIT_USIZE).ok_or(Errno::IO)?;
            let existing = self.load_unit(key, number, size, tail)?;
            if traits.zero_rule == ZeroRule::Unit && existing.hole {
                to = to.max(last + existing.blocks);
            }
        }
        if pending.is_some() && window.first.0 == 0 {
            from = 0;
        }
        let plain_end = PlainSize(unit_start + end as u64);
        let grows = plain_end > size;
        let cut_block = size.0 - size.remainder();
        if grows && !size.is_even() && cut_block >= unit_start {
            // What a crash may have left behind the old end is not to be seen.
            from = from.min(usize::try_from(cut_block - unit_start).map_err(|_| Errno::INVAL)?);
        }
        image.get_mut(window.skip..end).ok_or(Errno::IO)?.copy_from_slice(data);

        let zeros = if grows { usize::try_from(plain_end.remainder()).unwrap_or(0) } else { 0 };
        let mut out = self.kernel().scratch(to + zeros);
        let plain = image.get(..to).ok_or(Errno::IO)?;
        let sealed = seal_units(self.cipher(), key, window.first, plain, zeros, &mut out)
            .ok_or(Errno::IO)?
            .skip(from);
        if grows && !plain_end.0.is_multiple_of(UNIT) {
            self.process.keys.mark_uneven(key);
        }

        let at = self.layout().disk(place(unit_start + from as u64)?);
        let there = match pending.take() {
            Some(header) if from == 0 && window.first.0 == 0 => {
                self.put_first(pending, header, sealed)?
            }
            Some(header) => {
                *pending = Some(header);
                self.put_header(pending)?;
                self.put(sealed, at)?
            }
            None => self.put(sealed, at)?,
        };
        if there < sealed.len() {
            return self.settle_short(size, window, from, to, there, plain_end);
        }
        if grows
            && plain_end.is_even()
            && size.on_disk(self.layout()) > plain_end.on_disk(self.layout())
        {
            self.kernel().set_size(self.hidden(), plain_end.on_disk(self.layout()))?;
        }
        Ok(data.len())
    }

    /// Only `there` bytes of a window arrived: the size must say what is whole.
    fn settle_short(
        &self,
        size: PlainSize,
        window: &Window,
        from: usize,
        to: usize,
        there: usize,
        plain_end: PlainSize,
    ) -> Result<usize, Errno> {
        let layout = self.layout();
        let whole = from + whole_blocks(there);
        if whole >= to {
            // All blocks are there, only the zeros that tell the size are missing.
            self.kernel().set_size(self.hidden(), plain_end.on_disk(layout))?;
            return Ok(window.wanted);
        }
        let reached = PlainSize(window.first.0 * UNIT + whole as u64);
        let right = if reached > size { reached } else { size };
        if self.stat()?.size != right.on_disk(layout) {
            self.kernel().set_size(self.hidden(), right.on_disk(layout))?;
        }
        match whole.saturating_sub(window.skip) {
            0 => Err(Errno::NOSPC),
            count => Ok(count.min(window.wanted)),
        }
    }

    /// Reads and opens what there is of one unit into `image`; zeros behind it.
    fn load_unit(
        &self,
        key: KeySlot,
        unit: UnitNumber,
        size: PlainSize,
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
        while count < blocks {
            let at = DiskOffset::HEADER.max(self.layout().disk(place(start + count as u64)?));
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

    /// Before the end moves up to `new_end`, away from a block or unit that it cuts: the last block is sealed
    /// again with zeros behind the end, since a crash may have left other bytes there; and (zero rule 2) zeros
    /// follow up to the unit's end, or up to `new_end` if that is in the same unit. In one write.
    pub(crate) fn close_last_unit(
        &self,
        key: KeySlot,
        size: PlainSize,
        new_end: u64,
    ) -> Result<(), Errno> {
        let cut_block = size.0 - size.remainder();
        let unit = UnitNumber(cut_block / UNIT);
        let start = unit.0 * UNIT;
        let end = match self.traits().zero_rule {
            ZeroRule::Block => PlainSize(size.block_end()),
            ZeroRule::Unit if cut_block == start && size.is_even() => size,
            ZeroRule::Unit => PlainSize(new_end.min(start + UNIT)),
        };
        if new_end <= size.0 || end <= size {
            return Ok(());
        }
        let cut = usize::try_from(cut_block - start).map_err(|_| Errno::INVAL)?;
        let mut image = self.kernel().scratch(UNIT_USIZE);
        let image = image.get_mut(..UNIT_USIZE).ok_or(Errno::IO)?;
        if self.load_unit(key, unit, size, image)?.hole {
            return self.clear_tail(size);
        }
        let to = usize::try_from(end.block_end() - start).map_err(|_| Errno::INVAL)?;
        // Where the block is all that is written, the zeros that tell the size are written again too.
        let tail = if end.0 == size.block_end() { size } else { end };
        let zeros = usize::try_from(tail.remainder()).unwrap_or(0);
        let mut out = self.kernel().scratch(to + zeros);
        let plain = image.get(..to).ok_or(Errno::IO)?;
        let sealed = seal_units(self.cipher(), key, unit, plain, zeros, &mut out)
            .ok_or(Errno::IO)?
            .skip(cut);
        let at = self.layout().disk(place(start + cut as u64)?);
        let there = self.put(sealed, at)?;
        if there < sealed.len() {
            self.kernel().set_size(self.hidden(), size.on_disk(self.layout()))?;
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    /// Behind a hole that the end cuts, the bytes that tell the size must be zeros before the end moves up.
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

    /// Hands sealed bytes to the kernel until all are there or it refuses; how many are.
    pub(crate) fn put(&self, sealed: Sealed<'_>, at: DiskOffset) -> Result<usize, Errno> {
        let _writing = self.announce(at, sealed.len());
        let mut done = 0;
        while done < sealed.len() {
            let next = tidelock_format::Layout::advance(at, done as u64);
            match self.kernel().pwrite(self.hidden(), sealed.skip(done), next) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        if done == 0 { Err(Errno::NOSPC) } else { Ok(done) }
    }

    /// Tells readers that these bytes are about to change.
    fn announce(&self, at: DiskOffset, len: usize) -> Writing<'_, S> {
        let start = self.layout().plain(at).map_or(0, tidelock_format::PlainOffset::get);
        let range = Range::new(self.traits().stripe(), start, start + len as u64);
        Writing::begin(self.kernel(), range)
    }

    /// The header and the first bytes in one write; how many of the bytes are there.
    fn put_first(
        &self,
        pending: &mut Option<SealedHeader>,
        header: SealedHeader,
        sealed: Sealed<'_>,
    ) -> Result<usize, Errno> {
        let start = self.layout().start();
        let write = || {
            let _writing = self.announce(start, sealed.len());
            self.kernel().pwrite_first(self.hidden(), &header, start, sealed)
        };
        let head = usize::try_from(start.get()).unwrap_or(0);
        let mut written = write();
        if matches!(written, Ok(count) if count <= head && count < head + sealed.len()) {
            // The second try tells whether there is room.
            written = write();
        }
        match written {
            Ok(count) if count == head + sealed.len() => Ok(sealed.len()),
            Ok(count) if count > head => {
                let more = self.put(sealed.skip(count - head), Self::behind(start, count - head));
                Ok(count - head + more.unwrap_or(0))
            }
            Ok(count) if count == head && sealed.is_empty() => Ok(0),
            refused => {
                // A file that could not get its header is not left behind half made.
                *pending = Some(header);
                self.kernel().set_size(self.hidden(), tidelock_format::DiskSize(0))?;
                Err(refused.err().unwrap_or(Errno::NOSPC))
            }
        }
    }

    fn behind(at: DiskOffset, count: usize) -> DiskOffset {
        tidelock_format::Layout::advance(at, count as u64)
    }

    /// The header alone, for a file whose first bytes do not stand at its start.
    pub(crate) fn put_header(&self, pending: &mut Option<SealedHeader>) -> Result<(), Errno> {
        match pending.take() {
            Some(header) => self.put_first(pending, header, Sealed::EMPTY).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The file's key; or a new one, with the header that must be written before any byte. Under the lock.
    pub(crate) fn key_or_new_header(&self) -> Result<(KeySlot, Option<SealedHeader>), Errno> {
        if let Some(key) = self.key()? {
            return Ok((key, None));
        }
        let traits = self.traits();
        if self.stat()?.size.0 > u64::from(self.layout().data_offset()) {
            // Zeros where the header was: only an open may mend that.
            return Err(Errno::IO);
        }
        let header = self
            .cipher()
            .create(traits.root, traits.class, self.layout())
            .map_err(|why| Refusal::Unlock(why).errno())?;
        let key = self.process.install(header.as_bytes()).map_err(Refusal::errno)?;
        Ok((key, Some(header)))
    }

    /// After the first write: the open file holds its key, or the key is dropped with the header.
    pub(crate) fn settle_key(&self, key: KeySlot, written: bool) {
        let holds = self.slot.key.load(core::sync::atomic::Ordering::Acquire) != 0;
        match (holds, written) {
            (true, _) => {}
            (false, true) => {
                self.adopt(key);
            }
            (false, false) => self.process.keys.leave(key),
        }
    }

    /// A write without a lock stopped inside a 16-byte block at the end: the size must not count it.
    fn cut_torn_block(&self, at: DiskOffset, there: usize) -> Result<(), Errno> {
        let torn = there as u64 % BLOCK;
        let end = Self::behind(at, there);
        if torn > 0 && self.stat()?.size.0 == end.get() {
            let whole = tidelock_format::DiskSize(end.get() - torn);
            self.kernel().set_size(self.hidden(), whole)?;
        }
        Ok(())
    }
}
