//! stdin, stdout and stderr: when a sealed file comes to lie on descriptor 0, 1 or 2, the variable
//! gets a stream of ours, because libc's would write to the kernel and fail.
//!
//! Bytes that still wait in the old stream move along, as they would with one stream. A program
//! that kept the old pointer in a variable of its own gets EBADF at flush: never plaintext.
//!
//! UNSAFETY: the three variables are libc's own, meant to be assigned (glibc manual, "Standard
//! Streams"). Flags and pending bytes are read from the first fields of FILE, whose layout glibc
//! cannot change: programs have them inline.
#![expect(unsafe_code, reason = "libc's variables and the head of FILE")]

use core::ffi::{c_char, c_int, c_long, c_void};

use libc::FILE;
use tidelock_engine::Descriptor;

use super::mode::Mode;
use super::{cookie, streams};
use crate::hooks::descriptor;
use crate::{next, raw};

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn __fpurge(file: *mut FILE);
    fn clearerr(file: *mut FILE);
}

/// The beginning of `struct _IO_FILE` (bits/types/struct_FILE.h).
#[repr(C)]
struct Head {
    flags: c_int,
    read_ptr: *mut c_char,
    read_end: *mut c_char,
    read_base: *mut c_char,
    write_base: *mut c_char,
    write_ptr: *mut c_char,
    /// write_end to chain: pointers that concern libc alone.
    pointers: [*mut c_void; 8],
    fileno: c_int,
    flags2: c_int,
    old_offset: c_long,
    column: u16,
    vtable_offset: i8,
    short_buffer: [c_char; 1],
    lock: *mut c_void,
    /// Where libc thinks that the descriptor is, or -1.
    offset: i64,
}

const _: () = assert!(core::mem::offset_of!(Head, offset) == 144);

const UNBUFFERED: c_int = 0x2;
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const FAILED: c_int = 0x20;
const LINE_BUFFERED: c_int = 0x200;
const APPENDING: c_int = 0x1000;

/// A number that open or dup gave out, as it is; if it is a sealed file on one of the three, the
/// variable follows.
#[inline]
pub(crate) fn landed(fd: c_int) -> c_int {
    if (0..=2).contains(&fd) {
        follow(fd);
    }
    fd
}

#[cold]
fn follow(fd: c_int) {
    let Descriptor::Sealed(opened) = descriptor(fd) else { return };
    let before = raw::errno();
    let variable = variable(fd);
    // SAFETY: libc's variable; programs do not change it while they change its descriptor.
    let old = unsafe { *variable };
    // SAFETY: a stream, or null.
    if streams::of(old).is_none() && !old.is_null() && unsafe { next::fileno(old) } == fd {
        replace(old, fd, Mode::of(opened.flags().0));
    }
    raw::set_errno(before);
}

/// The same for a descriptor that waits for sealed bytes (guard.rs).
#[cold]
pub(crate) fn follow_waiting(fd: c_int) {
    let before = raw::errno();
    // SAFETY: libc's variable; programs do not change it while they change its descriptor.
    let old = unsafe { *variable(fd) };
    // SAFETY: a stream, or null.
    if streams::of(old).is_none() && !old.is_null() && unsafe { next::fileno(old) } == fd {
        let mode = if fd == 0 { libc::O_RDONLY } else { libc::O_WRONLY };
        replace(old, fd, Mode::of(mode));
    }
    raw::set_errno(before);
}

fn variable(fd: c_int) -> *mut *mut FILE {
    match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// Which of the three variables holds this stream.
fn holder(file: *mut FILE) -> Option<*mut *mut FILE> {
    // SAFETY: libc's variables.
    (0..=2).map(variable).find(|&variable| unsafe { *variable } == file)
}

/// What stdout is now.
pub(super) fn output() -> *mut FILE {
    // SAFETY: libc's variable.
    unsafe { stdout }
}

/// What stdin is now.
pub(super) fn input() -> *mut FILE {
    // SAFETY: libc's variable.
    unsafe { stdin }
}

/// True for what stdin, stdout or stderr is now.
pub(crate) fn is_one(file: *mut FILE) -> bool {
    holder(file).is_some()
}

/// Puts a new stream on the descriptor in place of the standard stream `old`; null and errno if
/// there is none.
pub(crate) fn replace(old: *mut FILE, fd: c_int, mode: Mode) -> *mut FILE {
    let Some(variable) = holder(old) else {
        // The variable has followed the descriptor already.
        // SAFETY: libc's variable.
        return if (0..=2).contains(&fd) { unsafe { *variable(fd) } } else { old };
    };
    let new = cookie::stream(fd, mode);
    if !new.is_null() {
        // SAFETY: both are open streams.
        unsafe { hand_over(old, new) };
        // SAFETY: libc's variable, meant to be assigned.
        unsafe { *variable = new };
    }
    new
}

/// Lets the new stream buffer as the old one did, and have the bytes that still wait in it.
///
/// # Safety
/// Two open streams.
unsafe fn hand_over(old: *mut FILE, new: *mut FILE) {
    // SAFETY: the caller's promise; every FILE begins like this.
    let head = unsafe { &*old.cast::<Head>() };
    let (flags, waiting) = (head.flags, head.write_ptr.addr().wrapping_sub(head.write_base.addr()));
    let kind = match flags & (UNBUFFERED | LINE_BUFFERED) {
        0 => libc::_IOFBF,
        LINE_BUFFERED => libc::_IOLBF,
        _ => libc::_IONBF,
    };
    if kind != libc::_IOFBF {
        // SAFETY: a stream that was just made.
        unsafe { libc::setvbuf(new, core::ptr::null_mut(), kind, 0) };
    }
    if head.write_ptr > head.write_base {
        let bytes: *const c_void = head.write_base.cast();
        // SAFETY: the bytes between these two fields wait to be written.
        unsafe { libc::fwrite(bytes, 1, waiting, new) };
    }
    // SAFETY: an open stream.
    unsafe { __fpurge(old) };
}

/// After a write through the cookie: libc moves its own idea of the offset for files only, and a
/// later seek from the current place would miss by as much (glibc 2.36, `_IO_cookie_write`).
///
/// # Safety
/// An open stream of ours, in a call of libc's for it.
pub(super) unsafe fn note_written(file: *mut FILE, count: usize) {
    // SAFETY: every FILE begins like this, and libc waits for us.
    let head = unsafe { &mut *file.cast::<Head>() };
    if head.offset >= 0 {
        head.offset = head.offset.wrapping_add_unsigned(count as u64);
    }
}

/// What ferror tells from then on.
///
/// # Safety
/// An open stream of ours, which the caller holds.
pub(super) unsafe fn note_error(file: *mut FILE) {
    // SAFETY: every FILE begins like this, and nobody else uses it meanwhile.
    unsafe { (*file.cast::<Head>()).flags |= FAILED };
}

/// A stream of ours begins again on its descriptor, in another mode.
pub(super) fn restart(file: *mut FILE, mode: Mode) -> *mut FILE {
    let kinds = match mode.flags & libc::O_ACCMODE {
        libc::O_RDONLY => NO_WRITES,
        libc::O_WRONLY => NO_READS,
        _ => 0,
    };
    let appends = if mode.flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
    // SAFETY: an open stream of ours.
    unsafe { __fpurge(file) };
    // SAFETY: an open stream of ours.
    unsafe { clearerr(file) };
    // SAFETY: every FILE begins like this, and the program does not use it while it waits for us.
    let head = unsafe { &mut *file.cast::<Head>() };
    head.flags = head.flags & !(NO_READS | NO_WRITES | APPENDING) | kinds | appends;
    file
}

/// "/proc/self/fd/N".
pub(crate) fn name_of(fd: c_int, into: &mut [u8; 32]) -> &[u8] {
    let mut rest = into.as_mut_slice();
    // 14 letters, 11 digits and a zero byte fit.
    let _ = std::io::Write::write_fmt(&mut rest, format_args!("/proc/self/fd/{fd}\0"));
    let left = rest.len();
    into.get(..32 - left).unwrap_or_default()
}
