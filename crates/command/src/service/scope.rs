//! Has systemd start an agent outside of the unit that this process belongs to, with what it needs
//! to see the unit's server.
//!
//! An agent stays as long as its server. Left in a unit, it ends with that: with a timer that
//! changes keys, or with what ran `tidelock protect`. One that ExecStartPre leaves counts as left
//! over, and systemd complains at each start.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use tidelock_agent::spawn::AgentCommand;

use super::plan::Unit;

const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

/// Fits the command of an agent for `dir`, a canonical path, to the units that unlock it. Does
/// nothing where systemd does not run, or the caller is not root.
pub(crate) fn fit(command: &mut AgentCommand, dir: &Path) {
    let systemd = Path::new("/run/systemd/system").is_dir() && Path::new(SYSTEMD_RUN).exists();
    if systemd && rustix::process::geteuid().is_root() {
        let units = super::units(dir);
        command.capabilities = capabilities(&units);
        command.elsewhere = elsewhere(dir, &units);
    }
}

/// A scope of its own, which a shutdown stops after the servers.
fn elsewhere(dir: &Path, units: &[Unit]) -> Vec<OsString> {
    let mut words = vec![SYSTEMD_RUN.to_owned()];
    words.extend(["--scope", "--quiet", "--collect"].map(str::to_owned));
    words.push(format!("--description=Tidelock's agent for {}", dir.display()));
    if !units.is_empty() {
        // `install` takes no path that would need quotes.
        words.push(format!("--property=RequiresMountsFor={}", dir.display()));
    }
    let before = |unit: &Unit| format!("--property=Before={}.service", unit.as_word());
    words.extend(units.iter().map(before));
    words.push("--".to_owned());
    words.into_iter().map(OsString::from).collect()
}

/// Those that systemd gives to the servers: `AmbientCapabilities=CAP_IPC_LOCK` of MariaDB's unit.
fn capabilities(units: &[Unit]) -> String {
    let mut all: Vec<String> = Vec::new();
    for unit in units {
        let mut command = Command::new("systemctl");
        command.args(["show", "--property=AmbientCapabilities", "--value"]);
        let Ok(output) = command.arg(format!("{unit}.service")).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.split_whitespace().filter_map(|name| name.strip_prefix("cap_"));
        all.extend(names.map(|name| format!("+{name}")));
    }
    all.sort();
    all.dedup();
    all.join(",")
}
