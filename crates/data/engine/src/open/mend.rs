//! An opened file whose header is all zeros: a crash has left it so, or its maker is still at work.

use tidelock_cipher::{KeySlot, UnitCipher, is_zero};
use tidelock_format::{DiskSize, Front, Layout};

use super::Missing;
use crate::errno::Errno;
use crate::flags::{O_ACCMODE, O_TRUNC};
use crate::gate::Alone;
use crate::kernel::{Fd, SCRATCH_MAX, System};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::roots::Decide;
use crate::table::Traits;

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// All zeros where a header was, with the file alone: somebody else may mend it at the same
    /// time.
    pub(super) fn mend(
        &self,
        fd: Fd,
        flags: i32,
        traits: Traits,
        name: &[u8],
    ) -> Result<Option<KeySlot>, Errno> {
        // Asked before, since the answer is read from a sealed file.
        let writes = flags & O_ACCMODE != 0 && flags & O_TRUNC == 0;
        let recovers = writes && self.system.may_rekey_lost(traits.root());
        self.cipher.prepare(traits.root());
        let alone = Alone::take(&self.system, traits.stripe)?;
        alone.begin_change();
        self.mend_alone(fd, flags, traits, name, recovers)
    }

    fn mend_alone(
        &self,
        fd: Fd,
        flags: i32,
        traits: Traits,
        name: &[u8],
        recovers: bool,
    ) -> Result<Option<KeySlot>, Errno> {
        let stat = self.system.stat(fd)?;
        let behind = match self.key_of(fd, &stat, traits) {
            Ok(key) => return Ok(key),
            Err(Missing::Errno(error)) => return Err(error),
            Err(Missing::Refused(why)) => return self.refuse(name, why),
            Err(Missing::Lost(behind)) => behind,
        };
        if flags & O_TRUNC != 0 {
            // Nothing of it is wanted.
            return self.system.set_size(fd, DiskSize(0)).map(|()| None);
        }
        // Zeros from the first byte to the last hold nothing that a new key could lose: a file that
        // was made longer before a crash and never written.
        let blank = self.is_all_zeros(fd, traits)?;
        if flags & O_ACCMODE == 0 {
            // Whoever opens it for writing will mend it; until then zeros are zeros.
            return if blank { Ok(None) } else { self.refuse(name, Refusal::LostHeader(behind)) };
        }
        let replaceable = blank || recovers && self.system.is_sole_holder(fd);
        if !replaceable {
            return self.refuse(name, Refusal::LostHeader(behind));
        }
        let key = self.replace_lost(fd, traits, name)?;
        if !blank {
            self.system.report(name, Refusal::LostHeaderReplaced);
        }
        Ok(Some(key))
    }

    /// Gives a file whose header is lost a new key: see FORMAT.md, "Which copy counts".
    fn replace_lost(&self, fd: Fd, traits: Traits, name: &[u8]) -> Result<KeySlot, Errno> {
        let layout = self.roots.layout(traits.root());
        let refuse = |why| self.refuse(name, why);
        let header = match self.cipher.create(traits.root(), traits.class, layout) {
            Ok(header) => header,
            Err(why) => return refuse(Refusal::Unlock(why)),
        };
        let key = self.install(header.as_bytes()).or_else(refuse)?;
        let header = header.with_front(Front::of_number(traits.front));
        let empty = tidelock_cipher::Sealed::EMPTY;
        match self.system.pwrite_first(fd, &header, layout.start(), empty) {
            Ok(count) if count as u64 == layout.start().get() => Ok(key),
            other => {
                self.keys.leave(key);
                Err(other.err().unwrap_or(Errno::NOSPC))
            }
        }
    }

    fn is_all_zeros(&self, fd: Fd, traits: Traits) -> Result<bool, Errno> {
        let mut at = self.roots.layout(traits.root()).start();
        let mut scratch = self.system.scratch(SCRATCH_MAX)?;
        loop {
            let count = self.system.pread(fd, &mut scratch, at)?;
            if !is_zero(scratch.get(..count).unwrap_or_default()) {
                return Ok(false);
            }
            if count == 0 {
                return Ok(true);
            }
            at = Layout::advance(at, count as u64);
        }
    }
}
