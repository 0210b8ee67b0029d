//! How descriptors and open files end: closed by the program, given to something else, or left by
//! the last call that used them.

use core::sync::atomic::Ordering::Acquire;

use tidelock_cipher::{KeySlot, Root, UnitCipher};

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::kernel::{Fd, System};
use crate::process::Process;
use crate::roots::Decide;
use crate::table::Entry;

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// close(2).
    ///
    /// # Errors
    /// Those of the kernel; EBADF for a hidden descriptor.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        if self.table.entry(fd) == Entry::Hidden {
            return Err(Errno::BADF);
        }
        if !matches!(self.table.entry(fd), Entry::Open(_)) {
            return self.system.close(Fd(fd));
        }
        let change = self.change();
        if let Entry::Open(index) = self.table.take(fd) {
            self.drop_locks(index);
            let closed = self.system.close(Fd(fd));
            // To close the real file may take a while.
            drop(change);
            self.leave(index);
            return closed;
        }
        self.system.close(Fd(fd))
    }

    /// Forgets what `fd` was, because the kernel is about to give the number to something else, or
    /// just did.
    pub fn forget(&self, fd: i32) {
        let before = self.table.take(fd);
        self.displace(before);
    }

    /// A descriptor does not stand for this any more.
    pub(crate) fn displace(&self, before: Entry) {
        if let Entry::Open(index) = before {
            self.drop_locks(index);
            self.leave(index);
        }
    }

    /// Closing any descriptor of a file drops the process's record locks on it, also where
    /// duplicates remain.
    fn drop_locks(&self, index: u32) {
        let slot = self.table.slot(index);
        if slot.traits().locks {
            self.system.drop_record_locks(slot.hidden());
        }
    }

    /// A fork is about to happen: every offset is shared with another process from then on.
    pub fn forked(&self) {
        for index in self.table.indices() {
            if self.table.slot(index).traits().shared || !self.table.join(index) {
                continue;
            }
            let file = OpenFile::found(self, index);
            if !file.traits().shared {
                file.share();
            }
        }
    }

    pub(crate) fn leave(&self, index: u32) {
        if self.table.leave(index) {
            self.end(index, false);
        }
    }

    /// As [`leave`](Self::leave), for who came by no descriptor. Another thread may have closed the
    /// file meanwhile, opened it again and locked it: to close it now would drop those locks.
    pub(crate) fn leave_found(&self, index: u32) {
        if self.table.leave(index) {
            self.end(index, self.moving.is_forbidden());
        }
    }

    /// The last user has left. The real file can be `kept` open, under a number that stays hidden.
    fn end(&self, index: u32, kept: bool) {
        let slot = self.table.slot(index);
        let key = slot.key.load(Acquire);
        for real in slot.real_files().filter(|_| !kept) {
            self.retire(slot.traits().root(), real);
        }
        self.table.free(index);
        if key != 0 {
            self.keys.leave(KeySlot(key - 1));
        }
    }

    /// Gives back a hidden descriptor.
    pub(crate) fn retire(&self, root: Root, hidden: Fd) {
        // Before another thread can find it among the spares.
        self.table.hide(hidden);
        if !self.system.keep_as_spare(root, hidden) {
            // First out of the table: once it is closed, its number may be anybody's.
            self.table.take(hidden.0);
            // Errors of close are those of the file's last writes, which fsync has told or nobody
            // asked for.
            let _ = self.system.close(hidden);
        }
    }
}
