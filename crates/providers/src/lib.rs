//! Makes a provider of what configuration or command line name.
//!
//! ```text
//!   ProviderChoice --open--> Box<dyn Provider>
//! ```
//!
//! Only the command links this crate: the preload library and the agent never talk to a network.

#![forbid(unsafe_code)]

#[cfg(feature = "aws-kms")]
mod aws_kms;
mod kmip;
mod pkcs11;
mod tls;
mod vault;

use std::path::Path;

use tidelock_keys::{
    CommandChoice, CommandPair, CommandProvider, EnvProvider, Error, FileProvider,
    PassphraseProvider, PassphraseSource, Provider, ProviderChoice, SystemdProvider,
};

/// The provider for the protected directory `protected`. A passphrase or PIN is read from
/// descriptor `passphrase_descriptor`, or asked on the terminal.
///
/// # Errors
/// The descriptor cannot be read; what a provider needs at once is not there.
pub fn open(
    choice: &ProviderChoice,
    protected: &Path,
    passphrase_descriptor: Option<u32>,
) -> Result<Box<dyn Provider>, Error> {
    Ok(match choice {
        ProviderChoice::File { path } => Box::new(FileProvider::new(path)),
        ProviderChoice::Passphrase {} => match passphrase_descriptor {
            Some(number) => Box::new(PassphraseProvider::from_descriptor(number)?),
            None => Box::new(PassphraseProvider::new(PassphraseSource::Terminal)),
        },
        ProviderChoice::Command(CommandChoice::Prints(command)) => {
            Box::new(CommandProvider::new(command, protected))
        }
        ProviderChoice::Command(CommandChoice::Pair { wrap, unwrap }) => {
            Box::new(CommandPair::new(wrap, unwrap))
        }
        ProviderChoice::Env { variable } => Box::new(EnvProvider::new(variable)),
        ProviderChoice::Systemd { credential } => Box::new(SystemdProvider::new(credential)),
        #[cfg(feature = "aws-kms")]
        ProviderChoice::AwsKms(choice) => Box::new(aws_kms::AwsKmsProvider::new(choice)),
        #[cfg(not(feature = "aws-kms"))]
        ProviderChoice::AwsKms(_) => return Err(not_built(tidelock_keys::SlotKind::AwsKms)),
        ProviderChoice::Pkcs11(choice) => {
            Box::new(pkcs11::Pkcs11Provider::new(choice, passphrase_descriptor))
        }
        ProviderChoice::Kmip(choice) => kmip::open(choice),
        ProviderChoice::Vault(choice) => vault::open(choice)?,
    })
}

#[cfg(not(feature = "aws-kms"))]
fn not_built(provider: tidelock_keys::SlotKind) -> Error {
    let fault = tidelock_keys::ServiceFault::NotBuilt;
    Error::Service { provider, fault, why: "is not built in (cargo feature aws-kms)".into() }
}
