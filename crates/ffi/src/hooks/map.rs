//! mmap: a private map is a copy of bounded size, a shared one is refused.
//!
//! A shared map would be the page cache itself: sealed bytes to read, plain bytes to write. A copy
//! would go stale, so shared maps are refused whatever their protection; programs fall back to
//! reading.
//!
//! UNSAFETY: see hooks.rs. The copy is made in memory that was mapped a moment ago and that nobody
//! else knows.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use tidelock_engine::Errno;

use crate::hooks::{File, place};
use crate::raw;

pub unsafe fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    let straight = || raw!(SYS_mmap, address, len, protection, flags, fd, at);
    if flags & libc::MAP_ANONYMOUS != 0 {
        return straight();
    }
    let file = sealed_or!(fd, straight());
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE || len > LARGEST {
        return raw::fail(Errno::NODEV);
    }
    if !file.flags().access().read {
        return raw::fail(Errno::ACCES);
    }
    let from = try_or_fail!(place(at));
    if from % PAGE != 0 {
        return raw::fail(Errno::INVAL);
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = flags | libc::MAP_ANONYMOUS;
    let map: *mut c_void = raw!(SYS_mmap, address, len, writable, anonymous, -1, 0);
    if map == libc::MAP_FAILED {
        return map;
    }
    // SAFETY: `len` bytes that were mapped just now, readable and writable, known to nobody else.
    let copy = unsafe { core::slice::from_raw_parts_mut(map.cast(), len) };
    let filled = fill(&file, copy, from).and_then(|()| protect(map, len, protection));
    if let Err(error) = filled {
        let _: c_int = raw!(SYS_munmap, map, len);
        return raw::fail(error);
    }
    map
}

fn fill(file: &File, copy: &mut [u8], from: u64) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = copy.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.pread(rest, from + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(())
}

fn protect(map: *mut c_void, len: usize, protection: c_int) -> Result<(), Errno> {
    let done: c_int = raw!(SYS_mprotect, map, len, protection);
    if done == 0 { Ok(()) } else { Err(raw::errno()) }
}

/// The largest copy.
const LARGEST: usize = 256 << 20;
const PAGE: u64 = 4096;
