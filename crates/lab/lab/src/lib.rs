//! The lab: published experiments on the cost of encryption, repeated on the reader's machine. Its
//! program is `tidelock-lab`.
//!
//! ```text
//!   experiments/*.toml      what is asked: arms, factors, workloads, claims
//!        |
//!   experiment              reads one            published    the figures of others
//!        |
//!   plan                    which trials, in which order, how long
//!        |
//!   run                     starts servers, measures, cleans up
//!        |   arm            what stands between the server and its disk
//!        |   host           limits by cgroup, volumes, what the machine did meanwhile
//!        |   work           pgbench, SQL, mysqlslap, the batch engine, the cipher alone
//!        v
//!   results                 run.json and results.jsonl, one line for each trial
//!        |
//!   analysis                paired ratios with intervals, families of cells  <- statistics
//!        |   verdict         a published claim against it   <- phrase
//!        v
//!   report, compare, gate   what a reader may conclude
//! ```
#![forbid(unsafe_code)]

pub mod analysis;
pub mod arm;
pub mod catalogue;
pub mod compare;
pub mod error;
pub mod experiment;
pub mod gate;
pub mod host;
pub mod load;
pub mod manifest;
pub mod metric;
pub mod phrase;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod statistics;
#[cfg(test)]
mod synthetic;
pub mod trial;
pub mod verdict;
mod work;

pub use error::{Error, Result};
