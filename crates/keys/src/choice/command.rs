//! A command that prints the key, or a pair of commands that wraps and unwraps it.

use serde::{Deserialize, Serialize};

use crate::error::Error;

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

impl CommandChoice {
    /// The pair of PGDATAKEYWRAPCMD and PGDATAKEYUNWRAPCMD.
    pub(super) fn from_environment() -> Result<Self, Error> {
        Self::of_variables(|name| std::env::var(name).ok())
    }

    fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        // EDB's `-` means that the key is not wrapped.
        let command = |name| variable(name).filter(|text| !text.is_empty() && text != "-");
        match (command("PGDATAKEYWRAPCMD"), command("PGDATAKEYUNWRAPCMD")) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
