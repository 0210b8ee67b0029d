//! mkstemp and its kin: libc opens the file within itself, so we open it instead.
//!
//! UNSAFETY: see hooks.rs. The template is the program's own buffer, changed in place as the
//! functions promise.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{CStr, c_char, c_int, c_void};

use tidelock_engine::Errno;

use crate::hooks::open;
use crate::raw;

pub unsafe fn mkstemp(template: *mut c_char) -> c_int {
    // SAFETY: the contract of mkstemp.
    unsafe { mkostemps(template, 0, 0) }
}

pub unsafe fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: the contract of mkostemp.
    unsafe { mkostemps(template, 0, flags) }
}

pub unsafe fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
    // SAFETY: the contract of mkstemps.
    unsafe { mkostemps(template, suffix, 0) }
}

pub unsafe fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: the contract of mkostemps: a string.
    let len = unsafe { CStr::from_ptr(template) }.to_bytes().len();
    let start =
        usize::try_from(suffix).ok().and_then(|suffix| len.checked_sub(MARK.len() + suffix));
    let start = try_or_fail!(start.ok_or(Errno::INVAL));
    // SAFETY: the contract of mkostemps: the string may be changed.
    let text = unsafe { core::slice::from_raw_parts_mut(template.cast::<u8>(), len) };
    if text.get(start..start + MARK.len()) != Some(MARK) {
        return raw::fail(Errno::INVAL);
    }
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let before = raw::errno();
    for _ in 0..ATTEMPTS {
        if let Some(mark) = text.get_mut(start..start + MARK.len()) {
            try_or_fail!(choose(mark));
        }
        // SAFETY: still a string with a zero byte at its end.
        let fd = unsafe { open::open(template, flags, 0o600) };
        if fd >= 0 || raw::errno() != Errno::EXIST {
            return fd;
        }
        raw::set_errno(before);
    }
    raw::fail(Errno::EXIST)
}

const MARK: &[u8] = b"XXXXXX";
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ab";
/// As many as libc makes (62 cubed).
const ATTEMPTS: u32 = 238_328;

/// Six letters at random.
fn choose(mark: &mut [u8]) -> Result<(), Errno> {
    let mut random = [0u8; 6];
    // SAFETY: the program's own arguments.
    let count: c_int =
        unsafe { raw!(SYS_getrandom, random.as_mut_ptr().cast::<c_void>(), random.len(), 0) };
    if usize::try_from(count) != Ok(random.len()) {
        return Err(Errno::IO);
    }
    for (letter, byte) in mark.iter_mut().zip(random) {
        *letter = LETTERS[usize::from(byte) % LETTERS.len()];
    }
    Ok(())
}
