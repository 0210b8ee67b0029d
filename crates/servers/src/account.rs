//! Who servers and their tools run as: `postgres` when we are root, else ourselves.
//!
//! Switching uses the uid and gid of the child process; no sudo, su or runuser is needed.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

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
        if !rustix::process::geteuid().is_root() {
            let uid = rustix::process::geteuid().as_raw();
            let name = by_uid(uid)?.unwrap_or_else(|| uid.to_string());
            return Ok(Self { name, switch_to: None });
        }
        let line = passwd()?.lines().find(|l| l.starts_with("postgres:")).map(str::to_owned);
        let ids = line.as_deref().and_then(|line| {
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        match ids {
            Some(ids) => Ok(Self { name: "postgres".into(), switch_to: Some(ids) }),
            None => Err(Error::Unexpected(
                "PostgreSQL refuses root, and there is no account `postgres` to run it as".into(),
            )),
        }
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

    /// Gives `path` (not what is below it) to this account.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub fn give(&self, path: &Path) -> Result<()> {
        match self.switch_to {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)).map_err(Error::io(format!(
                "giving {} to {}",
                path.display(),
                self.name
            ))),
            None => Ok(()),
        }
    }
}

fn by_uid(uid: u32) -> Result<Option<String>> {
    let uid = uid.to_string();
    let found = passwd()?
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&uid))
        .and_then(|line| line.split(':').next().map(str::to_owned));
    Ok(found)
}

fn passwd() -> Result<String> {
    fs::read_to_string("/etc/passwd").map_err(Error::io("reading /etc/passwd"))
}
