//! What has been made so far; taken back unless everything succeeds.

use std::io::ErrorKind;

use tidelock_contract::control::FOLDER;
use tidelock_keyring::KEYRING;

use crate::error::{Error, Result};
use crate::folder::{Entry, Folder};

/// Removes what it was told of, the newest first, when it is dropped. Where a keyring has come to
/// lie, all of it stays: the keyring needs it.
#[derive(Default)]
pub(super) struct Undo {
    made: Vec<Made>,
}

enum Made {
    File(Entry),
    Folder(Entry),
    ControlFolder(Folder),
}

impl Made {
    /// True if a keyring lies there, or nobody can say whether one does.
    fn has_keyring(&self) -> bool {
        let Self::ControlFolder(directory) = self else { return false };
        let control = directory.entry(FOLDER).open_folder();
        match control.and_then(|folder| folder.entry(KEYRING).exists()) {
            Err(Error::Io { source, .. }) => {
                !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            }
            exists => exists.unwrap_or(false),
        }
    }
}

impl Undo {
    /// A file was made.
    pub(super) fn file(&mut self, file: Entry) {
        self.made.push(Made::File(file));
    }

    /// An empty folder was made.
    pub(super) fn folder(&mut self, folder: Entry) {
        self.made.push(Made::Folder(folder));
    }

    /// A `.tidelock` without a keyring is about to be made in this directory.
    pub(super) fn control_folder(&mut self, directory: Folder) {
        self.made.push(Made::ControlFolder(directory));
    }

    /// Everything succeeded: all of it stays.
    pub(super) fn forget(mut self) {
        self.made.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.made.iter().any(Made::has_keyring) {
            return;
        }
        // What cannot be removed stays: the error that brought us here is the one to tell.
        for made in self.made.drain(..).rev() {
            let _ = match made {
                Made::File(file) => file.remove(),
                Made::Folder(folder) => folder.remove_folder(),
                Made::ControlFolder(directory) => remove_control_folder(&directory),
            };
        }
    }
}

fn remove_control_folder(directory: &Folder) -> Result<()> {
    let control = directory.entry(FOLDER);
    let folder = control.open_folder()?;
    for name in folder.names()? {
        folder.entry(name).remove()?;
    }
    control.remove_folder()
}
