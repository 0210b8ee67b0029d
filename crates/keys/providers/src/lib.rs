//! Key providers, a module each, and which of them opens which keyring.
//!
//! ```text
//!   Places --find--> Config: ProviderChoice --open--> Box<dyn Provider>
//!                            a line below for each room
//!                                |
//!      a room: configuration, short form, slot type, client
//!        file, passphrase, command, env, systemd, recovery         this machine
//!        pkcs11, vault, kmip, aws_kms                              a token, a service
//! ```
//!
//! Only the command links this crate: the preload library and the agent never talk to a network.

#![forbid(unsafe_code)]

mod aws_kms;
mod command;
mod config;
mod descriptor;
mod env;
mod file;
mod kmip;
mod passphrase;
mod pkcs11;
mod printed;
mod recovery;
mod registry;
mod room;
mod strength;
mod systemd;
mod terminal;
mod tls;
mod trust;
mod two_parts;
mod vault;

pub use config::{AuditTarget, Config, KeyringCare, Named, Places};
pub use descriptor::Descriptor;
pub use file::{FileProvider, refuse_inside};
pub use passphrase::PassphraseProvider;
pub use recovery::RecoveryKey;
pub use registry::{known, secrets};
pub use room::{Kind, New, Room, Rotation};
pub use terminal::has_terminal;

registry::registry! {
    File(file::FileProvider),
    Passphrase(passphrase::PassphraseChoice),
    Command(command::CommandChoice),
    Env(env::EnvProvider),
    Systemd(systemd::SystemdChoice),
    Pkcs11(pkcs11::Pkcs11Choice),
    AwsKms(aws_kms::AwsKmsProvider),
    Vault(vault::VaultChoice),
    Kmip(kmip::KmipChoice),
}
