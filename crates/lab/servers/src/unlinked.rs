//! Opens what lies in places that another account may change, and never through a link.
//!
//! As root the lab writes settings into directories of the servers' account. A link that was put
//! there, symbolic or hard, would have root read, empty or give away a file of somebody else's.
//! What is above the last part of a path is not looked at.

use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// A regular file to be written, made if it is not there; what it has stays.
///
/// # Errors
/// When it is a link, has another name, is no regular file, or cannot be opened.
pub(crate) fn to_write(path: &Path) -> io::Result<File> {
    regular(path, OFlags::WRONLY | OFlags::CREATE)
}

/// The text of a regular file.
///
/// # Errors
/// As [`to_write`]; when it is not there, or no text.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    regular(path, OFlags::RDONLY)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Copies a program to where everybody may run it.
///
/// # Errors
/// As [`to_write`] for `to`; when `from` cannot be read.
pub(crate) fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = to_write(to)?;
    file.set_len(0)?;
    io::copy(&mut File::open(from)?, &mut file)?;
    file.set_permissions(Permissions::from_mode(0o755))
}

/// A directory.
///
/// # Errors
/// When it is a link, no directory, or cannot be opened.
pub(crate) fn directory(path: &Path) -> io::Result<File> {
    Ok(open(path, OFlags::RDONLY | OFlags::DIRECTORY | NEVER, Mode::empty())?.into())
}

fn regular(path: &Path, access: OFlags) -> io::Result<File> {
    let mode = Mode::from_raw_mode(0o666);
    let file =
        open(path, access | OFlags::NONBLOCK | NEVER, mode).map_err(|errno| match errno {
            Errno::LOOP => io::Error::other("it is a symbolic link, which the lab does not follow"),
            other => other.into(),
        })?;
    let file = File::from(file);
    let meta = file.metadata()?;
    match meta.is_file() && meta.nlink() == 1 {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file, or it has another name as well")),
    }
}

/// Whatever is opened.
const NEVER: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);
