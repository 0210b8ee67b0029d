//! The name that programs with keys have for an index of SQLite (`tidelock_engine::index`).
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int};

use tidelock_engine::{Fd, Index, PathBuffer, may_be_index};

use crate::hooks::{aside, path};
use crate::process::process;

/// A call on our own name of the index that `name` means, if that is of such a database; `None`
/// otherwise.
///
/// # Safety
/// That of `path`; what is called gets a path that ends with a zero byte.
pub(crate) unsafe fn by_own_name(
    at: c_int,
    name: *const c_char,
    of: fn(Index) -> bool,
    call: impl FnOnce(*const c_char) -> c_int,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let name = unsafe { path(name) }.ok().filter(|name| may_be_index(name))?;
    let process = process()?;
    // On a stack of ours: a path's buffer is a page of it.
    let done = aside(|| {
        let mut own = PathBuffer::new();
        let index = process.own_index(Fd(at), name, &mut own)?;
        Ok(index.filter(|index| of(*index)).map(|_| call(own.as_c().as_ptr().cast())))
    });
    done.ok().flatten()
}

/// A call on a path that the program gave; where there is no file of this name, once more by the
/// name of an index.
macro_rules! named {
    ($at:expr, $path:ident: $($call:tt)+) => {{
        let before = $crate::raw::errno();
        // SAFETY: the program's own arguments.
        let done: c_int = unsafe { raw!($($call)+) };
        if done == 0 || $crate::raw::errno() != tidelock_engine::Errno::NOENT {
            done
        } else {
            // SAFETY: the program's own arguments, with a path of ours.
            let again = |$path: *const c_char| -> c_int { unsafe { raw!($($call)+) } };
            // SAFETY: the contract of the function whose path it is.
            match unsafe { $crate::hooks::index::by_own_name($at, $path, |_| true, again) } {
                None => $crate::raw::fail(tidelock_engine::Errno::NOENT),
                Some(done) => {
                    if done == 0 {
                        $crate::raw::set_errno(before);
                    }
                    done
                }
            }
        }
    }};
}
pub(crate) use named;
