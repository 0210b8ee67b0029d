//! The agent: the process that holds an unlocked keyring and gives keys to listed programs.
//!
//! ```text
//!   tidelock exec --spawn--> agent detach --> agent serve       (spawn)
//!                                                |  RUNDIR/ID.sock, .programs, .policy, .start
//!   listed program: preload library --Request--> |             (server, peer, listed, audit)
//!                                   <--Grant---- |             (wire)
//!   program without keys: preload library reads ID.policy     (notice)
//!   a unit's environment --> unit-NAME.sock --> ID.sock        (alias)
//!   tidelock exec, status   --Allow, Status----> |             (client)
//! ```
//!
//! One agent for each unlocked keyring. It listens on a SOCK_SEQPACKET socket: one message is one
//! request or one answer. It is no boundary against root or the same user on a live machine;
//! SECURITY.md says so.

#![forbid(unsafe_code)]

pub mod alias;
pub mod audit;
pub mod client;
mod error;
mod listed;
mod memory;
mod peer;
mod rundir;
pub mod server;
pub mod spawn;

pub use error::Error;
pub use listed::Helpers;
pub use memory::{LockedBytes, Primitives};
pub use rundir::RunDir;
