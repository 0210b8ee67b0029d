//! Whose files are these? Users, by name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::unistd::{Uid, User};

use crate::error::{Error, Result};

/// A user and the group of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Owner {
    /// The caller.
    pub(crate) fn caller() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// Who owns `path`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let found = fs::metadata(path).map_err(Error::io("look at", path))?;
        Ok(Self { uid: found.uid(), gid: found.gid() })
    }

    /// The account, if there is one.
    pub(crate) fn account(self) -> Option<User> {
        User::from_uid(Uid::from_raw(self.uid)).ok().flatten()
    }

    /// The account's name, or its number.
    pub(crate) fn name(self) -> String {
        self.account().map_or_else(|| self.uid.to_string(), |user| user.name)
    }

    /// The home of the account.
    pub(crate) fn home(self) -> Option<PathBuf> {
        self.account().map(|user| user.dir).filter(|home| home.is_absolute())
    }
}

impl FromStr for Owner {
    type Err = String;

    /// A user's name, or the number of one.
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let by_number = || match name.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number)),
            Err(_) => Ok(None),
        };
        let found = User::from_name(name).transpose().or_else(|| by_number().transpose());
        let user = found.ok_or("there is no such user")?.map_err(|why| why.to_string())?;
        Ok(Self { uid: user.uid.as_raw(), gid: user.gid.as_raw() })
    }
}
