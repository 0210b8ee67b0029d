//! The library opens for reading too, since it reads a block before it changes a part of it, and
//! writes the last block of a file again to append. Where the kernel refuses that, one line says
//! why.

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::flags::{O_ACCMODE, O_APPEND, O_TRUNC, O_WRONLY};
use crate::kernel::{Fd, System};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::roots::Decide;

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Tells where the kernel would have let the program in, and refuses what is asked for beside:
    /// to read the file, and to write where the program would only append.
    #[cold]
    pub(crate) fn tell_of_extra_access(
        &self,
        error: Errno,
        (at, path): (Fd, &[u8]),
        flags: i32,
        name: &[u8],
    ) {
        let appends = flags & (O_APPEND | O_TRUNC) == O_APPEND && flags & O_ACCMODE != 0;
        let why = match error {
            Errno::PERM if appends && self.system.can_only_grow(at, path) => Refusal::AppendOnly,
            Errno::ACCES
                if flags & O_ACCMODE == O_WRONLY && self.system.may_only_write(at, path) =>
            {
                Refusal::WriteOnly
            }
            _ => return,
        };
        self.system.report(name.strip_suffix(b"\0").unwrap_or(name), why);
    }
}
