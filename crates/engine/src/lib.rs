//! What each file call must mean on a sealed file.
//!
//! ```text
//!   hooks (ffi)
//!     | numbers and paths of the program
//!   Process      process.rs    descriptors: which open file is this?      table.rs, keytable.rs
//!     |          resolve.rs    paths: whose file is this?                 path.rs, roots.rs
//!     |          open.rs       header, policy and key must agree
//!   File         read.rs       aligned: one system call; else through scratch memory
//!     |          write.rs      aligned: one system call; else under the file's lock, write/window.rs
//!     |          resize.rs     truncate, extend, allocate
//!   Kernel (trait)             takes Sealed only
//! ```
//!
//! No unsafe code, no allocation, no libc; works the same over the simulated kernel. Keys are never seen here:
//! a file's key is a slot number of the [`UnitCipher`](tidelock_cipher::UnitCipher).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod errno;
mod file;
mod kernel;
mod keytable;
mod moving;
mod open;
mod path;
mod process;
mod read;
mod refusal;
mod resize;
mod resolve;
mod roots;
mod sequence;
mod shown;
mod table;
mod write;

pub use errno::Errno;
pub use file::{Access, OpenFile};
pub use kernel::{Fd, FileStat, Kernel, Links, Reach, SCRATCH_MAX, Stripe, System};
pub use keytable::{KEYS, KeyPlace, KeyTable};
pub use path::PathBuffer;
pub use process::{Descriptor, Process};
pub use refusal::Refusal;
pub use resolve::Place;
pub use roots::{Decide, Decided, Roots, Sealing};
pub use shown::{Shown, is_plain};
pub use table::{OpenFlags, Table};
