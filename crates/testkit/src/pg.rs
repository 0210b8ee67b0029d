//! A private PostgreSQL 15: its directory, its account, its tools, its life and its death.
//!
//! ```text
//!   Place      a short private directory below the base, removed on drop
//!     Tool     one run of one program as the right account, with a time limit
//!     Cluster  one data directory: initdb, start, kill -9, sql; stopped on drop
//!       Arm    what stands between the server and the kernel
//! ```
//!
//! Servers listen on a socket in the place only, so no port can be taken. PostgreSQL refuses to run
//! as root: then everything here runs as the account `postgres`, keys and agent included. No process
//! is ever addressed by name.

mod account;
mod arm;
mod cluster;
mod error;
mod load;
mod measure;
mod place;
mod process;
mod regress;
mod tool;

pub use account::Account;
pub use arm::{Arm, Programs};
pub use cluster::Cluster;
pub use error::{Error, Result, ensure};
pub use load::{Load, Run, fill_pgbench};
pub use measure::{Block, Cost, Sample, interleave, run_rounds};
pub use place::Place;
pub use process::{Process, cpu_seconds};
pub use regress::{Outcome, Suite};
pub use tool::{Output, Running, Tool};

/// Where Debian puts the binaries of PostgreSQL 15; `TIDELOCK_PG_BINDIR` names another place.
pub const BINDIR: &str = "/usr/lib/postgresql/15/bin";

/// Defines one test for each arm named: `arms!(survives_a_crash: plain, sealed)` makes the tests
/// `survives_a_crash::plain` and `survives_a_crash::sealed` from `fn survives_a_crash(arm: Arm)`.
///
/// A word after the name marks slow ones: `arms!(regress: sealed; slow)` is left to `make test-full`.
#[macro_export]
macro_rules! arms {
    ($body:ident: $($arm:ident),+) => {
        mod $body {
            $(
                #[test]
                fn $arm() -> $crate::pg::Result<()> {
                    super::$body($crate::arms!(@ $arm))
                }
            )+
        }
    };
    ($body:ident: $($arm:ident),+; slow) => {
        mod $body {
            $(
                #[test]
                #[ignore = "long: make test-full"]
                fn $arm() -> $crate::pg::Result<()> {
                    super::$body($crate::arms!(@ $arm))
                }
            )+
        }
    };
    (@ plain) => { $crate::pg::Arm::Plain };
    (@ idle) => { $crate::pg::Arm::Idle };
    (@ sealed) => { $crate::pg::Arm::Sealed };
}
