//! The environment that a process is started with, before libc has looked at it.
//!
//! UNSAFETY: it is a C array of C strings.
#![expect(unsafe_code, reason = "a C array of C strings")]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

/// What an agent that the library starts must not have: it would ask for keys itself.
const OURS: [&[u8]; 4] =
    [b"LD_PRELOAD=", b"TIDELOCK_AGENT=", b"TIDELOCK_PROGRAM=", b"TIDELOCK_UPGRADE="];

static KEPT: AtomicPtr<*const c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Keeps a copy without the library's own variables, since programs write over their environment
/// (setproctitle).
pub(crate) fn keep(environment: Environment) {
    KEPT.store(environment.copied(&OURS).array().cast_mut(), Release);
}

/// What was kept: for an agent.
pub(crate) fn kept() -> Environment {
    // SAFETY: null, or a copy that is never freed or changed.
    unsafe { Environment::new(KEPT.load(Acquire)) }
}

/// The environment that main gets.
#[derive(Clone, Copy)]
pub(crate) struct Environment(*const *const c_char);

impl Environment {
    /// # Safety
    /// `array` is null, or a null-terminated array of C strings that is this process's own, so that
    /// entries may be taken out of it; nobody else changes either while this lives.
    pub(crate) const unsafe fn new(array: *const *const c_char) -> Self {
        Self(array)
    }

    /// A copy for good without variables that begin with one of `without`: a program may write over
    /// what main got.
    pub(crate) fn copied(self, without: &[&[u8]]) -> Self {
        let kept = |entry: &&CStr| !without.iter().any(|name| entry.to_bytes().starts_with(name));
        let copies =
            self.entries().filter(kept).map(|entry| entry.to_owned().into_raw().cast_const());
        let array: Vec<*const c_char> = copies.chain([core::ptr::null()]).collect();
        Self(array.leak().as_ptr())
    }

    /// The array.
    pub(crate) const fn array(self) -> *const *const c_char {
        self.0
    }

    /// The value of a variable; `name` ends with its equals sign.
    pub(crate) fn value(self, name: &[u8]) -> Option<&'static [u8]> {
        self.entries().find_map(|entry| entry.to_bytes().strip_prefix(name))
    }

    /// Takes a variable away, from this process and those that it will start; `name` ends with its
    /// equals sign.
    pub(crate) fn remove(self, name: &[u8]) {
        let mut kept = 0;
        for (index, entry) in self.entries().enumerate() {
            if !entry.to_bytes().starts_with(name) {
                // SAFETY: the entry that was read last.
                let from = unsafe { self.0.add(index) };
                // SAFETY: not behind it.
                let to = unsafe { self.0.add(kept) }.cast_mut();
                // SAFETY: both are within the array, which is the process's own to change.
                unsafe { core::ptr::copy(from, to, 1) };
                kept += 1;
            }
        }
        if !self.0.is_null() {
            // SAFETY: at most where the end was.
            let end = unsafe { self.0.add(kept) }.cast_mut();
            // SAFETY: within the array.
            unsafe { end.write(core::ptr::null()) };
        }
    }

    /// Every `NAME=VALUE`.
    pub(crate) fn entries(self) -> impl Iterator<Item = &'static CStr> {
        let mut at = self.0;
        core::iter::from_fn(move || {
            if at.is_null() {
                return None;
            }
            // SAFETY: the array ends with a null, behind which `at` never gets.
            let entry = unsafe { *at };
            if entry.is_null() {
                return None;
            }
            // SAFETY: the end has not been reached.
            at = unsafe { at.add(1) };
            // SAFETY: a C string, by the promise of `new`.
            Some(unsafe { CStr::from_ptr(entry) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_their_whole_name() {
        let mut array = [c"AB=1".as_ptr(), c"A=2=3".as_ptr(), c"odd".as_ptr(), core::ptr::null()];
        // SAFETY: an array of C strings with a null behind them.
        let environment = unsafe { Environment::new(array.as_mut_ptr()) };
        assert_eq!(environment.value(b"A="), Some(&b"2=3"[..]));
        assert_eq!(environment.value(b"B="), None);
        assert_eq!(environment.entries().count(), 3);
        let copied = environment.copied(&[b"AB="]);
        assert_eq!((copied.value(b"A="), copied.entries().count()), (Some(&b"2=3"[..]), 2));
        environment.remove(b"A=");
        assert_eq!((environment.value(b"A="), environment.entries().count()), (None, 2));
        assert_eq!(environment.value(b"AB="), Some(&b"1"[..]));
        environment.remove(b"B=");
        assert_eq!(environment.entries().count(), 2);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Environment::new(core::ptr::null()) }.entries().count(), 0);
    }
}
