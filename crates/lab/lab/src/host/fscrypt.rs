//! fscrypt: a directory that ext4 itself encrypts.
//!
//! A policy of version 2, AES-256-XTS for contents, AES-256-CTS for names, as every tool sets it by
//! default. `xfs_io` of xfsprogs has the two calls of the kernel that it takes, for any file
//! system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{found, run_program, text_of};
use super::volume::VolumeError;

/// A file system with the feature `encrypt`, and the key of its encrypted directory.
#[derive(Debug)]
pub(super) struct Fscrypt {
    key: PathBuf,
}

impl Fscrypt {
    /// Why this machine has no fscrypt on ext4, for root; `None` if it can be tried.
    pub(super) fn missing() -> Option<String> {
        if !found("xfs_io") {
            return Some("xfs_io, which sets policies of fscrypt, is not installed".into());
        }
        let ext4 = Path::new("/sys/fs/ext4");
        if !ext4.exists() {
            // A module that nothing has needed yet. Where there is none, mkfs or mount says so.
            let _ = run_program(Command::new("modprobe").args(["--quiet", "ext4"]));
        }
        let lacks = ext4.exists() && !ext4.join("features/encryption").exists();
        lacks.then(|| "this kernel's ext4 has no fscrypt (CONFIG_FS_ENCRYPTION)".into())
    }

    /// `key` is the file with the master key, of 64 bytes.
    pub(super) const fn new(key: PathBuf) -> Self {
        Self { key }
    }

    /// Gives the key to the file system that is mounted at `root`, until it is unmounted. What the
    /// kernel calls it.
    pub(super) fn unlock(&self, root: &Path) -> Result<String, VolumeError> {
        // xfs_io takes the key from its standard input alone.
        let mut add = Command::new("sh");
        add.args(["-c", "exec xfs_io -c add_enckey \"$1\" <\"$2\"", "sh"]);
        let said = text_of(add.arg(root).arg(&self.key))?;
        let identifier = said.split_whitespace().next_back().map(str::to_owned);
        identifier.ok_or_else(|| VolumeError::Refused { command: format!("{add:?}"), said })
    }

    /// Makes the directory `dir`, in which everything is encrypted by the key of this name.
    pub(super) fn make(dir: &Path, identifier: &str) -> Result<(), VolumeError> {
        fs::create_dir(dir)?;
        let policy = format!("set_encpolicy -v 2 -c AES-256-XTS -n AES-256-CTS {identifier}");
        run_program(Command::new("xfs_io").arg("-c").arg(policy).arg(dir))
    }
}
