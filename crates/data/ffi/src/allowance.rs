//! Large tables whose memory is asked for when it is used.
//!
//! Where the kernel does not overcommit (vm.overcommit_memory = 2, which PostgreSQL's manual
//! recommends), each process is charged for all private memory that it may write, and each fork
//! once more, whether it is used or not. Nobody is charged for what may only be read.
//!
//! UNSAFETY: pages of static tables change their rights.
#![expect(unsafe_code, reason = "rights of static memory")]

use core::ffi::c_void;
use core::ops::Range;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use tidelock_engine::Errno;

const PAGE: usize = 4096;

/// Makes a static table of zeros readable only, as far as it has pages of its own. If the kernel
/// refuses, the table stays as it is.
///
/// Nobody has written to the table yet, and nobody writes to an entry of it before [`grant`].
pub(crate) fn withhold<T>(table: &'static [T]) {
    let Range { start, end } = table.as_ptr_range();
    let (start, end) = (start.addr().next_multiple_of(PAGE), end.addr() / PAGE * PAGE);
    let Some(len) = end.checked_sub(start).filter(|&len| len > 0) else { return };
    let at = table.as_ptr().with_addr(start).cast_mut().cast::<c_void>();
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: the pages belong to the table alone, whose bytes are zeros before and after.
    let _ = unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::READ, flags) };
}

/// Makes these entries of a table writable, and what lies beside them on their pages.
///
/// # Errors
/// `ENOMEM` where the kernel has no memory to promise.
pub(crate) fn grant<T>(entries: &[T]) -> Result<(), Errno> {
    let Range { start, end } = entries.as_ptr_range();
    let (start, end) = (start.addr() / PAGE * PAGE, end.addr().next_multiple_of(PAGE));
    let at = entries.as_ptr().with_addr(start).cast_mut().cast::<c_void>();
    let rights = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: pages of a static table, or of what lies beside it in writable memory.
    unsafe { rustix::mm::mprotect(at, end - start, rights) }.map_err(|_| Errno::NOMEM)
}
