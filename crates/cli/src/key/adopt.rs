//! `tidelock key adopt`: read what another node has sealed.

use std::path::{Path, PathBuf};

use tidelock_agent::audit::Event;
use tidelock_keys::{Keyring, ProviderChoice, SealedKeyring};

use super::session::{Change, Opening};
use crate::console;
use crate::error::Result;
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

impl Adopt {
    /// # Errors
    /// One of the keyrings does not open.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let other = self.other(&self.from)?;
        let count = session.keyring.adopt(&other)?;
        if count == 0 {
            return console::print("nothing to adopt: every data key is here already\n");
        }
        let told = session.write(&[Change::key(Event::DataKeyAdopt, None)])?;
        let keys = console::count(count, "data key");
        console::print(format_args!("{keys} of keyring {} adopted, for reading\n", other.id()))?;
        told.finish()
    }

    fn other(&self, from: &Path) -> Result<Keyring> {
        let keys = KeyOptions {
            provider: self.from_provider.clone(),
            recovery_file: self.from_recovery_file.clone(),
            passphrase_fd: None,
        };
        if from.is_dir() {
            return keys.unlock(&Protected::open(from)?);
        }
        keys.unlock_copy(&SealedKeyring::parse(&keyring::read(from)?)?, from)
    }
}
