//! All unsafe code of Tidelock: libc's file calls above the engine, AWS-LC and the system calls below it.
//!
//! ```text
//!   libc symbols    hooks, stdio, ledger     C arguments -> slices, descriptors; no decisions
//!        |
//!   Process         process.rs               the engine of this process
//!        |
//!   Linux           system.rs, lock.rs       Kernel and System: rustix, sys.rs
//!   Xts             xts.rs, datakeys.rs      UnitCipher: AWS-LC
//!                   scratch.rs, memory.rs    fixed pool; locked memory
//!   start           start.rs                 from ld.so to a working engine, or inert
//! ```
//!
//! The feature `exports` defines the libc symbols; without it the crate links like any other, and the command and
//! the tests use the same engine without hooking themselves.

pub mod datakeys;
pub mod fork;
mod handshake;
mod lock;
pub mod memory;
mod primitives;
pub mod process;
mod recovery;
mod report;
mod scratch;
pub mod start;
pub mod sys;
mod system;
mod xts;

pub use primitives::primitives;
pub use system::{Linux, refresh_working_directory};
pub use xts::Xts;
