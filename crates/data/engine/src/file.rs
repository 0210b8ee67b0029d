//! One open file, held for the time of one call.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::{KeySlot, Root, UnitCipher};
use tidelock_format::{BLOCK_USIZE, Layout, PlainOffset, PlainSize, Probe};

use crate::errno::Errno;
use crate::flags::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_DIRECT, O_DSYNC, O_NONBLOCK, O_RDWR, O_WRONLY,
};
use crate::gate::Alone;
use crate::kernel::{Fd, FileStat, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::refusal::Refusal;
use crate::roots::Decide;
use crate::table::{OpenFlags, Slot, Traits};
use crate::turn::Turn;
use crate::words::Stripe;

/// What an open file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Opened for reading.
    pub read: bool,
    /// Opened for writing.
    pub write: bool,
}

/// A sealed file of this process. While it is held, the file stays open, whoever closes its
/// descriptors.
pub struct OpenFile<'p, S: System, C: UnitCipher, P: Decide> {
    pub(crate) process: &'p Process<S, C, P>,
    pub(crate) index: u32,
    pub(crate) slot: &'p Slot,
    /// The lowest place where this call has written through the page cache, of a file that the
    /// program wants written directly; the largest number for nowhere.
    pub(crate) cached_from: Cell<u64>,
    /// By a search, not by a descriptor that the program gave.
    found: bool,
}

impl<S: System, C: UnitCipher, P: Decide> Drop for OpenFile<'_, S, C, P> {
    fn drop(&mut self) {
        if self.found {
            self.process.leave_found(self.index);
        } else {
            self.process.leave(self.index);
        }
    }
}

impl OpenFlags {
    /// The visible descriptor shall be closed on exec.
    pub(crate) const fn is_cloexec(self) -> bool {
        self.0 & O_CLOEXEC != 0
    }

    /// O_DSYNC or O_SYNC, in a file that may be written.
    pub(crate) const fn promises(self) -> bool {
        self.0 & O_DSYNC != 0 && self.0 & O_ACCMODE != 0
    }

    /// What the file may be used for.
    #[must_use]
    pub const fn access(self) -> Access {
        match self.0 & O_ACCMODE {
            O_WRONLY => Access { read: false, write: true },
            O_RDWR => Access { read: true, write: true },
            _ => Access { read: true, write: false },
        }
    }
}

impl<'p, S: System, C: UnitCipher, P: Decide> OpenFile<'p, S, C, P> {
    /// An open file that the caller has joined.
    pub(crate) fn of(process: &'p Process<S, C, P>, index: u32) -> Self {
        Self::joined(process, index, false)
    }

    /// As [`of`](Self::of), for who has looked through all open files.
    pub(crate) fn found(process: &'p Process<S, C, P>, index: u32) -> Self {
        Self::joined(process, index, true)
    }

    fn joined(process: &'p Process<S, C, P>, index: u32, found: bool) -> Self {
        let slot = process.table.slot(index);
        Self { process, index, slot, cached_from: Cell::new(u64::MAX), found }
    }

    /// The real descriptor, for calls that do not touch bytes: fsync, flock, fchmod and the like.
    #[must_use]
    pub fn hidden(&self) -> Fd {
        self.slot.hidden()
    }

    /// The flags that the program gave and may change (F_GETFL).
    #[must_use]
    pub fn flags(&self) -> OpenFlags {
        self.slot.open_flags()
    }

    /// True if every write goes to the end: as this process knows it, and where the open file went
    /// through a fork, as the kernel does.
    #[must_use]
    pub fn appends(&self) -> bool {
        let remembered = self.flags().0 & O_APPEND != 0;
        if self.traits().shared {
            self.kernel().appends(self.hidden(), remembered)
        } else {
            remembered
        }
    }

    /// Changes the flags that may change after open (F_SETFL); of ours those are O_APPEND and, for
    /// this process, O_DIRECT.
    pub fn set_flags(&self, flags: i32) {
        // A fork shares the file in its turn, and must not miss what is half said.
        let _turn = self.brief_turn();
        let changeable = O_APPEND | O_DIRECT;
        // The kernel has just been told all others, O_NOATIME among them.
        let kept = self.flags().0 & !changeable & !OpenFlags::UNREAD;
        let all = kept | flags & changeable;
        if self.traits().shared {
            self.kernel().mark_appends(self.hidden(), all & O_APPEND != 0);
        }
        self.slot.flags.store(all.cast_unsigned(), Relaxed);
    }

    /// Where the units of the file begin.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.process.roots.layout(self.traits().root())
    }

    /// A refusal, after a line that names the file: the first time, since programs fall back and
    /// ask again.
    // Apart: a path's buffer is a page of the stack.
    #[inline(never)]
    pub fn refuse_once(&self, why: Refusal) -> Errno {
        let system = self.process.system();
        let first = |stat: FileStat| self.process.reported.is_first(stat.device, stat.inode);
        if system.stat(self.hidden()).is_ok_and(first) {
            let mut path = PathBuffer::new();
            // Without its name the line is still worth something.
            let _ = self.path(&mut path);
            system.report(path.as_bytes(), why);
        }
        why.errno()
    }

    /// The path at this moment, as the kernel has it.
    ///
    /// # Errors
    /// Those of readlink.
    pub fn path(&self, into: &mut PathBuffer) -> Result<(), Errno> {
        into.fill(|room| self.process.system().path_of(self.hidden(), room))
    }

    /// The policy of its directory.
    #[must_use]
    pub fn policy(&self) -> Option<&'p P> {
        self.process.roots.policy(self.traits().root())
    }

    /// Size and identity; the size is that on the disk, perhaps in the middle of a change.
    ///
    /// # Errors
    /// Those of fstat.
    pub fn stat(&self) -> Result<FileStat, Errno> {
        self.kernel().stat(self.hidden())
    }

    /// The size at this moment, for who has the gate.
    pub(crate) fn size_now(&self) -> Result<PlainSize, Errno> {
        Ok(self.stat()?.size.plain(self.layout()))
    }

    /// Remembers that POSIX record locks are held through this file: closing a duplicate drops
    /// them, and nothing of ours may. To be called before the first one is there.
    ///
    /// # Errors
    /// EDEADLK in a signal handler that interrupted an open of its own thread.
    pub fn note_record_lock(&self) -> Result<(), Errno> {
        let (moving, kernel) = (&self.process.moving, self.kernel());
        let movers = self.process.table.movers();
        moving.forbid(movers, kernel.actor(Root::FIRST), |looks| kernel.pause(looks))?;
        self.slot.mark_locked();
        Ok(())
    }

    pub(crate) fn kernel(&self) -> &'p S {
        &self.process.system
    }

    pub(crate) fn cipher(&self) -> &'p C {
        &self.process.cipher
    }

    #[inline]
    pub(crate) fn traits(&self) -> Traits {
        self.slot.traits()
    }

    /// For what is about to read; from the first time on, reads count as accesses.
    pub(crate) fn may_read(&self) -> Result<(), Errno> {
        let flags = self.flags();
        if !flags.access().read {
            return Err(Errno::BADF);
        }
        if flags.is_unread() {
            self.begin_to_read();
        }
        Ok(())
    }

    /// From now on the time of access is that of the program's reads; once is enough.
    pub fn begin_to_read(&self) {
        let unread = OpenFlags::UNREAD.cast_unsigned();
        let before = self.slot.flags.fetch_and(!unread, Relaxed);
        if before & unread != 0 {
            self.kernel().set_flags(self.hidden(), before.cast_signed() & O_NONBLOCK);
        }
    }

    pub(crate) fn may_write(&self) -> Result<(), Errno> {
        if self.flags().access().write { Ok(()) } else { Err(Errno::BADF) }
    }

    /// True if the file's key is at hand: nothing has to be derived for it.
    #[inline]
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.slot.key.load(core::sync::atomic::Ordering::Acquire) != 0
    }

    /// The key, or `None` while the file has no header: then it has no bytes either.
    #[inline]
    pub(crate) fn key(&self) -> Result<Option<KeySlot>, Errno> {
        match self.slot.key.load(core::sync::atomic::Ordering::Acquire) {
            0 => self.look_for_key(),
            key => Ok(Some(KeySlot(key - 1))),
        }
    }

    /// Another process, or another descriptor, may have given the file its header since it was
    /// opened.
    #[cold]
    fn look_for_key(&self) -> Result<Option<KeySlot>, Errno> {
        let stat = self.stat()?;
        if stat.size.0 == 0 {
            return Ok(None);
        }
        let mut first = [0u8; tidelock_format::PROBE_LEN];
        let count =
            self.kernel().pread(self.hidden(), &mut first, tidelock_format::DiskOffset::HEADER)?;
        let first = first.get(..count).unwrap_or(&[]);
        if Probe::is_blank(first) {
            // Also where zeros follow: a file that was made longer before a crash and never
            // written.
            return Ok(None);
        }
        self.process.send_header(self.hidden(), self.flags(), self.traits().root())?;
        let key =
            self.process.unlock(first, self.traits()).map_err(crate::refusal::Refusal::errno)?;
        Ok(Some(self.adopt(key)))
    }

    /// Lets the open file hold `key`, which the caller has joined, unless it has one already.
    pub(crate) fn adopt(&self, key: KeySlot) -> KeySlot {
        use core::sync::atomic::Ordering::{AcqRel, Acquire};
        match self.slot.key.compare_exchange(0, key.0 + 1, AcqRel, Acquire) {
            Ok(_) => key,
            Err(other) => {
                self.process.keys.leave(key);
                KeySlot(other - 1)
            }
        }
    }

    /// The file's words.
    #[inline]
    pub(crate) fn stripe(&self) -> Stripe {
        self.traits().stripe
    }

    /// Before a gate is taken that a new header may be made under: nobody waits for an agent then.
    #[inline]
    pub(crate) fn prepare(&self) {
        if !self.is_keyed() {
            self.cipher().prepare(self.traits().root());
        }
    }

    /// Has the file alone until the guard is dropped.
    pub(crate) fn alone(&self) -> Result<Alone<'p, S>, Errno> {
        self.prepare();
        Alone::take(self.kernel(), self.stripe())
    }

    /// Has the offset until the guard is dropped, for one system call that changes it.
    pub(crate) fn brief_turn(&self) -> Turn<'p, S> {
        Turn::brief(self.kernel(), self.turn_word())
    }

    pub(crate) fn turn_word(&self) -> Stripe {
        let number = self.slot.turn.load(Relaxed);
        Stripe { root: self.traits().root(), number }
    }
}

/// A plain offset, or EINVAL for one that no file can have.
pub(crate) fn place(at: u64) -> Result<PlainOffset, Errno> {
    PlainOffset::new(at).ok_or(Errno::INVAL)
}

/// Whole blocks among `count` bytes.
pub(crate) const fn whole_blocks(count: usize) -> usize {
    count - count % BLOCK_USIZE
}
