//! Writing: whole units of even files with one system call and no lock, all others under the file's lock.
//!
//! Never more is written than the 16-byte blocks that the call touches, except where a unit that was a hole
//! gets its first bytes (zero rule 2): then all of it is sealed, so that no unit is ever half a hole.
//! The count returned is that of plain bytes that are really there.

mod put;
mod window;

use std::io::IoSlice;

use tidelock_cipher::{KeySlot, UnitCipher, open_units, seal_units};
use tidelock_format::{BLOCK_USIZE, Span, UNIT, ZeroRule};

use crate::errno::Errno;
use crate::file::{Held, OpenFile, place, whole_blocks};
use crate::kernel::{Reach, SCRATCH_MAX, System};
use crate::roots::Decide;

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    At(u64),
    End,
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
            if count == 0 && reach == Reach::Process && from.iter().any(|piece| !piece.is_empty()) {
                // Somebody made the file uneven meanwhile.
                reach = Reach::Everyone;
                continue;
            }
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

    /// True if these bytes would be written at once, with one system call and without a lock: that takes little of the stack.
    #[inline]
    pub fn is_at_once(&self, len: usize, at: u64) -> bool {
        self.is_keyed()
            && !self.traits().shared
            && !self.appends()
            && matches!(self.fast(len, at), Ok(Some(_)))
    }

    /// The key, if these bytes can be written without a lock.
    #[inline]
    fn fast(&self, len: usize, at: u64) -> Result<Option<KeySlot>, Errno> {
        let span = span(at, len)?;
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
            let fast = if self.appends() { Ok(None) } else { self.fast(piece.len(), end) };
            let result = match fast {
                Ok(Some(key)) => {
                    self.write_aligned(key, piece, end).map(|count| (count, end + count as u64))
                }
                // Somebody made the file uneven meanwhile; the caller comes again with the rest.
                Ok(None) if reach == Reach::Process => break,
                Ok(None) if self.appends() => self.write_held(held, piece, Target::End),
                Ok(None) => self.write_held(held, piece, Target::At(end)),
                Err(error) => Err(error),
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
        let mut scratch = self.kernel().scratch(from.len().min(SCRATCH_MAX))?;
        for piece in from.chunks(SCRATCH_MAX) {
            let start = place(at + done as u64)?;
            let sealed = seal_units(self.cipher(), key, start.unit(), piece, 0, &mut scratch)
                .ok_or(Errno::IO)?;
            match self.put(sealed, self.layout().disk(start)) {
                Ok(count) if count == piece.len() => done += count,
                Ok(short) => {
                    // The end may lie inside a unit now.
                    self.slot.mark_uneven();
                    self.process.keys.mark_uneven(key);
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
        let fresh = pending.is_some();
        let result = self.write_windows(key, &mut pending, from, target);
        if fresh {
            self.settle_key(key, pending.is_none());
        }
        result
    }

    /// The common case of a small write: within one unit that has bytes, and not at the end of the file. The read
    /// of what the edges need shows that, so the size need not be asked for. `None` if it is another case.
    fn write_inside(&self, from: &[u8], at: u64) -> Result<Option<usize>, Errno> {
        let span = span(at, from.len())?;
        let start = span.unit_start();
        let Some(key) = self.key()?.filter(|_| span.end() <= start + UNIT) else { return Ok(None) };
        let inside = |at: u64| usize::try_from(at - start).map_err(|_| Errno::INVAL);
        let (first, to) = (inside(span.block_start())?, inside(span.block_end())?);
        let mut image = self.kernel().scratch(to + BLOCK_USIZE)?;
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
        let mut out = self.kernel().scratch(to)?;
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
}

/// The bytes of a write, or EFBIG where no file can have them.
fn span(at: u64, len: usize) -> Result<Span, Errno> {
    place(at).ok().and_then(|start| Span::new(start, len)).ok_or(Errno::FBIG)
}
