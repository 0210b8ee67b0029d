//! What MariaDB's data directory has, and the sockets by which systemd starts its server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::brand::Brand;
use super::settings::Settings;
use super::start::Start;
use super::unit::{Inherited, Started};
use super::{DEFAULT_DIRECTORY, SERVERS, STARTERS, configured_directory, is_unit};
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::run_as::RunAs;

/// Without the redo log a bare server would make a new one beside tables of another time.
pub(super) const GATE: [&str; 3] = ["ib_logfile0", "ibdata1", "aria_log_control"];
pub(super) const LOCKED: [&str; 2] = ["aria_log_control", "ibdata1"];
/// A server makes them when it starts, and removes them when it stops in order.
pub(super) const TRACES: [&str; 2] = ["ddl_recovery.log", "ibtmp1"];
/// Has my_print_defaults print the groups of the option files that a server reads.
pub(super) const GROUPS: &str = "--mysqld";
/// Groups that its wrapper reads too.
pub(super) const OF_WRAPPER: [&str; 4] =
    ["mysqld_safe", "safe_mysqld", "mariadb_safe", "mariadbd-safe"];

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
/// [`Error::Refused`]; the option files of such a server cannot be read.
pub(crate) fn refuse_socket(dir: &Path) -> Result<()> {
    if !Path::new("/run/systemd/system").is_dir() {
        return Ok(());
    }
    let told = systemctl(&["show", "--property=Id,ActiveState,Triggers", "*.socket"]);
    for (unit, sockets) in active(&told) {
        if !starts_a_server(&systemctl(&["show", &unit, "--property=ExecStart"]))
            || directory_of(&unit, dir)?.and_then(|it| it.canonicalize().ok()).as_deref()
                != Some(dir)
        {
            continue;
        }
        let is = if sockets.contains(' ') { "are" } else { "is" };
        let name = unit.strip_suffix(".service").unwrap_or(&unit);
        return Err(Error::refused(
            format!("{sockets} {is} active: the next client would have systemd start a server"),
            format!(
                "`systemctl stop {sockets}` until this is done; `tidelock protect {name}` and \
                 `unprotect {name}`{} do it themselves",
                if is_unit(name) { "" } else { " with -D DIR" }
            ),
        ));
    }
    Ok(())
}

/// What systemctl prints; nothing if it fails.
fn systemctl(words: &[&str]) -> String {
    let mut command = Command::new("systemctl");
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
    let told = command.output().ok().filter(|told| told.status.success());
    told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
}

/// The units that active sockets start, each with the names of its sockets and blanks between them.
fn active(told: &str) -> BTreeMap<String, String> {
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    for socket in told.split("\n\n") {
        let value = |name: &str| socket.lines().find_map(|line| line.strip_prefix(name));
        if value("ActiveState=") != Some("active") {
            continue;
        }
        let (Some(name), Some(starts)) = (value("Id="), value("Triggers=")) else { continue };
        for unit in starts.split_whitespace() {
            let sockets = units.entry(unit.to_owned()).or_default();
            if !sockets.is_empty() {
                sockets.push(' ');
            }
            sockets.push_str(name);
        }
    }
    units
}

/// True if a unit's command has the name of a server in it.
fn starts_a_server(command: &str) -> bool {
    SERVERS.iter().chain(&STARTERS).any(|name| command.contains(name))
}

/// Where the server of a unit has its data, if that shows; what is of `dir` runs as its owner.
fn directory_of(unit: &str, dir: &Path) -> Result<Option<PathBuf>> {
    match Started::by(unit, Inherited::OfSystemd) {
        Started::Server(server, arguments) => {
            let owner = Owner::of(dir).ok().filter(|owner| owner.uid != 0);
            let run_as = owner.map(RunAs::new).transpose()?;
            let start = Start {
                brand: Brand::MariaDb,
                server: &server,
                arguments: &arguments,
                run_as: run_as.as_ref(),
            };
            let named = Settings::of(&start.options()?).directory();
            Ok(Some(named.unwrap_or_else(|| DEFAULT_DIRECTORY.into())))
        }
        _ if is_unit(unit) => configured_directory().map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_active_socket_counts_for_the_unit_that_it_starts() {
        let told = "Id=mariadb.socket\nTriggers=mariadb.service\nActiveState=active\n\n\
                    Triggers=mariadb.service\nId=mariadb-extra.socket\nActiveState=active\n\n\
                    Id=mariadb@b.socket\nTriggers=mariadb@b.service\nActiveState=inactive\n\n\
                    Id=mine.socket\nTriggers=mariadb@a.service\nActiveState=active\n\n\
                    Id=other.socket\nTriggers=\nActiveState=active\n";
        let found = active(told);
        let found: Vec<_> = found.iter().map(|(unit, by)| (unit.as_str(), by.as_str())).collect();
        assert_eq!(
            found,
            [
                ("mariadb.service", "mariadb.socket mariadb-extra.socket"),
                ("mariadb@a.service", "mine.socket")
            ]
        );
        assert!(active("").is_empty());
        assert!(starts_a_server("ExecStart={ path=/usr/sbin/mariadbd ; argv[]=... }\n"));
        assert!(!starts_a_server("ExecStart={ path=/usr/sbin/sshd ; argv[]=sshd -i ; }\n"));
    }
}
