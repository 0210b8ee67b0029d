//! The index of a write-ahead log of SQLite: programs with keys have one of their own.
//!
//! The index, `NAME-shm`, is plain and shared by all who have the database open. A program without
//! keys that found it would trust it, and not read the log's head. When it closed the database
//! last, it would copy sealed pages of the log to where their plain ones belong, and remove the
//! log. So a program that has a sealed database open means `NAME-tidelock-shm` by that name
//! (docs/decisions/0020).

use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::kernel::{Fd, FileStat, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::roots::{Decide, Decided};

const END: &[u8] = b"-shm";
/// What precedes that in the name of our own.
const OWN: &[u8] = b"-tidelock";

/// Whose index a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Index {
    /// Of a sealed database that this program has open: only our own one will do. Whoever has it
    /// open must agree, whatever its path says: with two indexes the database would be lost.
    OfOpen,
    /// Of one that is there and sealed by its name: our own one, if none has the name itself.
    OfSealed,
    /// Of one that would be sealed, and is not there: the same, but none is made.
    OfMissing,
}

/// True if SQLite could mean an index by this path, which ends with a zero byte.
#[inline]
#[must_use]
pub fn may_be_index(path: &[u8]) -> bool {
    database_of(path).is_some()
}

/// The path of the database whose index this could be.
#[inline]
fn database_of(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b"\0")?.strip_suffix(END)
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Whose index this path names, which ends with a zero byte, and in `own` the path of our own.
    /// `None` if it is none, or that of a plain database.
    ///
    /// # Errors
    /// Those of [`decide`](Self::decide); ENAMETOOLONG.
    pub fn own_index(
        &self,
        at: Fd,
        path: &[u8],
        own: &mut PathBuffer,
    ) -> Result<Option<Index>, Errno> {
        let Some(database) = database_of(path) else { return Ok(None) };
        own.set(database)?;
        let found = self.system.stat_at(at, own.as_c());
        let index = if found.is_ok_and(|stat| self.has_open(&stat)) {
            // Where the policy seals a file of this name, it is a file like any other.
            if matches!(self.decide_to_write(at, path)?, Decided::Sealed(..)) {
                return Ok(None);
            }
            Index::OfOpen
        } else if matches!(self.decide(at, path, false)?, Decided::Plain(_))
            && matches!(self.decide(at, own.as_c(), false)?, Decided::Sealed(..))
        {
            if found.is_ok() { Index::OfSealed } else { Index::OfMissing }
        } else {
            return Ok(None);
        };
        own.append(OWN)?;
        own.append(END)?;
        Ok(Some(index))
    }

    /// True if this program has this file open as a sealed one.
    fn has_open(&self, stat: &FileStat) -> bool {
        let joined = self.table.indices().filter(|&index| self.table.join(index));
        joined.map(|index| OpenFile::of(self, index)).any(|file| {
            let slot = file.slot;
            (slot.device.load(Relaxed), slot.inode.load(Relaxed)) == (stat.device, stat.inode)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_sqlite_calls_an_index_may_be_one() {
        for (path, may) in [
            (&b"/data/app.db-shm\0"[..], true),
            (b"-shm\0", true),
            (b"app.db-tidelock-shm\0", true),
            (b"app.db-shm", false),
            (b"app.db-shm2\0", false),
            (b"app.db\0", false),
            (b"\0", false),
            (b"", false),
        ] {
            assert_eq!(may_be_index(path), may, "{}", String::from_utf8_lossy(path));
        }
    }
}
