//! libc's file calls: each hook converts its arguments, calls the engine and converts the result.
//!
//! ```text
//!   the program calls   open  read  stat ...          named in ledger.rs
//!        |
//!   hooks::open::open   descriptor or path of ours?   no: raw!(...), the same call without libc
//!        |
//!   engine              Process::open, OpenFile::read ...
//! ```
//!
//! No hook allocates, logs, looks up symbols or takes a lock of its own. errno is touched on
//! failure only. Before the library has started everything goes straight to the kernel; in programs
//! without keys too, but what the guard judges (guard.rs).
//!
//! UNSAFETY: hooks take what C programs pass. Each has the contract of the C function of the same
//! name, and relies on nothing else: memory of the given length, strings with a final zero byte.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_void};

use tidelock_engine::{Decided, Descriptor, Errno, Fd, LastLink, OpenFile, is_shortage};

use tidelock_runtime::Directory;

use crate::process::process;
use crate::raw::fail;
use crate::stack;
use crate::touch::{self, Want};
use crate::{Linux, Xts};

/// A sealed file of this process.
pub(crate) type File = OpenFile<'static, Linux, Xts, Directory>;

/// The sealed file behind a descriptor; or leaves the hook with the straight call, or with EBADF
/// for a hidden one.
macro_rules! sealed_or {
    ($fd:expr, $straight:expr) => {
        match $crate::hooks::descriptor($fd) {
            tidelock_engine::Descriptor::Sealed(file) => file,
            tidelock_engine::Descriptor::Foreign => return $straight,
            tidelock_engine::Descriptor::Hidden => {
                return $crate::raw::fail(tidelock_engine::Errno::BADF);
            }
        }
    };
}

/// The engine; or leaves the hook with the straight call.
macro_rules! process_or {
    ($straight:expr) => {
        match $crate::process::process() {
            Some(process) => process,
            None => return $straight,
        }
    };
}

/// The value of a result; or leaves the hook with errno.
macro_rules! try_or_fail {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $crate::raw::fail(error),
        }
    };
}

pub mod asynchronous;
pub mod attributes;
pub mod bytes;
pub mod close;
pub mod control;
pub mod direct;
pub mod duplicate;
pub mod exec;
mod index;
pub mod limits;
pub mod listing;
pub mod load;
pub mod locks;
pub mod map;
pub mod names;
pub mod open;
pub mod print;
pub mod proc;
pub mod processes;
pub mod signals;
pub mod size;
pub mod stat;
pub use crate::stdio as streams;
pub use crate::stdio::wide;
pub mod sync;
pub mod temporary;
pub mod transfer;
pub mod unshare;
pub mod vectors;
pub mod wait;
pub mod walk;
pub mod within;

/// What a descriptor is; all are foreign while the library is inert.
#[inline]
pub(crate) fn descriptor(fd: c_int) -> Descriptor<'static, Linux, Xts, Directory> {
    match process() {
        Some(process) => process.descriptor(fd),
        None => Descriptor::Foreign,
    }
}

/// True for a descriptor that is not the program's to use as it is: sealed or hidden.
pub(crate) fn is_ours(fd: c_int) -> bool {
    !matches!(descriptor(fd), Descriptor::Foreign)
}

/// The descriptor for calls that do not touch bytes: the hidden one of a sealed file. The file
/// keeps it open.
pub(crate) fn beneath(fd: c_int) -> Result<(c_int, Option<File>), Errno> {
    match descriptor(fd) {
        Descriptor::Foreign => Ok((fd, None)),
        Descriptor::Hidden => Err(Errno::BADF),
        Descriptor::Sealed(file) => Ok((file.hidden().0, Some(file))),
    }
}

/// The most that Linux transfers in one call.
const MOST: usize = 0x7fff_f000;

/// What the engine says about a path, asked on a stack of ours: the program may have little.
pub(crate) fn aside<R>(work: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    stack::run(work)?
}

/// A call that may be deep: on a stack of ours, unless it is known to be shallow.
#[inline]
pub(crate) fn deep<R>(shallow: bool, work: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
    if shallow { work() } else { aside(work) }
}

/// Memory that the program wants filled: as much of it as is there.
///
/// # Errors
/// EFAULT if it is not there from its first byte on.
///
/// # Safety
/// What is there of the `len` bytes at `start` is the program's for the time of the call.
pub(crate) unsafe fn buffer_mut<'b>(start: *mut c_void, len: usize) -> Result<&'b mut [u8], Errno> {
    let there = there(start, len, Want::Write)?;
    if there == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller's promise; the program does not use the memory while it waits for us.
    Ok(unsafe { core::slice::from_raw_parts_mut(start.cast(), there) })
}

/// Memory that the program wants written.
///
/// # Safety
/// As [`buffer_mut`].
pub(crate) unsafe fn buffer<'b>(start: *const c_void, len: usize) -> Result<&'b [u8], Errno> {
    let there = there(start, len, Want::Read)?;
    if there == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(start.cast(), there) })
}

/// How many of these bytes are there.
#[inline]
fn there(start: *const c_void, len: usize, want: Want) -> Result<usize, Errno> {
    // A length below zero, as a number without a sign, is no long one.
    if !touch::is_plausible(start.cast(), len) {
        return Err(FAULT);
    }
    let len = len.min(MOST);
    let there = touch::reach(start.cast(), len, want);
    if there == 0 && len > 0 { Err(FAULT) } else { Ok(there) }
}

/// A path of the program, with its final zero byte.
///
/// # Safety
/// What is there of `path`, up to its zero byte, stays for the time of the call.
pub(crate) unsafe fn path<'p>(path: *const c_char) -> Result<&'p [u8], Errno> {
    let start = path.cast::<u8>();
    let mut len = 0;
    while len < LONGEST {
        let at = start.wrapping_add(len);
        let room = PAGE - at.addr() % PAGE;
        touch::all(at, room, Want::Read)?;
        // SAFETY: the rest of a page that may be read; the caller's promise.
        let part = unsafe { core::slice::from_raw_parts(at, room) };
        if let Some(end) = part.iter().position(|&byte| byte == 0) {
            // SAFETY: as above, from the path's start on.
            return Ok(unsafe { core::slice::from_raw_parts(start, len + end + 1) });
        }
        len += room;
    }
    Err(Errno::NAMETOOLONG)
}

/// PATH_MAX.
const LONGEST: usize = 4096;
const PAGE: usize = 4096;

/// The descriptor that a call with AT_EMPTY_PATH means: the hidden one of a sealed file. The file
/// keeps it open.
///
/// # Safety
/// As [`path`].
pub(crate) unsafe fn below(
    at: c_int,
    path: *const c_char,
    flags: c_int,
) -> Result<(c_int, Option<File>), Errno> {
    // SAFETY: the caller's promise.
    let itself = flags & libc::AT_EMPTY_PATH != 0 && at >= 0 && unsafe { is_empty(path) };
    if itself { beneath(at) } else { Ok((at, None)) }
}

/// True for the path "" and, as newer kernels see it, for none.
///
/// # Safety
/// As [`path`].
pub(crate) unsafe fn is_empty(path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    path.is_null() || unsafe { touch::value(path) }.is_ok_and(|&first| first == 0)
}

/// The directory of a relative path. A sealed file is not a directory.
pub(crate) fn directory(at: c_int, path: &[u8]) -> Result<Fd, Errno> {
    if path.first() == Some(&b'/') {
        return Ok(Fd(at));
    }
    match descriptor(at) {
        Descriptor::Foreign => Ok(Fd(at)),
        Descriptor::Hidden => Err(Errno::BADF),
        Descriptor::Sealed(_) => Err(Errno::NOTDIR),
    }
}

/// True if the path may name what is hidden from the engine's programs.
pub(crate) fn names_control(path: &[u8]) -> bool {
    path.windows(CONTROL.len()).any(|part| part == CONTROL)
}

/// True for `.tidelock` of a protected directory and what is below it.
pub(crate) fn is_control(at: c_int, path: &[u8]) -> bool {
    let Some(process) = process().filter(|_| names_control(path)) else { return false };
    match aside(|| process.decide(Fd(at), path, LastLink::Itself)) {
        Ok(decided) => matches!(decided, Decided::Control(_)),
        Err(why) => is_shortage(why),
    }
}

/// The name of what is hidden.
pub(crate) const CONTROL: &[u8] = b".tidelock";

/// An offset that the program gave.
pub(crate) fn place(offset: i64) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| Errno::INVAL)
}

pub(crate) fn none(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

pub(crate) fn number(result: Result<c_int, Errno>) -> c_int {
    match result {
        Ok(number) => number,
        Err(error) => fail(error),
    }
}

#[inline]
pub(crate) fn count(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(count) => count.cast_signed(),
        Err(error) => fail(error),
    }
}

pub(crate) fn offset(result: Result<u64, Errno>) -> i64 {
    match result {
        Ok(offset) => offset.cast_signed(),
        Err(error) => fail(error),
    }
}

pub(crate) use crate::touch::FAULT;
pub(crate) const NOTTY: Errno = Errno(libc::ENOTTY);
