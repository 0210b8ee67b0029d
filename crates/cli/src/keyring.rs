//! `tidelock keyring`: a second copy of the wrapped keyring, and the way back.

mod copies;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use tidelock_keys::{KeyringDir, SealedKeyring};

pub(crate) use copies::{Copies, Copy, CopyState};

use crate::console;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::protected::{self, Protected};
use crate::walk;

/// A keyring is no longer.
const MAX: u64 = 1024 * 1024 + 1;

/// Copy the wrapped keyring to another place, and bring it back
#[derive(Subcommand)]
pub(crate) enum KeyringCommand {
    Backup(Backup),
    Restore(Restore),
}

/// Copy the keyring to FILE; it stays wrapped, and opens with the same keys
#[derive(clap::Args)]
pub(crate) struct Backup {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Where the copy goes: on another disk, or on its way to one
    file: PathBuf,
}

/// Put the keyring that a backup holds in place of a lost, damaged or older one
#[derive(clap::Args)]
pub(crate) struct Restore {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// What `tidelock keyring backup` wrote
    file: PathBuf,
}

impl KeyringCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Backup(backup) => backup.run(),
            Self::Restore(restore) => restore.run(),
        }
    }
}

impl Backup {
    fn run(self) -> Result<()> {
        let directory = protected::folder(&self.dir)?;
        let (protected, folder) = Protected::hold(&directory)?;
        let bytes = folder.bytes()?;
        let keyring = SealedKeyring::parse(&bytes)?;
        let file = std::path::absolute(&self.file).map_err(Error::io("find", &self.file))?;
        self.refuse_place(&protected.path, &file, &keyring)?;
        Entry::of(&file)?.replace(&bytes, 0o600, None)?;
        let same = is_same_filesystem(&protected.path, &file);
        Copies::record(&directory, &Copy::new(&file, keyring.generation()))?;
        console::print(format_args!(
            "keyring {}, generation {}, is copied to {}\n",
            keyring.id(),
            keyring.generation().0,
            file.display()
        ))?;
        if same {
            console::warn(
                "this copy is on the same file system as the directory: both are lost together",
                "take it to another disk or machine",
            );
        }
        Ok(())
    }

    /// Inside the directory it is no second copy; over anything but an older copy it would destroy.
    fn refuse_place(&self, dir: &Path, file: &Path, keyring: &SealedKeyring) -> Result<()> {
        let folder = file.parent().unwrap_or(file);
        let folder = fs::canonicalize(folder).map_err(Error::io("find", folder))?;
        if folder.starts_with(dir) {
            return Err(Error::refused(
                format!("{} lies inside the directory whose keyring it would save", file.display()),
                "name a place on another disk",
            ));
        }
        if file.symlink_metadata().is_err() {
            return Ok(());
        }
        let there = read(file).and_then(|bytes| Ok(SealedKeyring::parse(&bytes)?));
        match there {
            Ok(there)
                if there.id() == keyring.id() && there.generation() <= keyring.generation() =>
            {
                Ok(())
            }
            _ => Err(Error::refused(
                format!("{} exists and is not an older copy of this keyring", file.display()),
                "name another file",
            )),
        }
    }
}

impl Restore {
    fn run(self) -> Result<()> {
        let directory = protected::folder(&self.dir)?;
        let dir = directory.path();
        let bytes = read(&self.file)?;
        let backup = SealedKeyring::parse(&bytes)
            .map_err(|source| Error::Locked { dir: self.file.clone(), source })?;
        self.refuse_older_or_foreign(dir, &backup)?;
        let folder = match KeyringDir::create_in(&directory, dir) {
            // A keyring is there; whether it may be replaced is decided below.
            Err(tidelock_keys::Error::KeyringExists { .. }) => {
                KeyringDir::open_in(&directory, dir)?
            }
            made => made?,
        };
        folder.restore(&bytes).map_err(|why| match why {
            tidelock_keys::Error::KeyringExists { .. } => Error::refused(
                format!("{} has a keyring of another id", dir.display()),
                "a keyring is restored only over itself; `tidelock inspect FILE` shows the id",
            ),
            other => other.into(),
        })?;
        console::print(format_args!(
            "keyring {}, generation {}, is restored to {}\n",
            backup.id(),
            backup.generation().0,
            dir.display()
        ))
    }

    /// The files tell which keyring they need: not another one, and none that is older than they are.
    fn refuse_older_or_foreign(&self, dir: &Path, backup: &SealedKeyring) -> Result<()> {
        let (mut ours, mut foreign) = (false, None);
        let mut newest = backup.generation();
        for file in walk::files(dir, &mut |_, _| {}) {
            let Some(header) = walk::header(&file.path) else { continue };
            if header.keyring == backup.id() {
                ours = true;
                newest = newest.max(header.generation);
            } else {
                foreign.get_or_insert((file.path, header.keyring));
            }
        }
        if newest > backup.generation() {
            let (have, seen) = (backup.generation(), newest);
            return Err(tidelock_keys::Error::RolledBack { have, seen }.into());
        }
        match foreign {
            Some((path, keyring)) if !ours => Err(Error::refused(
                format!(
                    "{} holds keyring {}, but {} was sealed under keyring {keyring}",
                    self.file.display(),
                    backup.id(),
                    path.display()
                ),
                "restore the backup of that keyring",
            )),
            _ => Ok(()),
        }
    }
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
