//! System calls exactly as the program made them: for descriptors that are not ours, and while the
//! library is inert.
//!
//! Results come back as libc gives them: -1 and errno. errno is never touched otherwise. libc's own
//! functions are not used: they may be our hooks, and before other constructors ran they may not be
//! there.
//!
//! UNSAFETY: the arguments are the program's, addresses included; a hook's contract is that of the
//! C function it stands for, and it is passed on as it is.
#![expect(unsafe_code, reason = "system calls with the program's own arguments")]

use core::ffi::{c_int, c_long, c_void};

use tidelock_engine::Errno;

/// A call with the program's arguments, answered as libc would: for the body of an `unsafe` block.
///
/// # Safety
/// The arguments are what the program passed to the same call, or good for its whole time.
macro_rules! raw {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        $crate::raw::answer($crate::raw::call(libc::$number, [$($crate::raw::Word::word($arg)),*]))
    };
}

/// As `raw`, of a call that takes numbers alone: the kernel reads and writes no memory of the
/// program for it.
macro_rules! numeric {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        let words = [$($crate::raw::Number::number($arg)),*];
        // SAFETY: by its type, no argument is an address.
        $crate::raw::answer(unsafe { $crate::raw::call(libc::$number, words) })
    }};
}

/// An argument of a system call that is no address.
pub(crate) trait Number: Word + Sized {
    /// The register.
    #[inline]
    fn number(self) -> i64 {
        self.word()
    }
}

/// What can be an argument of a system call.
pub(crate) trait Word {
    /// The register.
    fn word(self) -> i64;
}

macro_rules! words {
    ($($number:ty),*) => { $(impl Word for $number {
        #[inline]
        fn word(self) -> i64 {
            i64::from(self)
        }
    })* };
}

words!(i32, u32, i64);

impl Number for i32 {}
impl Number for u32 {}
impl Number for i64 {}
impl Number for u64 {}
impl Number for usize {}

impl Word for u64 {
    #[inline]
    fn word(self) -> i64 {
        self.cast_signed()
    }
}

impl Word for usize {
    #[inline]
    fn word(self) -> i64 {
        (self as u64).cast_signed()
    }
}

impl Word for isize {
    #[inline]
    fn word(self) -> i64 {
        self as i64
    }
}

impl<T> Word for *const T {
    #[inline]
    fn word(self) -> i64 {
        self.expose_provenance().word()
    }
}

impl<T> Word for *mut T {
    #[inline]
    fn word(self) -> i64 {
        self.expose_provenance().word()
    }
}

/// What a libc function can return.
pub(crate) trait Outcome {
    /// The value that says: look at errno.
    const FAILED: Self;

    /// What the kernel returned.
    fn from_word(word: i64) -> Self;
}

impl Outcome for c_int {
    const FAILED: Self = -1;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the kernel's int in a wider register")]
    fn from_word(word: i64) -> Self {
        word as Self
    }
}

impl Outcome for c_long {
    const FAILED: Self = -1;

    #[inline]
    fn from_word(word: i64) -> Self {
        word
    }
}

impl Outcome for isize {
    const FAILED: Self = -1;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "registers are as wide as isize")]
    fn from_word(word: i64) -> Self {
        word as Self
    }
}

/// Of mmap: MAP_FAILED.
impl Outcome for *mut c_void {
    const FAILED: Self = libc::MAP_FAILED;

    #[inline]
    fn from_word(word: i64) -> Self {
        core::ptr::with_exposed_provenance_mut(isize::from_word(word).cast_unsigned())
    }
}

/// One system call; what the kernel returned.
///
/// # Safety The arguments must be what the call with this number wants; addresses must be good for
/// its whole time.
#[inline]
pub(crate) unsafe fn call<const N: usize>(number: c_long, words: [i64; N]) -> i64 {
    let mut args = [0; 6];
    for (arg, word) in args.iter_mut().zip(words) {
        *arg = word;
    }
    // SAFETY: the caller's promise, as it is.
    unsafe { crate::sys::call(number, args) }
}

/// The kernel's result as libc gives it.
#[inline]
pub(crate) fn answer<R: Outcome>(result: i64) -> R {
    match result {
        -4095..0 => fail(Errno(c_int::from_word(-result))),
        _ => R::from_word(result),
    }
}

/// Sets errno and returns what says so.
#[cold]
pub(crate) fn fail<R: Outcome>(error: Errno) -> R {
    set_errno(error);
    R::FAILED
}

/// Sets errno.
pub(crate) fn set_errno(error: Errno) {
    // SAFETY: libc gives the address of this thread's errno, at any time.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is good for this thread, and nobody else uses it.
    unsafe { *place = error.0 };
}

/// errno as it is.
pub(crate) fn errno() -> Errno {
    // SAFETY: libc gives the address of this thread's errno, at any time.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is good for this thread, and nobody else uses it.
    Errno(unsafe { *place })
}

macro_rules! null_on_failure {
    ($($type:ty),*) => { $(impl Outcome for *mut $type {
        const FAILED: Self = core::ptr::null_mut();

        fn from_word(word: i64) -> Self {
            <*mut c_void>::from_word(word).cast()
        }
    })* };
}

null_on_failure!(libc::FILE);
