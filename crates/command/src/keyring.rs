//! `tidelock keyring`: a second copy of the wrapped keyring, and the way back.
//!
//! ```text
//!   backup    keyring --proof--> FILE; the older copy stays as FILE.generation-N
//!   restore   FILE --proof--> keyring; the one that was there stays as keyring.replaced-N
//! ```

mod backup;
mod copies;
pub(crate) mod earlier;
mod proof;
mod restore;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Subcommand;
use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_keyring::{Keyring, SealedKeyring};

pub(crate) use backup::copy_again;
pub(crate) use copies::{Copies, Copy, CopyState};

use crate::audit::trail;
use crate::error::{Error, Result};

/// A keyring is no longer.
const MAX: u64 = 1024 * 1024 + 1;

/// Back up the wrapped keyring, and restore it
#[derive(Subcommand)]
pub(crate) enum KeyringCommand {
    Backup(Box<backup::Backup>),
    Restore(Box<restore::Restore>),
}

impl KeyringCommand {
    /// # Errors
    /// What went wrong; keyring and copies are then as before.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Backup(backup) => backup.run(),
            Self::Restore(restore) => restore.run(),
        }
    }
}

/// One line of the audit log: who copied or restored the keyring of `dir`, and how it was checked.
fn record(
    (keyring, opened): (&SealedKeyring, Option<&Keyring>),
    dir: &Path,
    event: Event,
    file: &Path,
    done: &std::result::Result<String, String>,
) {
    let (outcome, reason) = match done {
        Ok(words) => (Outcome::Done, words.clone()),
        Err(why) => (Outcome::Failed, why.clone()),
    };
    let slot = opened.and_then(Keyring::opened_by);
    let details = Details {
        slot: slot.map(|slot| slot.terms.id.to_string()),
        provider: slot.map(|slot| slot.terms.kind.name()),
        file: Some(file.display().to_string()),
        reason: Some(reason),
        ..Details::of_this_process()
    };
    trail::write(keyring, dir, opened, event, outcome, &details);
}

/// True if both lie on one file system.
pub(crate) fn is_same_filesystem(dir: &Path, file: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    matches!((device(dir), device(file)), (Ok(a), Ok(b)) if a == b)
}

/// The bytes of a file that should be a keyring.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MAX).read_to_end(&mut bytes))
        .map_err(Error::io("read", file))?;
    Ok(bytes)
}
