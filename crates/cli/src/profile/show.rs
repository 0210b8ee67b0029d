//! `tidelock profile show`: a built-in profile, or the policy of a directory, as TOML.

use std::path::PathBuf;

use tidelock_format::Layout;
use tidelock_keys::{Action, Policy, Profile};

use crate::console;
use crate::error::Result;
use crate::protected::Protected;
use crate::unlock::KeyOptions;

/// Print a profile as TOML
#[derive(clap::Args)]
pub(crate) struct Show {
    /// A built-in profile: postgres or generic
    #[arg(required_unless_present = "dir", conflicts_with = "dir")]
    name: Option<String>,
    /// What is in force in this protected directory instead
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
}

impl Show {
    /// # Errors
    /// There is no such profile; the keyring of DIR does not open.
    pub(crate) fn run(self) -> Result<()> {
        match (self.name, self.dir) {
            (Some(name), _) => match Profile::builtin_text(&name) {
                Some(text) => console::print(text),
                None => Err(tidelock_keys::Error::NoProfile { name }.into()),
            },
            (None, dir) => {
                let protected = Protected::open(&dir.unwrap_or_default())?;
                let keyring = self.keys.unlock(&protected)?;
                console::print(in_force(keyring.policy(), keyring.layout()).to_toml())
            }
        }
    }
}

/// The rules of a policy as a profile has them. Renames were checked when it was compiled.
fn in_force(policy: &Policy, layout: Layout) -> Profile {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let rule = |rule: &tidelock_keys::Rule| {
        let (class, plain) = match &rule.action {
            Action::Seal(class) => (Some((*class).into()), None),
            Action::Plain(why) => (None, Some(why.clone())),
        };
        tidelock_keys::ProfileRule { glob: text(rule.glob.bytes()), class, plain }
    };
    Profile {
        name: policy.profile().to_owned(),
        data_offset: Some(layout.data_offset()),
        programs: policy.programs().to_vec(),
        recovery: Vec::new(),
        plain: Vec::new(),
        tablespace: None,
        rules: policy.rules().iter().map(rule).collect(),
        renames: Vec::new(),
    }
}
