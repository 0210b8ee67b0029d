//! A socket by the name of a unit: `unit-NAME.sock`, a link to the socket of the keyring that the
//! directory has now.
//!
//! ```text
//!   unit-postgresql@15-main.sock, .programs, .policy --> ID.sock, ID.programs, ID.policy
//!   unit-postgresql@15-main.start               a copy of ID.start: a link would not be believed
//! ```
//!
//! The environment of a unit is written once, but a replica that is built again has another
//! keyring.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use tidelock_contract::control::{notice_beside, programs_beside, starter_beside};

use crate::error::Error;
use crate::rundir::RunDir;

/// What the name of such a socket begins with; that of a keyring is hexadecimal.
const PREFIX: &str = "unit-";

/// The name of the socket of a unit, in a run directory.
#[must_use]
pub fn alias_name(unit: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "@-_.".contains(c) { c } else { '_' };
    format!("{PREFIX}{}.sock", unit.chars().map(safe).collect::<String>())
}

/// True if this socket is named by a unit.
#[must_use]
pub fn is_alias(socket: &Path) -> bool {
    let name = socket.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes()) && name.ends_with(b".sock")
}

/// Makes `alias` lead to `socket`, beside which an agent has left its files. Both lie in one run
/// directory of the caller.
///
/// # Errors
/// [`Error::LooseRunDir`], [`Error::Io`].
pub fn publish(alias: &Path, socket: &Path) -> Result<(), Error> {
    let folder = alias.parent().unwrap_or(alias);
    RunDir::at(folder)?;
    if socket.parent() != Some(folder) || !is_alias(alias) {
        let why = io::Error::other("it is no name of a unit beside the agent's socket");
        return Err(Error::io("make", alias)(why));
    }
    copy(&starter_beside(socket), &starter_beside(alias))?;
    link(&programs_beside(socket), &programs_beside(alias))?;
    link(&notice_beside(socket), &notice_beside(alias))?;
    link(socket, alias)
}

fn link(to: &Path, from: &Path) -> Result<(), Error> {
    let next = beside(from);
    let link = || {
        symlink(to.file_name().unwrap_or_default(), &next)?;
        fs::rename(&next, from)
    };
    link().map_err(Error::io("make", from))
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let next = beside(to);
    let copy = || {
        let text = fs::read(from)?;
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&next, to)
    };
    copy().map_err(Error::io("write", to))
}

/// Of this process alone: several programs may start at once.
fn beside(path: &Path) -> PathBuf {
    let mut next = path.as_os_str().to_owned();
    next.push(format!(".{}.new", std::process::id()));
    let next = PathBuf::from(next);
    // What a process of this number left when it was killed.
    let _ = fs::remove_file(&next);
    next
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_unit_leads_to_the_keyring_that_it_was_told_last() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let alias = home.path().join(alias_name("postgresql@15-a:b\\c"));
        assert!(is_alias(&alias) && !alias.to_string_lossy().contains([':', '\\']));
        for id in ["00", "11"] {
            let socket = home.path().join(format!("{id}.sock"));
            for file in [programs_beside(&socket), notice_beside(&socket), starter_beside(&socket)]
            {
                fs::write(file, id).unwrap();
            }
            publish(&alias, &socket).unwrap();
            assert_eq!(fs::read_link(&alias).unwrap(), Path::new(&format!("{id}.sock")));
            assert_eq!(fs::read_to_string(programs_beside(&alias)).unwrap(), id);
            assert_eq!(fs::read_to_string(notice_beside(&alias)).unwrap(), id);
            assert_eq!(fs::read_to_string(starter_beside(&alias)).unwrap(), id);
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 10);
        assert!(publish(&alias, Path::new("/elsewhere/00.sock")).is_err());
        assert!(publish(&home.path().join("00.sock"), &home.path().join("11.sock")).is_err());
    }
}
