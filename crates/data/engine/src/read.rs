//! Reading: aligned ranges of whole-unit files with one system call straight into the program's
//! buffer, all others through scratch memory, also with one.
//!
//! No read excludes a writer, unless it was overtaken again and again (`sequence`). The end of the
//! file shows in the bytes themselves: 16 bytes more than the last block are asked for, and what
//! comes back tells the plain size (see `format::size`).

use tidelock_cipher::{KeySlot, UnitCipher, is_zero, open_units};
use tidelock_format::{
    BLOCK_USIZE, DiskOffset, DiskSize, PlainOffset, Span, UNIT, UNIT_USIZE, UnitNumber, ZeroRule,
};

use crate::errno::Errno;
use crate::file::{OpenFile, place};
use crate::kernel::{Fd, SCRATCH_MAX, System};
use crate::roots::Decide;
use crate::roster::Areas;
use crate::sequence::consistent;

/// Buffers that lie in memory as the range lies in the file are torn at few places only: where no
/// agent lends shared sequence words, that makes half blocks rare.
const CONGRUENCE: usize = 64;

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// pread(2): the bytes from `at` on, as many as there are.
    ///
    /// # Errors
    /// EBADF if not open for reading, EINVAL for an impossible range, and those of the kernel.
    #[inline]
    pub fn pread(&self, into: &mut [u8], at: u64) -> Result<usize, Errno> {
        let flags = self.flags();
        if flags.is_unread() || !flags.access().read {
            return self.pread_first(into, at);
        }
        // No file has bytes there.
        let Ok(start) = place(at) else { return Ok(0) };
        let span = Span::new(start, into.len()).ok_or(Errno::INVAL)?;
        let Some(key) = self.key()? else { return self.read_blank(into, span) };
        if span.is_whole_units()
            && into.as_ptr().addr().is_multiple_of(CONGRUENCE)
            && let Some(generation) = self.whole_since()?
            && let Some(count) = self.read_aligned(key, into, span, generation)?
        {
            return Ok(count);
        }
        self.read_any(key, into, span)
    }

    /// The first one behind an opening, and one that is refused.
    #[cold]
    fn pread_first(&self, into: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.may_read()?;
        self.pread(into, at)
    }

    /// read(2): the bytes from the file's offset on; moves it.
    ///
    /// # Errors
    /// As [`pread`](Self::pread).
    pub fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        self.may_read()?;
        self.at_offset(into.len(), |at, _| self.pread(into, at))
    }

    /// preadv(2) of several pieces: `len` bytes from `at` on as one read; `put` is given what there
    /// is, with its place among them.
    ///
    /// # Errors
    /// As [`pread`](Self::pread).
    pub fn pread_pieces(
        &self,
        len: usize,
        at: u64,
        mut put: impl FnMut(usize, &[u8]),
    ) -> Result<usize, Errno> {
        self.may_read()?;
        let Ok(start) = place(at) else { return Ok(0) };
        Span::new(start, len).ok_or(Errno::INVAL)?;
        let mut done = 0;
        while done < len {
            let window = Window::at(at + done as u64, len - done)?;
            let mut scratch = self.kernel().scratch(window.len + BLOCK_USIZE)?;
            let got = match self.key()? {
                Some(key) => {
                    let (from, to) = self.load_window(key, &mut scratch, &window)?;
                    put(done, scratch.get(from..to).unwrap_or_default());
                    to - from
                }
                None => {
                    let into = scratch.get_mut(..window.wanted).ok_or(Errno::IO)?;
                    let got = self.pread(into, at + done as u64)?;
                    put(done, into.get(..got).unwrap_or_default());
                    got
                }
            };
            done += got;
            if got < window.wanted {
                break;
            }
        }
        Ok(done)
    }

    /// readv(2) of several pieces, at the file's offset; moves it.
    ///
    /// # Errors
    /// As [`pread`](Self::pread).
    pub fn read_pieces(&self, len: usize, put: impl FnMut(usize, &[u8])) -> Result<usize, Errno> {
        self.may_read()?;
        self.at_offset(len, |at, _| self.pread_pieces(len, at, put))
    }

    /// Straight into the program's buffer; `None` if it was no whole-unit file any more when it was
    /// read.
    #[inline]
    fn read_aligned(
        &self,
        key: KeySlot,
        into: &mut [u8],
        span: Span,
        whole_since: u64,
    ) -> Result<Option<usize>, Errno> {
        let at = PlainOffset::new(span.start()).ok_or(Errno::INVAL)?;
        let traits = self.traits();
        let disk = self.layout().disk(at);
        let areas = Areas::new(traits.stripe, span.start(), span.end());
        // Here, since it may need the gate, which a reader that is overtaken takes.
        let direct = match self.direct() {
            // A signal handler above a write of its own: by the page cache.
            Err(Errno::DEADLK) => None,
            // That the header did not reach the disk is told once: here, or by nobody.
            other => other?,
        };
        let read = consistent(self.kernel(), areas, || self.fetch(direct, into, disk))?;
        // A failing disk can end a read within a block.
        if read.generation != whole_since || !read.count.is_multiple_of(BLOCK_USIZE) {
            return Ok(None);
        }
        let found = into.get_mut(..read.count).unwrap_or_default();
        open_units(self.cipher(), key, span.first_unit(), traits.zero_rule, found);
        Ok(Some(read.count))
    }

    /// Bytes as they are on the disk, read directly where the program wants that.
    #[inline]
    fn fetch(&self, direct: Option<Fd>, into: &mut [u8], at: DiskOffset) -> Result<usize, Errno> {
        if let Some(direct) = direct
            && Self::are_sectors(into, at)
        {
            match self.kernel().pread(direct, into, at) {
                Err(Errno::INVAL) => {}
                done => return done,
            }
        }
        self.kernel().pread(self.hidden(), into, at)
    }

    /// A file without a header: it has no bytes, or a crash has left nothing but zeros.
    #[cold]
    fn read_blank(&self, into: &mut [u8], span: Span) -> Result<usize, Errno> {
        let behind = self.size()?.0.saturating_sub(span.start());
        let count = usize::try_from(behind).map_err(|_| Errno::INVAL)?.min(into.len());
        let start = place(span.start())?;
        let found = into.get_mut(..count).unwrap_or_default();
        if count > 0 {
            self.kernel().pread(self.hidden(), found, self.layout().disk(start))?;
        }
        if is_zero(found) {
            return Ok(count);
        }
        found.fill(0);
        // Either somebody gave the file its header at this moment, or it is lost.
        let key = self.key()?.ok_or(Errno::IO)?;
        self.read_any(key, into, span)
    }

    fn read_any(&self, key: KeySlot, into: &mut [u8], span: Span) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let window = Window::at(span.start() + done as u64, rest.len())?;
            let got = self.read_window(key, rest, &window)?;
            done += got;
            if got < window.wanted {
                break;
            }
        }
        Ok(done)
    }

    fn read_window(&self, key: KeySlot, into: &mut [u8], window: &Window) -> Result<usize, Errno> {
        let mut scratch = self.kernel().scratch(window.len + BLOCK_USIZE)?;
        let (from, to) = self.load_window(key, &mut scratch, window)?;
        let found = scratch.get(from..to).unwrap_or_default();
        into.get_mut(..found.len()).ok_or(Errno::IO)?.copy_from_slice(found);
        Ok(found.len())
    }

    /// Reads a window into working memory; where what is wanted of it stands there.
    fn load_window(
        &self,
        key: KeySlot,
        scratch: &mut [u8],
        window: &Window,
    ) -> Result<(usize, usize), Errno> {
        let buffer = scratch.get_mut(..window.len + BLOCK_USIZE).ok_or(Errno::IO)?;
        let valid = self.load(key, buffer, window.first, window.skip + window.wanted)?;
        let from = window.skip.min(valid);
        Ok((from, valid.min(window.skip + window.wanted).max(from)))
    }

    /// Reads the units from `first` on into `buffer`, which is 16 bytes longer than they, and opens
    /// the first `need` bytes; how many plain bytes there are, at most those that were read for.
    fn load(
        &self,
        key: KeySlot,
        buffer: &mut [u8],
        first: UnitNumber,
        need: usize,
    ) -> Result<usize, Errno> {
        let start = place(first.0 * UNIT)?;
        let traits = self.traits();
        let layout = self.layout();
        let end = start.get() + buffer.len() as u64;
        let areas = Areas::new(traits.stripe, start.get(), end);
        let count = consistent(self.kernel(), areas, || {
            self.kernel().pread(self.hidden(), buffer, layout.disk(start))
        })?
        .count;
        let wanted = buffer.len().saturating_sub(BLOCK_USIZE);
        let valid = if count == buffer.len() {
            wanted
        } else {
            let end = DiskSize(layout.disk(start).get() + count as u64).plain(layout);
            usize::try_from(end.0.saturating_sub(start.get()))
                .map_err(|_| Errno::INVAL)?
                .min(wanted)
        };
        let blocks = valid.next_multiple_of(BLOCK_USIZE);
        let units = buffer.get_mut(..blocks).ok_or(Errno::IO)?;
        let need = need.next_multiple_of(BLOCK_USIZE).min(blocks);
        let whole = need - need % UNIT_USIZE;
        let (before, last) = units.split_at_mut_checked(whole).ok_or(Errno::IO)?;
        open_units(self.cipher(), key, first, traits.zero_rule, before);
        // Of the last unit, only what is needed; but what the zero rule says of it, all of it says.
        let (last, _) = last.split_at_mut(last.len().min(UNIT_USIZE));
        let hole = traits.zero_rule == ZeroRule::Unit && is_zero(last);
        let number = UnitNumber(first.0 + (whole / UNIT_USIZE) as u64);
        let needed = last.get_mut(..need - whole).unwrap_or_default();
        match traits.zero_rule {
            ZeroRule::Unit if hole || needed.is_empty() => {}
            ZeroRule::Unit => self.cipher().open(key, number, needed),
            ZeroRule::Block => open_units(self.cipher(), key, number, ZeroRule::Block, needed),
        }
        Ok(valid)
    }
}

/// The units that one pass through scratch memory covers.
pub(crate) struct Window {
    pub(crate) first: UnitNumber,
    /// Bytes of units, from the start of the first.
    pub(crate) len: usize,
    /// Bytes before the wanted ones.
    pub(crate) skip: usize,
    /// Wanted bytes.
    pub(crate) wanted: usize,
}

impl Window {
    /// As much of `len` bytes from `at` as fits.
    pub(crate) fn at(at: u64, len: usize) -> Result<Self, Errno> {
        let skip = usize::try_from(at % UNIT).map_err(|_| Errno::INVAL)?;
        // Two units less than the scratch memory: the tail of a size that cuts a block follows the
        // units.
        let wanted = len.min(SCRATCH_MAX - 2 * UNIT_USIZE - skip);
        let len = (skip + wanted).next_multiple_of(UNIT_USIZE);
        Ok(Self { first: UnitNumber(at / UNIT), len, skip, wanted })
    }
}
