//! What can go wrong with an agent, as sentences with a hint.

use std::io;
use std::path::{Path, PathBuf};

use tidelock_contract::StarterError;
use tidelock_contract::wire::{RefusalReason, WireError};
use tidelock_format::KeyringId;
use tidelock_keyring::{Direction, ExitClass, Keyring};

/// What can go wrong with an agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the system failed.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No place for sockets that is the caller's alone.
    #[error("there is no directory for the agent's socket: {tried}")]
    NoRunDir {
        /// Which were tried, and why not.
        tried: String,
    },
    /// The directory of sockets is somebody else's, or open to others.
    #[error("{} is refused for the agent's socket: {why}", .path.display())]
    LooseRunDir {
        /// The directory.
        path: PathBuf,
        /// What is loose.
        why: &'static str,
    },
    /// What tells how to start an agent is not to be believed.
    #[error(transparent)]
    Starter(#[from] StarterError),
    /// Another agent holds this keyring.
    #[error("an agent holds keyring {keyring} already")]
    AlreadyRunning {
        /// The keyring.
        keyring: KeyringId,
    },
    /// The keyring was changed before this agent listened: it has the old one, and nobody has told
    /// it.
    #[error("keyring {keyring} was changed while its agent was started")]
    Outdated {
        /// The keyring.
        keyring: KeyringId,
    },
    /// The agent that was started did not come up.
    #[error("the agent did not start: {why}")]
    NotStarted {
        /// What it said.
        why: String,
    },
    /// The agent is there and says nothing: stopped, or held up.
    #[error("the agent{} does not answer within {seconds} s ({})", process(*.pid), .socket.display())]
    Silent {
        /// Its process, if the kernel tells.
        pid: Option<i32>,
        /// Where it listens.
        socket: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The agent has closed the connection: it is about to end, or was killed.
    #[error("the agent at {} has just ended", .socket.display())]
    Ended {
        /// Where it listened.
        socket: PathBuf,
    },
    /// The agent refused.
    #[error("the agent refused: {reason}{detail}")]
    Refused {
        /// Why.
        reason: RefusalReason,
        /// More words, or none.
        detail: String,
    },
    /// The other side speaks something else.
    #[error("the agent's answer cannot be read: {0}")]
    Wire(#[from] WireError),
    /// The agent holds the keyring for another directory.
    #[error("the agent holds this keyring for {}, not for {}", .theirs.display(), .ours.display())]
    OtherDirectory {
        /// The directory of the agent.
        theirs: PathBuf,
        /// The directory asked for.
        ours: PathBuf,
    },
    /// A conversion was interrupted: no program may see what it left.
    #[error("{} is half {}: `tidelock {}` was interrupted", .directory.display(), .direction.participle(), .direction.command())]
    HalfConverted {
        /// The directory.
        directory: PathBuf,
        /// What was being done.
        direction: Direction,
    },
    /// The keyring cannot be opened.
    #[error(transparent)]
    Keys(#[from] tidelock_keyring::Error),
}

/// Refuses to serve the keyring of a directory whose conversion has not ended.
///
/// # Errors
/// [`Error::HalfConverted`].
pub(crate) fn refuse_half_converted(keyring: &Keyring, directory: &Path) -> Result<(), Error> {
    match keyring.conversion() {
        None => Ok(()),
        Some(conversion) => Err(Error::HalfConverted {
            directory: directory.into(),
            direction: conversion.direction,
        }),
    }
}

impl Error {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// As [`Error::io`], from a system call.
    pub(crate) fn sys(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.into();
        move |errno| Self::Io { what, path, source: errno.into() }
    }

    /// Which exit code the command ends with.
    #[must_use]
    pub fn exit_class(&self) -> ExitClass {
        match self {
            Self::Io { .. } => ExitClass::Failure,
            Self::Keys(why) => why.exit_class(),
            Self::Starter(StarterError::Io { .. }) => ExitClass::Failure,
            Self::AlreadyRunning { .. }
            | Self::OtherDirectory { .. }
            | Self::LooseRunDir { .. }
            | Self::HalfConverted { .. }
            | Self::Starter(_) => ExitClass::Refused,
            _ => ExitClass::Key,
        }
    }

    /// What to do about it: the second line of a command's error.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "see the system's reason above",
            Self::NoRunDir { .. } => {
                "set HOME or XDG_RUNTIME_DIR, or have root make /run/tidelock/UID"
            }
            Self::LooseRunDir { .. } => {
                "remove it, or chown it to yourself and chmod 700; or set TIDELOCK_RUN_DIR to a \
                 directory of your own"
            }
            Self::Starter(_) => "remove it; `tidelock exec` starts an agent and writes a new one",
            Self::AlreadyRunning { .. } => {
                "`tidelock status` shows it; it ends with its last client"
            }
            Self::Ended { .. } | Self::Outdated { .. } => {
                "run the command again: it starts another agent"
            }
            Self::NotStarted { .. } => "run the command again; the reason is in the line above",
            Self::Refused { reason, .. } => reason.hint(),
            Self::Silent { .. } => {
                "if it was stopped, let it go on (kill -CONT); otherwise end it (kill -9), and \
                 another one starts"
            }
            Self::Wire(_) => "end the servers of this keyring and start them with one version",
            Self::OtherDirectory { .. } => {
                "a byte copy of a protected directory has the same keyring: run one of them at a \
                 time; if it was moved, end what still runs under the old name; if both are one \
                 directory (a bind mount), use one path"
            }
            Self::HalfConverted { direction: Direction::Decrypt, .. } => {
                "`tidelock decrypt --resume DIR` goes on, `tidelock encrypt --resume DIR` seals it \
                 again"
            }
            Self::HalfConverted { direction: Direction::Encrypt, .. } => {
                "`tidelock encrypt --resume DIR` goes on, `tidelock decrypt --resume DIR` takes it \
                 back"
            }
            Self::HalfConverted { direction: Direction::Rekey, .. } => {
                "`tidelock rekey --resume DIR` goes on"
            }
            Self::Keys(why) => why.hint(),
        }
    }
}

fn process(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}
