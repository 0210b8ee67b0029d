//! What `protect` and `unprotect` ask of the server that they work on: one implementation for each
//! engine.
//!
//! The order of the steps, the record and the files are the same for all of them, and not here.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::begun::Lock;
use crate::error::Result;

/// The server of a data directory.
pub(super) trait Engine {
    /// The data directory, without links.
    fn dir(&self) -> &Path;

    /// What the engine starts from now on holds this lock, but for the server.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    fn hold(&mut self, lock: &Lock) -> Result<()>;

    /// The standard input of what is started beside the engine's own programs.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    fn stdin(&self) -> Result<Stdio>;

    /// The unit that a server of this kind always has, if the directory tells it.
    fn unit(&self) -> Option<String>;

    /// True if that unit is started and stopped by the engine's own programs.
    fn starts_its_unit(&self) -> bool {
        self.unit().is_some()
    }

    /// `PostgreSQL 15`.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::error::Error::Refused) for a version that is not known.
    fn version(&self) -> Result<String>;

    /// The server's program.
    fn program(&self) -> PathBuf;

    /// The server that runs.
    fn running(&self) -> Option<u32>;

    /// The server that runs, once it neither starts nor stops.
    fn settled(&self) -> Option<u32>;

    /// The topmost process whose descendants may have files of the directory open now.
    fn head(&self) -> Option<u32>;

    /// What the running server was started with, for [`Engine::start`].
    ///
    /// # Errors
    /// [`Error::Refused`](crate::error::Error::Refused) for what cannot be written down.
    fn options(&self) -> Result<Vec<String>>;

    /// The file that the running server's log was started with.
    fn log(&self) -> Option<PathBuf>;

    /// Refuses what would keep the sealed server from starting again, or what it would write plain;
    /// else lines for the plan. `unit` starts it, if it is named.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::error::Error::Refused); the server does not answer.
    fn notes(&self, user: Option<&str>, unit: Option<&str>) -> Result<String>;

    /// Refuses a server that would not come up again by itself, however it is converted. `unit`
    /// starts it, if it is named.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::error::Error::Refused); the server does not answer.
    fn refuse_to_stop(&self, _user: Option<&str>, _unit: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// Refuses words that start another server from another directory.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::error::Error::Refused).
    fn refuse_words(&self, _words: &[String]) -> Result<()> {
        Ok(())
    }

    /// Ends the server in order; nothing if none runs.
    ///
    /// # Errors
    /// It does not end.
    fn stop(&self) -> Result<()>;

    /// Starts it as it was started, with keys if the directory is protected.
    ///
    /// # Errors
    /// It does not come up.
    fn start(&self, options: &[String], log: &Path) -> Result<()>;

    /// Asks the running server; what it says, for people: `it has 3 databases`.
    ///
    /// # Errors
    /// It does not answer.
    fn answer(&self, user: Option<&str>) -> Result<String>;

    /// The program that writes all data out of a running server.
    fn dump(&self) -> &'static str;

    /// How a person starts the sealed server.
    fn command(&self) -> String;

    /// Refuses if it cannot be copied while it runs.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::error::Error::Refused).
    fn refuse_without_copies(&self) -> Result<()>;
}
