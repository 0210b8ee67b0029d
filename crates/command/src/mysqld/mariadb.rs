//! What MariaDB's data directory has, and Debian's unit of it.

use std::path::Path;
use std::process::Command;

use super::configured_directory;
use crate::error::{Error, Result};

/// Without the redo log a bare server would make a new one beside tables of another time.
pub(super) const GATE: [&str; 3] = ["ib_logfile0", "ibdata1", "aria_log_control"];
pub(super) const LOCKED: [&str; 2] = ["aria_log_control", "ibdata1"];
/// A server makes them when it starts, and removes them when it stops in order.
pub(super) const TRACES: [&str; 2] = ["ddl_recovery.log", "ibtmp1"];
/// The groups of the option files that a server and its wrappers read.
pub(super) const GROUPS: [&str; 4] = ["--mysqld", "mysqld_safe", "mariadb_safe", "mariadbd-safe"];
/// Debian's socket of the unit, which is enabled.
const SOCKET: &str = "mariadb.socket";

/// A system table of 10.4 and later; Aria's logs may lie elsewhere (`aria_log_dir_path`).
const ACCOUNTS: [&str; 2] = ["mysql/global_priv.frm", "mysql/global_priv.MAI"];

/// True if it looks like a data directory: system tables, by Aria's control file or the accounts.
pub(super) fn is_data_directory(dir: &Path) -> bool {
    let is_file = |name: &str| dir.join(name).is_file();
    is_file("aria_log_control") && dir.join("mysql").is_dir() || ACCOUNTS.into_iter().any(is_file)
}

/// Refuses while systemd would start the server on `dir` for the next client.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_socket(dir: &Path) -> Result<()> {
    let active = || {
        let mut command = Command::new("systemctl");
        command.args(["is-active", "--quiet", SOCKET]).status().is_ok_and(|it| it.success())
    };
    let systemd = Path::new("/run/systemd/system").is_dir();
    if !systemd || !active() || configured_directory()?.canonicalize().ok().as_deref() != Some(dir)
    {
        return Ok(());
    }
    Err(Error::refused(
        format!("{SOCKET} is active: the next client would have systemd start a server"),
        format!(
            "`systemctl stop {SOCKET}` until this is done; `tidelock protect mariadb` and \
             `unprotect mariadb` do it themselves"
        ),
    ))
}
