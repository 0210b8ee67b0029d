//! Key services and tokens that did not do their part.

/// Why a key service or token did not do its part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceFault {
    /// It cannot be reached, or is too slow; it may come back.
    NoAnswer,
    /// It is there and locked: a sealed Vault.
    Locked,
    /// The caller's token, certificate or PIN is missing, wrong or expired.
    Credentials,
    /// The caller may not use the key.
    Denied,
    /// The key is disabled, or about to be deleted.
    Disabled,
    /// There is no such key, token or path.
    NotFound,
    /// It answered what it should not.
    Protocol,
    /// systemd did not hand the credential to this process.
    NotHanded,
    /// It is not part of this build.
    NotBuilt,
}

impl ServiceFault {
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::NoAnswer => {
                "is the service running, and reachable from here? `tidelock key check` asks again"
            }
            Self::Locked => "unseal it, then run the command again",
            Self::Credentials => "renew the token, certificate or PIN that the configuration names",
            Self::Denied => "let the caller use the key: its policy or grant must allow it",
            Self::Disabled => {
                "enable the key; if its deletion is scheduled, cancel that before the window ends"
            }
            Self::NotFound => "compare the names in the configuration with the service",
            Self::Protocol => {
                "is this the service that the configuration names, in a version that \
                 docs/keys.md lists?"
            }
            Self::NotHanded => {
                "a unit gets /etc/credstore.encrypted/NAME by LoadCredentialEncrypted=NAME, a command \
                 below `systemd-run --pipe --wait -p LoadCredentialEncrypted=NAME` (docs/service.md)"
            }
            Self::NotBuilt => "use a build with that provider",
        }
    }
}
