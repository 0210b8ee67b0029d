//! May a file be trusted with a secret, or with the choice of what runs? Owner and mode, of the
//! open file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::Error;

/// Who may do what with the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audience {
    /// Its owner alone reads and writes it; the owner is the caller or root.
    OwnerOnly,
    /// Root alone writes it; everybody may read it.
    RootWrites,
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
