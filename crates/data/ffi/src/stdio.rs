//! Streams: libc's fopen and friends go round our open and read, so a stream on a sealed file is
//! one of fopencookie, whose functions are our hooks.
//!
//! ```text
//!   fopen, fdopen, freopen     mode.rs      what the mode string asks for
//!        |                     streams.rs   which descriptor has this FILE? (fileno)
//!   fopencookie (libc)         cookie.rs    read, write, seek, close of the visible descriptor
//!   stdin, stdout, stderr      standard.rs  replaced when a sealed file comes to lie on 0, 1 or 2
//! ```
//!
//! libc's wide functions need more of a stream than fopencookie gives, so wide.rs has ours for it.
//! A stream of libc cannot become one, so freopen of a stream other than the standard three onto a
//! sealed file is refused.
//!
//! UNSAFETY: as in hooks.rs; FILE is only handed on to libc, but for its flags and its pending
//! bytes (standard.rs).
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

pub mod cookie;
pub(crate) mod mode;
pub(crate) mod standard;
mod streams;
pub mod wide;

use core::ffi::{CStr, c_char, c_int};

use libc::FILE;
use tidelock_engine::{Decided, Descriptor, Errno, Fd, LastLink, is_shortage};

use crate::hooks::{File, aside, close, duplicate, path as path_of};
use crate::process::{ActiveProcess, process};
use crate::raw::{self, fail};
use crate::{guard, next};
use mode::Mode;

pub unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the contract of fopen.
    let process = process_or!(unsafe { guard::fopen(path, mode) });
    // SAFETY: the contract of fopen.
    let wanted = try_or_fail!(unsafe { parse(mode) });
    // SAFETY: the contract of fopen.
    let name = try_or_fail!(unsafe { path_of(path) });
    if wanted.converts {
        // Wide streams: libc's own only, and not on a descriptor.
        // SAFETY: the contract of fopen.
        let ours = unsafe { is_for_us(process, path, wanted) };
        // SAFETY: the contract of fopen.
        return if ours { fail(Errno::INVAL) } else { unsafe { next::fopen(path, mode) } };
    }
    let fd = try_or_fail!(aside(|| process.open(Fd::CWD, name, wanted.flags, CREATION_MODE)));
    let sealed = matches!(process.descriptor(fd), Descriptor::Sealed(_));
    if wanted.starts_at_end() {
        let _: i64 = seek_end(fd);
    }
    let file = if sealed {
        cookie::stream(fd, wanted)
    } else {
        // SAFETY: the contract of fdopen, with a descriptor that was opened just now.
        unsafe { next::fdopen(fd, mode) }
    };
    if file.is_null() {
        let error = raw::errno();
        let _: Result<(), Errno> = process.close(fd);
        return fail(error);
    }
    file
}

pub unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the contract of fdopen.
    let file = sealed_or!(fd, unsafe { guard::fdopen(fd, mode) });
    // SAFETY: the contract of fdopen.
    let wanted = try_or_fail!(unsafe { parse(mode) });
    try_or_fail!(adapt(fd, &file, wanted));
    cookie::stream(fd, wanted)
}

/// Checks and changes the flags of an open file as fdopen does.
fn adapt(fd: c_int, file: &File, wanted: Mode) -> Result<(), Errno> {
    let flags = file.flags();
    let (may, wants) = (flags.access(), tidelock_engine::OpenFlags(wanted.flags).access());
    if wants.read && !may.read || wants.write && !may.write || wanted.converts {
        return Err(Errno::INVAL);
    }
    if wanted.flags & !flags.0 & libc::O_APPEND != 0 {
        // Until the first read the real file has O_NOATIME, and set_flags takes it for gone.
        file.begin_to_read();
        file.set_flags(flags.0 | libc::O_APPEND);
        if wanted.starts_at_end() {
            let _: i64 = seek_end(fd);
        }
    }
    Ok(())
}

pub unsafe fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    // SAFETY: the contract of freopen.
    let process = process_or!(unsafe { guard::freopen(path, mode, file) });
    let ours = streams::of(file);
    // SAFETY: the contract of freopen.
    let wanted = unsafe { parse(mode) };
    // SAFETY: the contract of freopen.
    let onto_sealed = wanted.is_ok_and(|wanted| unsafe { is_for_us(process, path, wanted) });
    if ours.is_none() && !onto_sealed {
        // SAFETY: the contract of freopen.
        unsafe { forget_descriptor(process, file) };
        // SAFETY: the contract of freopen.
        return unsafe { next::freopen(path, mode, file) };
    }
    // SAFETY: the contract of freopen.
    let reopened = unsafe { parse(mode) }.and_then(|wanted| {
        if ours.is_none() && !standard::is_one(file) || wanted.converts {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the contract of freopen: an open stream.
        unsafe { libc::fflush(file) };
        // SAFETY: the contract of freopen.
        let old = unsafe { fileno(file) };
        // SAFETY: the contract of freopen.
        let fd = unsafe { open_again(process, path, wanted, old) }?;
        Ok((fd, wanted))
    });
    match (reopened, ours) {
        (Ok((_, wanted)), Some(_)) => standard::restart(file, wanted),
        (Ok((fd, wanted)), None) => standard::replace(file, fd, wanted),
        (Err(error), _) => {
            // SAFETY: the contract of freopen: on failure the stream is closed.
            unsafe { fclose(file) };
            fail(error)
        }
    }
}

/// Opens a file on the descriptor that the stream has, or on a new one if it has none.
///
/// # Safety
/// The contract of freopen.
unsafe fn open_again(
    process: &ActiveProcess,
    path: *const c_char,
    wanted: Mode,
    old: c_int,
) -> Result<c_int, Errno> {
    let mut itself = [0u8; 32];
    let name = if path.is_null() {
        standard::name_of(old, &mut itself)
    } else {
        // SAFETY: the contract of freopen.
        unsafe { path_of(path) }?
    };
    let fd = aside(|| process.open(Fd::CWD, name, wanted.flags, CREATION_MODE))?;
    if wanted.starts_at_end() {
        let _: i64 = seek_end(fd);
    }
    if old < 0 || old == fd {
        return Ok(fd);
    }
    // SAFETY: takes numbers only.
    let moved = unsafe { duplicate::dup3(fd, old, wanted.flags & libc::O_CLOEXEC) };
    let error = raw::errno();
    // SAFETY: takes a number only.
    unsafe { close::close(fd) };
    if moved < 0 { Err(error) } else { Ok(old) }
}

/// True if the path is that of a file that only the engine may open.
///
/// # Safety
/// `path` is null or a string.
unsafe fn is_for_us(process: &ActiveProcess, path: *const c_char, wanted: Mode) -> bool {
    // SAFETY: the caller's promise.
    unsafe { path_of(path) }.is_ok_and(|path| {
        let decided = aside(|| match wanted.flags & libc::O_ACCMODE {
            libc::O_RDONLY => process.decide(Fd::CWD, path, LastLink::Follow),
            _ => process.decide_to_write(Fd::CWD, path),
        });
        match decided {
            Ok(Decided::Outside | Decided::Plain(_) | Decided::Root(_)) => false,
            Ok(_) => true,
            Err(why) => why == Errno::ACCES || is_shortage(why),
        }
    })
}

pub unsafe fn fclose(file: *mut FILE) -> c_int {
    if streams::of(file).is_none()
        && let Some(process) = process()
    {
        // SAFETY: the contract of fclose.
        unsafe { forget_descriptor(process, file) };
    }
    // SAFETY: the contract of fclose; a stream of ours is closed through its cookie.
    unsafe { next::fclose(file) }
}

/// A stream on any file: what it is for is only to be read as a list of mounts.
pub unsafe fn setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the contract of setmntent.
    let process = process_or!(unsafe { guard::setmntent(path, mode) });
    // SAFETY: the contract of setmntent.
    let wanted = unsafe { parse(mode) };
    // SAFETY: the contract of setmntent.
    if wanted.is_ok_and(|wanted| unsafe { is_for_us(process, path, wanted) }) {
        // SAFETY: the contract of fopen.
        return unsafe { fopen(path, mode) };
    }
    // SAFETY: the contract of setmntent.
    unsafe { next::setmntent(path, mode) }
}

pub unsafe fn endmntent(file: *mut FILE) -> c_int {
    if !file.is_null() {
        // SAFETY: the contract of endmntent.
        unsafe { fclose(file) };
    }
    1
}

/// The close of libc's own streams, for those who call it by itself.
pub unsafe fn file_close(file: *mut FILE) -> c_int {
    // SAFETY: a stream of libc.
    process().inspect(|process| unsafe { forget_descriptor(process, file) });
    // SAFETY: the program's own arguments.
    unsafe { next::_IO_file_close(file) }
}

/// As [`file_close`], with what waits written first.
pub unsafe fn file_close_it(file: *mut FILE) -> c_int {
    // SAFETY: a stream of libc.
    process().inspect(|process| unsafe { forget_descriptor(process, file) });
    // SAFETY: the program's own arguments.
    unsafe { next::_IO_file_close_it(file) }
}

/// As [`file_close_it`], and the stream is no more.
pub unsafe fn file_finish(file: *mut FILE, always_zero: c_int) {
    // SAFETY: a stream of libc.
    process().inspect(|process| unsafe { forget_descriptor(process, file) });
    // SAFETY: the program's own arguments.
    unsafe { next::_IO_file_finish(file, always_zero) }
}

/// libc is about to close the descriptor of one of its own streams without asking us.
///
/// # Safety
/// An open stream of libc.
unsafe fn forget_descriptor(process: &ActiveProcess, file: *mut FILE) {
    let before = raw::errno();
    // SAFETY: the caller's promise.
    let fd = unsafe { next::fileno(file) };
    raw::set_errno(before);
    process.forget(fd);
}

pub unsafe fn fileno(file: *mut FILE) -> c_int {
    match streams::of(file) {
        Some(stream) => stream.descriptor(),
        // SAFETY: the contract of fileno.
        None => unsafe { next::fileno(file) },
    }
}

/// # Safety
/// `mode` is a string.
pub(crate) unsafe fn parse(mode: *const c_char) -> Result<Mode, Errno> {
    // SAFETY: the caller's promise.
    Mode::parse(unsafe { CStr::from_ptr(mode) }.to_bytes()).ok_or(Errno::INVAL)
}

fn seek_end(fd: c_int) -> i64 {
    let before = raw::errno();
    // SAFETY: takes numbers only.
    let end = unsafe { crate::hooks::bytes::lseek(fd, 0, libc::SEEK_END) };
    raw::set_errno(before);
    end
}

/// What fopen gives to new files, before the umask.
const CREATION_MODE: u32 = 0o666;
