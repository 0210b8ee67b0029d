//! What can go wrong, as a sentence, with a hint and an exit code.
//!
//! | code | means |
//! | ---- | ----- |
//! | 0 | done |
//! | 1 | failure: a call to the system failed |
//! | 2 | usage |
//! | 3 | refused: a precondition does not hold |
//! | 4 | key or provider |
//! | 5 | verification found something |
//! | 6 | partly done; running it again goes on |
//! | 7 | cannot be told |
//! | 130 | interrupted |

use std::io;
use std::path::PathBuf;

use tidelock_keys::ExitClass;

/// 1
pub(crate) const FAILURE: u8 = 1;
/// 2
pub(crate) const USAGE: u8 = 2;
/// 3
pub(crate) const REFUSED: u8 = 3;
/// 4
pub(crate) const KEY: u8 = 4;
/// 5
pub(crate) const VERIFICATION: u8 = 5;
/// 6
pub(crate) const PARTLY: u8 = 6;
/// 7
pub(crate) const CANNOT_TELL: u8 = 7;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Keyring, provider, profile.
    #[error(transparent)]
    Keys(#[from] tidelock_keys::Error),
    /// The agent.
    #[error(transparent)]
    Agent(#[from] tidelock_agent::Error),
    /// The lab.
    #[error(transparent)]
    Lab(#[from] tidelock_lab::Error),
    /// The keyring of a directory does not open.
    #[error("the keyring of {} does not open: {source}", .dir.display())]
    Locked {
        /// The directory, or the copy of the keyring.
        dir: PathBuf,
        /// Why not.
        source: tidelock_keys::Error,
    },
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
    /// A precondition does not hold.
    #[error("{what}")]
    Refused {
        /// Which.
        what: String,
        /// What to do.
        hint: String,
    },
    /// The keyring opens, and has not the key.
    #[error("{what}")]
    BadKey {
        /// Of which file.
        what: String,
        /// What to do.
        hint: String,
    },
    /// Files are not as they must be.
    #[error("{what}")]
    Verification {
        /// Which.
        what: String,
        /// What to do.
        hint: String,
    },
    /// Something was done and something was not.
    #[error("{what}")]
    Partly {
        /// What was, and what not.
        what: String,
        /// What to do.
        hint: String,
    },
    /// The question has no answer here and now.
    #[error("{what}")]
    CannotTell {
        /// Which question.
        what: String,
        /// What to do.
        hint: String,
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
    /// An [`Error::Io`], for `map_err`.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// An [`Error::Refused`].
    pub(crate) fn refused(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), hint: hint.into() }
    }

    /// An [`Error::Usage`].
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), hint: hint.into() }
    }

    /// True if the system says that there is no such thing.
    pub(crate) fn is_not_found(&self) -> bool {
        self.is(io::ErrorKind::NotFound)
    }

    /// True if the system's reason is of this kind.
    pub(crate) fn is(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == kind)
    }

    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Keys(error) => error.exit_class() as u8,
            Self::Agent(error) => error.exit_class() as u8,
            Self::Lab(error) => error.exit_code(),
            // A key file that is gone is a matter of keys, whatever the system calls it.
            Self::Locked { source, .. } => match source.exit_class() {
                ExitClass::Interrupted => ExitClass::Interrupted as u8,
                _ => KEY,
            },
            Self::Io { .. } => FAILURE,
            Self::Refused { .. } => REFUSED,
            Self::Usage { .. } => USAGE,
            Self::BadKey { .. } => KEY,
            Self::Verification { .. } => VERIFICATION,
            Self::Partly { .. } => PARTLY,
            Self::CannotTell { .. } => CANNOT_TELL,
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Keys(error) => error.hint().to_owned(),
            Self::Agent(error) => error.hint().to_owned(),
            Self::Lab(error) => error.hint(),
            Self::Locked { source: tidelock_keys::Error::Io { .. }, .. } => {
                "bring the key back, name another provider with --provider, or use the recovery key \
                 with --recovery-file"
                    .to_owned()
            }
            Self::Locked { source, .. } => source.hint().to_owned(),
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run it as the owner of the directory, or as root".to_owned()
                }
                io::ErrorKind::NotFound => "is the path right?".to_owned(),
                io::ErrorKind::StorageFull => "make room, then run it again".to_owned(),
                _ => "see the system's reason above".to_owned(),
            },
            Self::Refused { hint, .. }
            | Self::Usage { hint, .. }
            | Self::BadKey { hint, .. }
            | Self::Verification { hint, .. }
            | Self::Partly { hint, .. }
            | Self::CannotTell { hint, .. } => hint.clone(),
        }
    }
}
