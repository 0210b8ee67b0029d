//! What each file call must mean on a sealed file.
//!
//! ```text
//!   hooks (ffi)
//!     | numbers and paths of the program
//!   Process      process.rs    descriptors: which open file is this?      table.rs, keytable.rs
//!     |          close.rs      when does an open file end?
//!     |          forks.rs      forks and changes of the table exclude each other
//!     |          moving.rs     real files move to high numbers; record locks forbid it
//!     |          resolve.rs    paths: whose file is this?        path.rs, roots.rs, ancestry.rs
//!     |          links.rs      what links that lead out take along
//!     |          names.rs      rename and link: what may get which name?
//!     |          numbered.rs   /proc/self/fd/N: which descriptor is named?
//!     |          index.rs      SQLite's index of a log: programs with keys have their own
//!     |          open.rs       header, policy and key must agree          unopened.rs
//!     |          refusal.rs    why not, in a line    extra_access.rs, once_per_file.rs, shown.rs
//!   OpenFile     file.rs       held for the time of one call
//!     |          read.rs       aligned: one system call; else through scratch memory
//!     |          write.rs      aligned: one system call; else alone, write/window.rs
//!     |          end.rs        a small append need not ask for the end
//!     |          direct.rs     O_DIRECT: past the page cache
//!     |          request.rs    and while the program goes on: asynchronous I/O
//!     |          resize.rs     truncate, extend, allocate
//!     |          offset.rs     where read and write go on                 turn.rs
//!   Words        words.rs      what all processes of a directory share
//!     |          gate.rs       who may write beside whom                  whole.rs
//!     |          sequence.rs   what readers may rely on                   roster.rs
//!   Kernel (trait)  kernel.rs  takes Sealed only                          flags.rs, errno.rs
//!
//!   without keys    guard.rs   nothing plain where sealed bytes belong
//!   static memory   table_memory.rs, set_once.rs
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
mod extra_access;
mod file;
mod flags;
mod forks;
mod gate;
mod guard;
mod index;
mod kernel;
mod keytable;
mod links;
mod moving;
mod names;
mod numbered;
mod offset;
mod once_per_file;
mod open;
mod path;
mod process;
mod read;
mod refusal;
mod request;
mod resize;
mod resolve;
mod roots;
mod roster;
mod sequence;
mod set_once;
mod shown;
mod table;
mod table_memory;
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
pub use kernel::{Fd, FileStat, Kernel, Links, SCRATCH_MAX, Synced, System};
pub use keytable::{KEYS, KeyPlace, KeyTable};
pub use path::PathBuffer;
pub use process::{Descriptor, Process};
pub use refusal::Refusal;
pub use request::{Handed, ReadRequest, WriteRequest};
pub use resolve::{LastLink, Location};
pub use roots::{Decide, Decided, MOST_LINKS, Roots, Sealing};
pub use set_once::SetOnce;
pub use shown::{Shown, is_plain};
pub use table::{DESCRIPTORS, ENDS, OPEN_FILES, OpenFlags, Slot, Table};
pub use words::{Actor, LARGEST_NUMBER, Numbered, Stripe, Words};

#[cfg(test)]
mod tests {
    #[test]
    fn the_drawing_has_every_module() {
        let text = include_str!("lib.rs");
        let drawing = text.split("```").nth(1).unwrap();
        let files: Vec<_> = drawing.split([' ', ',', '\n']).collect();
        let module = |line: &'static str| line.strip_prefix("mod ")?.strip_suffix(';');
        for module in text.lines().filter_map(module) {
            let file = format!("{module}.rs");
            assert!(files.contains(&file.as_str()), "{file} is missing");
        }
    }
}
