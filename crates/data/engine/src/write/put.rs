//! Handing sealed bytes to the kernel: whole, or with a size that counts only what is there; and
//! the first header.

use tidelock_cipher::{KeySlot, Sealed, SealedHeader, UnitCipher};
use tidelock_format::{BLOCK_USIZE, DiskOffset, DiskSize, Front, Layout, PlainOffset};

use crate::errno::Errno;
use crate::file::{OpenFile, place};
use crate::flags::SYNC_BIT;
use crate::kernel::{Synced, System};
use crate::refusal::Refusal;
use crate::roots::Decide;
use crate::roster::{Areas, AtWork};
use crate::sequence::Writing;

/// How far a file of an odd size can reach beyond its last byte: the rest of the block, and the
/// bytes that tell the size.
const ODD: u64 = 2 * BLOCK_USIZE as u64;

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// Hands sealed bytes to the kernel until all are there or it refuses; how many are.
    pub(crate) fn put(
        &self,
        by: &AtWork<'_, S>,
        sealed: Sealed<'_>,
        at: DiskOffset,
    ) -> Result<usize, Errno> {
        let _writing = self.announce(by, at, sealed.len());
        let (mut done, mut interruptions) = (0, 0);
        let mut direct = self.direct_at_hand();
        while done < sealed.len() {
            let (rest, next) = (sealed.skip(done), Layout::advance(at, done as u64));
            direct = direct.filter(|_| Self::are_sectors(rest.as_bytes(), next));
            if direct.is_none() {
                self.note_cached(next);
            }
            match self.kernel().pwrite(direct.unwrap_or_else(|| self.hidden()), rest, next) {
                Ok(0) => break,
                Err(Errno::INVAL) if direct.is_some() => direct = None,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                // Half of a block must not stay.
                Err(Errno::INTR) if !done.is_multiple_of(BLOCK_USIZE) && interruptions < 100 => {
                    interruptions += 1;
                }
                Err(_) => break,
            }
        }
        if done == 0 { Err(Errno::NOSPC) } else { Ok(done) }
    }

    /// What goes through the page cache although the program wants it written directly.
    #[inline]
    fn note_cached(&self, at: DiskOffset) {
        if self.is_direct() {
            let start = self.layout().plain(at).map_or(0, PlainOffset::get);
            self.cached_from.set(start.min(self.cached_from.get()));
        }
    }

    /// Tells readers that these bytes are about to change.
    #[inline]
    fn announce<'a, 'k>(
        &self,
        by: &'a AtWork<'k, S>,
        at: DiskOffset,
        len: usize,
    ) -> Writing<'a, 'k, S> {
        let start = self.layout().plain(at).map_or(0, PlainOffset::get);
        Writing::begin(by, Areas::new(self.stripe(), start, start + len as u64))
    }

    /// The header and the first bytes; how many of the bytes are there.
    ///
    /// In one write where the bytes follow the written part of the header. Otherwise the header
    /// comes first, and a hole stays between: who dies before the second write leaves an empty
    /// file.
    pub(super) fn put_first(
        &self,
        by: &AtWork<'_, S>,
        pending: &mut Option<SealedHeader>,
        header: SealedHeader,
        sealed: Sealed<'_>,
    ) -> Result<usize, Errno> {
        let (front, start) = (self.layout().written_header(), self.layout().start());
        self.note_cached(start);
        let joined = if front == start { sealed } else { Sealed::EMPTY };
        let write = || {
            let _writing = self.announce(by, start, joined.len());
            self.kernel().pwrite_first(self.hidden(), &header, front, joined)
        };
        let head = usize::try_from(front.get()).unwrap_or(0);
        let has_header =
            |written: &Result<usize, Errno>| matches!(written, Ok(count) if *count >= head);
        let mut written = write();
        let mut whole = has_header(&written);
        if matches!(written, Ok(count) if count <= head && count < head + joined.len()) {
            // The second try tells whether there is room.
            written = write();
            whole |= has_header(&written);
        }
        let done = match written {
            Ok(count) if count >= head && sealed.len() == count - head => Ok(sealed.len()),
            Ok(count) if count > head => {
                let more =
                    self.put(by, sealed.skip(count - head), Self::behind(start, count - head));
                Ok(count - head + more.unwrap_or(0))
            }
            Ok(count) if count == head && joined.is_empty() => self.put(by, sealed, start),
            refused => Err(refused.err().unwrap_or(Errno::NOSPC)),
        };
        if done.is_err() && !whole {
            // A file that could not get its header is not left behind half made. A whole one stays:
            // who has opened the file meanwhile has its key.
            *pending = Some(header);
            self.kernel().set_size(self.hidden(), DiskSize(0))?;
        }
        done
    }

    fn behind(at: DiskOffset, count: usize) -> DiskOffset {
        Layout::advance(at, count as u64)
    }

    /// The header alone, for a file whose first bytes do not stand at its start.
    pub(crate) fn put_header(
        &self,
        by: &AtWork<'_, S>,
        pending: &mut Option<SealedHeader>,
    ) -> Result<(), Errno> {
        match pending.take() {
            Some(header) => self.put_first(by, pending, header, Sealed::EMPTY).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The file's key; or a new one, with the header that must be written before any byte. Under
    /// the lock.
    pub(crate) fn key_or_new_header(&self) -> Result<(KeySlot, Option<SealedHeader>), Errno> {
        let stat = if self.is_keyed() { None } else { Some(self.stat()?) };
        if stat.as_ref().is_none_or(|stat| stat.size.0 > 0)
            && let Some(key) = self.key()?
        {
            return Ok((key, None));
        }
        let traits = self.traits();
        if stat.is_some_and(|stat| stat.size.0 > u64::from(self.layout().data_offset())) {
            // Zeros where the header was: only an open may mend that.
            return Err(Errno::IO);
        }
        let header = self
            .cipher()
            .create(traits.root(), traits.class, self.layout())
            .map_err(|why| Refusal::Unlock(why).errno())?;
        let key = self.process.install(header.as_bytes()).map_err(Refusal::errno)?;
        Ok((key, Some(header.with_front(Front::of_number(traits.front)))))
    }

    /// After the first write: the open file holds its new key, or the key is dropped with the
    /// header.
    pub(crate) fn settle_key(&self, key: KeySlot, written: bool) {
        if written {
            self.adopt(key);
        } else {
            self.process.keys.leave(key);
        }
    }

    /// O_DIRECT: the disk has the bytes up to `end` when the call returns, also those that went by
    /// way of the page cache. Engines count on it where they forget to sync (docs/decisions/0022).
    #[inline]
    pub(super) fn write_out(&self, end: u64) -> Result<(), Errno> {
        match self.cached_from.replace(u64::MAX) {
            u64::MAX => Ok(()),
            from => self.write_out_from(from, end),
        }
    }

    #[cold]
    fn write_out_from(&self, at: u64, end: u64) -> Result<(), Errno> {
        let (header, start) = (DiskOffset::HEADER, self.layout().start().get());
        let count = end.saturating_sub(at);
        if at == 0 {
            return self.kernel().write_out(self.hidden(), header, start + count + ODD);
        }
        if self.direct_at_hand().is_none() {
            // The header first: a range that reaches the disk before it would be lost with it
            // (docs/decisions/0004). On a page that is clean this does nothing.
            self.kernel().write_out(self.hidden(), header, start)?;
        }
        self.kernel().write_out(self.hidden(), self.layout().disk(place(at)?), count + ODD)
    }

    /// O_DSYNC and O_SYNC: what the call has changed by other means than a write, the size, is
    /// synced as well.
    ///
    /// # Errors
    /// Those of fdatasync and fsync.
    pub(crate) fn keep_promise(&self) -> Result<(), Errno> {
        let flags = self.flags();
        if !flags.promises() {
            return Ok(());
        }
        let synced = if flags.0 & SYNC_BIT == 0 { Synced::Data } else { Synced::All };
        self.kernel().synchronise(self.hidden(), synced)
    }
}
