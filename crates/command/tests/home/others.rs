//! The command and the library for programs of other users, where these can reach them: a clone
//! below root's home is root's alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;
use tidelock_servers::Programs;

/// A place for copies, if any are needed. They go with it.
pub(crate) struct Others(TempDir);

impl Others {
    pub(crate) fn new() -> Self {
        let shelf = tempfile::tempdir().unwrap();
        fs::set_permissions(shelf.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(shelf)
    }

    /// A line of shell that finds them before all others.
    pub(crate) fn first(&self) -> String {
        let programs = Programs::find(self.0.path()).unwrap();
        format!("PATH={}:$PATH\n", programs.command.parent().unwrap().display())
    }
}
