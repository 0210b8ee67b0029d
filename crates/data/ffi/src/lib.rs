//! All unsafe code of Tidelock: libc's file calls above the engine, AWS-LC and the system calls
//! below it.
//!
//! ```text
//!   libc symbols    hooks, stdio, ledger     C arguments -> slices, descriptors; no decisions
//!        |
//!   Process         process.rs               the engine of this process
//!        |
//!   Linux           system.rs, futex.rs      Kernel and System: rustix, sys.rs
//!                   requests.rs              asynchronous I/O: io_submit, io_getevents
//!   Xts             xts.rs, vaes.rs          UnitCipher: AWS-LC, or VAES without AVX-512
//!                   scratch.rs, memory.rs    fixed pool; locked memory
//!                   stack.rs                 where the program's stack may be too small
//!                   touch.rs                 memory that the program names: there, or EFAULT
//!   start           start.rs, environment.rs what ld.so calls; `runtime` decides
//!   Host            host.rs, spawn.rs        what `runtime` needs that safe code cannot do
//!   guard           guard.rs                 in programs without keys: judged, not sealed
//! ```
//!
//! The preload library alone defines the libc symbols and the constructors, by the macros `exports`
//! and `constructors`. The command and the tests use the same engine without hooking themselves.

#[macro_use]
mod raw;
#[doc(hidden)]
#[macro_use]
pub mod hooks;
mod allowance;
mod descriptor;
mod environment;
pub mod fork;
mod futex;
mod guard;
mod host;
pub mod ledger;
mod locked;
pub mod memory;
mod next;
pub mod process;
mod requests;
mod scratch;
mod spawn;
mod speed;
mod stack;
pub mod start;
#[doc(hidden)]
pub mod stdio;
pub mod sys;
mod system;
mod touch;
#[cfg(not(feature = "fips"))]
#[doc(hidden)]
pub mod vaes;
mod xts;

#[cfg(feature = "fips")]
use aws_lc_fips_sys as aws_lc;
#[cfg(not(feature = "fips"))]
use aws_lc_sys as aws_lc;

pub use descriptor::{
    begin_writeback, close_from, close_on_exec, is_open_for_writing, lock_whole, peer_pid,
    peer_pidfd,
};
pub use host::HOST;
pub use locked::{LockedMapping, wipe_stack};
pub use speed::speed;
pub use system::{Linux, refresh_working_directory};
pub use tidelock_engine::{Shown, is_plain};
pub use xts::{Cells, Xts};

/// The C types of the ledger's signatures, for the crate that defines the symbols.
#[doc(hidden)]
pub mod ledger_types {
    pub use crate::hooks::listing::{Filter, Order};
    pub use crate::hooks::walk::{Glob, Visit};
    pub use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
    pub use libc::{
        DIR, FILE, aiocb, dirent, epoll_event, fd_set, gid_t, iovec, loff_t, mode_t, nfds_t, off_t,
        pid_t, pollfd, rlimit, sigevent, sigset_t, size_t, ssize_t, stack_t, stat as Stat, statfs,
        statvfs, statx as Statx, timespec, timeval, uid_t, utimbuf, wchar_t,
    };
}
