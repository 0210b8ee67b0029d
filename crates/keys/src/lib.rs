//! The keyring of a protected directory, the providers that open it, and the policy inside.
//!
//! ```text
//!   profile (TOML) --compile--> Policy ---+
//!                                         v
//!   KeyringDir --read--> SealedKeyring --unlock--> Keyring: data keys, layout, policy
//!                                         ^
//!   config (who opens which) -----> Provider: file, passphrase, command, ...
//! ```
//!
//! Providers here need nothing but this machine; those that talk to a service or a token are in
//! `tidelock-providers`. Which provider opens a keyring is never taken from the protected directory.

#![forbid(unsafe_code)]

mod choice;
mod config;
mod derive;
mod encode;
mod error;
mod keyring;
mod meeting;
mod ownership;
mod policy;
mod profile;
mod provider;
mod slot;
mod store;

pub use choice::{
    AwsKmsChoice, CommandChoice, KmipChoice, KmipMode, PinSource, Pkcs11Choice, ProviderChoice,
    VaultAppRole, VaultChoice, VaultLogin, VaultSecret,
};
pub use config::{AuditTarget, Config, Named, Places};
pub use encode::Writer;
pub use error::{Error, ExitClass, ServiceFault};
pub use keyring::{DataKeyEntry, KeyState, Keyring, SealedKeyring};
pub use meeting::{Meeting, MeetingError, meet, part};
pub use ownership::{check_code, check_unshared, read_secret, read_secret_line};
pub use policy::{
    Action, Decision, Glob, GlobError, Origin, Policy, PolicyError, Rule, RuleIndex, names_program,
};
pub use profile::{Profile, Rule as ProfileRule};
pub use provider::{
    CommandPair, CommandProvider, EnvProvider, FileProvider, Health, PassphraseProvider,
    PassphraseSource, PrincipalKey, Provider, Purpose, RecoveryKey, SystemdProvider,
    ask_on_terminal, parse_key, read_descriptor, refuse_inside,
};
pub use slot::{Kdf, Payload, Slot, SlotId, SlotKind, SlotTerms, Wrapping};
pub use store::{ANCHOR, ANNOUNCED_AT, FILE_LOCK, FOLDER, KEYRING, KeyringDir};
