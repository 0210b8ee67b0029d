//! `tidelock agent`: how `exec` and the library run this program as an agent. Not for people.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use tidelock_agent::RunDir;
use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};

use crate::audit::trail;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::unlock;

/// Hold an unlocked keyring; started by `exec`
#[derive(Subcommand)]
pub(crate) enum AgentRole {
    /// Unlock without a terminal and start an agent; run by the library in a program that finds none
    Start {
        /// Where it listens
        socket: PathBuf,
        /// The protected directory
        dir: PathBuf,
    },
    /// Start the agent proper and end
    Detach,
    /// Serve until the last client has left
    Serve,
}

impl AgentRole {
    /// # Errors
    /// What keeps the agent from serving; its starter was told.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Start { socket, dir } => start(&socket, &dir),
            Self::Detach => Ok(spawn::detach(&AgentCommand::this_program())?),
            Self::Serve => Ok(spawn::serve(tidelock_ffi::primitives())?),
        }
    }
}

fn start(socket: &Path, dir: &Path) -> Result<()> {
    let protected = Protected::open(dir)?;
    let mut options = Options::new(RunDir::at(socket.parent().unwrap_or(socket))?);
    if options.run_dir.socket(protected.keyring.id()) != socket {
        return Err(Error::refused(
            format!("{} has another keyring now", protected.path.display()),
            "start the program with `tidelock exec -D DIR -- PROGRAM`",
        ));
    }
    let config = unlock::configured(&protected.keyring)?;
    options.allow_writable_programs = config.allow_writable_programs;
    options.log = Some(trail::log(&protected.keyring, &protected.path, &config)?);
    let keyring = unlock::unattended(&protected, &config)?;
    let this_program = AgentCommand::this_program();
    Ok(spawn::start(&keyring, &protected.path, &options, &this_program).map(drop)?)
}
