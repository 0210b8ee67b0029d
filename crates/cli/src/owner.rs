//! Whose files are these? Users, by name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

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
}

impl FromStr for Owner {
    type Err = String;

    /// A name of /etc/passwd, or the number of one of its users.
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let users = fs::read_to_string("/etc/passwd").map_err(|why| why.to_string())?;
        let found = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let login = fields.next()?;
            let uid = fields.nth(1)?;
            (login == name || uid == name)
                .then(|| Some(Self { uid: uid.parse().ok()?, gid: fields.next()?.parse().ok()? }))?
        });
        found.ok_or_else(|| "there is no such user in /etc/passwd".to_owned())
    }
}
