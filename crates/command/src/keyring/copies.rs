//! Which second copies of a keyring were made: `DIR/.tidelock/copies`, for `status` to warn.
//!
//! Nothing is decided by it: whoever can write the directory could remove a warning, no more.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidelock_contract::control::FOLDER;
use tidelock_format::{Generation, KeyringId};
use tidelock_keyring::SealedKeyring;
use tidelock_providers::known;

use crate::console;
use crate::error::Result;
use crate::folder::Folder;
use crate::owner::Owner;

const NAME: &str = "copies";
/// A longer one is not ours.
const MAX: u64 = 1024 * 1024;
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
        let time = console::now();
        Self { time, generation, path: path.into() }
    }

    /// Is it still there?
    pub(crate) fn state(&self, keyring: KeyringId) -> CopyState {
        if self.path.symlink_metadata().is_err() {
            return CopyState::Away;
        }
        let bytes = if self.path.is_file() { fs::read(&self.path).ok() } else { None };
        match bytes.and_then(|bytes| SealedKeyring::parse(&bytes).and_then(known).ok()) {
            Some(found) if found.id() == keyring => CopyState::Good,
            _ => CopyState::Other,
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(3, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (time, generation) = (number()?, Generation(number()?));
        let path = fields.next().filter(|path| path.starts_with(b"/"))?;
        Some(Self { time, generation, path: OsStr::from_bytes(path).into() })
    }
}

impl Copies {
    /// Those of a protected directory; what cannot be read does not count.
    pub(crate) fn of(dir: &Path) -> Self {
        let found = Folder::open(dir).and_then(|dir| dir.entry(FOLDER).open_folder());
        found.map_or_else(|_| Self(Vec::new()), |folder| Self::read(&folder))
    }

    fn read(folder: &Folder) -> Self {
        let bytes = folder.entry(NAME).read(MAX).ok().flatten().unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        Self(lines.filter_map(Copy::parse).collect())
    }

    /// Adds one.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub(crate) fn record(directory: &Folder, copy: &Copy) -> Result<()> {
        let folder = directory.entry(FOLDER).open_folder()?;
        let mut all = Self::read(&folder).0;
        all.retain(|other| other.path != copy.path);
        all.push(copy.clone());
        let mut text = Vec::new();
        for copy in all.iter().skip(all.len().saturating_sub(KEPT)) {
            text.extend_from_slice(format!("{} {} ", copy.time, copy.generation.0).as_bytes());
            text.extend_from_slice(copy.path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let owner = folder.owner()?;
        let another = owner.uid != Owner::caller().uid;
        folder.entry(NAME).replace(&text, 0o600, another.then_some(owner))
    }
}
