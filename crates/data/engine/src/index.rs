//! The index of a write-ahead log of SQLite: programs with keys have one of their own.
//!
//! The index, `NAME-shm`, is plain and shared by all who have the database open. A program without
//! keys that found it would trust it, and not read the log's head. When it closed the database
//! last, it would copy sealed pages of the log to where their plain ones belong, and remove the
//! log. So what programs with keys open and remove under that name is `NAME-tidelock-shm`
//! (docs/decisions/0020).

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::kernel::{Fd, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::roots::{Decide, Decided};

const END: &[u8] = b"-shm";
/// What precedes that in the name that programs with keys have for it.
const OWN: &[u8] = b"-tidelock";

/// True if SQLite could mean an index by this path, which ends with a zero byte.
#[inline]
#[must_use]
pub fn may_be_index(path: &[u8]) -> bool {
    database_of(path).is_some_and(|database| !database.ends_with(OWN))
}

/// The path of the database whose index this could be.
#[inline]
fn database_of(path: &[u8]) -> Option<&[u8]> {
    path.strip_suffix(b"\0")?.strip_suffix(END)
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Puts the name that programs with keys have for an index into `own`: true if this path,
    /// which ends with a zero byte, is that of an index whose database is sealed.
    ///
    /// # Errors
    /// Those of [`decide`](Self::decide); ENAMETOOLONG.
    pub fn own_index(&self, at: Fd, path: &[u8], own: &mut PathBuffer) -> Result<bool, Errno> {
        let Some(database) = database_of(path).filter(|_| may_be_index(path)) else {
            return Ok(false);
        };
        if !matches!(self.decide(at, path, false)?, Decided::Plain(_)) {
            return Ok(false);
        }
        own.set(database)?;
        if !matches!(self.decide(at, own.as_c(), false)?, Decided::Sealed(..)) {
            return Ok(false);
        }
        own.append(OWN)?;
        own.append(END)?;
        Ok(true)
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
            (b"app.db-tidelock-shm\0", false),
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
