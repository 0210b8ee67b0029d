//! Private database servers: their directories, their account, their tools, their life and death.
//!
//! ```text
//!   Workspace  a short private directory below the base, removed on drop
//!     home     what the command finds of its caller there
//!     Tool     one run of one program as the right account, with a time limit
//!     Cluster  one data directory: initdb, start, kill -9, sql; stopped on drop
//!       Arm    what stands between the server and the kernel
//!       Service  how clients reach a server that is not ours
//!     Load     pgbench on it          cpu_seconds  what all its processes have used
//!     Mysqld   the same for MariaDB and MySQL, with their own encryption or without
//!   unlinked   files and directories that are opened, but never through a link
//!   skip       what a test says that cannot run here
//!   Bounded    any other program, to its end or to a limit
//! ```
//!
//! The lab measures them and the tests torment them. Servers listen on a socket in the workspace
//! only, so no port can be taken. PostgreSQL refuses to run as root: then everything here runs as
//! the account `postgres`, keys and agent included. No process is ever addressed by name.
#![forbid(unsafe_code)]

mod account;
mod arm;
mod bounded;
mod cluster;
mod elsewhere;
mod error;
pub mod home;
mod load;
pub mod mysqld;
mod process;
pub mod skip;
mod tool;
mod unlinked;
mod workspace;

pub use account::Account;
pub use arm::{Arm, Programs};
pub use bounded::{Bounded, LIMIT, Started, alone, listening, unused_port};
pub use cluster::Cluster;
pub use error::{Error, Result, ensure};
pub use load::{Load, Run, fill_pgbench};
pub use process::{Process, cpu_seconds, ticks};
pub use tool::{Output, Running, Tool};
pub use workspace::Workspace;

/// Where Debian puts the binaries of PostgreSQL 15; `TIDELOCK_PG_BINDIR` names another directory.
pub const BINDIR: &str = "/usr/lib/postgresql/15/bin";
