//! Load generators that are programs of their own: a batch engine that speaks to the server under
//! test.
//!
//! Everything else that loads a server here is somebody's tool (pgbench, mysqlslap) and lives with
//! the trials.

pub mod billing;
