//! Descriptors of sealed files that are not open: O_PATH ones, which the program gets as the kernel
//! makes them. Nothing can be read or written by them, but their size can be asked for.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::flags::O_DIRECTORY;
use crate::gate;
use crate::kernel::{Fd, FileStat, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::roots::{Decide, Decided};
use crate::words::Stripe;

/// What the kernel writes behind the path of a file that has lost its name.
const DELETED: &[u8] = b" (deleted)";

/// Whether there may be any, so that others who ask for a size need not find out.
pub(crate) struct Unopened(AtomicBool);

impl Unopened {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// What the kernel opens as it is.
    pub(crate) fn note(&self, decided: Decided, flags: i32) {
        if flags & O_DIRECTORY == 0 && matches!(decided, Decided::Sealed(..)) {
            self.0.store(true, Relaxed);
        }
    }
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// True if an O_PATH descriptor of a sealed file was ever opened here.
    #[must_use]
    pub fn has_unopened(&self) -> bool {
        self.unopened.0.load(Relaxed)
    }

    /// The size that the program sees of the file behind an O_PATH descriptor, which `found` says
    /// of the disk; `changes` is what [`size_changes`](Self::size_changes) gave before that was
    /// asked. As by its path, its name alone says whether it is sealed: to open it for a look would
    /// drop the program's record locks.
    ///
    /// # Errors
    /// Those of looking it up.
    pub fn size_of_unopened(&self, fd: Fd, found: &FileStat, changes: u64) -> Result<u64, Errno> {
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(fd, room))?;
        if let Some(before) = real.as_bytes().strip_suffix(DELETED).map(<[u8]>::len) {
            let there = self.system.stat_at(Fd::CWD, real.as_c());
            if !there.is_ok_and(|stat| (stat.device, stat.inode) == (found.device, found.inode)) {
                real.truncate(before);
            }
        }
        let Decided::Sealed(root, class) = self.roots.decide(real.as_bytes()) else {
            return Ok(found.size.0);
        };
        let stripe = Stripe::of(root, class, found.device, found.inode);
        let size = match self.generation_since(stripe, changes) {
            Some(_) => found.size,
            None => gate::between_changes(&self.system, stripe, || self.system.stat(fd))?.size,
        };
        Ok(size.plain(self.roots.layout(root)).0)
    }
}
