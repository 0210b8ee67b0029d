//! setrlimit and prlimit: carried out by the kernel; a new limit of descriptors moves what is
//! hidden, and one of core files that would allow them is refused.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::c_int;

use libc::{pid_t, rlimit};
use tidelock_engine::Errno;

use crate::process::process;
use tidelock_runtime::{cores, limits};

use crate::raw;

pub unsafe fn setrlimit(resource: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: the contract of setrlimit.
    unsafe { prlimit(0, resource, limit, core::ptr::null_mut()) }
}

pub unsafe fn prlimit(
    of: pid_t,
    resource: c_int,
    limit: *const rlimit,
    before: *mut rlimit,
) -> c_int {
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_prlimit64, of, resource, limit, before) };
    let files = libc::RLIMIT_NOFILE.cast_signed();
    let changed =
        done == 0 && !limit.is_null() && (of == 0 || of.cast_unsigned() == std::process::id());
    if changed && resource == libc::RLIMIT_CORE.cast_signed() && cores::keep() {
        return raw::fail(Errno::PERM);
    }
    if changed
        && resource == files
        && let Some(process) = process()
    {
        let system = process.system();
        system.set_numbers(limits::after_change());
        system.take_spares().for_each(|spare| process.drop_hidden(spare));
    }
    done
}
