//! What the preload library decides beside file calls: whether it works here, with which keys, and
//! what to follow.
//!
//! ```text
//!   start       which part does this program play? then directory by directory:
//!     |           handshake ----> agent: keys, policy     starter: none alive? start one
//!     |                           belief: whose word counts
//!     |           sharing ------> the words of all processes of the directory
//!     |           mounts -------> by which other paths it is reached
//!     v
//!   Directory   one for each protected directory, in the engine's table
//!     |
//!   upgrade     a run of pg_upgrade; spaces: whose folders in shared tablespaces are
//!   headers     their keys; renewal: the keyring has changed; recovery: of PostgreSQL
//!   galera      files that a server of MariaDB only maps
//!   cores, limits, messages      limits of the process, and lines for the administrator
//! ```
//!
//! Everything is safe code: what needs more comes from `ffi` as a [`Host`] and as the engine's
//! kernel.

#![forbid(unsafe_code)]

mod belief;
pub mod cores;
mod directory;
mod galera;
mod handshake;
mod headers;
mod held;
mod host;
pub mod limits;
pub mod messages;
pub mod mounts;
mod recovery;
mod renewal;
mod sharing;
pub mod spaces;
pub mod start;
mod starter;
pub mod upgrade;

pub use directory::{Directory, Served};
pub use galera::{is_memory_of_galera, loads_galera};
pub use headers::{choose, header_under, new_header, prepare};
pub use held::{Held, HeldKeyring, Source, find, header_mac, stream_mac, take};
pub use host::{Engine, Host};
pub use recovery::is_under_way;
pub use sharing::Sharing;
pub use tidelock_engine::MOST_LINKS;
