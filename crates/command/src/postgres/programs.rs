//! The programs beside a server, run as the owner of its directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::begun::Lock;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::run_as::RunAs;

/// What would lead a client elsewhere than it is told.
const ELSEWHERE: [&str; 9] = [
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGUSER",
    "PGDATABASE",
    "PGDATA",
    "PGOPTIONS",
    "PGSERVICE",
    "PGCLIENTENCODING",
];

/// The programs of one build of PostgreSQL, and who runs them.
#[derive(Clone)]
pub(crate) struct Programs {
    bin: PathBuf,
    run_as: RunAs,
}

impl Programs {
    /// Those in `bin`, for the directories of `owner`.
    ///
    /// # Errors
    /// [`Error::Refused`] if the caller is neither root nor the owner, or the programs are missing.
    pub(crate) fn new(bin: &Path, owner: Owner) -> Result<Self> {
        let run_as = RunAs::new(owner)?;
        for name in ["postgres", "pg_ctl", "psql", "pg_basebackup", "pg_controldata"] {
            if !bin.join(name).is_file() {
                return Err(Error::refused(
                    format!("{name} is not beside the server, in {}", bin.display()),
                    "install the client programs of the server's own version there, or name the \
                     directory with --bindir",
                ));
            }
        }
        Ok(Self { bin: bin.into(), run_as })
    }

    /// From now on they hold this lock while they run.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn hold(&mut self, lock: &Lock) -> Result<()> {
        self.run_as.hold(lock)
    }

    /// Who runs them.
    pub(crate) fn run_as(&self) -> &RunAs {
        &self.run_as
    }

    /// Where one of them is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// A program that works on no protected directory.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn bare(&self, name: &str) -> Result<Command> {
        self.run_as.program(&self.bin.join(name)).map(here)
    }

    /// A program that works on `dir`: with keys if that is a protected directory.
    ///
    /// # Errors
    /// [`Error::Io`]; there is no folder for the agent's socket.
    pub(crate) fn on(&self, dir: &Path, name: &str) -> Result<Command> {
        self.run_as.on(dir, &self.bin.join(name)).map(here)
    }
}

fn here(mut command: Command) -> Command {
    ELSEWHERE.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}
