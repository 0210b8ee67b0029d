//! The four functions of a stream on a sealed file: our hooks, on its visible descriptor.
//!
//! They go by descriptor, not by open file: when the program dup2()s something else there, the
//! stream follows, as libc's own streams do.
//!
//! UNSAFETY: libc calls these functions with the cookie that it was given, an entry of the table of
//! streams, which lives for ever.
#![expect(unsafe_code, reason = "functions that libc calls")]

use core::ffi::{c_char, c_int, c_void};

use libc::{FILE, off_t, size_t, ssize_t};
use tidelock_engine::Errno;

use super::mode::Mode;
use super::standard;
use super::streams::{self, Stream};
use crate::hooks::{bytes, close as close_hook};
use crate::next;

/// `cookie_io_functions_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// A new stream on the descriptor, or null and errno; the descriptor stays open then.
pub(crate) fn stream(fd: c_int, mode: Mode) -> *mut FILE {
    let entry = try_or_fail!(streams::claim(fd).ok_or(Errno::MFILE));
    let cookie = core::ptr::from_ref(entry).cast_mut().cast();
    let functions = Functions { read, write, seek, close };
    // SAFETY: the functions have the types of fopencookie, and cookie and functions live for ever.
    let file = unsafe { next::fopencookie(cookie, mode.plain.as_ptr(), functions) };
    if file.is_null() {
        entry.release();
    } else {
        entry.set_file(file);
    }
    file
}

/// # Safety
/// The cookie of a stream that is open.
unsafe fn entry<'s>(cookie: *mut c_void) -> &'s Stream {
    // SAFETY: cookies are entries of a static table.
    unsafe { &*cookie.cast::<Stream>() }
}

unsafe extern "C" fn read(cookie: *mut c_void, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc's promise.
    let fd = unsafe { entry(cookie) }.descriptor();
    // SAFETY: libc's own buffer.
    unsafe { bytes::read(fd, into.cast(), len) }
}

/// All of it, or as much as went well; 0 for an error.
unsafe extern "C" fn write(cookie: *mut c_void, from: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: libc's promise.
    let entry = unsafe { entry(cookie) };
    let fd = entry.descriptor();
    let mut done = 0;
    while done < len {
        // SAFETY: within libc's own buffer.
        let rest = unsafe { from.add(done) };
        // SAFETY: as above.
        let count = unsafe { bytes::write(fd, rest.cast(), len - done) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => done += count,
            _ => break,
        }
    }
    let file = entry.file();
    if !file.is_null() {
        // SAFETY: libc calls us for this stream.
        unsafe { standard::note_written(file, done) };
    }
    done.cast_signed()
}

unsafe extern "C" fn seek(cookie: *mut c_void, at: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: libc's promise.
    let fd = unsafe { entry(cookie) }.descriptor();
    // SAFETY: libc's own variable.
    let wanted = unsafe { *at };
    // SAFETY: takes numbers only.
    let found = unsafe { bytes::lseek(fd, wanted, whence) };
    if found < 0 {
        return -1;
    }
    // SAFETY: libc's own variable.
    unsafe { *at = found };
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: libc's promise; after this call the cookie is not used again.
    let fd = unsafe { entry(cookie) }.release();
    // SAFETY: takes a number only.
    unsafe { close_hook::close(fd) }
}
