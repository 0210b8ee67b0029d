//! Files whose folder may be somebody else's: read and written by opened folders, so that no link
//! there leads root elsewhere, and replaced whole.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::owner::Owner;

/// The file, if it is there.
///
/// # Errors
/// As [`Entry::open`].
pub(super) fn open(path: &Path) -> Result<Option<File>> {
    match Entry::of(path) {
        Ok(entry) => entry.open(),
        Err(why) if why.is_not_found() => Ok(None),
        Err(why) => Err(why),
    }
}

/// The text of a file, if it is there.
///
/// # Errors
/// As [`open`]; it is no text.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(Error::io("read", path))?;
    Ok(Some(text))
}

/// Removes a file, and its folder if nothing is left in it.
///
/// # Errors
/// As [`Entry::remove`].
pub(super) fn take(path: &Path, folder_too: bool) -> Result<()> {
    let entry = Entry::of(path)?;
    entry.remove()?;
    entry.folder().sync()?;
    if folder_too && let Some(folder) = path.parent() {
        let _ = Entry::of(folder).and_then(|folder| folder.remove_folder());
    }
    Ok(())
}

/// True for a script, which others run.
pub(super) fn is_program(text: &str) -> bool {
    text.starts_with("#!")
}

/// Replaces a file whole, with the owner and mode that it had; a new one is for all to read.
///
/// # Errors
/// As [`Entry::open`] and [`Entry::replace`].
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let entry = Entry::of_new_folder(path)?;
    let (mode, owner) = match entry.open()? {
        Some(old) => {
            let found = old.metadata().map_err(Error::io("look at", path))?;
            (found.mode() & 0o777, Some(Owner { uid: found.uid(), gid: found.gid() }))
        }
        None if is_program(text) => (0o755, None),
        None => (0o644, None),
    };
    entry.replace(text.as_bytes(), mode, owner)
}

/// The text of a file of somebody whose links root does not follow.
///
/// # Errors
/// As [`Entry::open`]; [`Error::Io`] if there is none, or it is no text.
pub(crate) fn text_of(path: &Path) -> Result<String> {
    Ok(open_text(path)?.1)
}

/// Changes a file, which keeps its owner and mode: what is written is what was read, and no file
/// that was put in its place meanwhile.
///
/// # Errors
/// As [`text_of`] and [`Entry::replace`].
pub(crate) fn edit(path: &Path, change: impl FnOnce(&str) -> String) -> Result<()> {
    let (file, text) = open_text(path)?;
    let changed = change(&text);
    if changed == text {
        return Ok(());
    }
    let found = file.metadata().map_err(Error::io("look at", path))?;
    let owner = Owner { uid: found.uid(), gid: found.gid() };
    Entry::of(path)?.replace(changed.as_bytes(), found.mode() & 0o777, Some(owner))
}

fn open_text(path: &Path) -> Result<(File, String)> {
    let missing = || Error::io("open", path)(io::ErrorKind::NotFound.into());
    let mut file = open(path)?.ok_or_else(missing)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(Error::io("read", path))?;
    Ok((file, text))
}
