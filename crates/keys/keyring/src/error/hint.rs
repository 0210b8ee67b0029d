//! What to do about each error.

use std::io;

use super::Error;
use crate::profile::ProfileError;

impl Error {
    /// What to do about it: the second line of a command's error.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoKeyring { .. } => {
                "is this the protected directory? `tidelock init DIR` makes one; \
                 `tidelock keyring restore` brings a lost keyring back"
            }
            Self::KeyringExists { .. } => {
                "choose another directory; a keyring is never overwritten"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "make room, then run it again"
            }
            Self::Io { .. } => "see the system's reason above",
            Self::NotAKeyring
            | Self::Truncated { .. }
            | Self::Damaged { .. }
            | Self::Tampered { .. } => "restore a good copy with `tidelock keyring restore`",
            Self::Version { .. } | Self::Algorithm { .. } => {
                "use the version of tidelock that wrote it, or later"
            }
            Self::WrongKey { .. } => {
                "give the key that this keyring was made with, or the recovery key"
            }
            Self::WrongKeyringKey { .. } => {
                "was the keyring replaced? end the agent and unlock again"
            }
            Self::NoSlot { .. } | Self::UnknownSlot { .. } => {
                "`tidelock key list -D DIR` shows the slots"
            }
            Self::SlotNotAtHand { .. } => {
                "have the key of every slot at hand: in the configuration, or one by --provider or \
                 --recovery-file; or leave the keyring key as it is with --no-renew"
            }
            Self::WrapsOnly { .. } => {
                "nothing was written; let the caller unwrap with this key too (policy, grant, usage \
                 mask, CKA_DECRYPT); a command must give the same key each time"
            }
            Self::UnknownDataKey { .. } => "`tidelock status -D DIR` lists the data keys",
            Self::CurrentDataKey { .. } => "`tidelock key new-data-key -D DIR` retires it",
            Self::OwnDataKey { .. } => {
                "`tidelock key destroy` destroys it, once it is retired and no file uses it"
            }
            Self::LastSlot { .. } => "add another slot first",
            Self::Changed { .. } => "run the command again",
            Self::Busy { .. } => "wait for it to end, then run the command again",
            Self::RolledBack { .. } => "restore the newest keyring with `tidelock keyring restore`",
            Self::TooMany { .. } => "remove what is no longer needed",
            Self::ForeignFile { .. } => {
                "see who put it there, then move it away: a new one is made when it is needed"
            }
            Self::LooseFile { .. } => "chown it to yourself or root, chmod 600; directories 700",
            Self::LooseShared { .. } => {
                "chown it to root, chmod go-w: others, the server's user among them, may go on \
                 reading it"
            }
            Self::KeyFileLength { .. } => "a key file is 32 random bytes: head -c 32 /dev/urandom",
            Self::InsideDirectory { .. } => {
                "keep the key elsewhere, not beside the data, and back it up"
            }
            Self::CommandFailed { .. } | Self::CommandTimeout { .. } => {
                "run it by hand; what it says on standard error is shown above"
            }
            Self::CommandOutput { .. } => "it must print the key and nothing else",
            Self::CommandWrapped { .. } | Self::CommandUnwrapped { .. } => {
                "wrap reads standard input and writes %p; unwrap reads %p and prints the same"
            }
            Self::CommandText { .. } => {
                "`%p` is the directory, for a pair the file of the wrapped key; `%%` a percent sign"
            }
            Self::NoPassphrase { option: "--new-passphrase-fd", .. } => {
                "run on a terminal, or give it with --new-passphrase-fd N"
            }
            Self::NoPassphrase { .. } => "run on a terminal, or give it with --passphrase-fd N",
            Self::WeakPassphrase { .. } => {
                "take five words or more that chance has picked, or say --weak-passphrase"
            }
            Self::Interrupted => "nothing was changed",
            Self::KdfBounds { .. } => "the keyring was tampered with, or made by another program",
            Self::KdfUnavailable { .. } => "open it with another build, or with another slot",
            Self::RecoveryKey { .. } => {
                "14 groups of 4 letters and digits; case and spaces do not matter"
            }
            Self::Service { fault, .. } => fault.hint(),
            Self::ProviderText { .. } => {
                "`tidelock help init` lists the providers; docs/keys.md explains them"
            }
            Self::Pkcs11Uri { .. } => {
                "pkcs11:token=LABEL;object=KEY?module-path=/usr/lib/MODULE.so&pin-source=file:/PATH"
            }
            Self::Several(all) => all.first().hint(),
            Self::NoProvider { .. } => {
                "name it with --provider, or write /etc/tidelock/keyrings/KEYRING.toml or \
                 ~/.config/tidelock/keyrings/KEYRING.toml"
            }
            Self::ConfigSyntax { .. } => "docs/configuration.md shows one",
            Self::ConfigClosed { .. } => {
                "write each provider as a [[provider]] of its own, then run the command again"
            }
            Self::ConfigOfAnother { .. } => {
                "if the keyring is meant to be opened there, write `directory` into that file"
            }
            Self::NoConfigHome => "set HOME, or name the provider with --provider",
            Self::NoProfile { .. } => {
                "the profiles are postgres, mariadb, mysql, wal-archive, sqlite, redis, duckdb, \
                 rocksdb and generic; name a file of your own by a path, with a slash in it"
            }
            Self::ProfileSyntax { .. } => "`tidelock profile show postgres` prints one",
            Self::Profile(ProfileError::Rename { .. }) => "use a glob that covers both names",
            Self::Profile(ProfileError::NotThere { .. }) => {
                "`tidelock profile show -D DIR` prints what is in force"
            }
            Self::Profile(ProfileError::Needed { .. } | ProfileError::OtherProfile { .. }) => {
                "leave it out"
            }
            Self::Policy(_) | Self::Profile(_) => {
                "globs are relative; `*` stays within a component, `**` crosses them"
            }
            Self::Crypto { .. } => "is getrandom(2) allowed here?",
        }
    }
}
