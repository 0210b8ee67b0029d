//! Asynchronous I/O goes round libc: it is refused on sealed files, or from the start, so that
//! programs fall back.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_uint, c_void};

use libc::{aiocb, sigevent};
use tidelock_engine::Errno;
use tidelock_runtime::messages;

use crate::hooks::is_ours;
use crate::next;
use crate::process::process;
use crate::raw::fail;

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

/// PostgreSQL would say that the kernel does not have it.
fn refuse_ring() -> c_int {
    messages::io_uring();
    -libc::ENOSYS
}

/// liburing's functions return the error as a negative number.
pub unsafe fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    if process().is_some() {
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
    if process().is_some() {
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
    if process().is_some() {
        return refuse_ring();
    }
    // SAFETY: the contract of io_uring_queue_init_mem.
    unsafe { next::io_uring_queue_init_mem(entries, ring, parameters, memory, len) }
}

pub unsafe fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    if process().is_some() {
        return refuse_ring();
    }
    // SAFETY: the contract of io_uring_setup.
    unsafe { next::io_uring_setup(entries, parameters) }
}

/// libaio's functions return the error as a negative number.
pub unsafe fn io_setup(requests: c_int, context: *mut c_void) -> c_int {
    if process().is_some() {
        return -libc::ENOSYS;
    }
    // SAFETY: the contract of io_setup.
    unsafe { next::io_setup(requests, context) }
}
