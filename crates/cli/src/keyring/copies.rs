//! Which second copies of a keyring were made: `DIR/.tidelock/copies`, for `status` to warn.
//!
//! Nothing is decided by it: whoever can write the directory could remove a warning, no more.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use serde::Serialize;
use tidelock_format::{Generation, KeyringId};
use tidelock_keys::{FOLDER, SealedKeyring};

use crate::error::{Error, Result};
use crate::owner::Owner;

const NAME: &str = "copies";
/// The newest ones are kept.
const KEPT: usize = 16;

/// A second copy that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copy {
    /// When, in seconds since 1970.
    pub(crate) time: u64,
    /// The generation of the keyring then.
    pub(crate) generation: Generation,
    /// Where.
    pub(crate) path: PathBuf,
}

/// All that were recorded, the oldest first.
pub(crate) struct Copies(pub(crate) Vec<Copy>);

/// What is where a copy was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyState {
    /// This keyring.
    Good,
    /// Something else.
    Other,
    /// Nothing that can be seen from here: perhaps the disk was taken away, as it should be.
    Away,
}

impl Copy {
    /// A copy made now.
    pub(crate) fn new(path: &Path, generation: Generation) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { time, generation, path: path.into() }
    }

    /// Is it still there?
    pub(crate) fn state(&self, keyring: KeyringId) -> CopyState {
        if self.path.symlink_metadata().is_err() {
            return CopyState::Away;
        }
        let bytes = if self.path.is_file() { fs::read(&self.path).ok() } else { None };
        match bytes.and_then(|bytes| SealedKeyring::parse(&bytes).ok()) {
            Some(found) if found.id() == keyring => CopyState::Good,
            _ => CopyState::Other,
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ' ');
        Some(Self {
            time: fields.next()?.parse().ok()?,
            generation: Generation(fields.next()?.parse().ok()?),
            path: fields.next().filter(|path| path.starts_with('/'))?.into(),
        })
    }
}

impl Copies {
    /// Those of a protected directory; what cannot be read is none.
    pub(crate) fn of(dir: &Path) -> Self {
        let text = fs::read_to_string(dir.join(FOLDER).join(NAME)).unwrap_or_default();
        Self(text.lines().filter_map(Copy::parse).collect())
    }

    /// Adds one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn record(dir: &Path, copy: &Copy) -> Result<()> {
        let mut all = Self::of(dir).0;
        all.retain(|other| other.path != copy.path);
        all.push(copy.clone());
        let folder = dir.join(FOLDER);
        let path = folder.join(NAME);
        let mut text = Vec::new();
        for copy in all.iter().skip(all.len().saturating_sub(KEPT)) {
            text.extend_from_slice(format!("{} {} ", copy.time, copy.generation.0).as_bytes());
            text.extend_from_slice(copy.path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .map_err(Error::io("write", &path))?;
        Owner::of(&folder)?.take(&path)
    }
}
