//! May a file be trusted with a secret, or with the choice of what runs? Owner and mode, of the
//! open file.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tidelock_keyring::Error;
use zeroize::Zeroizing;

/// Who may do what with the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// Its owner alone reads and writes it; the owner is the caller or root.
    OwnerOnly,
    /// The same; but one of root's may let root's group read. So looks the list (acl(5)) by which
    /// systemd, from 254 on, lets the user of a unit read its credential.
    Credential,
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
pub(crate) fn read_secret_line(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut bytes = read_secret(path)?;
    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}

/// All of a file that is its owner's alone, up to 64 KiB: a private key.
///
/// # Errors
/// [`Error::LooseFile`], [`Error::Io`].
pub(crate) fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
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
/// [`Error::LooseShared`], [`Error::Io`].
pub(crate) fn check_code(path: &Path) -> Result<PathBuf, Error> {
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
    let refuse = |why| Err(loose(path, why, Audience::OwnerWrites));
    match (found.uid() == 0 || found.uid() == me, found.mode() & 0o1022) {
        (false, _) => refuse("the folder belongs to somebody else"),
        (true, 0 | 0o1000..=0o1022) => Ok(()),
        (true, _) => refuse("others than its owner may write the folder"),
    }
}

/// Checks an open file; `path` is for the message.
pub(crate) fn check(file: &File, path: &Path, audience: Audience) -> Result<(), Error> {
    let found = file.metadata().map_err(Error::io("look at", path))?;
    let me = rustix::process::geteuid().as_raw();
    let refuse = |why| Err(loose(path, why, audience));
    if !found.is_file() {
        return refuse("it is not a regular file");
    }
    let roots = audience == Audience::Credential && (found.uid(), found.gid()) == (0, 0);
    let others = if roots { 0o037 } else { 0o077 };
    match audience {
        Audience::OwnerOnly | Audience::Credential
            if found.uid() != me && found.uid() != 0 && me != 0 =>
        {
            refuse("it belongs to somebody else")
        }
        Audience::OwnerOnly | Audience::Credential if found.mode() & others != 0 => {
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

/// What others must go on reading is not told to be closed to them.
fn loose(path: &Path, why: &'static str, audience: Audience) -> Error {
    let path = path.into();
    match audience {
        Audience::OwnerOnly | Audience::Credential => Error::LooseFile { path, why },
        Audience::RootWrites | Audience::OwnerWrites => Error::LooseShared { path, why },
    }
}

/// Checks a folder of the configuration: nobody but its owner, who is the caller or root, adds
/// files.
pub(crate) fn check_folder(path: &Path, audience: Audience) -> Result<(), Error> {
    let found = std::fs::metadata(path).map_err(Error::io("look at", path))?;
    let me = rustix::process::geteuid().as_raw();
    let owners = found.uid() == 0 || (audience == Audience::OwnerOnly && found.uid() == me);
    let refuse = |why| Err(loose(path, why, audience));
    match (owners || me == 0, found.mode() & 0o022 == 0) {
        (false, _) => refuse("the folder belongs to somebody else"),
        (true, false) => refuse("others than its owner may write the folder"),
        (true, true) => Ok(()),
    }
}
