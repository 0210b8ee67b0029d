//! What is made of the list of all providers: one type for any of them, and their kinds.

use std::path::PathBuf;
use std::str::FromStr;

use tidelock_keyring::{Error, SealedKeyring, SlotKind};

use crate::ProviderChoice;
use crate::file::FileProvider;
use crate::recovery;
use crate::room::Kind;

/// Takes a variant and the type of its room for each provider, in the order of the help.
macro_rules! registry {
    ($($name:ident($choice:ty)),+ $(,)?) => {
        /// A provider, as configuration and command line name it: data only, nothing is opened.
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "type", rename_all = "kebab-case")]
        pub enum ProviderChoice {
            $(#[doc = concat!("`", stringify!($choice), "`")] $name(Box<$choice>)),+
        }

        $(impl From<$choice> for ProviderChoice {
            fn from(choice: $choice) -> Self {
                Self::$name(Box::new(choice))
            }
        })+

        impl std::ops::Deref for ProviderChoice {
            type Target = dyn Room;

            fn deref(&self) -> &Self::Target {
                match self { $(Self::$name(choice) => &**choice),+ }
            }
        }

        impl ProviderChoice {
            /// What is known of all providers of its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => <$choice>::kind()),+ }
            }

            /// Every kind that can be configured.
            fn kinds() -> Vec<Kind> {
                vec![$(<$choice>::kind()),+]
            }

            fn parse(
                name: &str,
                text: Option<&str>,
            ) -> Result<Option<Self>, tidelock_keyring::Error> {
                $(if name == <$choice>::kind().slot.name() {
                    return Ok(<$choice>::from_text(text)?.map(Self::from));
                })+
                Ok(None)
            }
        }
    };
}

pub(crate) use registry;

impl ProviderChoice {
    /// The key file at `path`.
    #[must_use]
    pub fn file(path: PathBuf) -> Self {
        FileProvider { path }.into()
    }

    /// Every short form, for help.
    #[must_use]
    pub fn usage() -> String {
        Self::kinds().iter().map(|kind| kind.usage).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for ProviderChoice {
    type Err = Error;

    /// Reads what `--provider` takes.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, words) = match text.split_once(':') {
            Some((name, words)) => (name, Some(words)),
            None => (text, None),
        };
        Self::parse(name, words)?.ok_or_else(|| Error::ProviderText { text: text.into() })
    }
}

impl Kind {
    /// What is known of the provider of a slot; the recovery key's too, which nobody configures.
    #[must_use]
    pub fn of(slot: SlotKind) -> Option<Self> {
        all().into_iter().find(|kind| kind.slot == slot)
    }
}

/// The keyring, its slots with the names of their types.
///
/// # Errors
/// [`Error::Algorithm`] for a slot that no provider here opens.
pub fn known(keyring: SealedKeyring) -> Result<SealedKeyring, Error> {
    let types: Vec<_> = all().iter().map(|kind| kind.slot).collect();
    keyring.with_slot_kinds(&types)
}

/// Every variable of the environment that may hold a credential of a provider.
pub fn secrets() -> impl Iterator<Item = &'static str> {
    all().into_iter().flat_map(|kind| kind.secrets.iter().copied())
}

fn all() -> Vec<Kind> {
    let mut all = ProviderChoice::kinds();
    all.push(recovery::KIND);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short forms, and what they are in a file.
    const TEXTS: [(&str, &str); 8] = [
        ("file:/k", "type = \"file\"\npath = \"/k\"\n"),
        ("passphrase", "type = \"passphrase\"\n"),
        ("command:a b:c", "type = \"command\"\ncommand = \"a b:c\"\n"),
        ("env:PGENCRYPTIONKEY", "type = \"env\"\nvariable = \"PGENCRYPTIONKEY\"\n"),
        ("systemd:pg", "type = \"systemd\"\ncredential = \"pg\"\n"),
        (
            "pkcs11:token=t;object=k?module-path=/m.so&pin-source=file:/p",
            "type = \"pkcs11\"\nmodule = \"/m.so\"\ntoken = \"t\"\nkey = \"k\"\n\
             pin_file = \"/p\"\n",
        ),
        ("aws-kms:alias/pg", "type = \"aws-kms\"\nkey = \"alias/pg\"\n"),
        (
            "kmip:h/42?certificate=/c&key=/k",
            "type = \"kmip\"\nhost = \"h\"\nport = 5696\nkey_id = \"42\"\n\
             certificate_file = \"/c\"\nkey_file = \"/k\"\ntimeout_seconds = 5\n",
        ),
    ];

    #[test]
    fn what_the_command_line_names_is_what_the_configuration_says() {
        for (text, toml) in TEXTS {
            let choice: ProviderChoice = text.parse().unwrap();
            let written = toml::to_string(&choice).unwrap();
            assert_eq!(written, toml);
            assert_eq!(toml::from_str::<ProviderChoice>(&written).unwrap(), choice);
            assert!(text.starts_with(choice.kind().slot.name()), "{text}");
        }
    }

    #[test]
    fn only_known_providers_are_taken_from_the_command_line() {
        for text in
            ["", "file", "file:", "command:", "vualt:x", "passphrase:", "passphrase:x", "env:"]
        {
            assert!(text.parse::<ProviderChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_type_in_a_file_is_the_name_of_its_slots() {
        for kind in ProviderChoice::kinds() {
            let table = format!("type = \"{}\"\nno_such_field = 1\n", kind.slot);
            let why = toml::from_str::<ProviderChoice>(&table).unwrap_err().to_string();
            assert!(why.contains("no_such_field"), "{}: {why}", kind.slot);
        }
    }

    #[test]
    fn every_slot_type_has_the_number_of_the_format() {
        let format = include_str!("../../../../FORMAT.md");
        let row = format.lines().find(|line| line.contains("| type: ")).unwrap();
        let listed = row.split("type: ").nth(1).unwrap().trim_end_matches(" |").split(", ");
        let mut listed: Vec<_> = listed.map(|one| one.replace(" key", "")).collect();
        let mut ours: Vec<_> = all()
            .iter()
            .map(|kind| format!("{} {}", kind.slot.number(), kind.slot.name()))
            .collect();
        listed.sort();
        ours.sort();
        assert_eq!(ours, listed);
    }
}
