//! What can go wrong with keys, as sentences with a hint, and the exit code that each kind has.

mod hint;
mod service;
mod several;

use std::io;
use std::path::{Path, PathBuf};

use tidelock_contract::PolicyError;
use tidelock_format::{DataKeyId, Generation, KeyringId};

use crate::profile::ProfileError;
use crate::slot::{SlotId, SlotKind};

pub use service::ServiceFault;
pub use several::Failures;
pub use tidelock_contract::ExitClass;

/// What can go wrong with a keyring, a provider, a profile or their files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No keyring where one is expected.
    #[error("there is no keyring at {}", .path.display())]
    NoKeyring {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A keyring where none is expected.
    #[error("there is already a keyring at {}", .path.display())]
    KeyringExists {
        /// Where.
        path: PathBuf,
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
    /// Another kind of file.
    #[error("this is not a keyring: its first 8 bytes are not its magic")]
    NotAKeyring,
    /// A later format.
    #[error("the keyring has version {found}; this program reads version 1")]
    Version {
        /// Its version.
        found: u16,
    },
    /// An algorithm that this program does not know.
    #[error("the keyring uses {what} number {found}, which this program does not know")]
    Algorithm {
        /// Of what.
        what: &'static str,
        /// Its number.
        found: u16,
    },
    /// The file ends early.
    #[error("the keyring is truncated: {have} bytes of at least {need}")]
    Truncated {
        /// Bytes that are there.
        have: usize,
        /// Bytes that must be there.
        need: usize,
    },
    /// A field that no keyring has.
    #[error("the keyring is damaged: {what}")]
    Damaged {
        /// Which field, and how.
        what: &'static str,
    },
    /// Right key, wrong bytes.
    #[error(
        "the keyring was tampered with or is damaged: the key is right, but {what} does not verify"
    )]
    Tampered {
        /// Which part.
        what: &'static str,
    },
    /// The principal key is another one.
    #[error("{provider} does not open slot {slot}: it is another key")]
    WrongKey {
        /// The slot.
        slot: SlotId,
        /// The provider, described.
        provider: String,
    },
    /// The keyring key is another one.
    #[error("this keyring key is not the one of keyring {keyring}")]
    WrongKeyringKey {
        /// The keyring.
        keyring: KeyringId,
    },
    /// No slot of the provider's type.
    #[error("keyring {keyring} has no slot of type {kind}")]
    NoSlot {
        /// The keyring.
        keyring: KeyringId,
        /// The provider's type.
        kind: SlotKind,
    },
    /// No slot with this id.
    #[error("the keyring has no slot {slot}")]
    UnknownSlot {
        /// The id.
        slot: SlotId,
    },
    /// No provider at hand opens a slot that must be opened.
    #[error(
        "the keyring key is renewed under every slot, and slot {slot} of type {kind} cannot be \
         opened now{}",
        .why.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
    )]
    SlotNotAtHand {
        /// The slot.
        slot: SlotId,
        /// Its type.
        kind: SlotKind,
        /// What its provider said; nothing if there is none.
        why: Option<Box<Error>>,
    },
    /// A new slot that its own provider does not open.
    #[error(
        "{provider} wraps but does not open what it has wrapped: {}",
        .why.as_ref().map_or_else(|| "it gives something else".to_owned(), ToString::to_string)
    )]
    WrapsOnly {
        /// The provider, described.
        provider: String,
        /// What it said; nothing if it gave other bytes.
        why: Option<Box<Error>>,
    },
    /// No data key with this id.
    #[error("the keyring has no data key {id}")]
    UnknownDataKey {
        /// The id.
        id: DataKeyId,
    },
    /// New files use it.
    #[error("data key {id} is the current one: new files are sealed with it")]
    CurrentDataKey {
        /// The id.
        id: DataKeyId,
    },
    /// It was made here, and may be nowhere else.
    #[error("data key {id} was not adopted: it was made for this keyring")]
    OwnDataKey {
        /// The id.
        id: DataKeyId,
    },
    /// Removing it would leave the keyring without an opener.
    #[error("slot {slot} is the only one: without it nothing opens the keyring")]
    LastSlot {
        /// The slot.
        slot: SlotId,
    },
    /// Another command replaced the keyring since it was read.
    #[error("the keyring was changed by another command: generation {found}, not {expected}")]
    Changed {
        /// What was read.
        expected: u64,
        /// What is there now.
        found: u64,
    },
    /// Another command is changing the keyring.
    #[error("another command is changing the keyring at {}", .path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// The keyring is older than a file that it opens.
    #[error("the keyring was rolled back: it has generation {}, but {} was already seen", .have.0, .seen.0)]
    RolledBack {
        /// Its generation.
        have: Generation,
        /// The highest seen.
        seen: Generation,
    },
    /// Too many or too long.
    #[error("a keyring holds at most {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// A file that others could read or change.
    #[error("{} is refused: {why}", .path.display())]
    LooseFile {
        /// The file.
        path: PathBuf,
        /// What is loose.
        why: &'static str,
    },
    /// A file for several users, which others than its owner could change.
    #[error("{} is refused: {why}", .path.display())]
    LooseShared {
        /// The file or folder.
        path: PathBuf,
        /// What is loose.
        why: &'static str,
    },
    /// A file of ours that somebody else may have put there.
    #[error("{} is refused: {why}", .path.display())]
    ForeignFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key file of another length.
    #[error("the key file {} has {found} bytes, not 32", .path.display())]
    KeyFileLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
    },
    /// A key beside the data that it opens.
    #[error("{} lies inside the protected directory {}", .path.display(), .dir.display())]
    InsideDirectory {
        /// The key file.
        path: PathBuf,
        /// The directory.
        dir: PathBuf,
    },
    /// The command ended badly.
    #[error("the key command failed ({status}): {command}")]
    CommandFailed {
        /// Its program; the rest may hold a passphrase.
        command: String,
        /// How it ended.
        status: String,
    },
    /// The command's output is no key.
    #[error(
        "the key command wrote {found} bytes, not a key of 32 bytes or 64 hexadecimal digits: \
         {command}"
    )]
    CommandOutput {
        /// Its program; the rest may hold a passphrase.
        command: String,
        /// How much it wrote.
        found: usize,
    },
    /// A wrap command's file is no slot.
    #[error("the wrap command wrote {found} bytes to its file (%p), not 1 to 6144: {command}")]
    CommandWrapped {
        /// Its program; the rest may hold a passphrase.
        command: String,
        /// How much it wrote, or one more than it may.
        found: usize,
    },
    /// An unwrap command's output is not what was wrapped.
    #[error("the unwrap command wrote {found} bytes, not the 64 that were wrapped: {command}")]
    CommandUnwrapped {
        /// Its program; the rest may hold a passphrase.
        command: String,
        /// How much it wrote.
        found: usize,
    },
    /// The command did not end.
    #[error("the key command did not end within {seconds} s: {command}")]
    CommandTimeout {
        /// Its program; the rest may hold a passphrase.
        command: String,
        /// How long it had.
        seconds: u64,
    },
    /// The command cannot be run as written.
    #[error("the key command cannot be run: {why}: {command}")]
    CommandText {
        /// Its program; the rest may hold a passphrase.
        command: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No passphrase was given.
    #[error("no passphrase was given: {why}")]
    NoPassphrase {
        /// Why not.
        why: &'static str,
        /// The option that would give it.
        option: &'static str,
    },
    /// A new passphrase that a thief would find.
    #[error(
        "the passphrase is too easy to guess: about 10^{guesses} tries find it, and it must take \
         10^{least}"
    )]
    WeakPassphrase {
        /// Guesses that find it, as a power of ten.
        guesses: String,
        /// What it must take.
        least: u32,
    },
    /// Interrupted while a passphrase was asked.
    #[error("interrupted while the passphrase was asked")]
    Interrupted,
    /// Parameters outside the bounds.
    #[error("the slot's {what} is {found}, outside {low} to {high}")]
    KdfBounds {
        /// Which parameter.
        what: &'static str,
        /// Its value.
        found: u32,
        /// The least.
        low: u32,
        /// The most.
        high: u32,
    },
    /// The passphrase function is not part of this build.
    #[error("this build does not compute {kdf}")]
    KdfUnavailable {
        /// Its name.
        kdf: &'static str,
    },
    /// Not a recovery key.
    #[error("this is not a recovery key: {why}")]
    RecoveryKey {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key service or token did not do its part.
    #[error("the keyring is held by provider \"{provider}\", which {why}")]
    Service {
        /// The type of the provider.
        provider: SlotKind,
        /// What kind of trouble.
        fault: ServiceFault,
        /// A verb phrase, with the place: `did not answer (127.0.0.1:8200, 5 s)`. Never a secret.
        why: String,
    },
    /// Not a provider as `--provider` takes it.
    #[error("\"{text}\" names no provider")]
    ProviderText {
        /// What was given.
        text: String,
    },
    /// A PKCS#11 URI that does not say enough, or what is not understood.
    #[error("the PKCS#11 URI cannot be used: {why}")]
    Pkcs11Uri {
        /// What is wrong with it. Never the URI: somebody may have put a PIN there.
        why: &'static str,
    },
    /// Nothing says which provider opens the keyring.
    #[error("nothing says which provider opens keyring {keyring}")]
    NoProvider {
        /// The keyring.
        keyring: KeyringId,
    },
    /// None of several providers opens the keyring.
    #[error("{0}")]
    Several(Failures),
    /// A configuration file that cannot be read as such.
    #[error("{} is not a provider configuration: {why}", .path.display())]
    ConfigSyntax {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        why: String,
    },
    /// A list of providers that takes no entry behind it.
    #[error("{} has its providers in one list, to which this cannot be added: {entry}", .path.display())]
    ConfigClosed {
        /// The file.
        path: PathBuf,
        /// The entry, its lines joined.
        entry: String,
    },
    /// A configuration by which root would open a keyring for a user whose it is not.
    #[error(
        "{} is for {}{}, and not for the owner of {}", .path.display(),
        .recorded.as_ref().map_or_else(
            || "no directory that it names".to_owned(), |it| it.display().to_string()
        ),
        if *.gone { ", which is gone" } else { "" },
        .dir.display()
    )]
    ConfigOfAnother {
        /// The file.
        path: PathBuf,
        /// The directory that it names, if any.
        recorded: Option<Box<Path>>,
        /// That directory is not there.
        gone: bool,
        /// The directory whose keyring would be opened.
        dir: Box<Path>,
    },
    /// Neither XDG_CONFIG_HOME nor HOME.
    #[error("there is no configuration directory: neither XDG_CONFIG_HOME nor HOME is set")]
    NoConfigHome,
    /// No built-in profile of this name.
    #[error("there is no profile \"{name}\"")]
    NoProfile {
        /// What was asked for.
        name: String,
    },
    /// A profile that cannot be read.
    #[error("the profile is not valid: {why}")]
    ProfileSyntax {
        /// The parser's words.
        why: String,
    },
    /// A policy that cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A profile that cannot be compiled.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The system gives no randomness, or AWS-LC refuses to work.
    #[error("the cryptographic library failed at {what}")]
    Crypto {
        /// What was tried.
        what: &'static str,
    },
}

impl Error {
    /// An [`Error::Io`], for `map_err`.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// Whether a principal key is proven to be another one than a slot needs. Any other error may
    /// be that of a service, which says nothing of its keys.
    #[must_use]
    pub const fn is_wrong_key(&self) -> bool {
        matches!(self, Self::WrongKey { .. })
    }

    /// An [`Error::NoPassphrase`] of a slot that exists.
    #[must_use]
    pub const fn no_passphrase(why: &'static str) -> Self {
        Self::NoPassphrase { why, option: "--passphrase-fd" }
    }

    /// The same of a slot that is being made, whose passphrase another option gives.
    #[must_use]
    pub fn with_passphrase_option(self, option: &'static str) -> Self {
        match self {
            Self::NoPassphrase { why, .. } => Self::NoPassphrase { why, option },
            other => other,
        }
    }

    /// Which exit code the command ends with.
    #[must_use]
    pub fn exit_class(&self) -> ExitClass {
        match self {
            Self::Io { .. } => ExitClass::Failure,
            Self::NoProfile { .. }
            | Self::ProfileSyntax { .. }
            | Self::ProviderText { .. }
            | Self::Pkcs11Uri { .. } => ExitClass::Usage,
            Self::Policy(_) => ExitClass::Key,
            Self::Profile(_) => ExitClass::Usage,
            Self::KeyringExists { .. }
            | Self::LastSlot { .. }
            | Self::UnknownSlot { .. }
            | Self::UnknownDataKey { .. }
            | Self::CurrentDataKey { .. }
            | Self::OwnDataKey { .. }
            | Self::Changed { .. }
            | Self::Busy { .. }
            | Self::TooMany { .. }
            | Self::InsideDirectory { .. }
            | Self::ForeignFile { .. }
            | Self::WeakPassphrase { .. }
            | Self::ConfigClosed { .. }
            | Self::ConfigOfAnother { .. }
            | Self::NoConfigHome => ExitClass::Refused,
            Self::Interrupted => ExitClass::Interrupted,
            Self::Several(all) => all.first().exit_class(),
            _ => ExitClass::Key,
        }
    }
}
