//! A command that prints the key, as users of `encryption_key_command` have one, or a pair of
//! commands that wraps and unwraps it.

mod pair;
mod shell;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, PrincipalKey, Provider, Purpose, SlotKind, SlotTerms};
use zeroize::Zeroizing;

use crate::descriptor::Descriptor;
use crate::printed::parse_key;
use crate::room::{Kind, Room, some};
use pair::CommandPair;
use shell::{Shell, program_of};

const SLOT: SlotKind = SlotKind::new(3, "command");
/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// EDB's variables.
const WRAP: &str = "PGDATAKEYWRAPCMD";
const UNWRAP: &str = "PGDATAKEYUNWRAPCMD";

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum CommandChoice {
    /// For /bin/sh: prints the principal key; `%p` is the protected directory.
    Prints(String),
    /// For /bin/sh: `%p` is a file with the wrapped key, as EDB's commands have it.
    Pair {
        /// Reads the key on standard input, writes the file.
        wrap: String,
        /// Reads the file, writes the key to standard output.
        unwrap: String,
    },
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrap: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unwrap: Option<String>,
}

impl Room for CommandChoice {
    fn kind() -> Kind {
        Kind::service(SLOT, "command:CMD, command (PGDATAKEYWRAPCMD, PGDATAKEYUNWRAPCMD)")
            .with_secrets(&[WRAP, UNWRAP])
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        match text {
            None => Self::from_environment().map(Some),
            Some(_) => Ok(some(text).map(|command| Self::Prints(command.into()))),
        }
    }

    fn open(&self, protected: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        Ok(match self {
            Self::Prints(command) => Box::new(CommandProvider::new(command, protected)),
            Self::Pair { wrap, unwrap } => Box::new(CommandPair::new(wrap, unwrap)),
        })
    }

    fn secret_variables(&self) -> Vec<&str> {
        match self {
            Self::Prints(_) => Vec::new(),
            // Their text may hold a passphrase.
            Self::Pair { .. } => vec![WRAP, UNWRAP],
        }
    }

    fn key_in_words(&self) -> Option<String> {
        match self {
            Self::Prints(command) => Some(format!("what `{command}` prints")),
            Self::Pair { .. } => None,
        }
    }
}

impl CommandChoice {
    /// The pair of PGDATAKEYWRAPCMD and PGDATAKEYUNWRAPCMD.
    fn from_environment() -> Result<Self, Error> {
        Self::of_variables(|name| std::env::var(name).ok())
    }

    fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        // EDB's `-` means that the key is not wrapped.
        let command = |name| variable(name).filter(|text| !text.is_empty() && text != "-");
        match (command(WRAP), command(UNWRAP)) {
            (Some(wrap), Some(unwrap)) => Ok(Self::Pair { wrap, unwrap }),
            _ => Err(Error::ProviderText { text: "command".into() }),
        }
    }
}

impl TryFrom<Written> for CommandChoice {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        match (written.command, written.wrap, written.unwrap) {
            (Some(command), None, None) => Ok(Self::Prints(command)),
            (None, Some(wrap), Some(unwrap)) => Ok(Self::Pair { wrap, unwrap }),
            _ => Err("give either `command`, or both `wrap` and `unwrap`"),
        }
    }
}

impl From<CommandChoice> for Written {
    fn from(choice: CommandChoice) -> Self {
        match choice {
            CommandChoice::Prints(command) => {
                Self { command: Some(command), wrap: None, unwrap: None }
            }
            CommandChoice::Pair { wrap, unwrap } => {
                Self { command: None, wrap: Some(wrap), unwrap: Some(unwrap) }
            }
        }
    }
}

/// Opens slots with what a command prints.
struct CommandProvider {
    command: String,
    protected: PathBuf,
    timeout: Duration,
}

impl CommandProvider {
    /// Runs `command`; `%p` in it is `protected`.
    fn new(command: &str, protected: &Path) -> Self {
        Self { command: command.into(), protected: protected.into(), timeout: TIMEOUT }
    }

    fn run(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let (command, path) = (&self.command, &self.protected);
        Shell { command, path, input: None, timeout: self.timeout }.run()
    }
}

impl PrincipalKey for CommandProvider {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("command `{}`", program_of(&self.command))
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let output = self.run()?;
        parse_key(&output).ok_or_else(|| Error::CommandOutput {
            command: program_of(&self.command).into(),
            found: output.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_format::KeyringId;
    use tidelock_keyring::SlotId;

    fn key_of(command: &str) -> Result<Secret<32>, Error> {
        key_within(Duration::from_secs(120), command)
    }

    fn key_within(limit: Duration, command: &str) -> Result<Secret<32>, Error> {
        let terms = SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT);
        let provider = CommandProvider::new(command, Path::new("/data/pg"));
        CommandProvider { timeout: limit, ..provider }.principal_key(&terms, Purpose::Unlock)
    }

    #[test]
    fn hexadecimal_and_raw_output_are_the_same_key() {
        let hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";
        let from_hex = key_of(&format!("echo {hex}")).unwrap();
        let script =
            r#"for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do printf "\\$i$j"; done; done"#;
        let from_raw = key_of(script).unwrap();
        assert_eq!(from_hex.expose(), from_raw.expose());
        assert_eq!(from_hex.expose()[31], 31);
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_length() {
        assert!(matches!(key_of("echo short"), Err(Error::CommandOutput { found: 6, .. })));
        assert!(matches!(key_of("true"), Err(Error::CommandOutput { found: 0, .. })));
        assert!(matches!(
            key_of("yes"),
            Err(Error::CommandOutput { .. } | Error::CommandFailed { .. })
        ));
    }

    #[test]
    fn a_failing_command_is_refused_even_with_a_key() {
        let hex = "00".repeat(32);
        assert!(matches!(key_of(&format!("echo {hex}; exit 3")), Err(Error::CommandFailed { .. })));
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let given_up = key_within(Duration::from_millis(500), "exec sleep 600");
        assert!(matches!(given_up, Err(Error::CommandTimeout { .. })));
    }

    #[test]
    fn a_table_has_a_command_or_a_pair() {
        let pair = "wrap = \"w\"\nunwrap = \"u\"\n";
        let choice: CommandChoice = toml::from_str(pair).unwrap();
        assert_eq!(choice, CommandChoice::Pair { wrap: "w".into(), unwrap: "u".into() });
        assert_eq!(toml::to_string(&choice).unwrap(), pair);
        for text in ["", "wrap = \"w\"\n", "command = \"c\"\nwrap = \"w\"\nunwrap = \"u\"\n"] {
            assert!(toml::from_str::<CommandChoice>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn both_variables_of_edb_make_a_pair() {
        let with = |wrap: &'static str, unwrap: &'static str| {
            CommandChoice::of_variables(move |name| {
                Some(if name == "PGDATAKEYWRAPCMD" { wrap } else { unwrap }.to_owned())
            })
        };
        assert!(matches!(with("w", "u"), Ok(CommandChoice::Pair { .. })));
        for (wrap, unwrap) in [("", "u"), ("w", ""), ("-", "-")] {
            assert!(with(wrap, unwrap).is_err(), "{wrap} {unwrap}");
        }
        assert!(CommandChoice::of_variables(|_| None).is_err());
    }
}
