//! Asynchronous I/O: the kernel's own requests are carried out (requests.rs). The rest is refused,
//! on sealed files or from the start, so that programs fall back: POSIX's, which libc carries out
//! by threads of its own, and io_uring, whose rings programs read and write without any call.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_long, c_uint, c_void};

use libc::{aiocb, sigevent, sigset_t, timespec};
use tidelock_engine::Errno;
use tidelock_runtime::messages;

use crate::guard;
use crate::hooks::is_ours;
use crate::process::process;
use crate::raw::{Outcome as _, Word as _, fail};
use crate::{next, requests, sys};

pub unsafe fn aio_read(request: *mut aiocb) -> c_int {
    // SAFETY: the contract of aio_read.
    if unsafe { is_sealed(request) } {
        return fail(Errno::NOSYS);
    }
    // SAFETY: the contract of aio_read.
    unsafe { next::aio_read(request) }
}

pub unsafe fn aio_write(request: *mut aiocb) -> c_int {
    // SAFETY: the contract of aio_write.
    if unsafe { is_sealed(request) } {
        return fail(Errno::NOSYS);
    }
    // SAFETY: the contract of aio_write.
    unsafe { next::aio_write(request) }
}

pub unsafe fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int {
    // SAFETY: the contract of aio_fsync.
    if unsafe { is_sealed(request) } {
        return fail(Errno::NOSYS);
    }
    // SAFETY: the contract of aio_fsync.
    unsafe { next::aio_fsync(operation, request) }
}

pub unsafe fn lio_listio(
    mode: c_int,
    requests: *const *mut aiocb,
    n: c_int,
    event: *mut sigevent,
) -> c_int {
    let len = usize::try_from(n).unwrap_or(0);
    if process().is_some() && len > 0 && !requests.is_null() {
        // SAFETY: the contract of lio_listio: `n` requests.
        let requests = unsafe { core::slice::from_raw_parts(requests, len) };
        // SAFETY: each is null or a request.
        if requests.iter().any(|&request| unsafe { is_sealed(request) }) {
            return fail(Errno::NOSYS);
        }
    }
    // SAFETY: the contract of lio_listio.
    unsafe { next::lio_listio(mode, requests, n, event) }
}

unsafe fn is_sealed(request: *const aiocb) -> bool {
    // SAFETY: the caller's promise: null or a request.
    unsafe { request.as_ref() }.is_some_and(|request| is_ours(request.aio_fildes))
}

/// True where a ring would go round the library, or round its guard. liburing makes its calls by
/// instructions of its own, so its functions are where a ring is met.
fn goes_round() -> bool {
    process().is_some() || guard::is_at_work()
}

/// PostgreSQL would say that the kernel does not have it.
fn refuse_ring() -> c_int {
    messages::io_uring();
    -libc::ENOSYS
}

/// liburing's functions return the error as a negative number.
pub unsafe fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    if goes_round() {
        return refuse_ring();
    }
    // SAFETY: the contract of io_uring_queue_init.
    unsafe { next::io_uring_queue_init(entries, ring, flags) }
}

pub unsafe fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    if goes_round() {
        return refuse_ring();
    }
    // SAFETY: the contract of io_uring_queue_init_params.
    unsafe { next::io_uring_queue_init_params(entries, ring, parameters) }
}

pub unsafe fn io_uring_queue_init_mem(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
    memory: *mut c_void,
    len: usize,
) -> c_int {
    if goes_round() {
        return refuse_ring();
    }
    // SAFETY: the contract of io_uring_queue_init_mem.
    unsafe { next::io_uring_queue_init_mem(entries, ring, parameters, memory, len) }
}

pub unsafe fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    if goes_round() {
        return refuse_ring();
    }
    // SAFETY: the contract of io_uring_setup.
    unsafe { next::io_uring_setup(entries, parameters) }
}

// libaio's functions return the error as a negative number, as the kernel does.

pub unsafe fn io_setup(count: c_int, context: *mut c_void) -> c_int {
    // SAFETY: the contract of io_setup.
    c_int::from_word(unsafe { requests::setup(count.into(), context.cast()) })
}

pub unsafe fn io_destroy(context: *mut c_void) -> c_int {
    c_int::from_word(requests::destroy(name(context)))
}

pub unsafe fn io_submit(context: *mut c_void, count: c_long, list: *mut *mut c_void) -> c_int {
    let list = list.cast_const().cast();
    // SAFETY: the contract of io_submit.
    c_int::from_word(unsafe { requests::submit(name(context), count, list) })
}

pub unsafe fn io_cancel(context: *mut c_void, request: *mut c_void, event: *mut c_void) -> c_int {
    let request = request.cast_const().cast();
    // SAFETY: the contract of io_cancel.
    c_int::from_word(unsafe { requests::cancel(name(context), request, event.cast()) })
}

pub unsafe fn io_getevents(
    context: *mut c_void,
    least: c_long,
    most: c_long,
    into: *mut c_void,
    timeout: *mut timespec,
) -> c_int {
    let words = [context.word(), least, most, into.word(), timeout.word()];
    // SAFETY: the contract of io_getevents.
    c_int::from_word(unsafe { requests::events(sys::nr::IO_GETEVENTS, words) })
}

pub unsafe fn io_pgetevents(
    context: *mut c_void,
    least: c_long,
    most: c_long,
    into: *mut c_void,
    timeout: *mut timespec,
    mask: *mut sigset_t,
) -> c_int {
    // As the kernel takes it: the mask, and how long it is.
    let mask = [mask.word(), 8];
    let words = [context.word(), least, most, into.word(), timeout.word(), mask.as_ptr().word()];
    // SAFETY: the contract of io_pgetevents.
    c_int::from_word(unsafe { requests::events(sys::nr::IO_PGETEVENTS, words) })
}

fn name(context: *mut c_void) -> u64 {
    context.word().cast_unsigned()
}
