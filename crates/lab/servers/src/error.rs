//! What can go wrong in the harness, told so that a log of a failed run is enough.

use std::fmt;
use std::path::PathBuf;

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed step. `Debug` prints the same sentence as `Display`, since tests print `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program ended with a status that the caller did not want.
    #[error("`{command}` ended with {status}\n{output}")]
    Ended {
        /// The command line.
        command: String,
        /// Exit code or signal.
        status: String,
        /// The last lines of both outputs and of the server's log.
        output: String,
    },
    /// A program was ended because it ran too long.
    #[error("`{command}` did not end within {seconds} s\n{output}")]
    TooLong {
        /// The command line.
        command: String,
        /// The limit.
        seconds: u64,
        /// The last lines of both outputs.
        output: String,
    },
    /// A file or process operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Something that has to be built or installed is not there.
    #[error("{path} is not there\nhint:  {hint}")]
    Missing {
        /// What is missing.
        path: PathBuf,
        /// How to get it.
        hint: &'static str,
    },
    /// An expectation of a test did not hold.
    #[error("{0}")]
    Unexpected(String),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Makes an I/O error into a sentence that starts with `what`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Fails with `what` unless `holds`.
///
/// # Errors
/// [`Error::Unexpected`] with the text.
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Unexpected(what())) }
}
