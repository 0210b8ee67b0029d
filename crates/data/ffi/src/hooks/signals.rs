//! sigaltstack: no file call, but it tells whether this program has alternate stacks at all.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::c_int;

use libc::stack_t;

use crate::stack;

pub unsafe fn sigaltstack(new: *const stack_t, before: *mut stack_t) -> c_int {
    if !new.is_null() {
        stack::note_alternate();
    }
    // SAFETY: the program's own arguments.
    unsafe { raw!(SYS_sigaltstack, new, before) }
}
