//! dup, dup2, dup3 and F_DUPFD: duplicates share one open file, also in the table.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::c_int;

use tidelock_engine::{Descriptor, Errno};

use crate::hooks::{descriptor, number};
use crate::process::process;
use crate::{guard, raw, stdio};

pub unsafe fn dup(fd: c_int) -> c_int {
    match descriptor(fd) {
        Descriptor::Foreign => guard::landed(foreign(numeric!(SYS_dup, fd))),
        _ => from(fd, 0, false),
    }
}

pub unsafe fn dup2(fd: c_int, onto: c_int) -> c_int {
    if fd == onto {
        // Nothing happens to a descriptor that is open; a hidden one does not count.
        let open: c_int = match descriptor(fd) {
            Descriptor::Hidden => raw::fail(Errno::BADF),
            _ => numeric!(SYS_fcntl, fd, libc::F_GETFD),
        };
        return if open < 0 { open } else { fd };
    }
    over(fd, onto, 0)
}

pub unsafe fn dup3(fd: c_int, onto: c_int, flags: c_int) -> c_int {
    if fd == onto || flags & !libc::O_CLOEXEC != 0 {
        return raw::fail(Errno::INVAL);
    }
    over(fd, onto, flags)
}

/// F_DUPFD and F_DUPFD_CLOEXEC of any descriptor.
pub(crate) fn from(fd: c_int, lowest: c_int, cloexec: bool) -> c_int {
    let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let file = sealed_or!(fd, guard::landed(foreign(numeric!(SYS_fcntl, fd, command, lowest))));
    let process = process_or!(raw::fail(Errno::BADF));
    if lowest < 0 {
        return raw::fail(Errno::INVAL);
    }
    stdio::standard::landed(number(process.duplicate(&file, lowest, cloexec)))
}

fn over(fd: c_int, onto: c_int, flags: c_int) -> c_int {
    let process = process_or!(guard::landed(numeric!(SYS_dup3, fd, onto, flags)));
    match process.descriptor(fd) {
        Descriptor::Sealed(file) => {
            let done = process.duplicate_onto(&file, onto, flags & libc::O_CLOEXEC != 0);
            stdio::standard::landed(number(done.map(|()| onto)))
        }
        Descriptor::Hidden => raw::fail(Errno::BADF),
        Descriptor::Foreign => {
            if matches!(process.descriptor(onto), Descriptor::Hidden) {
                return raw::fail(Errno::BADF);
            }
            process.replaced_by(onto, || numeric!(SYS_dup3, fd, onto, flags))
        }
    }
}

/// A number that the kernel just gave out is that of nothing of ours.
fn foreign(fd: c_int) -> c_int {
    if let Some(process) = process()
        && fd >= 0
    {
        process.forget(fd);
    }
    fd
}
