//! Who servers and their tools run as: `postgres` when we are root, else ourselves.
//!
//! Switching uses the uid and gid of the child process; no sudo, su or runuser is needed.

use std::fs::File;
use std::os::unix::fs::{fchown, lchown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::{User, geteuid};

use crate::error::{Error, Result};

/// The account of servers, tools, keys and agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    switch_to: Option<(u32, u32)>,
}

impl Account {
    /// `postgres` for root, ourselves for everybody else.
    ///
    /// # Errors
    /// When we are root and there is no account `postgres`.
    pub fn of_servers() -> Result<Self> {
        let failed = |errno: Errno| Error::io("looking up a user")(errno.into());
        let us = geteuid();
        if !us.is_root() {
            let user = User::from_uid(us).map_err(failed)?;
            let name = user.map_or_else(|| us.to_string(), |user| user.name);
            return Ok(Self { name, switch_to: None });
        }
        let user = User::from_name("postgres").map_err(failed)?.ok_or_else(|| {
            Error::Unexpected(
                "PostgreSQL refuses root, and there is no account `postgres` to run it as".into(),
            )
        })?;
        Ok(Self { name: user.name, switch_to: Some((user.uid.as_raw(), user.gid.as_raw())) })
    }

    /// Login name, or the number of an account without one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether commands change to another account, that is whether we are root.
    #[must_use]
    pub fn switches(&self) -> bool {
        self.switch_to.is_some()
    }

    /// Its number, if commands change to it.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.switch_to.map(|(uid, _)| uid)
    }

    /// Lets `command` run as this account.
    pub fn apply(&self, command: &mut Command) {
        if let Some((uid, gid)) = self.switch_to {
            command.uid(uid).gid(gid);
        }
    }

    /// Gives `path` (not what is below it) to this account. Of a link that is the link itself, not
    /// what it leads to: whoever owns its directory could have put it there.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub fn give(&self, path: &Path) -> Result<()> {
        let Some((uid, gid)) = self.switch_to else { return Ok(()) };
        lchown(path, Some(uid), Some(gid)).map_err(self.not_given(path))
    }

    /// Gives an open file to this account; `path` is for the error.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub(crate) fn give_open(&self, file: &File, path: &Path) -> Result<()> {
        let Some((uid, gid)) = self.switch_to else { return Ok(()) };
        fchown(file, Some(uid), Some(gid)).map_err(self.not_given(path))
    }

    fn not_given(&self, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        Error::io(format!("giving {} to {}", path.display(), self.name))
    }
}
