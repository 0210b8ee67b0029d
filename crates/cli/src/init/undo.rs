//! What has been made so far; taken back unless everything succeeds.

use std::fs;
use std::path::{Path, PathBuf};

/// Removes what it was told of, the newest first, when it is dropped.
#[derive(Default)]
pub(super) struct Undo {
    made: Vec<Made>,
}

enum Made {
    File(PathBuf),
    Folder(PathBuf),
    ControlFolder(PathBuf),
}

impl Undo {
    /// A file was made.
    pub(super) fn file(&mut self, path: &Path) {
        self.made.push(Made::File(path.into()));
    }

    /// An empty folder was made.
    pub(super) fn folder(&mut self, path: &Path) {
        self.made.push(Made::Folder(path.into()));
    }

    /// A `.tidelock` without a keyring is about to be made.
    pub(super) fn control_folder(&mut self, path: &Path) {
        self.made.push(Made::ControlFolder(path.into()));
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
                Made::File(path) => fs::remove_file(path),
                Made::Folder(path) => fs::remove_dir(path),
                Made::ControlFolder(path) => {
                    if path.join(tidelock_keys::KEYRING).symlink_metadata().is_ok() {
                        Ok(())
                    } else {
                        fs::remove_dir_all(path)
                    }
                }
            };
        }
    }
}
