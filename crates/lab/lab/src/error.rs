//! What can go wrong in the lab: each error names the place, and the command adds what to do.

use std::path::PathBuf;

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed step of the lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An experiment file that cannot be understood.
    #[error("the experiment {name} cannot be read: {why}")]
    Experiment {
        /// Its name or path.
        name: String,
        /// The place in it and what is wrong.
        why: String,
    },
    /// No experiment has this name.
    #[error("there is no experiment named {0}")]
    Unknown(String),
    /// A file or process operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A line of the results that is not a trial.
    #[error("{}, line {line}: not a trial: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A directory that is not one of a run, or of another version.
    #[error("{} is not a run of the lab: {why}", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// Another lab works in this directory or on this machine.
    #[error("{}: another lab is running (process {holder})", path.display())]
    Busy {
        /// What is locked.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// A run goes on only where its numbers can be set beside those that it has.
    #[error("{} was begun on a machine that differs from this one: {}", path.display(), differences.join("; "))]
    OtherMachine {
        /// The directory of the run.
        path: PathBuf,
        /// What differs, with both values.
        differences: Vec<String>,
    },
    /// The server elsewhere of an arm turns the lab away, or does not answer.
    #[error("the arm {arm} cannot use its server: {why}")]
    Unreachable {
        /// The arm.
        arm: String,
        /// The server's reason, or that of the program that asked it.
        why: String,
    },
    /// What the lab would make on the server elsewhere of an arm would not be among its own.
    #[error("the server of the arm {arm} is left alone: {why}")]
    NotOurs {
        /// The arm.
        arm: String,
        /// What is not as it has to be.
        why: String,
    },
    /// A server, tool or file of a trial failed.
    #[error(transparent)]
    Server(#[from] tidelock_servers::Error),
    /// The user interrupted the run; everything measured is kept.
    #[error("interrupted")]
    Interrupted,
    /// The user interrupted a load; what was committed is kept.
    #[error("stopped before the end")]
    Stopped,
    /// Anything else, as a sentence.
    #[error("{0}")]
    Other(String),
    /// A run was asked for what it does not have, or for what makes no sense.
    #[error("{0}")]
    Asked(String),
}

impl Error {
    /// Makes an I/O error into a sentence that starts with `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Experiment { .. } => "docs/lab.md has the format of experiments".into(),
            Self::Unknown(_) => "`tidelock-lab list` shows them; a file must end in .toml".into(),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "make room, then `tidelock-lab resume DIR`: what was measured is kept".into()
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
                "that directory has a run: `tidelock-lab resume DIR` goes on, --out names another"
                    .into()
            }
            Self::Io { .. } => "see the system's reason above".into(),
            Self::Line { .. } => "`tidelock-lab resume DIR` measures that trial again".into(),
            Self::NotARun { .. } => {
                "name a directory that `tidelock-lab run --out DIR` made".into()
            }
            Self::Busy { .. } => "wait for it, or end it: two would measure each other".into(),
            Self::OtherMachine { .. } => {
                "go on where it began, or start a new run: one result has one machine".into()
            }
            Self::Unreachable { .. } => {
                "the arm's `dsn` names host, port, user and database; PGPASSWORD has the password"
                    .into()
            }
            Self::NotOurs { .. } => "docs/lab.md, `dsn`: what the lab asks of such a server".into(),
            Self::Asked(_) => "`tidelock-lab report DIR` shows what the run has".into(),
            Self::Stopped => "the same command goes on where it ended".into(),
            Self::Interrupted => "`tidelock-lab resume DIR` goes on where it ended".into(),
            Self::Server(_) | Self::Other(_) => {
                "what was measured is kept; `tidelock-lab resume DIR` goes on".into()
            }
        }
    }

    /// What a command ends with: 1 failure, 2 usage, 3 refused, 130 interrupted.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Experiment { .. } | Self::Unknown(_) | Self::Asked(_) => 2,
            Self::NotARun { .. }
            | Self::Busy { .. }
            | Self::Line { .. }
            | Self::OtherMachine { .. }
            | Self::NotOurs { .. } => 3,
            Self::Interrupted | Self::Stopped => 130,
            Self::Io { .. } | Self::Unreachable { .. } | Self::Server(_) | Self::Other(_) => 1,
        }
    }
}
