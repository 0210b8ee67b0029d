//! What each file call must mean on a sealed file.
//!
//! ```text
//!   hooks (ffi)
//!     | numbers and paths of the program
//!   Process      process.rs    descriptors: which open file is this?      table.rs, keytable.rs
//!     |          close.rs      when does an open file end?
//!     |          resolve.rs    paths: whose file is this?        path.rs, roots.rs, ancestry.rs
//!     |          links.rs      what links that lead out take along
//!     |          names.rs      rename and link: what may get which name?
//!     |          numbered.rs   /proc/self/fd/N: which descriptor is named?
//!     |          open.rs       header, policy and key must agree     unopened.rs, more.rs
//!   File         read.rs       aligned: one system call; else through scratch memory
//!     |          write.rs      aligned: one system call; else alone, write/window.rs
//!     |          direct.rs     O_DIRECT: past the page cache
//!     |          request.rs    and while the program goes on: asynchronous I/O
//!     |          resize.rs     truncate, extend, allocate
//!     |          offset.rs     where read and write go on                 turn.rs
//!   Words        gate.rs       who may write beside whom                  whole.rs
//!     |          sequence.rs   what readers may rely on                   roster.rs
//!   without keys  guard.rs     nothing plain where sealed bytes belong
//!   Kernel (trait)             takes Sealed only
//! ```
//!
//! No unsafe code, no allocation, no libc; works the same over the simulated kernel. Keys are never
//! seen here: a file's key is a slot number of the [`UnitCipher`](tidelock_cipher::UnitCipher).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod ancestry;
mod close;
mod direct;
mod end;
mod errno;
mod file;
mod forks;
mod gate;
mod guard;
mod index;
mod kernel;
mod keytable;
mod links;
mod more;
mod moving;
mod names;
mod numbered;
mod offset;
mod open;
mod path;
mod process;
mod read;
mod refusal;
mod request;
mod resize;
mod resolve;
mod room;
mod roots;
mod roster;
mod sequence;
mod shown;
mod spot;
mod table;
mod told;
mod turn;
mod unopened;
mod whole;
mod words;
mod write;

pub use ancestry::Identity;
pub use end::End;
pub use errno::Errno;
pub use file::{Access, OpenFile};
pub use guard::{Verdict, is_shortage};
pub use index::{Index, may_be_index};
pub use kernel::{Fd, FileStat, Kernel, Links, SCRATCH_MAX, System};
pub use keytable::{KEYS, KeyPlace, KeyTable};
pub use path::PathBuffer;
pub use process::{Descriptor, Process};
pub use refusal::Refusal;
pub use request::{Handed, ReadRequest, WriteRequest};
pub use resolve::Location;
pub use roots::{Decide, Decided, Roots, Sealing};
pub use shown::{Shown, is_plain};
pub use spot::Spot;
pub use table::{DESCRIPTORS, ENDS, OPEN_FILES, OpenFlags, Slot, Table};
pub use words::{Actor, LARGEST_NUMBER, Numbered, Stripe, Words};
