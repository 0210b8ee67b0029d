//! A call to the system that failed, with what was tried and what to do.

use std::io;
use std::path::PathBuf;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong between a program and its terminal.
#[derive(Debug, thiserror::Error)]
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
}

impl Error {
    /// An [`Error::Io`], for `map_err`.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        let Self::Io { source, .. } = self;
        hint(source)
    }
}

/// What to do where the system gave this reason.
#[must_use]
pub fn hint(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::PermissionDenied => "run it as the owner of the directory, or as root",
        io::ErrorKind::NotFound => "is the path right?",
        io::ErrorKind::StorageFull => "make room, then run it again",
        _ => "see the system's reason above",
    }
}
