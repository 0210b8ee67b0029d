//! The index of a write-ahead log of SQLite: programs with keys have one of their own.
//!
//! The index, `NAME-shm`, is plain and shared by all who have the database open. A program without
//! keys that found it would trust it, and not read the log's head. When it closed the database
//! last, it would copy sealed pages of the log to where their plain ones belong, and remove the
//! log. So a program that has a sealed database open means `NAME-tidelock-shm` by that name
//! (docs/decisions/0020).

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::flags::{O_CREAT, O_EXCL, O_TRUNC};
use crate::kernel::{Fd, System};
use crate::open::Lookup;
use crate::path::PathBuffer;
use crate::process::Process;
use crate::resolve::LastLink;
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
    /// Of one that would be sealed, and is not there: our own one, if it is there. Another program
    /// may have the database open still, whose file was renamed. None is made.
    OfMissing,
}

/// True if SQLite could mean an index by this path, which ends with a zero byte.
#[inline]
#[must_use]
pub fn may_be_index(path: &[u8]) -> bool {
    database_of(path).is_some()
}

/// True for the errors by which a database is not there, or not for this program. Any other says
/// nothing, and a second index would lose the database.
const fn is_absence(why: Errno) -> bool {
    matches!(why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::ACCES)
}

/// The path of the database whose index this could be.
#[inline]
fn database_of(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b"\0")?.strip_suffix(END)
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Whose index this path names, which ends with a zero byte, and in `own` the path of our own.
    /// `None` if it names no index, or that of a plain database.
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
        let found = match self.stat_followed(at, own.as_c()) {
            Err(why) if !is_absence(why) => return Err(why),
            found => found,
        };
        let index = if found.is_ok_and(|stat| self.has_open(&stat)) {
            // Where the policy seals a file of this name, it is a file like any other.
            if matches!(self.decide_to_write(at, path)?, Decided::Sealed(..)) {
                return Ok(None);
            }
            Index::OfOpen
        } else if matches!(self.decide(at, path, LastLink::Itself)?, Decided::Plain(_))
            && matches!(self.decide(at, own.as_c(), LastLink::Itself)?, Decided::Sealed(..))
        {
            if found.is_ok() { Index::OfSealed } else { Index::OfMissing }
        } else {
            return Ok(None);
        };
        own.append(OWN)?;
        own.append(END)?;
        Ok(Some(index))
    }

    /// Opens what is called as an index is, and not sealed by its name.
    // Apart: a path's buffer is a page of the stack.
    #[inline(never)]
    pub(crate) fn open_index(
        &self,
        lookup: Lookup<'_>,
        flags: i32,
        mode: u32,
        name: &[u8],
    ) -> Result<i32, Errno> {
        let mut own = PathBuffer::new();
        let index = self.own_index(lookup.at, lookup.path, &mut own)?;
        let own = Lookup { path: own.as_c(), ..lookup };
        match index {
            Some(Index::OfSealed) if flags & O_EXCL == 0 => {
                match self.open_plain(lookup, flags & !O_CREAT, mode, name) {
                    Err(Errno::NOENT) => self.open_plain(own, flags, mode, name),
                    done => done,
                }
            }
            Some(Index::OfMissing) if flags & (O_EXCL | O_TRUNC) == 0 => {
                match self.open_plain(own, flags & !O_CREAT, mode, name) {
                    Err(Errno::NOENT) => self.open_plain(lookup, flags, mode, name),
                    done => done,
                }
            }
            Some(Index::OfOpen | Index::OfSealed) => self.open_plain(own, flags, mode, name),
            Some(Index::OfMissing) | None => self.open_plain(lookup, flags, mode, name),
        }
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
