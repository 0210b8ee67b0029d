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
//! | 7 | undecided: the question has no answer here and now |
//! | 130 | interrupted |

use std::io;
use std::path::PathBuf;

use tidelock_contract::ExitClass;
use tidelock_format::Generation;

use crate::console;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Keyring, provider, profile.
    #[error(transparent)]
    Keys(#[from] tidelock_keyring::Error),
    /// The agent.
    #[error(transparent)]
    Agent(#[from] tidelock_agent::Error),
    /// The keyring of a directory does not open.
    #[error("the keyring of {} does not open: {source}", .dir.display())]
    Locked {
        /// The directory, or the copy of the keyring.
        dir: PathBuf,
        /// Why not.
        source: tidelock_keyring::Error,
    },
    /// The keyring of a directory does not open: the recovery key that is named cannot be read.
    #[error("the keyring of {} does not open: {source}", .dir.display())]
    NoRecoveryKey {
        /// The directory, or the copy of the keyring.
        dir: PathBuf,
        /// Why not.
        source: tidelock_keyring::Error,
    },
    /// The keyring of a directory does not open: its recovery key is another one.
    #[error("the keyring of {} does not open: {source}", .dir.display())]
    OtherRecoveryKey {
        /// The directory, or the copy of the keyring.
        dir: PathBuf,
        /// Which slot.
        source: tidelock_keyring::Error,
    },
    /// The keyring does not open, and a server runs on it.
    #[error("{why}")]
    OpenInServerOnly {
        /// The server's process.
        pid: u32,
        /// Why it does not open.
        why: Box<Error>,
        /// What writes all data out of the running server.
        dump: &'static str,
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
    /// The keyring is older than what its directory has seen.
    #[error(
        "the keyring of {} was rolled back: it has generation {}, but generation {} was seen{}",
        .dir.display(), .have.0, .seen.0,
        .file.as_ref().map(|file| format!(" in {}", file.display())).unwrap_or_default()
    )]
    RolledBack {
        /// The directory.
        dir: PathBuf,
        /// Its generation.
        have: Generation,
        /// The newest that was seen.
        seen: Generation,
        /// In this file; else it was announced to running programs.
        file: Option<PathBuf>,
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
    /// No slot opens unattended.
    #[error("no slot opens without a person: a server would not come back by itself")]
    NothingOpensUnattended,
    /// A server that writes plain bytes.
    #[error("a server runs without the library: process {pid}")]
    WithoutLibrary {
        /// Its process.
        pid: u32,
    },
    /// The keyring is changed, its copy is not.
    #[error("the keyring is changed, but its copy {} is not: {why}", .file.display())]
    NotCopied {
        /// The copy that the configuration asks for.
        file: PathBuf,
        /// Why not.
        why: Box<Error>,
    },
    /// The keyring is changed on the disk only.
    #[error("the keyring is changed, but running programs go on with what they had: {why}")]
    NotHandedOver {
        /// The directory.
        dir: PathBuf,
        /// Why they did not get it.
        why: HandoverFault,
    },
    /// Slots that were not rotated with the others.
    #[error("not every slot is rotated; left as before: {names}")]
    SlotsLeft {
        /// Which.
        names: String,
    },
    /// Who looks may not see what the server has loaded.
    #[error("it is unknown whether the library is loaded in process {pid}")]
    LibraryUnknown {
        /// The server's process.
        pid: u32,
    },
    /// A server has left its mark, and who looks may not see processes.
    #[error("it is unknown whether a server runs, and whether the library is loaded in it")]
    ServerUnseen,
    /// No server has the directory open.
    #[error("no server runs on {}", .dir.display())]
    NoServer {
        /// The directory.
        dir: PathBuf,
    },
    /// The keyring does not open.
    #[error("it is unknown what is sealed: {0}")]
    SealedUnknown(Box<Error>),
    /// Files that cannot be read, and no bad ones.
    #[error("{} of {} could not be read", console::count(*.count, "file"), .dir.display())]
    Unread {
        /// How many.
        count: usize,
        /// The directory.
        dir: PathBuf,
    },
    /// The audit log is missing.
    #[error("there is no audit log at {}", .file.display())]
    NoAuditLog {
        /// Where it was looked for.
        file: PathBuf,
    },
    /// The audit log has no MAC in it yet.
    #[error("{} has no chained line", .file.display())]
    NoChain {
        /// The log.
        file: PathBuf,
    },
    /// A line of the audit log that was chained under a data key that is gone.
    #[error("line {line} of {} cannot be checked", .file.display())]
    Uncheckable {
        /// The log.
        file: PathBuf,
        /// The first such line.
        line: u64,
    },
    /// A program of the server failed.
    #[error("{program} failed ({ended}): {said}")]
    Tool {
        /// Its name.
        program: String,
        /// How it ended.
        ended: String,
        /// The end of what it said.
        said: String,
    },
    /// A command of several steps did not come to its end.
    #[error("stopped at the step \"{step}\": {why}")]
    Stopped {
        /// Which step.
        step: &'static str,
        /// Why.
        why: Box<Error>,
        /// What goes on, and what takes it back.
        again: String,
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

/// Why running programs did not get a changed keyring.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandoverFault {
    /// The agent refused it.
    #[error("the agent (process {pid}) did not take it over: {source}")]
    Refused {
        /// Its process.
        pid: i32,
        /// Its reason.
        source: tidelock_agent::Error,
    },
    /// The agent is stopped or held up.
    #[error("{agent} does not answer")]
    Silent {
        /// Which agent.
        agent: String,
    },
    /// It has ended since it was found.
    #[error("the agent (process {pid}) has just ended")]
    Ended {
        /// Its process.
        pid: i32,
    },
    /// It answers with an older keyring.
    #[error("the agent (process {pid}) still has generation {generation} of the keyring")]
    Behind {
        /// Its process.
        pid: i32,
        /// What it has.
        generation: u64,
    },
    /// A program runs that no agent of its user was told for.
    #[error("process {pid} runs as {user}, and the agent that has the change gives it no keys")]
    OutOfReach {
        /// The program's process.
        pid: i32,
        /// Its user.
        user: String,
    },
    /// There is no agent.
    #[error("no agent is running, and none could be started: {0}")]
    NotStarted(Box<Error>),
}

impl From<tidelock_console::Error> for Error {
    fn from(error: tidelock_console::Error) -> Self {
        match error {
            tidelock_console::Error::Io { what, path, source } => Self::Io { what, path, source },
        }
    }
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
        self.exit_class() as u8
    }

    /// What the process ends with, by what it means.
    pub(crate) fn exit_class(&self) -> ExitClass {
        match self {
            Self::Keys(error) => error.exit_class(),
            Self::Agent(error) => error.exit_class(),
            // A key file that is gone is a matter of keys, whatever the system calls it.
            Self::Locked { source, .. } => match source.exit_class() {
                ExitClass::Interrupted => ExitClass::Interrupted,
                _ => ExitClass::Key,
            },
            Self::OpenInServerOnly { why, .. } => why.exit_class(),
            Self::Io { .. } | Self::Tool { .. } => ExitClass::Failure,
            Self::Stopped { .. } => ExitClass::Partly,
            Self::Refused { .. } => ExitClass::Refused,
            Self::Usage { .. } => ExitClass::Usage,
            Self::NoRecoveryKey { .. }
            | Self::OtherRecoveryKey { .. }
            | Self::BadKey { .. }
            | Self::RolledBack { .. }
            | Self::NothingOpensUnattended => ExitClass::Key,
            Self::Verification { .. } | Self::WithoutLibrary { .. } => ExitClass::Verification,
            Self::NotHandedOver { .. } | Self::NotCopied { .. } | Self::SlotsLeft { .. } => {
                ExitClass::Partly
            }
            Self::LibraryUnknown { .. }
            | Self::ServerUnseen
            | Self::NoServer { .. }
            | Self::SealedUnknown(_)
            | Self::Unread { .. }
            | Self::NoAuditLog { .. }
            | Self::NoChain { .. }
            | Self::Uncheckable { .. } => ExitClass::Undecided,
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Keys(error) => error.hint().to_owned(),
            Self::Agent(error) => error.hint().to_owned(),
            Self::NoRecoveryKey { .. } => {
                "name the file that has it, or another way in with --provider".to_owned()
            }
            Self::OtherRecoveryKey { .. } => {
                "was it replaced since by `tidelock key recovery`? give the newest one, or name \
                 another way in with --provider"
                    .to_owned()
            }
            Self::Locked { source, .. }
                if matches!(source.telling(), tidelock_keyring::Error::Io { .. }) =>
            {
                "bring the key back, name another provider with --provider, or use the recovery \
                 key with --recovery-file"
                    .to_owned()
            }
            Self::Locked { source, .. } if source.telling().is_wrong_key() => {
                format!(
                    "{}; if `key rotate` has taken the key of an older copy or standby out of the \
                     configuration: --provider file:OLD",
                    source.telling().hint()
                )
            }
            Self::Locked { source, .. } => source.hint().to_owned(),
            Self::OpenInServerOnly { pid, why, dump } => format!(
                "do not stop the server (process {pid}), which has the keys in memory: {}; if no \
                 key is left, save the data with `{dump}` first",
                why.hint()
            ),
            Self::Io { source, .. } => tidelock_console::hint(source).to_owned(),
            Self::Refused { hint, .. }
            | Self::Usage { hint, .. }
            | Self::BadKey { hint, .. }
            | Self::Verification { hint, .. } => hint.clone(),
            Self::Tool { .. } => "change what it names, then run this again".to_owned(),
            Self::Stopped { why, again, .. } => format!("{}; {again}", why.hint()),
            Self::RolledBack { dir, .. } => format!(
                "bring the newest copy back: `tidelock keyring restore -D {} FILE`",
                dir.display()
            ),
            Self::NotCopied { .. } => {
                "`tidelock keyring backup -D DIR FILE`, when the reason is gone".to_owned()
            }
            Self::NothingOpensUnattended => {
                "repair what is named above, or add a slot with `tidelock key add`".to_owned()
            }
            Self::WithoutLibrary { .. } => {
                "stop it at once, and start it with the library: what it writes is plain".to_owned()
            }
            Self::NotHandedOver { dir, why: HandoverFault::OutOfReach { user, .. } } => format!(
                "restart it when you can, as that user from the beginning: sudo -u {user} tidelock \
                 exec -D {} -- PROGRAM",
                dir.display()
            ),
            Self::NotHandedOver { dir, .. } => format!(
                "`tidelock exec -D {} -- true` tells them; otherwise restart the server when you \
                 can",
                dir.display()
            ),
            Self::SlotsLeft { .. } => "do for each what is said above".to_owned(),
            Self::LibraryUnknown { .. } | Self::ServerUnseen => {
                "run it as the user of the server, or as root".to_owned()
            }
            Self::NoServer { .. } => "see the log of the server".to_owned(),
            Self::SealedUnknown(why) => why.hint(),
            Self::Unread { .. } => "run it as the owner of the directory or as root, with every \
                                    disk mounted that its links lead to"
                .to_owned(),
            Self::NoAuditLog { .. } => {
                "name it with --file; docs/audit.md says where it is".to_owned()
            }
            Self::NoChain { .. } => {
                "no command has opened the keyring since the log began".to_owned()
            }
            Self::Uncheckable { .. } => {
                "its data key was destroyed: lines under it may have been changed or removed; \
                 compare the log with a copy from before"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_on_the_command_line_has_the_code_that_the_parser_gives() {
        assert_eq!(tidelock_console::USAGE, ExitClass::Usage as u8);
    }
}
