//! What a conversion that was killed has left: files that had not taken their places.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::scan::{Item, LINK, NEXT};
use super::workers::put_link;
use crate::error::{Error, Result};

/// Removes what was not finished. A file that has taken one of several places takes the others.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn clean(leftovers: &[PathBuf], items: &[Item]) -> Result<()> {
    let (links, files): (Vec<_>, Vec<_>) = leftovers.iter().partition(|path| is_link(path));
    for path in links {
        remove(path)?;
    }
    for path in files {
        let found = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
        // It was synced and compared before it got its second name.
        let original = original(path).filter(|_| found.nlink() > 1);
        let original = original.map(|inode| (found.dev(), inode));
        let item = items.iter().find(|item| Some(item.inode) == original);
        for name in item.iter().flat_map(|item| &item.names) {
            put_link(path, name)?;
            sync_folder(name)?;
        }
        remove(path)?;
    }
    Ok(())
}

fn is_link(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().ends_with(LINK.as_bytes()))
}

/// The inode of the file that it was made from.
fn original(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(NEXT)?.parse().ok()
}

fn sync_folder(name: &Path) -> Result<()> {
    let folder = name.parent().unwrap_or(name);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", folder))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::io("remove", path))
}
