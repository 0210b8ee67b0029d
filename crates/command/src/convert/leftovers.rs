//! What a conversion that was killed has left: files that had not taken their places.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::scan::{LINK, NEXT, Scan};
use super::workers::put_link;
use crate::error::{Error, Result};

/// Removes what was not finished. A file that has taken one of several places takes the others.
///
/// Only such a place proves that it was synced and compared: a second name may be anybody's, of
/// half a file too (`cp -al`).
///
/// # Errors
/// [`Error::Io`].
pub(super) fn clean(scan: &Scan) -> Result<()> {
    let (links, files): (Vec<_>, Vec<_>) = scan.leftovers.iter().partition(|path| is_link(path));
    for path in links {
        remove(path)?;
    }
    for path in files {
        let found = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
        let has_place = scan.several.contains(&(found.dev(), found.ino()));
        let original = original(path).filter(|_| has_place);
        let original = original.map(|inode| (found.dev(), inode));
        let item = scan.items.iter().find(|item| Some(item.inode) == original);
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
