//! The guard: what the library does in a program below `tidelock exec` that has no keys.
//!
//! ```text
//!   runtime/start --> the notice beside each agent's socket: directory, layout, policy
//!   open for writing, rename, link, truncate --> engine/guard --> the straight call or an errno
//!   a call that met EBADF --> is it a descriptor that waits for sealed bytes?
//! ```
//!
//! All other calls go straight to the kernel, as in a program that the library has nothing to do
//! with. Nothing here knows a key, and no agent is asked.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use libc::{FILE, iovec, mode_t, off_t, size_t, ssize_t};
use tidelock_engine::{Errno, Fd, System as _, Verdict};

use crate::hooks::{aside, path as path_of};
use crate::process::{ActiveProcess, starting};
use crate::raw::Outcome;
use crate::stdio::mode::Mode;
use crate::stdio::{cookie, standard};
use crate::touch::{self, FAULT, Want};
use crate::{next, raw};

static AT_WORK: AtomicBool = AtomicBool::new(false);

/// Begins to guard what the agents' notices name; without one, the library stays inert.
pub(crate) fn start(agents: &[u8], exe: &[u8]) {
    if tidelock_runtime::start::guard(starting(), agents, exe) {
        AT_WORK.store(true, Release);
        (0..=2).for_each(|fd| {
            landed(fd);
        });
    }
}

/// True in a program that is guarded.
pub(crate) fn is_at_work() -> bool {
    AT_WORK.load(Acquire)
}

/// The engine, to judge by.
fn judge() -> Option<&'static ActiveProcess> {
    is_at_work().then(starting)
}

pub(crate) unsafe fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's own arguments.
    let straight = || unsafe { raw!(SYS_openat, at, path, flags, mode) };
    if !is_at_work() || flags & libc::O_ACCMODE == 0 {
        return straight();
    }
    // SAFETY: the contract of openat.
    match unsafe { wait_for(at, path, flags, mode) } {
        Ok(Some(fd)) => landed(fd),
        Ok(None) => straight(),
        Err(error) => raw::fail(error),
    }
}

/// The descriptor, if it is one that waits; `None` if the open is to go straight.
///
/// # Safety
/// The contract of openat.
unsafe fn wait_for(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Result<Option<c_int>, Errno> {
    let Some(process) = judge() else { return Ok(None) };
    // SAFETY: the caller's promise.
    let Ok(path) = (unsafe { path_of(path) }) else { return Ok(None) };
    aside(|| match process.guard_judge(Fd(at), path, flags)? {
        Verdict::Straight => Ok(None),
        Verdict::Waits => process.guard_open(Fd(at), path, flags, mode).map(|fd| Some(fd.0)),
    })
}

/// Judges an open that libc or the kernel makes within itself.
///
/// # Errors
/// EPERM where plain bytes would get in; what is short for the look.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn open_within(path: *const c_char, flags: c_int) -> Result<(), Errno> {
    let Some(process) = judge() else { return Ok(()) };
    // SAFETY: the caller's promise.
    let Ok(path) = (unsafe { path_of(path) }) else { return Ok(()) };
    aside(|| process.guard_open_within(path, flags))
}

pub(crate) unsafe fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the contract of fopen.
    let straight = || unsafe { next::fopen(path, mode) };
    // SAFETY: the contract of fopen.
    unsafe { fopen_or(path, mode, straight) }
}

pub(crate) unsafe fn setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the contract of setmntent.
    let straight = || unsafe { next::setmntent(path, mode) };
    // SAFETY: the contract of setmntent is that of fopen.
    unsafe { fopen_or(path, mode, straight) }
}

/// The stream of a descriptor that waits, or what libc gives.
///
/// # Safety
/// The contract of fopen.
unsafe fn fopen_or(
    path: *const c_char,
    mode: *const c_char,
    straight: impl Fn() -> *mut FILE,
) -> *mut FILE {
    if !is_at_work() || path.is_null() || mode.is_null() {
        return straight();
    }
    // SAFETY: the contract of fopen: a string.
    let Some(wanted) = Mode::parse(unsafe { CStr::from_ptr(mode) }.to_bytes()) else {
        return straight();
    };
    let waits = match wanted.flags & libc::O_ACCMODE {
        0 => Ok(None),
        // SAFETY: the contract of fopen.
        _ => unsafe { wait_for(libc::AT_FDCWD, path, wanted.flags, 0o666) },
    };
    match waits {
        Ok(Some(fd)) => stream(fd, wanted),
        Ok(None) => straight(),
        Err(error) => raw::fail(error),
    }
}

/// A stream on a descriptor that waits; libc's own would write behind our back.
fn stream(fd: c_int, mode: Mode) -> *mut FILE {
    let file = cookie::stream(fd, mode);
    if file.is_null() {
        let error = raw::errno();
        let _: c_int = numeric!(SYS_close, fd);
        raw::set_errno(error);
    }
    file
}

pub(crate) unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !is_waiting(fd) {
        // SAFETY: the contract of fdopen.
        return unsafe { next::fdopen(fd, mode) };
    }
    // SAFETY: the contract of fdopen: a string.
    match Mode::parse(unsafe { CStr::from_ptr(mode) }.to_bytes()) {
        Some(wanted) => cookie::stream(fd, wanted),
        None => raw::fail(Errno::INVAL),
    }
}

pub(crate) unsafe fn freopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    // SAFETY: the contract of freopen.
    let straight = || unsafe { next::freopen(path, mode, file) };
    let Some(process) = judge().filter(|_| !path.is_null() && !mode.is_null()) else {
        return straight();
    };
    // SAFETY: the contract of freopen: strings.
    let wanted = Mode::parse(unsafe { CStr::from_ptr(mode) }.to_bytes());
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    let Some(wanted) = wanted.filter(|wanted| wanted.flags & libc::O_ACCMODE != 0) else {
        return straight();
    };
    // SAFETY: the contract of freopen.
    let old = unsafe { crate::stdio::fileno(file) };
    let opened = match aside(|| process.guard_judge(Fd::CWD, name, wanted.flags)) {
        Ok(Verdict::Straight) => return straight(),
        Ok(Verdict::Waits) if old >= 0 && standard::is_one(file) => {
            aside(|| process.guard_open(Fd::CWD, name, wanted.flags, 0o666))
        }
        Ok(Verdict::Waits) => Err(Errno::OPNOTSUPP),
        Err(error) => Err(error),
    };
    let moved = opened.and_then(|fd| {
        // SAFETY: the contract of freopen: an open stream.
        unsafe { libc::fflush(file) };
        let moved =
            process.system().duplicate_onto(fd, Fd(old), wanted.flags & libc::O_CLOEXEC != 0);
        process.system().close(fd)?;
        moved
    });
    match moved {
        Ok(()) => standard::replace(file, old, wanted),
        Err(error) => {
            // SAFETY: the contract of freopen: on failure the stream is closed.
            unsafe { crate::stdio::fclose(file) };
            raw::fail(error)
        }
    }
}

pub(crate) unsafe fn renameat2(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the contract of renameat2.
    let from_path = unsafe { path_of(from) };
    // SAFETY: as above.
    let to_path = unsafe { path_of(to) };
    if let (Some(process), Ok(old), Ok(new)) = (judge(), from_path, to_path)
        && let Err(error) =
            aside(|| process.guard_rename((Fd(from_at), old), (Fd(to_at), new), flags))
    {
        return raw::fail(error);
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_renameat2, from_at, from, to_at, to, flags) }
}

pub(crate) unsafe fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of linkat.
    let from_path = unsafe { path_of(from) };
    // SAFETY: as above.
    let to_path = unsafe { path_of(to) };
    if let (Some(process), Ok(old), Ok(new)) = (judge(), from_path, to_path)
        && let Err(error) =
            aside(|| process.guard_link((Fd(from_at), old), (Fd(to_at), new), flags))
    {
        return raw::fail(error);
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_linkat, from_at, from, to_at, to, flags) }
}

pub(crate) unsafe fn truncate(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the contract of truncate.
    if let (Some(process), Ok(name)) = (judge(), unsafe { path_of(path) })
        && let Err(error) = aside(|| process.guard_truncate(name, len.cast_unsigned()))
    {
        return raw::fail(error);
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_truncate, path, len) }
}

/// True for a descriptor that waits for sealed bytes.
#[cold]
pub(crate) fn is_waiting(fd: c_int) -> bool {
    let before = raw::errno();
    let waits = is_at_work() && aside(|| Ok(starting().is_waiting(Fd(fd)))) == Ok(true);
    raw::set_errno(before);
    waits
}

/// A number that open or dup gave out, as it is. If it waits and is one of the three, libc's stream
/// on it is replaced.
pub(crate) fn landed(fd: c_int) -> c_int {
    if (0..=2).contains(&fd) && is_waiting(fd) {
        standard::follow_waiting(fd);
    }
    fd
}

/// Why a call has failed just now: EBADF of a descriptor that waits?
fn met_waiting<R: Outcome + PartialEq>(done: &R, fd: c_int) -> bool {
    *done == R::FAILED && is_at_work() && raw::errno() == Errno::BADF && is_waiting(fd)
}

/// The result of a write of these bytes; once more if the descriptor has waited for them.
///
/// # Safety
/// The contract of write.
pub(crate) unsafe fn written(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    write: impl Fn() -> ssize_t,
) -> ssize_t {
    let done = write();
    if done >= 0 || !is_at_work() || raw::errno() != Errno::BADF {
        return done;
    }
    // SAFETY: the caller's promise.
    let first = unsafe { looked_at(from, len) };
    if admits(fd, first) { write() } else { -1 }
}

/// As [`written`], of a vector.
///
/// # Safety
/// The contract of writev.
pub(crate) unsafe fn written_vector(
    fd: c_int,
    pieces: *const iovec,
    n: c_int,
    write: impl Fn() -> ssize_t,
) -> ssize_t {
    let done = write();
    if pieces.is_null() || !met_waiting(&done, fd) {
        return done;
    }
    let count = usize::try_from(n).unwrap_or(0);
    if touch::all(pieces.cast(), count * size_of::<iovec>(), Want::Read).is_err() {
        return raw::fail(FAULT);
    }
    // SAFETY: the caller's promise.
    let pieces = unsafe { core::slice::from_raw_parts(pieces, count) };
    let first = pieces.iter().find(|piece| piece.iov_len > 0).map_or(&[][..], |piece| {
        // SAFETY: the caller's promise: each piece is memory to be written.
        unsafe { looked_at(piece.iov_base, piece.iov_len) }
    });
    if admits(fd, first) { write() } else { -1 }
}

/// True if the descriptor has waited for these bytes and is a real one now; else errno says why
/// not.
#[cold]
fn admits(fd: c_int, first: &[u8]) -> bool {
    let on_exec: c_int = numeric!(SYS_fcntl, fd, libc::F_GETFD);
    match starting().guard_admit(Fd(fd), first, on_exec == libc::FD_CLOEXEC) {
        Ok(true) => return true,
        Ok(false) => raw::set_errno(Errno::BADF),
        Err(error) => raw::set_errno(error),
    }
    false
}

/// Bytes of a write, as far as they are looked at.
///
/// # Safety
/// The contract of write.
unsafe fn looked_at<'b>(from: *const c_void, len: size_t) -> &'b [u8] {
    let len = len.min(tidelock_format::PROBE_LEN);
    if from.is_null() || touch::all(from.cast(), len, Want::Read).is_err() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(from.cast(), len) }
}

/// Where a descriptor that waits is: at the beginning of an empty file.
pub(crate) fn sought(done: off_t, fd: c_int, at: off_t) -> off_t {
    if at == 0 && met_waiting(&done, fd) { 0 } else { done }
}

/// Who opens for reading and writing may look first: an empty file is at its end.
pub(crate) fn read(done: ssize_t, fd: c_int) -> ssize_t {
    if met_waiting(&done, fd) && starting().is_empty(Fd(fd)) { 0 } else { done }
}

/// What says that the way within the kernel is not possible, so that the program copies by writing.
pub(crate) fn not_this_way(done: ssize_t, to: c_int, instead: Errno) -> ssize_t {
    if met_waiting(&done, to) { raw::fail(instead) } else { done }
}

/// An empty file is cut to nothing without being touched.
pub(crate) fn cut(done: c_int, fd: c_int, len: off_t) -> c_int {
    match (met_waiting(&done, fd), len) {
        (false, _) => done,
        (true, 0) => 0,
        (true, _) => raw::fail(starting().guard_refuse(Fd(fd))),
    }
}

/// A lock would go with the descriptor that waits, so it cannot be had before the first bytes.
pub(crate) fn locked(done: c_int, fd: c_int) -> c_int {
    if met_waiting(&done, fd) { raw::fail(starting().guard_refuse(Fd(fd))) } else { done }
}

/// A readable descriptor of the same file, for calls that do not touch bytes and fail with EBADF on
/// one that waits.
pub(crate) struct StandIn(c_int);

impl StandIn {
    /// One, if the call failed because `fd` waits.
    pub(crate) fn after<R: Outcome + PartialEq>(done: &R, fd: c_int) -> Option<Self> {
        if !met_waiting(done, fd) {
            return None;
        }
        let mut name = [0; 32];
        let name = standard::name_of(fd, &mut name);
        let path: *const c_void = name.as_ptr().cast();
        // SAFETY: the program's own arguments.
        let opened: c_int = unsafe {
            raw!(
                SYS_openat,
                libc::AT_FDCWD,
                path,
                libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK,
                0
            )
        };
        (opened >= 0).then_some(Self(opened))
    }

    pub(crate) const fn number(&self) -> c_int {
        self.0
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let before = raw::errno();
        let _: c_int = numeric!(SYS_close, self.0);
        raw::set_errno(before);
    }
}
