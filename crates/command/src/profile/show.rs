//! `tidelock profile show`: a built-in profile, a profile in a file as it is understood, or the
//! policy of a directory, as TOML.

use std::path::PathBuf;

use tidelock_keyring::Profile;

use crate::console;
use crate::error::Result;
use crate::profile;
use crate::protected::Protected;
use crate::unlock::KeyOptions;

/// Print a profile as TOML
#[derive(clap::Args)]
pub(crate) struct Show {
    /// A built-in profile, or the path of one: what is wrong with it is told [default: list the
    /// built-in ones]
    #[arg(conflicts_with = "dir")]
    name: Option<String>,
    /// What is in force in this protected directory instead
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
}

impl Show {
    /// # Errors
    /// There is no such profile, or the file is no profile; the keyring of DIR does not open.
    pub(crate) fn run(self) -> Result<()> {
        match (self.name, self.dir) {
            (Some(name), _) => match Profile::builtin_text(&name) {
                Some(text) => console::print(text),
                None => console::print(profile::named(&name)?.to_toml()),
            },
            (None, None) => Profile::BUILTIN
                .iter()
                .try_for_each(|name| console::print(format_args!("{name}\n"))),
            (None, Some(dir)) => {
                let protected = Protected::open(&dir)?;
                let keyring = self.keys.unlock(&protected)?;
                let data_offset = Some(keyring.layout().data_offset());
                console::print(Profile { data_offset, ..Profile::of(keyring.policy()) }.to_toml())
            }
        }
    }
}
