//! Who starts a running server: a unit of systemd, another process of that unit, or a person.
//!
//! Asks /proc and `systemctl show`, and changes nothing. Where systemd does not say which process
//! of a unit is its main one, the unit counts as what starts the server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::server::unit_of;

/// Units below which people log in and jobs run, which nobody starts again: names, or those of
/// templates. Where pam_systemd is in use they get scopes of their own instead.
const OF_PEOPLE: [&str; 23] = [
    "amazon-ssm-agent",
    "anacron",
    "atd",
    "autovt",
    "console-getty",
    "console-shell",
    "container-getty",
    "container-shell",
    "cron",
    "crond",
    "cronie",
    "debug-shell",
    "dropbear",
    "emergency",
    "getty",
    "rescue",
    "serial-getty",
    "snap.amazon-ssm-agent.amazon-ssm-agent",
    "ssh",
    "sshd",
    "sshd-unix-local",
    "sshd-vsock",
    "user",
];

/// Who starts a running server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Starter {
    /// Nobody by himself: it was started by hand, beside the caller or by a job.
    #[default]
    Person,
    /// This unit, whose main process is the server: `mydb.service`.
    Unit(String),
    /// The main process of this unit, which is another one, such as Patroni.
    Supervisor { unit: String, main: u32 },
}

impl Starter {
    /// Of the server whose process is `pid`; `head` starts it and belongs to it, as mariadbd-safe
    /// does.
    pub(crate) fn of(pid: u32, head: Option<u32>) -> Self {
        let beside_us = unit_of(std::process::id());
        let other = |unit: &String| !is_of_people(unit) && beside_us.as_ref() != Some(unit);
        let Some(unit) = unit_of(pid).filter(other) else { return Self::Person };
        match main_of(&unit) {
            Some(main) if ![Some(pid), head].contains(&Some(main)) => {
                Self::Supervisor { unit, main }
            }
            _ => Self::Unit(unit),
        }
    }

    /// The unit that the server runs in.
    pub(crate) fn unit(&self) -> Option<&str> {
        match self {
            Self::Person => None,
            Self::Unit(unit) | Self::Supervisor { unit, .. } => Some(unit),
        }
    }
}

/// True for a unit below which people log in, and jobs run.
pub(crate) fn is_of_people(unit: &str) -> bool {
    let name = unit.split_once('@').map_or_else(|| without_suffix(unit), |(name, _)| name);
    OF_PEOPLE.contains(&name)
}

/// As people type it.
pub(crate) fn without_suffix(unit: &str) -> &str {
    unit.strip_suffix(".service").unwrap_or(unit)
}

/// True if the unit that a control group has, `mydb.service`, is called `name`, also by an alias.
pub(crate) fn is_called(unit: &str, name: &str) -> bool {
    without_suffix(unit) == without_suffix(name)
        || show(name, "Id").is_some_and(|id| id.trim() == unit)
}

/// The main process of a unit, if systemd says so.
pub(crate) fn main_of(unit: &str) -> Option<u32> {
    let main = show(unit, "MainPID")?.trim().parse().ok()?;
    (main != 0).then_some(main)
}

/// True if what a unit has started stays when that ends.
pub(crate) fn spares_what_it_started(unit: &str) -> bool {
    show(unit, "KillMode").is_some_and(|mode| ["process", "none"].contains(&mode.trim()))
}

/// True if systemd runs here.
pub(crate) fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// What Patroni leaves in the data directory of each server that it starts.
pub(crate) fn of_patroni(dir: &Path) -> Option<PathBuf> {
    let file = dir.join("patroni.dynamic.json");
    file.symlink_metadata().is_ok().then_some(file)
}

/// True if a unit, by its file and drop-ins, starts Patroni.
pub(crate) fn starts_patroni(unit: &str) -> bool {
    show(unit, "ExecStart").is_some_and(|command| command.contains("patroni"))
}

fn show(unit: &str, property: &str) -> Option<String> {
    let mut command = Command::new("systemctl");
    command.args(["show", unit, &format!("--property={property}"), "--value"]);
    let told = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_login_or_a_job_has_started_nobody_starts_again() {
        for unit in [
            "ssh.service",
            "sshd@3-10.0.0.1:22-10.0.0.2:51000.service",
            "cron.service",
            "getty@tty1.service",
            "user@1000.service",
        ] {
            assert!(is_of_people(unit), "{unit}");
        }
        for unit in ["patroni.service", "patroni@15-main.service", "supervisor.service"] {
            assert!(!is_of_people(unit), "{unit}");
        }
    }

    #[test]
    fn a_unit_is_called_by_its_name_with_and_without_its_kind() {
        assert!(is_called("mydb.service", "mydb"));
        assert!(is_called("mydb.service", "mydb.service"));
        assert!(!is_called("mydb.service", "tidelock-no-such-unit"));
    }

    #[test]
    fn only_a_directory_with_its_file_is_patronis() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of_patroni(dir.path()), None);
        let file = dir.path().join("patroni.dynamic.json");
        std::fs::write(&file, "{}").unwrap();
        assert_eq!(of_patroni(dir.path()), Some(file));
    }
}
