//! What ends the batch engine: each error names phase and place. What was committed is kept.

use std::path::PathBuf;

use super::Phase;

/// Result of the batch engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the engine ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server went away.
    #[error(
        "{phase}, {place}: the connection to the database is lost ({why}); what was committed is \
         kept, and the next run goes on from there"
    )]
    Lost {
        /// Phase.
        phase: Phase,
        /// File and line, or the meters.
        place: String,
        /// What the client saw.
        why: String,
    },
    /// The server refused a statement.
    #[error("{phase}, {place}: {why}")]
    Refused {
        /// Phase.
        phase: Phase,
        /// File and line, or the meters.
        place: String,
        /// The server's message.
        why: String,
    },
    /// The database cannot be reached or prepared.
    #[error("the database cannot be used: {0}")]
    Database(String),
    /// Another engine works on this database.
    #[error("another batch engine works on this database")]
    Busy,
    /// A file or directory cannot be read or written.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file that is not one of market records, or of master data.
    #[error("{}, line {line}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: i64,
        /// What is wrong.
        why: String,
    },
    /// A file of the user's lies where this program would put its own.
    #[error(
        "{} is there, and this program did not make it: it is left as it is; move it away, or name \
         another directory",
        path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// A phase whose turn it is not, or files that changed under the engine.
    #[error("{0}")]
    Order(String),
}

impl Error {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        Self::Other(error.to_string())
    }
}

/// What a store can fail with; the engine adds phase and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone.
    Lost(String),
    /// The server answered with an error.
    Refused(String),
}

impl Trouble {
    pub(super) fn at(self, phase: Phase, place: impl Into<String>) -> Error {
        let place = place.into();
        match self {
            Self::Lost(why) => Error::Lost { phase, place, why },
            Self::Refused(why) => Error::Refused { phase, place, why },
        }
    }
}

impl From<Trouble> for Error {
    /// Outside of a phase.
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Lost(why) | Trouble::Refused(why) => Self::Database(why),
        }
    }
}
