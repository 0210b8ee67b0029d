//! A protected directory: found by its own path, or by a file in it.

use std::path::{Path, PathBuf};

use tidelock_keys::{FOLDER, KEYRING, KeyringDir, SealedKeyring};

use crate::error::{Error, Result};

/// A protected directory whose keyring has been read, not unlocked.
pub(crate) struct Protected {
    /// Its canonical path.
    pub(crate) path: PathBuf,
    /// Its keyring.
    pub(crate) keyring: SealedKeyring,
}

impl Protected {
    /// The protected directory `dir`.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is none; a keyring that cannot be read is [`Error::Locked`].
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let path = canonical(dir)?;
        let keyring = KeyringDir::open(&path).and_then(|folder| folder.read());
        match keyring {
            Ok(keyring) => Ok(Self { path, keyring }),
            Err(tidelock_keys::Error::NoKeyring { .. }) => Err(not_protected(&path)),
            Err(why @ tidelock_keys::Error::Io { .. }) => Err(why.into()),
            Err(source) => Err(Error::Locked { dir: path, source }),
        }
    }

    /// The protected directory that holds `file`: the nearest directory above it with a keyring.
    ///
    /// # Errors
    /// As [`Protected::open`]; [`Error::Refused`] if there is none above it.
    pub(crate) fn around(file: &Path) -> Result<Self> {
        // By the path as it was typed too: a tablespace lies elsewhere and is named by its link.
        let typed = std::path::absolute(file).map_err(Error::io("find", file))?;
        let real = std::fs::canonicalize(file).map_err(Error::io("find", file))?;
        let holds = |dir: &&Path| dir.join(FOLDER).join(KEYRING).symlink_metadata().is_ok();
        match real.ancestors().skip(1).chain(typed.ancestors().skip(1)).find(holds) {
            Some(dir) => Self::open(dir),
            None => Err(Error::refused(
                format!("{} lies in no protected directory", file.display()),
                "name the directory with -D DIR, or a copy of its keyring with --keyring FILE",
            )),
        }
    }
}

/// The canonical path of a directory that must exist.
///
/// # Errors
/// [`Error::Refused`], [`Error::Io`].
pub(crate) fn canonical(dir: &Path) -> Result<PathBuf> {
    match std::fs::canonicalize(dir) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(Error::refused(
            format!("{} is not a directory", dir.display()),
            "name the directory that `tidelock init` made",
        )),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Err(not_protected(dir)),
        Err(why) => Err(Error::io("find", dir)(why)),
    }
}

fn not_protected(dir: &Path) -> Error {
    let why = if dir.exists() { "has no keyring" } else { "does not exist" };
    Error::refused(
        format!("{} is not a protected directory: it {why}", dir.display()),
        format!(
            "`tidelock init {0}` makes it one; `tidelock keyring restore -D {0} FILE` brings a lost \
             keyring back",
            dir.display()
        ),
    )
}
