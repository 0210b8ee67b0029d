//! `tidelock service run UNIT -- PROGRAM`: a program with user and library of the unit's server.
//!
//! Everything that works on the files of a sealed directory needs the two variables that the unit
//! has, and pg_ctlcluster gives them to a server only when it starts one. So `promote`, which reads
//! pg_control, goes this way too: `install` puts a pg_ctlcluster of our own before Debian's.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Unit;
use super::record::Record;
use crate::error::{Error, Result};
use crate::exec::{Library, Program};
use crate::owner::Owner;
use crate::run_as::{RunAs, without_secrets};

/// Debian's.
pub(super) const CLUSTER_TOOL: &str = "/usr/bin/pg_ctlcluster";
/// Before it in PATH.
pub(super) const IN_FRONT: &str = "/usr/local/bin/pg_ctlcluster";
/// Gives the two variables to the program alone: what changes the user must not have the library.
const ENV: &str = "/usr/bin/env";
pub(super) const PRELOAD: &str = "LD_PRELOAD";
const AGENT: &str = "TIDELOCK_AGENT";

/// Run a program as the server of an installed unit runs: its user, the library, the unit's agent
#[derive(clap::Args)]
pub(crate) struct Run {
    /// The unit: postgresql@15-main, mariadb
    unit: Unit,
    /// Read all files of /etc below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The program: pg_ctl, pg_controldata, pg_resetwal, pg_waldump
    #[arg(required = true, last = true, value_name = "PROGRAM [ARG]...")]
    program: Vec<OsString>,
}

/// Debian's pg_ctlcluster, with the library where it does not give it to what it runs
#[derive(clap::Args)]
pub(crate) struct ClusterTool {
    #[arg(last = true, value_name = "ARG")]
    arguments: Vec<OsString>,
}

impl Run {
    /// Returns only if the program does not start.
    ///
    /// # Errors
    /// The unit is not installed; the program is not there, or cannot have the library.
    pub(super) fn run(&self) -> Result<()> {
        let record = super::installed(&self.unit, &self.root)?;
        let Some((name, arguments)) = self.program.split_first() else { return Ok(()) };
        let program = Program::find(name)?;
        program.refuse_unless_it_loads()?;
        // The agent is the owner's, and gives no keys to a program of root's.
        let owner = Owner::of(&record.directory)?;
        let mut command = match owner.uid {
            0 => Command::new(ENV),
            _ => RunAs::new(owner)?.of_a_person(Path::new(ENV))?,
        };
        // A person runs it, where that person is.
        command.stdin(Stdio::inherit()).current_dir(".");
        command.env_remove(PRELOAD).env_remove(AGENT);
        command.arg(assignment(PRELOAD, &Library::find()?.path));
        command.arg(assignment(AGENT, &record.socket)).arg(&program.called);
        become_it(command, arguments, None)
    }
}

impl ClusterTool {
    /// Returns only if pg_ctlcluster does not start.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn run(&self) -> Result<()> {
        let root = Path::new("/");
        let unit = promoted(&self.arguments);
        // A cluster that is not ours is promoted as ever.
        let record = unit.map(|unit| Record::read(&unit, root)).transpose()?.flatten();
        become_it(Command::new(CLUSTER_TOOL), &self.arguments, record.as_ref())
    }
}

/// `NAME=PATH`
fn assignment(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(path);
    text
}

/// Without what may open a keyring. Returns only if the program does not start.
///
/// # Errors
/// [`Error::Io`]; the library is not installed.
pub(super) fn become_it(
    command: Command,
    arguments: &[OsString],
    record: Option<&Record>,
) -> Result<()> {
    let program = PathBuf::from(command.get_program());
    let mut command = without_secrets(command);
    command.args(arguments);
    if let Some(record) = record {
        command.env(PRELOAD, Library::find()?.path).env(AGENT, &record.socket);
    }
    crate::cores::as_before();
    Err(Error::io("run", program)(command.exec()))
}

/// The unit of the cluster that is to be promoted, in each of the orders that pg_ctlcluster takes:
/// `15 main promote`, `promote 15 main`, `15-main promote`, `promote 15/main`.
fn promoted(arguments: &[OsString]) -> Option<Unit> {
    let words: Vec<&str> = arguments
        .iter()
        .take_while(|argument| *argument != OsStr::new("--"))
        .filter_map(|argument| argument.to_str().filter(|word| !word.starts_with('-')))
        .collect();
    let cluster: Vec<&str> = words.iter().copied().filter(|word| *word != "promote").collect();
    if cluster.len() == words.len() {
        return None;
    }
    let (version, name) = match cluster.as_slice() {
        [one] => one.split_once(['-', '/'])?,
        [version, name] => (*version, *name),
        _ => return None,
    };
    Unit::of_cluster(version, name)
}

/// What `install` writes for clusters of Debian.
pub(super) fn script(program: &Path) -> String {
    format!(
        "#!/bin/sh\n\
         # Written by `tidelock service install`. Debian's pg_ctlcluster gives the library to a\n\
         # server that it starts; promote needs it too, and gets it here. All else goes on as is.\n\
         [ -x {program} ] || exec /usr/bin/pg_ctlcluster \"$@\"\n\
         exec {program} service pg-ctlcluster -- \"$@\"\n",
        program = program.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_found_in_every_order() {
        let unit = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            promoted(&words).map(|unit| unit.to_string())
        };
        for line in [
            "15 main promote",
            "promote 15 main",
            "15-main promote",
            "promote 15/main",
            "--skip-systemctl-redirect 15 main promote",
            "15 main promote -- -t 5",
        ] {
            assert_eq!(unit(line).as_deref(), Some("postgresql@15-main"), "{line}");
        }
        for line in ["15 main start", "promote", "15 main reload -- promote", "promote a b c"] {
            assert_eq!(unit(line), None, "{line}");
        }
    }
}
