//! The PostgreSQL server of a directory: its own programs, its state, SQL by its own psql.
//!
//! ```text
//!   programs   the server's programs, run as the owner of the directory
//!   instance   directory, configuration, Debian cluster; start, stop, state on disk
//!   session    questions to a running server, by psql
//!   settings   its settings, as its files and its last command line say
//!   control    its control file
//! ```
//!
//! The command has no client library of PostgreSQL: a server is asked with what lies beside it.

mod control;
mod instance;
mod programs;
mod session;
pub(crate) mod settings;

pub(crate) use control::ControlFile;
pub(crate) use instance::{Cluster, Instance, Running, options, shell_words};
pub(crate) use programs::Programs;
pub(crate) use session::{Address, Session, literal, name};
