//! The offset of an open file: in memory until a fork, the kernel's from then on.
//!
//! Duplicates share one offset, and so do forked children. Within one process it is a word of the
//! slot, so that moving it costs no system call. A fork hands it to the kernel: the offset of the
//! hidden descriptor is then the plain offset, for parent and children alike.
//!
//! Who uses it has the turn. Where it is a word, a signal handler may have its turn within ours: so
//! the bytes of a call are reserved before they are transferred, and what it did not transfer is
//! given back.

use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::gate::Signals;
use crate::kernel::System;
use crate::roots::Decide;
use crate::turn::Turn;

impl<'p, S: System, C: UnitCipher, P: Decide> OpenFile<'p, S, C, P> {
    /// The offset at this moment. The caller has the turn.
    ///
    /// # Errors
    /// Those of lseek.
    pub(crate) fn offset(&self) -> Result<u64, Errno> {
        if self.traits().shared {
            self.kernel().position(self.hidden())
        } else {
            Ok(self.slot.offset.load(Relaxed))
        }
    }

    /// Moves the offset. The caller has the turn.
    ///
    /// # Errors
    /// Those of lseek.
    pub(crate) fn move_offset(&self, to: u64) -> Result<(), Errno> {
        if self.traits().shared {
            self.kernel().set_position(self.hidden(), to)
        } else {
            self.slot.offset.store(to, Relaxed);
            Ok(())
        }
    }

    /// The kernel has moved its own offset there. The caller has the turn.
    pub(crate) fn note_offset(&self, at: u64) {
        if !self.traits().shared {
            self.slot.offset.store(at, Relaxed);
        }
    }

    /// The turn for a call that looks at the offset and moves it later. Where that is more than one
    /// system call, signals are blocked meanwhile.
    pub(crate) fn turn(&self) -> Turn<'p, S> {
        if !self.traits().shared {
            let turn = self.brief_turn();
            // A fork waits for the turn before it shares the file.
            if !self.traits().shared {
                return turn;
            }
        }
        Turn::take(self.kernel(), self.turn_word())
    }

    /// Transfers `len` bytes at the offset, which moves by as many as there were.
    ///
    /// # Errors
    /// Those of `transfer`.
    pub(crate) fn at_offset(
        &self,
        len: usize,
        transfer: impl FnOnce(u64, Signals) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let turn = self.turn();
        let at = self.offset()?;
        if self.traits().shared {
            let count = transfer(at, turn.signals())?;
            if count > 0 {
                self.move_offset(at + count as u64)?;
            }
            return Ok(count);
        }
        let behind = at.saturating_add(len as u64);
        self.slot.offset.store(behind, Relaxed);
        let done = transfer(at, turn.signals());
        let count = done.unwrap_or(0);
        if count < len {
            self.give_back(behind, at + count as u64)?;
        }
        done
    }

    /// The rest of what was reserved, unless a signal handler has gone on behind it.
    #[cold]
    fn give_back(&self, behind: u64, to: u64) -> Result<(), Errno> {
        if !self.traits().shared {
            let _ = self.slot.offset.compare_exchange(behind, to, Relaxed, Relaxed);
        } else if self.offset()? == behind {
            // The handler forked: the offset is the kernel's now.
            self.move_offset(to)?;
        }
        Ok(())
    }

    /// [`is_at_once`](Self::is_at_once) of a write at the offset.
    #[inline]
    pub fn is_at_once_here(&self, len: usize) -> bool {
        self.is_at_once(len, self.slot.offset.load(Relaxed))
    }

    /// Hands the offset to the kernel, and says that others share the file. Before a fork.
    pub(crate) fn share(&self) {
        let _turn = self.brief_turn();
        let offset = self.slot.offset.load(Relaxed);
        // It cannot fail: the file is regular, and the offset is one that it can have.
        let _ = self.kernel().set_position(self.hidden(), offset);
        if self.appends() {
            self.kernel().mark_appends(self.hidden(), true);
        }
        self.slot.mark_shared();
    }
}
