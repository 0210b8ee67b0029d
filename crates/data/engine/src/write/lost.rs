//! A header that somebody without the library has taken away from under an open file: `> FILE`,
//! `truncate`, `logrotate` with `copytruncate`.
//!
//! Whoever has the file open has its key, and would go on to write bytes that nobody can open
//! later. So small writes, as those to logs are, put the same header there again. What was written
//! between the cut and that lies where it would have been; a hole precedes it, as with a stock
//! program that writes at an offset.

use tidelock_cipher::{Sealed, SealedHeader, UnitCipher, UnlockError};
use tidelock_format::{
    COPY_LEN, DiskOffset, DiskSize, Front, HeaderRegion, PROBE_LEN, PlainSize, Probe,
    SECOND_COPY_AT,
};

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::gate::Alone;
use crate::kernel::System;
use crate::refusal::Refusal;
use crate::roots::Decide;

impl<S: System, C: UnitCipher, P: Decide> OpenFile<'_, S, C, P> {
    /// The size, for a write to a file that has a header.
    ///
    /// # Errors
    /// Those of fstat, and of putting a lost header there again.
    pub(super) fn size_to_write(&self, alone: &Alone<'_, S>) -> Result<PlainSize, Errno> {
        let size = self.stat()?.size;
        if size.0 < self.layout().written_header().get() && self.mend_lost(alone)? {
            return self.size_now();
        }
        Ok(size.plain(self.layout()))
    }

    /// Puts the header there again if only zeros, or nothing, are left of it; true if so. What is
    /// remembered of the file, here and elsewhere, holds no longer then.
    ///
    /// # Errors
    /// EIO if the file has another key by now, after a line that names it; those of writing the
    /// header.
    #[cold]
    pub(crate) fn mend_lost(&self, alone: &Alone<'_, S>) -> Result<bool, Errno> {
        let mended = self.mend(alone);
        if mended.is_err() {
            // Each write that follows is to meet the same, not one a second.
            self.look_again();
        }
        mended
    }

    fn mend(&self, alone: &Alone<'_, S>) -> Result<bool, Errno> {
        let Some(key) = self.key()? else { return Ok(false) };
        let mut first = [0u8; PROBE_LEN];
        let found = self.kernel().pread(self.hidden(), &mut first, DiskOffset::HEADER);
        let Some(first) = found.ok().and_then(|count| first.get(..count)) else { return Ok(false) };
        let Some(copy) = self.process.keys.header(key) else { return Ok(false) };
        if !Probe::is_blank(first) {
            return if self.has_other_key(first, &copy) {
                Err(self.refuse_once(Refusal::AnotherHeader))
            } else {
                Ok(false)
            };
        }
        alone.begin_change();
        self.forget_end();
        let header = SealedHeader::new(HeaderRegion::of_copy(&copy));
        self.put_again(&header.with_front(Front::of_number(self.traits().front)))?;
        if self.is_direct() {
            // What follows must not reach the disk before it.
            let end = self.layout().start().get();
            self.kernel().write_out(self.hidden(), DiskOffset::HEADER, end)?;
        }
        self.keep_promise()?;
        Ok(true)
    }

    /// Another process has given the file a header and a key, since it found none.
    fn has_other_key(&self, first: &[u8], copy: &[u8; COPY_LEN]) -> bool {
        let ours = [0, SECOND_COPY_AT].map(|at| first.get(at..at + COPY_LEN));
        if ours.contains(&Some(copy.as_slice())) {
            return false;
        }
        match self.cipher().choose(first) {
            Ok(proven) => proven.copy() != copy,
            Err(why) => matches!(
                why,
                UnlockError::UnknownKey | UnlockError::RolledBack | UnlockError::TwoHeaders
            ),
        }
    }

    fn put_again(&self, header: &SealedHeader) -> Result<(), Errno> {
        let front = self.layout().written_header();
        let mut refused = Errno::NOSPC;
        // The second try tells why the first one stopped.
        for _ in 0..2 {
            match self.kernel().pwrite_first(self.hidden(), header, front, Sealed::EMPTY) {
                Ok(count) if count >= PROBE_LEN => return Ok(()),
                Ok(_) => {}
                Err(why) => refused = why,
            }
        }
        if self.stat()?.size.0 < front.get() {
            // Half a header would be taken for a damaged one.
            self.kernel().set_size(self.hidden(), DiskSize(0))?;
        }
        Err(refused)
    }
}
