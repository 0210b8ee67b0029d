//! What can go wrong, as a sentence, with a hint and an exit code.

use tidelock_console::USAGE;

/// Result of every call.
pub(super) type Result<T> = std::result::Result<T, Error>;

/// Why a call did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] tidelock_lab::Error),
    /// A report of a run that is there could not be written.
    #[error(transparent)]
    Report(tidelock_lab::Error),
    /// A call to the system failed.
    #[error(transparent)]
    Console(#[from] tidelock_console::Error),
    /// A precondition does not hold.
    #[error("{what}")]
    Refused {
        /// Which.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// Asked for something that does not exist or makes no sense.
    #[error("{what}")]
    Usage {
        /// What.
        what: String,
        /// What to do.
        hint: String,
    },
}

impl Error {
    /// What the process ends with.
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::Lab(error) | Self::Report(error) => error.exit_code(),
            Self::Console(_) => 1,
            Self::Refused { .. } => 3,
            Self::Usage { .. } => USAGE,
        }
    }

    /// What to do about it.
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Report(tidelock_lab::Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::StorageFull =>
            {
                "make room, then the same command; the run and an earlier report are as they were"
                    .into()
            }
            Self::Lab(error) | Self::Report(error) => error.hint(),
            Self::Console(error) => error.hint().to_owned(),
            Self::Refused { hint, .. } => (*hint).to_owned(),
            Self::Usage { hint, .. } => hint.clone(),
        }
    }

    /// An [`Error::Usage`].
    pub(super) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), hint: hint.into() }
    }
}
