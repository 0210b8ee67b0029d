//! fsync, fdatasync and syncfs: of the real file, and its errors are the program's.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::c_int;

use crate::guard::StandIn;

pub unsafe fn fsync(fd: c_int) -> c_int {
    let file = sealed_or!(fd, straight(fd, |fd| numeric!(SYS_fsync, fd)));
    numeric!(SYS_fsync, file.hidden().0)
}

pub unsafe fn fdatasync(fd: c_int) -> c_int {
    let file = sealed_or!(fd, straight(fd, |fd| numeric!(SYS_fdatasync, fd)));
    numeric!(SYS_fdatasync, file.hidden().0)
}

pub unsafe fn syncfs(fd: c_int) -> c_int {
    let file = sealed_or!(fd, numeric!(SYS_syncfs, fd));
    numeric!(SYS_syncfs, file.hidden().0)
}

/// As it is, or on another descriptor of a file that waits for sealed bytes.
fn straight(fd: c_int, sync: impl Fn(c_int) -> c_int) -> c_int {
    let done = sync(fd);
    StandIn::after(&done, fd).map_or(done, |other| sync(other.number()))
}
