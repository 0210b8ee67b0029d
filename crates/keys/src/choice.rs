//! Which provider, as configuration and command line name it: data only, nothing is opened here.
//!
//! The crate `tidelock-providers` makes a [`Provider`](crate::Provider) of it.

mod aws_kms;
mod command;
mod kmip;
mod pkcs11;
mod vault;

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use aws_kms::AwsKmsChoice;
pub use command::CommandChoice;
pub use kmip::{KmipChoice, KmipMode};
pub use pkcs11::{PinSource, Pkcs11Choice};
pub use vault::{VaultAppRole, VaultChoice, VaultLogin, VaultSecret};

use crate::error::Error;
use crate::slot::SlotKind;

/// What Vault's clients read.
const VAULT_SECRETS: [&str; 1] = ["VAULT_TOKEN"];
/// What Amazon's SDKs read, with their older names (SECRET_ACCESS_KEY is a fallback of the one for Rust), and
/// what other programs of Amazon take for the same. Not the paths of files, whose rights protect them, nor the
/// addresses of services.
const AWS_SECRETS: [&str; 8] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_ACCESS_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECRET_KEY",
    "SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
];
/// EDB's commands, whose text may hold a passphrase.
const PAIR_SECRETS: [&str; 2] = ["PGDATAKEYWRAPCMD", "PGDATAKEYUNWRAPCMD"];

/// A provider, as configuration and command line name it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProviderChoice {
    /// `file:PATH`
    File {
        /// The key file.
        path: PathBuf,
    },
    /// `passphrase`
    Passphrase {},
    /// `command:COMMAND`, or `command` for the pair that the environment names
    Command(CommandChoice),
    /// `env:VARIABLE`
    Env {
        /// The variable.
        variable: String,
    },
    /// `systemd:NAME`
    Systemd {
        /// The name of the credential.
        credential: String,
    },
    /// `aws-kms:KEY`
    AwsKms(AwsKmsChoice),
    /// `pkcs11:URI`
    Pkcs11(Pkcs11Choice),
    /// `kmip:HOST[:PORT]/KEY-ID?certificate=PATH&key=PATH[&ca=PATH][&mode=encrypt]`
    Kmip(KmipChoice),
    /// `vault:transit/KEY` or `vault:kv/PATH`
    Vault(Box<VaultChoice>),
}

impl ProviderChoice {
    /// The type of its slots.
    #[must_use]
    pub const fn kind(&self) -> SlotKind {
        match self {
            Self::File { .. } => SlotKind::File,
            Self::Passphrase {} => SlotKind::Passphrase,
            Self::Command(_) => SlotKind::Command,
            Self::Env { .. } => SlotKind::Env,
            Self::Systemd { .. } => SlotKind::Systemd,
            Self::Pkcs11(_) => SlotKind::Pkcs11,
            Self::Vault(_) => SlotKind::Vault,
            Self::AwsKms(_) => SlotKind::AwsKms,
            Self::Kmip(_) => SlotKind::Kmip,
        }
    }

    /// True if others can easily come by its key.
    #[must_use]
    pub const fn is_for_laboratories(&self) -> bool {
        matches!(self, Self::Env { .. })
    }

    /// Variables of the environment that hold its credentials, or its key: not for the programs that are
    /// run on the data.
    #[must_use]
    pub fn secret_variables(&self) -> Vec<&str> {
        match self {
            Self::Env { variable } => vec![variable],
            Self::Vault(_) => VAULT_SECRETS.to_vec(),
            Self::AwsKms(_) => AWS_SECRETS.to_vec(),
            Self::Command(CommandChoice::Pair { .. }) => PAIR_SECRETS.to_vec(),
            Self::File { .. }
            | Self::Passphrase {}
            | Self::Command(CommandChoice::Prints(_))
            | Self::Systemd { .. }
            | Self::Pkcs11(_)
            | Self::Kmip(_) => Vec::new(),
        }
    }

    /// True if it can open a keyring without anybody at a terminal.
    #[must_use]
    pub fn is_unattended(&self) -> bool {
        match self {
            Self::Passphrase {} => false,
            Self::Pkcs11(choice) => choice.pin != PinSource::Ask,
            _ => true,
        }
    }
}

impl FromStr for ProviderChoice {
    type Err = Error;

    /// Reads what `--provider` takes.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("passphrase", "") if kind == text => Ok(Self::Passphrase {}),
            ("file", path) if !path.is_empty() => Ok(Self::File { path: path.into() }),
            ("command", "") if kind == text => {
                Ok(Self::Command(CommandChoice::from_environment()?))
            }
            ("command", command) if !command.is_empty() => {
                Ok(Self::Command(CommandChoice::Prints(command.into())))
            }
            ("env", name) if !name.is_empty() => Ok(Self::Env { variable: name.into() }),
            ("systemd", name) if !name.is_empty() => Ok(Self::Systemd { credential: name.into() }),
            ("aws-kms", key) if !key.is_empty() => Ok(Self::AwsKms(AwsKmsChoice::new(key))),
            ("pkcs11", uri) if !uri.is_empty() => Ok(Self::Pkcs11(uri.parse()?)),
            ("kmip", what) => KmipChoice::from_text(what)
                .map(Self::Kmip)
                .ok_or_else(|| Error::ProviderText { text: text.into() }),
            ("vault", what) => VaultChoice::from_text(what, |name| std::env::var_os(name))
                .map(|choice| Self::Vault(Box::new(choice)))
                .ok_or_else(|| Error::ProviderText { text: text.into() }),
            _ => Err(Error::ProviderText { text: text.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_providers_are_taken_from_the_command_line() {
        for text in
            ["", "file", "file:", "command:", "vualt:x", "passphrase:", "passphrase:x", "env:"]
        {
            assert!(text.parse::<ProviderChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_secret_variable_of_a_provider_is_listed() {
        let listed = |text: &str| {
            let choice: ProviderChoice = text.parse().unwrap();
            choice.secret_variables().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_SECURITY_TOKEN",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        ] {
            assert!(listed("aws-kms:alias/pg").iter().any(|it| it == name), "{name}");
        }
        // Of files and services, which may be needed by others and tell nothing.
        for name in
            ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_REGION"]
        {
            assert!(!listed("aws-kms:alias/pg").iter().any(|it| it == name), "{name}");
        }
        assert_eq!(listed("env:PGENCRYPTIONKEY"), ["PGENCRYPTIONKEY"]);
        assert_eq!(listed("vault:kv/pg"), ["VAULT_TOKEN"]);
        assert!(listed("file:/k").is_empty());
    }

    #[test]
    fn what_the_command_line_names_is_what_the_configuration_says() {
        for (text, toml) in [
            ("file:/k", "type = \"file\"\npath = \"/k\"\n"),
            ("passphrase", "type = \"passphrase\"\n"),
            ("command:a b:c", "type = \"command\"\ncommand = \"a b:c\"\n"),
            ("env:PGENCRYPTIONKEY", "type = \"env\"\nvariable = \"PGENCRYPTIONKEY\"\n"),
            (
                "pkcs11:token=t;object=k?module-path=/m.so&pin-source=file:/p",
                "type = \"pkcs11\"\nmodule = \"/m.so\"\ntoken = \"t\"\nkey = \"k\"\n\
                 pin_file = \"/p\"\n",
            ),
            ("aws-kms:alias/pg", "type = \"aws-kms\"\nkey = \"alias/pg\"\n"),
            ("systemd:pg", "type = \"systemd\"\ncredential = \"pg\"\n"),
        ] {
            let choice: ProviderChoice = text.parse().unwrap();
            assert_eq!(toml::to_string(&choice).unwrap(), toml);
            assert_eq!(toml::from_str::<ProviderChoice>(toml).unwrap(), choice);
        }
    }
}
