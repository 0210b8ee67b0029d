//! `tidelock agent`: how `exec` runs this program as an agent. Not for people.

use clap::Subcommand;
use tidelock_agent::spawn::{self, AgentCommand};

use crate::error::Result;

/// Hold an unlocked keyring; started by `exec`
#[derive(Subcommand)]
pub(crate) enum AgentRole {
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
            Self::Detach => Ok(spawn::detach(&AgentCommand::this_program())?),
            Self::Serve => Ok(spawn::serve(tidelock_ffi::primitives())?),
        }
    }
}
