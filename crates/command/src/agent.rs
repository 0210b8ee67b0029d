//! `tidelock agent`: how `exec` and the library run this program as an agent. Not for people.

use std::io;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{RunDir, alias, client};
use tidelock_providers::Places;

use crate::audit::trail;
use crate::error::{Error, Result};
use crate::init::open_or_make;
use crate::primitives::primitives;
use crate::rollback;
use crate::running::Programs;
use crate::unlock;

/// Hold an unlocked keyring; started by `exec`
#[derive(Subcommand)]
pub(crate) enum AgentRole {
    /// Unlock without a terminal and start an agent; run by the library in a program that finds
    /// none
    Start {
        /// Where it listens
        socket: PathBuf,
        /// The protected directory
        dir: PathBuf,
    },
    /// Make the socket of a unit lead to that of a keyring; run by root as the directory's owner
    Alias {
        /// The unit's
        alias: PathBuf,
        /// The keyring's
        socket: PathBuf,
    },
    /// Start the agent proper and end
    Detach {
        /// As this user, if root does
        #[arg(requires = "group")]
        user: Option<u32>,
        /// And this group
        group: Option<u32>,
        /// With these capabilities
        #[arg(default_value = "")]
        capabilities: String,
    },
    /// Serve until the last client has left
    Serve,
}

impl AgentRole {
    /// # Errors
    /// What keeps the agent from serving; its starter was told.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Start { socket, dir } => start(&socket, &dir),
            Self::Alias { alias, socket } => publish(&alias, &socket),
            Self::Detach { user, group, capabilities } => {
                let user = user.zip(group);
                let command = AgentCommand { user, capabilities, ..AgentCommand::this_program() };
                Ok(spawn::detach(&command)?)
            }
            Self::Serve => Ok(spawn::serve(primitives(), Places::helpers)?),
        }
    }
}

/// Makes the socket of a unit lead to that of a keyring, and has the agent there stay for a server
/// that is about to start: one whose last client has left would end before that.
///
/// # Errors
/// The agent has just ended.
pub(crate) fn publish(unit: &Path, socket: &Path) -> Result<()> {
    alias::publish(unit, socket)?;
    let agent = client::connect(socket)?.ok_or_else(|| Error::Io {
        what: "reach the agent at",
        path: socket.into(),
        source: io::Error::other("it has just ended"),
    })?;
    // An agent of another version refuses this, and stays for as long as it stays.
    let _ = agent.allow(&AgentCommand::this_program().program);
    Ok(())
}

fn start(socket: &Path, dir: &Path) -> Result<()> {
    let protected = open_or_make(dir)?;
    let mut options = Options::new(RunDir::at(socket.parent().unwrap_or(socket))?);
    let ours = options.run_dir.socket(protected.keyring.id());
    if ours != socket && !alias::is_alias(socket) {
        return Err(Error::refused(
            format!("{} has another keyring now", protected.path.display()),
            "start the program with `tidelock exec -D DIR -- PROGRAM`",
        ));
    }
    let config = unlock::to_open(&protected.keyring, &protected.path, protected.owner)?;
    options.allow_writable_programs = config.allow_writable_programs;
    options.core_dumps = config.core_dumps;
    options.accompany = Programs::of(&protected.path).heads();
    options.log = Some(trail::log(&protected.keyring, &protected.path, &config)?);
    let keyring = unlock::unattended(&protected, &config)?;
    rollback::refuse(&protected)?;
    let this_program = AgentCommand::this_program();
    spawn::start(&keyring, &protected.path, &options, &this_program)?;
    if ours != socket {
        alias::publish(socket, &ours)?;
    }
    Ok(())
}
