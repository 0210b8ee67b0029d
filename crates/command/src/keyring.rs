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

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Subcommand;
use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_contract::postgres::TABLESPACES;
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

/// True if both lie on one file system, of which subvolumes and datasets are parts.
pub(crate) fn is_same_filesystem(dir: &Path, file: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    if matches!((device(dir), device(file)), (Ok(a), Ok(b)) if a == b) {
        return true;
    }
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let store = |path: &Path| store_of(&mounts, &fs::canonicalize(path).ok()?);
    matches!((store(dir), store(file)), (Some(a), Some(b)) if a == b)
}

/// True if a file lies on one file system with a protected directory, or with a folder that one of
/// its links leads to: a tablespace, pg_wal, a database.
pub(crate) fn is_beside_data(dir: &Path, file: &Path) -> bool {
    let links = [dir.to_path_buf(), dir.join(TABLESPACES)];
    let links = links.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let links = links.flatten().map(|entry| entry.path());
    let mut folders = links.filter(|path| path.is_symlink() && path.is_dir());
    is_same_filesystem(dir, file) || folders.any(|folder| is_same_filesystem(&folder, file))
}

/// What holds the bytes of a file on Btrfs or ZFS, which show another device for each of their
/// parts: the source of the mount that is the last on the way to it. Of ZFS that is a dataset, and
/// the pool counts.
fn store_of(mounts: &[u8], path: &Path) -> Option<Vec<u8>> {
    let mut best: Option<(usize, &[u8], &[u8])> = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        // Number, parent, device, root, place, options and more, a dash, type, source.
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(place) = fields.nth(4).map(unescaped) else { continue };
        let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
        let (Some(kind), Some(source)) = (behind.next(), behind.next()) else { continue };
        let place = Path::new(OsStr::from_bytes(&place));
        let length = place.components().count();
        // A later mount on the same place hides the one before.
        if path.starts_with(place) && best.is_none_or(|(most, ..)| length >= most) {
            best = Some((length, kind, source));
        }
    }
    match best? {
        (_, b"btrfs", source) => Some(source.to_vec()),
        (_, b"zfs", source) => source.split(|byte| *byte == b'/').next().map(<[u8]>::to_vec),
        _ => None,
    }
}

/// A path of /proc/self/mountinfo, which has spaces and their like as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(|_| *first == b'\\') {
            Some(byte) => {
                path.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                path.push(*first);
                rest = behind;
            }
        }
    }
    path
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one_btrfs_or_pool_are_one_store() {
        let mounts = b"22 1 0:20 /@ / rw,noatime shared:1 - btrfs /dev/vda2 rw,subvol=/@\n\
            23 22 0:21 /@data /var/lib/pg\\040data rw - btrfs /dev/vda2 rw,subvol=/@data\n\
            24 22 8:1 / /boot rw shared:2 master:3 - ext4 /dev/sda1 rw\n\
            25 22 0:30 / /tank/a rw - zfs tank/a rw\n\
            26 22 0:31 / /tank/b rw - zfs tank/deep/b rw\n\
            27 22 0:32 / /other rw - zfs other rw\n\
            28 22 0:33 / /tank/a/hidden rw - zfs tank/c rw\n\
            29 28 8:2 / /tank/a/hidden rw - ext4 /dev/sdb rw\n";
        let of = |path: &str| store_of(mounts, Path::new(path));
        assert_eq!(of("/var/lib/pg data/main"), of("/etc/tidelock/key"));
        assert_eq!(of("/etc/key").as_deref(), Some(&b"/dev/vda2"[..]));
        assert_eq!(of("/tank/a/data"), of("/tank/b/key"));
        assert_ne!(of("/tank/a/data"), of("/other/key"));
        // Their device decides.
        assert_eq!((of("/boot/key"), of("/tank/a/hidden/key")), (None, None));
        assert_eq!(store_of(b"", Path::new("/")), None);
    }
}
