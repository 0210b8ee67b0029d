//! May a file be trusted with a secret, or with the choice of what runs? Owner and mode, of the
//! open file.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::error::Error;

/// Who may do what with the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// Its owner alone reads and writes it; the owner is the caller or root.
    OwnerOnly,
    /// Root alone writes it; everybody may read it.
    RootWrites,
    /// The caller or root alone writes it; everybody may read it.
    OwnerWrites,
}

/// A secret is no longer.
const MAX_SECRET: u64 = 64 * 1024;

/// The first line of a file that is its owner's alone: a PIN, a token.
///
/// # Errors
/// [`Error::LooseFile`], [`Error::Io`].
pub fn read_secret_line(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut bytes = read_secret(path)?;
    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}

/// All of a file that is its owner's alone, up to 64 KiB: a private key.
///
/// # Errors
/// [`Error::LooseFile`], [`Error::Io`].
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(Error::io("open", path))?;
    check(&file, path, Audience::OwnerOnly)?;
    let length = file.metadata().map_err(Error::io("look at", path))?.len().min(MAX_SECRET);
    // As much as the file has, so that no copy is left behind by growing.
    let room = usize::try_from(length).map_or(0, |length| length + 1);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(length).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// May the shared library at `path` run in this process? It and the folders above it are root's or
/// the caller's, and nobody else writes there. Returns the path without links, which is what was
/// checked.
///
/// # Errors
/// [`Error::LooseFile`], [`Error::Io`].
pub fn check_code(path: &Path) -> Result<PathBuf, Error> {
    let real = path.canonicalize().map_err(Error::io("find", path))?;
    let file = File::open(&real).map_err(Error::io("open", path))?;
    check(&file, path, Audience::OwnerWrites)?;
    real.ancestors().skip(1).try_for_each(check_way)?;
    Ok(real)
}

/// Checks a folder on the way to a file: who may replace what is in it? A sticky folder is good
/// enough, since what it holds was checked.
fn check_way(path: &Path) -> Result<(), Error> {
    let found = std::fs::metadata(path).map_err(Error::io("look at", path))?;
    let me = rustix::process::geteuid().as_raw();
    let refuse = |why| Err(Error::LooseFile { path: path.into(), why });
    match (found.uid() == 0 || found.uid() == me, found.mode() & 0o1022) {
        (false, _) => refuse("the folder belongs to somebody else"),
        (true, 0 | 0o1000..=0o1022) => Ok(()),
        (true, _) => refuse("others than its owner may write the folder"),
    }
}

/// Is this open file of ours the one that was made here, and no second name of another file? A regular file with
/// one name, which belongs to the caller, to root or to `owner`, whose folder it lies in. `path` is for the
/// message.
///
/// # Errors
/// [`Error::ForeignFile`], [`Error::Io`].
pub fn check_unshared(file: &File, path: &Path, owner: u32) -> Result<(), Error> {
    let found = file.metadata().map_err(Error::io("look at", path))?;
    let me = rustix::process::geteuid().as_raw();
    let refuse = |why| Err(Error::ForeignFile { path: path.into(), why });
    if !found.is_file() {
        return refuse("it is not a regular file");
    }
    if found.nlink() > 1 {
        return refuse("it has a second name, a hard link, elsewhere");
    }
    if ![0, me, owner].contains(&found.uid()) {
        return refuse("it belongs to somebody else");
    }
    Ok(())
}

/// Checks an open file; `path` is for the message.
pub(crate) fn check(file: &File, path: &Path, audience: Audience) -> Result<(), Error> {
    let found = file.metadata().map_err(Error::io("look at", path))?;
    let me = rustix::process::geteuid().as_raw();
    let refuse = |why| Err(Error::LooseFile { path: path.into(), why });
    if !found.is_file() {
        return refuse("it is not a regular file");
    }
    match audience {
        Audience::OwnerOnly if found.uid() != me && found.uid() != 0 && me != 0 => {
            refuse("it belongs to somebody else")
        }
        Audience::OwnerOnly if found.mode() & 0o077 != 0 => {
            refuse("others than its owner may read or write it")
        }
        Audience::RootWrites if found.uid() != 0 => refuse("it does not belong to root"),
        Audience::RootWrites if found.mode() & 0o022 != 0 => {
            refuse("others than root may write it")
        }
        Audience::OwnerWrites if found.uid() != me && found.uid() != 0 => {
            refuse("it belongs neither to you nor to root")
        }
        Audience::OwnerWrites if found.mode() & 0o022 != 0 => {
            refuse("others than its owner may write it")
        }
        _ => Ok(()),
    }
}

/// Checks a folder of the configuration: nobody but its owner, who is the caller or root, adds
/// files.
pub(crate) fn check_folder(path: &Path, audience: Audience) -> Result<(), Error> {
    let found = std::fs::metadata(path).map_err(Error::io("look at", path))?;
    let me = rustix::process::geteuid().as_raw();
    let owners = found.uid() == 0 || (audience == Audience::OwnerOnly && found.uid() == me);
    let refuse = |why| Err(Error::LooseFile { path: path.into(), why });
    match (owners || me == 0, found.mode() & 0o022 == 0) {
        (false, _) => refuse("the folder belongs to somebody else"),
        (true, false) => refuse("others than its owner may write the folder"),
        (true, true) => Ok(()),
    }
}
