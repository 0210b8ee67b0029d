//! What can go wrong, and which call can go wrong how.

use tidelock_engine::Errno;

/// A call of the simulated kernel that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the traits' methods")]
pub enum Call {
    Pread,
    Pwrite,
    PwriteFirst,
    SetSize,
    Stat,
    Allocate,
    Position,
    SetPosition,
    Seek,
    Synchronise,
    WriteOut,
    Open,
    Close,
    Duplicate,
    DuplicateOnto,
    ReserveHidden,
    StatAt,
    Rename,
    Link,
}

/// What happens to the N-th call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails, if it is one that can fail so.
    Errno(Errno),
    /// If it writes, only so many bytes arrive.
    Short(usize),
    /// It does not happen, and nothing happens after it.
    Crash,
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Which call, from 0.
    pub at: u64,
    /// What happens to it.
    pub fault: Fault,
}

impl Call {
    /// True if bytes go down.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Pwrite | Self::PwriteFirst)
    }

    pub(super) fn may_fail_with(self, error: Errno) -> bool {
        use Call::{
            Allocate, Duplicate, Link, Open, Pread, Pwrite, PwriteFirst, Rename, ReserveHidden,
            SetSize, Stat, Synchronise, WriteOut,
        };
        match error {
            Errno::NOSPC | Errno::DQUOT => {
                matches!(self, Pwrite | PwriteFirst | Allocate | Open | Rename | Link)
            }
            Errno::INTR => matches!(self, Pread | Pwrite | PwriteFirst | SetSize | Allocate | Open),
            Errno::AGAIN => self == Self::DuplicateOnto,
            // What a file system answers that has no direct access, or larger sectors.
            Errno::INVAL => matches!(self, Open | Pwrite),
            Errno::MFILE => matches!(self, Open | Duplicate | ReserveHidden),
            Errno::IO => matches!(
                self,
                Pread
                    | Pwrite
                    | PwriteFirst
                    | SetSize
                    | Allocate
                    | Open
                    | Stat
                    | Synchronise
                    | WriteOut
                    | Rename
                    | Link
            ),
            _ => false,
        }
    }
}
