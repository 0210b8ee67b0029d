//! Where SQLite puts its temporary files: below the protected directory.
//!
//! VACUUM, large sorts and statement journals write pages to files in `SQLITE_TMPDIR`, else in
//! /var/tmp, and remove their names at once. The pages would reach the disk in the clear. The
//! variable of the caller stays; one that leads out is warned of.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use tidelock_contract::Notice;
use tidelock_contract::control::notice_beside;

use crate::console;
use crate::protected::Protected;

/// What SQLite asks for first.
pub(super) const VARIABLE: &str = "SQLITE_TMPDIR";
/// Profiles of servers that do not use SQLite, or are not its place.
const SERVERS: [&str; 5] = ["postgres", "wal-archive", "mariadb", "mysql", "redis"];

/// What the variable shall be; `None` if it stays as it is. Each directory has the agent of the
/// same place in `sockets`, and beside that lies the policy. Any other profile may be that of a
/// program which uses SQLite.
pub(super) fn choose(directories: &[Protected], sockets: &[PathBuf]) -> Option<PathBuf> {
    let serves = |socket: &Path| SERVERS.iter().any(|profile| is_of(profile, socket));
    let (chosen, _) = directories.iter().zip(sockets).find(|(_, socket)| !serves(socket))?;
    match std::env::var_os(VARIABLE) {
        None => {
            warn_if_read_only(&chosen.path);
            Some(chosen.path.clone())
        }
        Some(given) => {
            warn_if_outside(&given, directories, &chosen.path);
            None
        }
    }
}

/// Is this the agent of a directory of that profile? By the policy that it shows to programs
/// without keys: the keyring is not open here.
pub(crate) fn is_of(profile: &str, socket: &Path) -> bool {
    notice(socket).is_some_and(|notice| notice.policy.profile() == profile)
}

/// What an agent shows to programs without keys. It is there before the agent listens.
pub(crate) fn notice(socket: &Path) -> Option<Notice> {
    Notice::decode(&std::fs::read(notice_beside(socket)).ok()?).ok()
}

/// SQLite goes on to TMPDIR and /var/tmp, without a word, where it may not write.
fn warn_if_read_only(directory: &Path) {
    if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        console::warn(
            format!(
                "{} cannot be written: temporary files that SQLite makes for large sorts go to \
                 /var/tmp, and are plain",
                directory.display()
            ),
            format!("PRAGMA temp_store = MEMORY; or {VARIABLE}=DIR, a protected directory"),
        );
    }
}

fn warn_if_outside(given: &OsString, directories: &[Protected], instead: &Path) {
    let real = std::fs::canonicalize(given).unwrap_or_else(|_| given.into());
    if directories.iter().all(|it| !real.starts_with(&it.path)) {
        console::warn(
            format!(
                "{VARIABLE} is {}, outside of the protected directory: what VACUUM and large \
                 sorts write there is plain",
                real.display()
            ),
            format!("unset it, or set {VARIABLE}={}", instead.display()),
        );
    }
}
