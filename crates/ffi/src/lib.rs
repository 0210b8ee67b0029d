//! All unsafe code of Tidelock: libc's file calls above the engine, AWS-LC and the system calls below it.
//!
//! ```text
//!   libc symbols    hooks, stdio, ledger     C arguments -> slices, descriptors; no decisions
//!        |
//!   Process         process.rs               the engine of this process
//!        |
//!   Linux           system.rs, words.rs      Kernel and System: rustix, sys.rs
//!   Xts             xts.rs, datakeys.rs      UnitCipher: AWS-LC (renewal.rs: newer keys)
//!                   scratch.rs, memory.rs    fixed pool; locked memory
//!                   stack.rs                 where the program's stack may be too small
//!                   touch.rs                 memory that the program names: there, or EFAULT
//!   start           start.rs                 from ld.so to a working engine, a guard, or inert
//!   guard           guard.rs                 in programs without keys: no plain bytes where sealed ones belong
//! ```
//!
//! The libc symbols are defined by the preload library alone, from the ledger; the feature `exports` adds the
//! constructor. The command and the tests use the same engine without hooking themselves.

#[macro_use]
mod raw;
#[doc(hidden)]
#[macro_use]
pub mod hooks;
mod cores;
pub mod datakeys;
mod environment;
pub mod fork;
mod guard;
mod handshake;
pub mod ledger;
mod limits;
pub mod memory;
mod mounts;
mod next;
mod primitives;
pub mod process;
mod recovery;
mod renewal;
mod report;
mod scratch;
mod speed;
mod stack;
pub mod start;
mod starter;
#[doc(hidden)]
pub mod stdio;
pub mod sys;
mod system;
mod touch;
mod words;
mod xts;

#[cfg(feature = "fips")]
use aws_lc_fips_sys as aws_lc;
#[cfg(not(feature = "fips"))]
use aws_lc_sys as aws_lc;

pub use primitives::{close_on_exec, primitives};
pub use speed::speed;
pub use system::{Linux, refresh_working_directory};
pub use tidelock_engine::{Shown, is_plain};
pub use xts::Xts;

/// The C types of the ledger's signatures, for the crate that defines the symbols.
#[doc(hidden)]
pub mod ledger_types {
    pub use crate::hooks::listing::{Filter, Order};
    pub use crate::hooks::walk::{Glob, Visit};
    pub use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
    pub use libc::{
        DIR, FILE, aiocb, dirent, epoll_event, fd_set, gid_t, iovec, loff_t, mode_t, nfds_t, off_t,
        pid_t, pollfd, rlimit, sigevent, sigset_t, size_t, ssize_t, stat as Stat, statfs, statvfs,
        statx as Statx, timespec, timeval, uid_t, wchar_t,
    };
}
