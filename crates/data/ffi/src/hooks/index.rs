//! The name that programs with keys have for an index of SQLite (`tidelock_engine::index`).
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int};

use tidelock_engine::{Fd, PathBuffer, may_be_index};

use crate::hooks::{aside, path};
use crate::process::process;

/// A call on that name; `None` if this path names no index.
///
/// # Safety
/// That of `path`; what is called gets a path that ends with a zero byte.
pub(crate) unsafe fn as_index(
    at: c_int,
    name: *const c_char,
    call: impl FnOnce(*const c_char) -> c_int,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let name = unsafe { path(name) }.ok().filter(|name| may_be_index(name))?;
    as_index_of(at, name, call)
}

// Apart: a path's buffer is a page of the stack.
#[inline(never)]
fn as_index_of(at: c_int, name: &[u8], call: impl FnOnce(*const c_char) -> c_int) -> Option<c_int> {
    let process = process()?;
    let mut own = PathBuffer::new();
    let is_index = aside(|| process.own_index(Fd(at), name, &mut own));
    (is_index == Ok(true)).then(|| call(own.as_c().as_ptr().cast()))
}

/// A call on a path that the program gave; where there is no file of this name, once more by the
/// name of an index.
macro_rules! named {
    ($at:expr, $path:ident: $($call:tt)+) => {{
        // SAFETY: the program's own arguments.
        let done: c_int = unsafe { raw!($($call)+) };
        if done == 0 || $crate::raw::errno() != tidelock_engine::Errno::NOENT {
            done
        } else {
            // SAFETY: the program's own arguments, with a path of ours.
            let again = |$path: *const c_char| -> c_int { unsafe { raw!($($call)+) } };
            // SAFETY: the contract of the function whose path it is.
            let done = unsafe { $crate::hooks::index::as_index($at, $path, again) };
            done.unwrap_or_else(|| $crate::raw::fail(tidelock_engine::Errno::NOENT))
        }
    }};
}
pub(crate) use named;
