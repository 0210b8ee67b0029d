//! Is a file of a protected directory the one that was made there?

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::Error;

/// Is this open file of ours the one that was made here, and no second name of another file? A
/// regular file with one name, which belongs to the caller, to root or to `owner`, whose folder it
/// lies in. `path` is for the message.
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
