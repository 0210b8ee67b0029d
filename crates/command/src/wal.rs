//! `tidelock wal`: an archive of PostgreSQL's WAL that several nodes share, each with keys of its
//! own.
//!
//! ```text
//!   put   node --> source: plain bytes --> segment: is it WAL? --> archive: sealed, whole, synced
//!   get   archive --> source --> segment --> node: sealed under its own key, renamed into place
//!
//!   name      what PostgreSQL calls the files of an archive
//!   place     a protected directory or a plain one, and its keys
//!   keys      from the agent; or from a provider, and an agent stays behind
//!   fresh     a file that is there whole or not at all
//!   through   a command that carries sealed streams, in place of a directory
//! ```
//!
//! Both are run by the server, without a terminal and without keys of the library.

mod check;
mod fresh;
mod get;
mod keys;
mod lineage;
mod name;
mod place;
mod put;
mod segment;
mod source;
mod through;

use std::process::ExitCode;

use clap::Subcommand;
use tidelock_cipher::KeySlot;

use crate::error::Result;

pub(crate) use get::{is_get, stops};

/// Of the file that is archived.
const ARCHIVED: KeySlot = KeySlot(1);
/// Of a file in the archive.
const STORED: KeySlot = KeySlot(2);
/// Of the file that is made.
const MADE: KeySlot = KeySlot(3);

/// Archive PostgreSQL's WAL under the archive's own keys, and restore it
#[derive(Subcommand)]
pub(crate) enum WalCommand {
    Put(put::Put),
    Get(get::Get),
    Check(check::Check),
}

impl WalCommand {
    /// # Errors
    /// See each.
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Put(put) => put.run().map(|()| ExitCode::SUCCESS),
            Self::Get(get) => get.run(),
            Self::Check(check) => check.run(),
        }
    }
}
