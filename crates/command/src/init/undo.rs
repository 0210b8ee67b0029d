//! What has been made so far; taken back unless everything succeeds.

use tidelock_contract::control::FOLDER;
use tidelock_keyring::KEYRING;

use crate::error::Result;
use crate::folder::{Entry, Folder};

/// Removes what it was told of, the newest first, when it is dropped.
#[derive(Default)]
pub(super) struct Undo {
    made: Vec<Made>,
}

enum Made {
    File(Entry),
    Folder(Entry),
    ControlFolder(Folder),
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
    if folder.entry(KEYRING).exists()? {
        return Ok(());
    }
    for name in folder.names()? {
        folder.entry(name).remove()?;
    }
    control.remove_folder()
}
