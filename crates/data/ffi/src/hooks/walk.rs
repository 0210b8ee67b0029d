//! glob, ftw and nftw: libc lists and asks within itself, so it is given our functions, or our
//! callback. fts goes into directories within libc.
//!
//! UNSAFETY: see hooks.rs. A callback of nftw has no word of its own: the program's function is
//! found by the thread that walks, in a table of fixed size.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use libc::{DIR, dirent, stat as Stat};
use tidelock_engine::Errno;

use crate::hooks::names::moved;
use crate::hooks::{is_control, listing, stat};
use crate::process::process;
use crate::{next, raw, refresh_working_directory, sys};

/// `glob_t`, with the functions that libc's other declaration of it has.
#[repr(C)]
pub struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    close: unsafe extern "C" fn(*mut DIR),
    read: unsafe extern "C" fn(*mut DIR) -> *mut dirent,
    open: unsafe extern "C" fn(*const c_char) -> *mut DIR,
    lstat: unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int,
    stat: unsafe extern "C" fn(*const c_char, *mut Stat) -> c_int,
}

const GLOB_ALTDIRFUNC: c_int = 1 << 9;

pub unsafe fn glob(
    pattern: *const c_char,
    flags: c_int,
    error: *mut c_void,
    found: *mut Glob,
) -> c_int {
    if process().is_none() || flags & GLOB_ALTDIRFUNC != 0 {
        // SAFETY: the contract of glob.
        return unsafe { next::glob(pattern, flags, error, found) };
    }
    // SAFETY: the contract of glob. Without its flag, the five functions are unused words of the
    // program's.
    let place = unsafe { &mut *found };
    place.close = close_directory;
    place.read = read_directory;
    place.open = open_directory;
    place.lstat = lstat_named;
    place.stat = stat_named;
    // SAFETY: the contract of glob.
    unsafe { next::glob(pattern, flags | GLOB_ALTDIRFUNC, error, found) }
}

unsafe extern "C" fn close_directory(directory: *mut DIR) {
    // SAFETY: libc's promise: one that was opened.
    unsafe { libc::closedir(directory) };
}

unsafe extern "C" fn read_directory(directory: *mut DIR) -> *mut dirent {
    // SAFETY: libc's promise: one that was opened.
    unsafe { listing::readdir(directory) }
}

unsafe extern "C" fn open_directory(path: *const c_char) -> *mut DIR {
    // SAFETY: libc's promise: a string.
    unsafe { listing::opendir(path) }
}

unsafe extern "C" fn lstat_named(path: *const c_char, into: *mut Stat) -> c_int {
    // SAFETY: libc's promise: the contract of lstat.
    unsafe { stat::lstat(path, into) }
}

unsafe extern "C" fn stat_named(path: *const c_char, into: *mut Stat) -> c_int {
    // SAFETY: libc's promise: the contract of stat.
    unsafe { stat::stat(path, into) }
}

/// The program's function of nftw; that of ftw takes one argument less and does not miss it.
pub type Visit = unsafe extern "C" fn(*const c_char, *const Stat, c_int, *mut c_void) -> c_int;

pub unsafe fn nftw(path: *const c_char, visit: Visit, fds: c_int, flags: c_int) -> c_int {
    // SAFETY: the contract of nftw.
    walk(visit, flags & FTW_CHDIR != 0, |visit| unsafe { next::nftw(path, visit, fds, flags) })
}

pub unsafe fn ftw(path: *const c_char, visit: Visit, fds: c_int) -> c_int {
    // SAFETY: the contract of ftw.
    walk(visit, false, |visit| unsafe { next::ftw(path, visit, fds) })
}

/// libc goes into each directory by itself.
const FTW_CHDIR: c_int = 4;

/// A walk that is under way.
struct Walk {
    thread: AtomicU64,
    /// 1 for a thread's first walk, more for one within its callback.
    level: AtomicU32,
    visit: AtomicPtr<c_void>,
    /// libc goes into each directory by itself.
    moves: AtomicBool,
}

static WALKS: [Walk; 64] = [const {
    Walk {
        thread: AtomicU64::new(0),
        level: AtomicU32::new(0),
        visit: AtomicPtr::new(null_mut()),
        moves: AtomicBool::new(false),
    }
}; 64];

fn walk(visit: Visit, moves: bool, run: impl FnOnce(Visit) -> c_int) -> c_int {
    if process().is_none() {
        return run(visit);
    }
    let level = innermost().map_or(0, |walk| walk.level.load(Relaxed)) + 1;
    let free = |walk: &&Walk| walk.thread.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
    let Some(walk) = WALKS.iter().find(free) else {
        return raw::fail(Errno(libc::ENOMEM));
    };
    walk.visit.store(visit as *mut c_void, Relaxed);
    walk.level.store(level, Relaxed);
    walk.moves.store(moves, Relaxed);
    walk.thread.store(sys::thread(), Release);
    let done = run(visited);
    walk.thread.store(0, Release);
    if moves {
        refresh_working_directory();
    }
    done
}

/// The walk that this thread is in.
fn innermost() -> Option<&'static Walk> {
    let thread = sys::thread();
    let ours = WALKS.iter().filter(|walk| walk.thread.load(Acquire) == thread);
    ours.max_by_key(|walk| walk.level.load(Relaxed))
}

unsafe extern "C" fn visited(
    path: *const c_char,
    found: *const Stat,
    kind: c_int,
    place: *mut c_void,
) -> c_int {
    let Some(walk) = innermost() else { return 0 };
    if walk.moves.load(Relaxed) {
        refresh_working_directory();
    }
    // SAFETY: libc's promise: a string.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes_with_nul();
    if is_control(libc::AT_FDCWD, name) {
        return 0;
    }
    // SAFETY: libc's promise: filled, if only with zeros.
    let mut told = unsafe { *found };
    if told.st_mode & libc::S_IFMT == libc::S_IFREG {
        // SAFETY: the contract of lstat. With FTW_CHDIR the path may lead nowhere: then it stays as
        // it is.
        unsafe { size_of(path, &mut told) };
    }
    // SAFETY: stored by `walk` as such a function.
    let visit = unsafe { core::mem::transmute::<*mut c_void, Visit>(walk.visit.load(Relaxed)) };
    // SAFETY: the contract of nftw.
    unsafe { visit(path, &raw const told, kind, place) }
}

/// Goes into the directory of what it tells of, unless it was opened with FTS_NOCHDIR.
pub unsafe fn fts_read(walk: *mut c_void) -> *mut c_void {
    // SAFETY: the contract of fts_read.
    let found = unsafe { next::fts_read(walk) };
    moved();
    found
}

/// Comes back from the directory that it lists, or says that it could not.
pub unsafe fn fts_children(walk: *mut c_void, options: c_int) -> *mut c_void {
    // SAFETY: the contract of fts_children.
    let found = unsafe { next::fts_children(walk, options) };
    moved();
    found
}

/// Goes back to where the walk began.
pub unsafe fn fts_close(walk: *mut c_void) -> c_int {
    // SAFETY: the contract of fts_close.
    let done = unsafe { next::fts_close(walk) };
    moved();
    done
}

unsafe fn size_of(path: *const c_char, told: &mut Stat) {
    let before = raw::errno();
    let mut again = *told;
    // SAFETY: the caller's promise.
    if unsafe { stat::stat(path, &raw mut again) } == 0 && again.st_ino == told.st_ino {
        told.st_size = again.st_size;
    }
    raw::set_errno(before);
}
