//! Writing: whole units of whole-unit files with one system call beside each other, all others with
//! the file's gate alone.
//!
//! Never more is written than the 16-byte blocks that the call touches, except where a unit that
//! was a hole gets its first bytes (zero rule 2): then all of it is sealed, so that no unit is ever
//! half a hole. The count returned is that of plain bytes that are really there.

mod lost;
mod put;
mod stopped;
mod window;

use std::io::IoSlice;

use tidelock_cipher::{KeySlot, UnitCipher, open_units, seal_units};
use tidelock_format::{BLOCK_USIZE, PlainSize, Span, UNIT, ZeroRule};

use crate::errno::Errno;
use crate::file::{OpenFile, place};
use crate::gate::{Alone, Denied, Shared, Signals, wait_until_free};
use crate::kernel::{SCRATCH_MAX, System};
use crate::roots::Decide;

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    At(u64),
    End,
}

/// How a small write went.
enum Inside<S: System> {
    /// So many bytes are there.
    Done(usize),
    /// It is not the common case; what was found out on the way.
    Not(Seen<S>),
}

/// What a write that has the gate knows of the file already.
struct Seen<S: System> {
    size: Option<PlainSize>,
    /// The first bytes of the first unit as they are on the disk, and how many.
    unit: Option<(S::Scratch, usize)>,
}

impl<S: System> Default for Seen<S> {
    fn default() -> Self {
        Self { size: None, unit: None }
    }
}

impl<S: System> Seen<S> {
    fn bytes(&self) -> &[u8] {
        self.unit.as_ref().and_then(|(bytes, count)| bytes.get(..*count)).unwrap_or_default()
    }
}

/// How a write passes the file's gate.
enum Pass<'k, S: System> {
    /// Beside others: whole units with this key, from `at` on.
    Shared { key: KeySlot, gate: Shared<'k, S>, at: u64 },
    /// Alone.
    Alone(Alone<'k, S>, Target),
}

impl<'p, S: System, C: UnitCipher, P: Decide> OpenFile<'p, S, C, P> {
    /// pwrite(2). With O_APPEND it appends, whatever the offset, as Linux does.
    ///
    /// # Errors
    /// EBADF if not open for writing, EFBIG beyond the largest offset, and those of the kernel.
    #[inline]
    pub fn pwrite(&self, from: &[u8], at: u64) -> Result<usize, Errno> {
        self.pwritev(&[IoSlice::new(from)], at)
    }

    /// pwritev(2).
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite).
    pub fn pwritev(&self, from: &[IoSlice<'_>], at: u64) -> Result<usize, Errno> {
        self.may_write()?;
        if from.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        let target = if self.appends() { Target::End } else { Target::At(at) };
        self.write_at(from, target, Signals::Open).map(|(count, _)| count)
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
        if from.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        // Before the turn, for which others wait.
        self.prepare();
        if !self.appends() {
            let len = from.iter().map(|piece| piece.len()).sum();
            return self.at_offset(len, |at, signals| {
                self.write_at(from, Target::At(at), signals).map(|(count, _)| count)
            });
        }
        let turn = self.turn();
        let (count, end) = self.write_at(from, Target::End, turn.signals())?;
        if count > 0 {
            self.move_offset(end)?;
        }
        Ok(count)
    }

    /// As `pwrite`, for a caller that has the gate.
    pub(crate) fn write_in_gate(
        &self,
        alone: &Alone<'_, S>,
        from: &[u8],
        at: u64,
    ) -> Result<usize, Errno> {
        self.write_alone(alone, from, Target::At(at)).map(|(count, _)| count)
    }

    fn write_at(
        &self,
        from: &[IoSlice<'_>],
        target: Target,
        signals: Signals,
    ) -> Result<(usize, u64), Errno> {
        self.direct()?;
        loop {
            match self.pass(from, target, signals)? {
                Some(pass) => return self.carry_out(pass, from),
                None => wait_until_free(self.kernel(), self.stripe())?,
            }
        }
    }

    /// True if these bytes would be written at once, with one system call: that takes little of the
    /// stack.
    #[inline]
    pub fn is_at_once(&self, len: usize, at: u64) -> bool {
        self.is_ready()
            && !self.traits().shared
            && !self.appends()
            && span(at, len).is_ok_and(Span::is_whole_units)
            && self.whole_since().is_ok_and(|since| since.is_some())
    }

    /// Passes the gate without waiting; `None` if somebody has it alone.
    #[inline]
    fn pass(
        &self,
        from: &[IoSlice<'_>],
        target: Target,
        signals: Signals,
    ) -> Result<Option<Pass<'p, S>>, Errno> {
        if let Target::At(at) = target
            && are_whole_units(from, at)?
            // Whoever has no key yet needs the gate alone, for the first header.
            && self.is_keyed()
            && let Some(key) = self.key()?
            && self.whole_since()?.is_some()
            && let Some(gate) = Shared::try_take(self.kernel(), self.stripe())
            // Nobody can make it odd from here on.
            && self.whole_since()?.is_some()
        {
            return Ok(Some(Pass::Shared { key, gate, at }));
        }
        self.prepare();
        match Alone::try_take(self.kernel(), self.stripe(), signals) {
            Ok(alone) => Ok(Some(Pass::Alone(alone, target))),
            Err(Denied::Busy) => Ok(None),
            Err(Denied::Own) => Err(Errno::DEADLK),
        }
    }

    /// Writes all pieces; how many bytes, and the offset behind the last.
    fn carry_out(&self, pass: Pass<'p, S>, from: &[IoSlice<'_>]) -> Result<(usize, u64), Errno> {
        let mut done = 0;
        let mut end = None;
        for piece in from.iter().filter(|piece| !piece.is_empty()) {
            let written = match &pass {
                Pass::Shared { key, gate, at } => {
                    self.write_aligned(*key, gate, piece, end.unwrap_or(*at))
                }
                Pass::Alone(alone, target) => {
                    self.write_alone(alone, piece, end.map_or(*target, Target::At))
                }
            };
            match written {
                Ok((count, behind)) => {
                    done += count;
                    end = Some(behind);
                    if count < piece.len() {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        let end = end.unwrap_or(0);
        let out = self.write_out(end);
        match pass {
            Pass::Shared { key, gate, .. } if !end.is_multiple_of(UNIT) => {
                gate.move_sizes();
                drop(gate);
                // First of all: others would take the file for one of whole units.
                let settled = self.settle_stopped(key, end, done)?;
                out?;
                self.write_out(end)?;
                Ok(settled)
            }
            _ if done == 0 => out.and(Err(Errno::NOSPC)),
            _ => out.map(|()| (done, end)),
        }
    }

    /// pwrite once more of what the kernel stopped after `there` bytes, while it carried out a
    /// request; what stays of that is made whole.
    ///
    /// # Errors
    /// As [`pwrite`](Self::pwrite).
    pub fn write_again(&self, from: &[u8], at: u64, there: usize) -> Result<usize, Errno> {
        let again = self.pwrite(from, at);
        let end = at + there as u64;
        if end.is_multiple_of(UNIT) || again.is_ok_and(|count| count >= there) {
            return again;
        }
        let key = self.key()?.ok_or(Errno::IO)?;
        let settled = self.settle_stopped(key, end, there);
        self.write_out(end)?;
        match (again, settled) {
            (Ok(count), Ok(_)) | (Err(_), Ok((count, _))) => Ok(count),
            (Err(why), Err(_)) | (Ok(_), Err(why)) => Err(why),
        }
    }

    /// Whole units of a whole-unit file; how many bytes are there (a part of a block too, if the
    /// kernel stopped in one), and the offset behind them.
    fn write_aligned(
        &self,
        key: KeySlot,
        gate: &Shared<'_, S>,
        from: &[u8],
        at: u64,
    ) -> Result<(usize, u64), Errno> {
        let mut done = 0;
        let mut scratch = self.kernel().scratch(from.len().min(SCRATCH_MAX))?;
        for piece in from.chunks(SCRATCH_MAX) {
            let start = place(at + done as u64)?;
            let sealed = seal_units(self.cipher(), key, start.unit(), piece, 0, &mut scratch)
                .ok_or(Errno::IO)?;
            match self.put(&gate.at_work, sealed, self.layout().disk(start)) {
                Ok(count) => {
                    done += count;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((done, at + done as u64))
    }

    /// Any bytes, by who has the gate; how many, and the offset behind them.
    fn write_alone(
        &self,
        alone: &Alone<'_, S>,
        from: &[u8],
        target: Target,
    ) -> Result<(usize, u64), Errno> {
        if self.is_keyed() && self.is_look_due() {
            self.mend_lost(alone)?;
        }
        match self.write_once(alone, from, target) {
            // What was remembered may be of a file that somebody has cut since.
            Err(Errno::IO) if self.is_keyed() && self.mend_lost(alone)? => {
                self.write_once(alone, from, target)
            }
            done => done,
        }
    }

    fn write_once(
        &self,
        alone: &Alone<'_, S>,
        from: &[u8],
        target: Target,
    ) -> Result<(usize, u64), Errno> {
        let mut seen = Seen::default();
        if self.is_keyed() {
            let end = match target {
                Target::At(at) => span(at, from.len())?.end(),
                Target::End => u64::MAX,
            };
            seen.size = self.remembered_size(alone, end);
            if let Target::At(at) = target {
                match self.write_inside(alone, from, at, seen.size)? {
                    Inside::Done(count) => return Ok((count, at + count as u64)),
                    Inside::Not(found) => seen = found,
                }
            }
        }
        let (key, mut pending) = self.key_or_new_header()?;
        let fresh = pending.is_some();
        let result = self.write_windows(alone, key, &mut pending, from, target, &seen);
        if fresh {
            self.settle_key(key, pending.is_none());
        }
        result
    }

    /// The common case of a small write: within one unit that has bytes, and not at the end of the
    /// file. The read of what the edges need shows that, so the size need not be asked for. Where
    /// the edges need nothing, the size is asked for instead, unless it is remembered.
    fn write_inside(
        &self,
        alone: &Alone<'_, S>,
        from: &[u8],
        at: u64,
        known: Option<PlainSize>,
    ) -> Result<Inside<S>, Errno> {
        let span = span(at, from.len())?;
        let start = span.unit_start();
        let none = Inside::Not(Seen { size: known, unit: None });
        let Some(key) = self.key()?.filter(|_| span.end() <= start + UNIT) else { return Ok(none) };
        if self.traits().zero_rule == ZeroRule::Block && span.is_whole_blocks() {
            let size = known.map_or_else(|| self.size_to_write(alone), Ok)?;
            return Ok(Inside::Not(Seen { size: Some(size), unit: None }));
        }
        if known.is_some_and(|size| span.end() > size.0) {
            return Ok(none);
        }
        let inside = |at: u64| usize::try_from(at - start).map_err(|_| Errno::INVAL);
        let (first, to) = (inside(span.block_start())?, inside(span.block_end())?);
        let mut image = self.kernel().scratch(to + BLOCK_USIZE)?;
        let count =
            self.kernel().pread(self.hidden(), &mut image, self.layout().disk(place(start)?))?;
        let rule = self.traits().zero_rule;
        let hole = rule == ZeroRule::Unit
            && image.first_chunk().is_none_or(|first| *first == [0; BLOCK_USIZE]);
        if count < to + BLOCK_USIZE || hole {
            return Ok(Inside::Not(Seen { size: known, unit: Some((image, count)) }));
        }
        let image = image.get_mut(..to).ok_or(Errno::IO)?;
        open_units(self.cipher(), key, span.first_unit(), rule, image);
        image.get_mut(inside(at)?..inside(span.end())?).ok_or(Errno::IO)?.copy_from_slice(from);
        let mut out = self.kernel().scratch(to)?;
        let sealed = seal_units(self.cipher(), key, span.first_unit(), image, 0, &mut out)
            .ok_or(Errno::IO)?
            .skip(first);
        let there =
            self.put(&alone.at_work, sealed, self.layout().disk(place(start + first as u64)?))?;
        if there == sealed.len() {
            return Ok(Inside::Done(from.len()));
        }
        let stopped = start + (first + there) as u64;
        let end = self.settle_inside(alone, key, PlainSize(start + to as u64), stopped)?;
        match usize::try_from(end.saturating_sub(at)).map_err(|_| Errno::INVAL)? {
            0 => Err(Errno::NOSPC),
            count => Ok(Inside::Done(count.min(from.len()))),
        }
    }
}

/// The bytes of a write, or EFBIG where no file can have them.
fn span(at: u64, len: usize) -> Result<Span, Errno> {
    place(at).ok().and_then(|start| Span::new(start, len)).ok_or(Errno::FBIG)
}

/// True if every piece is whole units, in its place.
#[inline]
fn are_whole_units(from: &[IoSlice<'_>], at: u64) -> Result<bool, Errno> {
    let mut at = at;
    for piece in from {
        let span = span(at, piece.len())?;
        if !span.is_whole_units() {
            return Ok(false);
        }
        at = span.end();
    }
    Ok(true)
}
