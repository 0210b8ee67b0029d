//! Wide input, and putwc: refused on streams of ours, because glibc would go through a pointer that
//! a byte stream does not have (`fgetwc` of a cookie stream crashes). Other wide output looks at
//! the orientation first and fails by itself.
//!
//! UNSAFETY: see stdio.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_uint};

use libc::{FILE, size_t, wchar_t};
use tidelock_engine::Errno;

use super::{standard, streams};
use crate::{next, raw};

/// `WEOF`.
const END: c_uint = c_uint::MAX;

/// True, and errno is set, if the stream is one of ours.
fn refuses(file: *mut FILE) -> bool {
    let ours = streams::of(file).is_some();
    if ours {
        raw::set_errno(Errno::OPNOTSUPP);
    }
    ours
}

pub unsafe fn fgetwc(file: *mut FILE) -> c_uint {
    if refuses(file) {
        return END;
    }
    // SAFETY: the contract of fgetwc.
    unsafe { next::fgetwc(file) }
}

pub unsafe fn getwchar() -> c_uint {
    if refuses(standard::input()) {
        return END;
    }
    // SAFETY: the contract of getwchar.
    unsafe { next::getwchar() }
}

pub unsafe fn putwc(letter: wchar_t, file: *mut FILE) -> c_uint {
    if refuses(file) {
        return END;
    }
    // SAFETY: the contract of putwc.
    unsafe { next::putwc(letter, file) }
}

pub unsafe fn putwchar(letter: wchar_t) -> c_uint {
    // SAFETY: stdout is an open stream, or the program may not call this.
    unsafe { putwc(letter, standard::output()) }
}

pub unsafe fn ungetwc(letter: c_uint, file: *mut FILE) -> c_uint {
    if refuses(file) {
        return END;
    }
    // SAFETY: the contract of ungetwc.
    unsafe { next::ungetwc(letter, file) }
}

pub unsafe fn fgetws(into: *mut wchar_t, len: c_int, file: *mut FILE) -> *mut wchar_t {
    if refuses(file) {
        return core::ptr::null_mut();
    }
    // SAFETY: the contract of fgetws.
    unsafe { next::fgetws(into, len, file) }
}

pub unsafe fn fgetws_chk(
    into: *mut wchar_t,
    room: size_t,
    len: c_int,
    file: *mut FILE,
) -> *mut wchar_t {
    if refuses(file) {
        return core::ptr::null_mut();
    }
    // SAFETY: the contract of fgetws.
    unsafe { next::__fgetws_chk(into, room, len, file) }
}
