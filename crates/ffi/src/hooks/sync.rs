//! fsync, fdatasync and syncfs: of the real file, and its errors are the program's.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::c_int;

pub unsafe fn fsync(fd: c_int) -> c_int {
    let file = sealed_or!(fd, raw!(SYS_fsync, fd));
    raw!(SYS_fsync, file.hidden().0)
}

pub unsafe fn fdatasync(fd: c_int) -> c_int {
    let file = sealed_or!(fd, raw!(SYS_fdatasync, fd));
    raw!(SYS_fdatasync, file.hidden().0)
}

pub unsafe fn syncfs(fd: c_int) -> c_int {
    let file = sealed_or!(fd, raw!(SYS_syncfs, fd));
    raw!(SYS_syncfs, file.hidden().0)
}
