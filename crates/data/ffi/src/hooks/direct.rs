//! syscall(2) by number: what concerns a file goes the way of its function; what would go round the
//! table is refused; all else is straight. Which number is which: `ledger/numbers.rs`.
//!
//! Here are the calls whose arguments are not quite those of libc's function.
//!
//! UNSAFETY: see hooks.rs. The six arguments are hooked as fixed ones; a program that passes fewer
//! leaves us words that the call does not look at.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::{iovec, mode_t, off_t, size_t, ssize_t, timespec, timeval};
use tidelock_engine::Errno;

use crate::guard;
use crate::hooks::processes::Child;
use crate::hooks::{
    attributes, below, bytes, close, control, direct, duplicate, limits, locks, map, names, open,
    proc, processes, signals, size, stat, sync, transfer, unshare, vectors, wait, within,
};
use crate::ledger::numbers::numbers;
use crate::process::process;
use crate::raw::{self, Outcome as _, Word as _};
use crate::requests::{self, Control, Event};
use crate::{stack, sys};

pub unsafe fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let words = [a, b, c, d, e, f];
    if number == libc::SYS_sigaltstack {
        // Also before the library has started.
        stack::note_alternate();
    }
    if process().is_some() || guard::is_at_work() && is_guarded(number) {
        // SAFETY: the contract of syscall: the arguments that the call of this number wants.
        if let Some(answer) = unsafe { by_function(number, words) } {
            return answer;
        }
    }
    // SAFETY: the program's own arguments.
    raw::answer(unsafe { raw::call(number, words) })
}

macro_rules! by_function {
    (
        functions { $(
            $function:ident $fnumber:literal => $module:ident::$hook:ident ($($arg:ident),*) ;
        )+ }
        refusals { $( $errno:ident $why:literal { $($refused:ident $rnumber:literal ;)+ } )+ }
        straight { $( $reason:literal { $($straight:ident $snumber:literal ;)+ } )+ }
    ) => {
        /// The answer of the function that stands for the number, or of the refusal; none for a
        /// call that goes straight.
        ///
        /// # Safety
        /// The words are what the call of this number wants.
        unsafe fn by_function(number: c_long, words: [c_long; 6]) -> Option<c_long> {
            let mut words = words.into_iter();
            match number {
                $($fnumber => {
                    // SAFETY: the function has the contract of the call of its number.
                    let answer = unsafe { $module::$hook($(word!(words, $arg)),*) };
                    Some(answer.word())
                })+
                $($($rnumber => Some(raw::fail(Errno(libc::$errno))),)+)+
                $($($snumber)|+)|+ => None,
                _ => Some(raw::fail(Errno::NOSYS)),
            }
        }
    };
}

/// The next word of the call; its name is for people.
macro_rules! word {
    ($words:ident, $name:ident) => {
        Argument::of($words.next().unwrap_or_default())
    };
}

numbers!(by_function);

/// What a hook takes, from the register that it came in.
trait Argument {
    fn of(word: c_long) -> Self;
}

impl Argument for c_int {
    fn of(word: c_long) -> Self {
        Self::from_word(word)
    }
}

impl Argument for c_uint {
    fn of(word: c_long) -> Self {
        c_int::from_word(word).cast_unsigned()
    }
}

impl Argument for c_long {
    fn of(word: c_long) -> Self {
        word
    }
}

impl Argument for u64 {
    fn of(word: c_long) -> Self {
        word.cast_unsigned()
    }
}

impl Argument for usize {
    fn of(word: c_long) -> Self {
        isize::from_word(word).cast_unsigned()
    }
}

impl<T> Argument for *mut T {
    fn of(word: c_long) -> Self {
        <*mut c_void>::from_word(word).cast()
    }
}

impl<T> Argument for *const T {
    fn of(word: c_long) -> Self {
        <*mut c_void>::from_word(word).cast_const().cast()
    }
}

pub(crate) unsafe fn clone(
    flags: c_long,
    stack: *mut c_void,
    parent: *mut c_int,
    child: *mut c_int,
    thread: c_long,
) -> c_long {
    let straight = |flags: c_long| {
        let words = [flags, stack.word(), parent.word(), child.word(), thread];
        // SAFETY: the contract of clone.
        unsafe { raw::call(libc::SYS_clone, words) }
    };
    match Child::of(flags) {
        Child::Sharing => {
            unshare::note_child(flags);
            raw::answer(straight(flags))
        }
        Child::Apart(flags) => raw::answer(processes::around_fork(|| straight(flags))),
        Child::Between => unshare::refuse("clone").into(),
    }
}

pub(crate) unsafe fn clone3(arguments: *const c_long, len: size_t) -> c_long {
    // SAFETY: the contract of clone3: flags come first.
    let flags = unsafe { arguments.as_ref() }.copied();
    // SAFETY: the contract of clone3.
    let straight = || unsafe { raw::call(libc::SYS_clone3, [arguments.word(), len.word()]) };
    match flags.map(Child::of) {
        None | Some(Child::Sharing) => {
            unshare::note_child(flags.unwrap_or_default());
            raw::answer(straight())
        }
        Some(Child::Apart(same)) if flags == Some(same) => {
            raw::answer(processes::around_fork(straight))
        }
        // The flags are the program's, and stay as they are: it falls back to clone.
        Some(_) => raw::fail(Errno::NOSYS),
    }
}

/// The calls by which a program without keys could make or fill a file.
const fn is_guarded(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_creat
            | libc::SYS_truncate
            | libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_link
            | libc::SYS_linkat
            | libc::SYS_io_uring_setup
    )
}

/// libc's function returns the error, the call sets errno.
pub(crate) unsafe fn fadvise64(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int {
    // SAFETY: takes numbers only.
    match unsafe { size::posix_fadvise(fd, at, len, advice) } {
        0 => 0,
        error => raw::fail(Errno(error)),
    }
}

pub(crate) unsafe fn preadv2(
    fd: c_int,
    pieces: *const iovec,
    n: c_int,
    at: off_t,
    _high: c_long,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the contract of preadv2.
    unsafe { vectors::preadv2(fd, pieces, n, at, flags) }
}

pub(crate) unsafe fn pwritev2(
    fd: c_int,
    pieces: *const iovec,
    n: c_int,
    at: off_t,
    _high: c_long,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the contract of pwritev2.
    unsafe { vectors::pwritev2(fd, pieces, n, at, flags) }
}

pub(crate) unsafe fn io_setup(count: c_long, context: *mut u64) -> c_long {
    // SAFETY: the contract of io_setup.
    raw::answer(unsafe { requests::setup(count, context) })
}

pub(crate) unsafe fn io_destroy(context: u64) -> c_long {
    raw::answer(requests::destroy(context))
}

pub(crate) unsafe fn io_submit(context: u64, count: c_long, list: *const *const Control) -> c_long {
    // SAFETY: the contract of io_submit.
    raw::answer(unsafe { requests::submit(context, count, list) })
}

pub(crate) unsafe fn io_cancel(context: u64, request: *const Control, event: *mut Event) -> c_long {
    // SAFETY: the contract of io_cancel.
    raw::answer(unsafe { requests::cancel(context, request, event) })
}

pub(crate) unsafe fn io_getevents(
    context: u64,
    least: c_long,
    most: c_long,
    into: *mut Event,
    timeout: *const timespec,
) -> c_long {
    let words = [context.cast_signed(), least, most, into.word(), timeout.word()];
    // SAFETY: the contract of io_getevents.
    raw::answer(unsafe { requests::events(sys::nr::IO_GETEVENTS, words) })
}

pub(crate) unsafe fn io_pgetevents(
    context: u64,
    least: c_long,
    most: c_long,
    into: *mut Event,
    timeout: *const timespec,
    mask: *const c_void,
) -> c_long {
    let words = [context.cast_signed(), least, most, into.word(), timeout.word(), mask.word()];
    // SAFETY: the contract of io_pgetevents.
    raw::answer(unsafe { requests::events(sys::nr::IO_PGETEVENTS, words) })
}

/// Without a path, of the descriptor.
pub(crate) unsafe fn utimensat(
    at: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    if path.is_null() && flags == 0 {
        // SAFETY: the contract of futimens.
        return unsafe { attributes::futimens(at, times) };
    }
    // SAFETY: the contract of utimensat.
    unsafe { attributes::utimensat(at, path, times, flags) }
}

/// Without a path, of the descriptor.
pub(crate) unsafe fn futimesat(at: c_int, path: *const c_char, times: *const timeval) -> c_int {
    if path.is_null() {
        // SAFETY: the contract of futimes.
        return unsafe { attributes::futimes(at, times) };
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_futimesat, at, path, times) }
}

pub(crate) unsafe fn faccessat2(
    at: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of faccessat2.
    let (at, _file) = try_or_fail!(unsafe { below(at, path, flags) });
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_faccessat2, at, path, mode, flags) }
}

pub(crate) unsafe fn fchmodat2(
    at: c_int,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the contract of fchmodat2.
    let (at, _file) = try_or_fail!(unsafe { below(at, path, flags) });
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_fchmodat2, at, path, mode, flags) }
}
