//! LUKS: a device encrypted by dm-crypt, as `cryptsetup` makes it.
//!
//! LUKS2, AES-256-XTS, sectors of 4096 bytes. The password hash is as cheap as cryptsetup takes it:
//! it is paid when the device is opened only, and what it guards is random and gone after the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::owner;
use super::program::{found, run_program};
use super::volume::VolumeError;

/// A device that can be opened, and by which name.
#[derive(Debug)]
pub(super) struct Luks {
    /// That of the mapping; also what the next lab knows it by if this one dies.
    name: String,
    key: PathBuf,
}

impl Luks {
    /// Why this machine has no LUKS, for root; `None` if it can be tried.
    pub(super) fn missing() -> Option<String> {
        if !found("cryptsetup") {
            return Some("cryptsetup is not installed".into());
        }
        // Loads the kernel's module where it is one, as cryptsetup does.
        let asked = run_program(Command::new("dmsetup").args(["target-version", "crypt"]));
        let why = match asked.err()? {
            VolumeError::Refused { said, .. } => said,
            other => other.to_string(),
        };
        let why = why.lines().next().unwrap_or_default().to_owned();
        Some(format!("this kernel has no dm-crypt, which LUKS needs (dmsetup: {why})"))
    }

    /// Makes an empty LUKS device in `image`. `key` is the file with its key.
    pub(super) fn format(image: &Path, name: String, key: PathBuf) -> Result<Self, VolumeError> {
        let mut format = Command::new("cryptsetup");
        format.args(["luksFormat", "--batch-mode", "--type", "luks2"]);
        format.args(["--cipher", "aes-xts-plain64", "--key-size", "512", "--sector-size", "4096"]);
        format.args(["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"]);
        run_program(format.arg("--key-file").arg(&key).arg(image))?;
        Ok(Self { name, key })
    }

    /// Opens it on a block device; the device with its plaintext.
    pub(super) fn open(&self, device: &Path) -> Result<PathBuf, VolumeError> {
        let mut open = Command::new("cryptsetup");
        open.args(["open", "--type", "luks2", "--key-file"]).arg(&self.key);
        run_program(open.arg(device).arg(&self.name))?;
        Ok(Path::new("/dev/mapper").join(&self.name))
    }

    /// Closes it as soon as nothing uses it, even if this lab dies before.
    pub(super) fn close_unused(&self) -> Result<(), VolumeError> {
        close_unused(&self.name)
    }
}

/// Closes a mapping by its name, as soon as nothing uses it.
pub(super) fn close_unused(name: &str) -> Result<(), VolumeError> {
    run_program(Command::new("cryptsetup").args(["close", "--deferred", name]))
}

/// Open mappings of labs that no longer live: they died before what was in them was mounted.
pub(super) fn left() -> Vec<String> {
    let Ok(blocks) = fs::read_dir("/sys/block") else { return Vec::new() };
    let names = blocks.flatten().filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("dm/name")).ok()?;
        let name = name.trim_end().to_owned();
        owner::is_left(&name).then_some(name)
    });
    names.collect()
}
