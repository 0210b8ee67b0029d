//! `tidelock key adopt`: read what another node has sealed; `key release`: no longer.

use std::path::{Path, PathBuf};

use tidelock_agent::audit::Event;
use tidelock_keyring::{Keyring, SealedKeyring};
use tidelock_providers::{ProviderChoice, known};

use super::data_key::{refuse_running, refuse_used};
use super::session::{Change, Opening};
use crate::console;
use crate::error::{Error, Result};
use crate::keyring;
use crate::protected::Protected;
use crate::unlock::KeyOptions;

/// Take over another node's data keys, to read what it sealed: archives, copies, pg_rewind's files
#[derive(clap::Args)]
pub(crate) struct Adopt {
    #[command(flatten)]
    opening: Opening,
    /// The other protected directory, or a copy of its keyring
    #[arg(long, value_name = "DIR|FILE")]
    from: PathBuf,
    /// Open the other keyring with this provider
    #[arg(long, value_name = "PROVIDER")]
    from_provider: Option<ProviderChoice>,
    /// Open the other keyring with the recovery key that this file holds
    #[arg(long, value_name = "FILE", conflicts_with = "from_provider")]
    from_recovery_file: Option<PathBuf>,
}

/// Let an adopted data key go: what it sealed is then not readable here, the node that it came from
/// still has it
#[derive(clap::Args)]
pub(crate) struct Release {
    #[command(flatten)]
    opening: Opening,
    /// The first digits of its id, as `tidelock status` shows them
    data_key: String,
}

impl Release {
    /// # Errors
    /// It is one of this keyring's own; a file uses it, or may do so; a program has it in its
    /// memory, and may seal a file under it yet.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let id = session.data_key(&self.data_key)?;
        session.keyring.release_data_key(id)?;
        refuse_used(&session, id)?;
        refuse_running(&session)?;
        let told = session.write(&[Change::key(Event::DataKeyRelease, Some(id))])?;
        console::print(format_args!("data key {id} is let go\n"))?;
        told.finish()
    }
}

impl Adopt {
    /// # Errors
    /// One of the keyrings does not open.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let other = self.other(&self.from)?;
        let adopted = session.keyring.adopt(&other)?;
        if adopted.is_empty() {
            return console::print("nothing to adopt: every data key is here already\n");
        }
        let changes: Vec<_> =
            adopted.iter().map(|id| Change::adopted(*id, other.id(), &self.from)).collect();
        let told = session.write(&changes)?;
        let keys = console::count(adopted.len(), "data key");
        console::print(format_args!("{keys} of keyring {} adopted, for reading\n", other.id()))?;
        told.finish()
    }

    fn other(&self, from: &Path) -> Result<Keyring> {
        let keys = KeyOptions {
            provider: self.from_provider.clone(),
            recovery_file: self.from_recovery_file.clone(),
            ..KeyOptions::default()
        };
        let opened = if from.is_dir() {
            keys.unlock(&Protected::open(from)?)
        } else {
            let copy = SealedKeyring::parse(&keyring::read(from)?).and_then(known)?;
            keys.unlock_copy(&copy, from)
        };
        opened.map_err(|why| match why {
            // The usual hint names the options for our own keyring.
            Error::Locked { .. } | Error::NoRecoveryKey { .. } | Error::OtherRecoveryKey { .. } => {
                Error::BadKey {
                    what: why.to_string(),
                    hint: "name what opens the other keyring with --from-provider or \
                       --from-recovery-file"
                        .to_owned(),
                }
            }
            other => other,
        })
    }
}
