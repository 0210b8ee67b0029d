//! Which server is meant, and how it is stopped and started: a Debian cluster, another unit of
//! systemd, or a directory whose server has no unit.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::engine::Engine;
use crate::begun::beside;
use crate::console;
use crate::error::{Error, Result};
use crate::mysqld::{self, Brand, refuse_socket};
use crate::owner::Owner;
use crate::postgres::{Cluster, Instance};
use crate::run_as::run;
use crate::server::unit_of;
use crate::service;
use crate::whereabouts::Identity;

/// Which one
#[derive(clap::Args)]
pub(super) struct Which {
    /// A Debian cluster (postgresql@15-main), mariadb, or with -D another unit of systemd
    #[arg(required_unless_present = "dir")]
    unit: Option<String>,
    /// The data directory [default: that of the cluster, or of the server's option files]
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the server's programs are [default: beside the running server]
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
}

/// A server and who starts it.
pub(super) struct Target {
    pub(super) engine: Box<dyn Engine>,
    /// `postgresql@15-main`, `mariadb`, `mydb`: it gets the service part.
    pub(super) unit: Option<String>,
}

impl Which {
    /// # Errors
    /// There is no such server; its programs are missing; the caller may not.
    pub(super) fn find(&self) -> Result<Target> {
        let cluster = self.unit.as_deref().and_then(Cluster::of_unit);
        let dir = match (&self.dir, &cluster) {
            (Some(dir), _) => dir.clone(),
            (None, Some(cluster)) => data_directory(cluster)?,
            (None, None) if self.unit.as_deref().is_some_and(mysqld::is_unit) => {
                mysqld::configured_directory()?
            }
            (None, None) => {
                return Err(Error::usage(
                    format!(
                        "{} is not a Debian cluster, so its directory is unknown",
                        self.unit.as_deref().unwrap_or_default()
                    ),
                    "name its data directory with -D DIR",
                ));
            }
        };
        if self.unit.is_some() && Brand::of(&dir) == Some(Brand::MySql) {
            return Err(Error::refused(
                format!("{} is MySQL's, of which no unit was tried", dir.display()),
                "with -D alone it takes a server that no unit starts; else stop that and use \
                 `tidelock encrypt`: docs/engines/mysql.md",
            ));
        }
        let bin = self.bindir.as_deref();
        let engine: Box<dyn Engine> = match cluster.is_some() || dir.join("PG_VERSION").exists() {
            true => Box::new(Instance::find(&dir, bin, cluster)?),
            false => Box::new(mysqld::Instance::find(&dir, bin)?),
        };
        let unit = engine.unit().or_else(|| self.unit.clone());
        if unit.is_some() && Owner::caller().uid != 0 {
            return Err(Error::refused(
                "what a unit needs is written into /etc, by root alone",
                "run it as root; or name the directory alone, with -D, if no unit starts it",
            ));
        }
        Ok(Target { engine, unit })
    }

    /// As it is typed again.
    pub(super) fn words(&self) -> String {
        let dir = self.dir.iter().map(|dir| format!("-D {}", dir.display()));
        self.unit.iter().cloned().chain(dir).collect::<Vec<_>>().join(" ")
    }
}

/// That of a cluster, by its configuration.
pub(crate) fn data_directory(cluster: &Cluster) -> Result<PathBuf> {
    let folder = cluster.folder();
    let (dir, _) = service::named_directory(&folder)?.ok_or_else(|| {
        Error::refused(
            format!("{} has no data_directory", folder.join("postgresql.conf").display()),
            "name the data directory itself",
        )
    })?;
    Ok(dir)
}

impl Target {
    pub(super) fn dir(&self) -> &Path {
        self.engine.dir()
    }

    /// Refuses a directory alone if systemd starts its server, now or for the next client: what is
    /// not told to a unit starts bare again.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_unnamed_unit(&self) -> Result<()> {
        self.refuse_container()?;
        if self.unit.is_some() {
            return Ok(());
        }
        let (dir, brand) = (self.dir(), Brand::of(self.dir()));
        let unit = self.engine.running().and_then(unit_of);
        // Started by hand: beside the caller, or below cron, sshd or a supervisor.
        let by_hand = |unit: &String| {
            let other =
                |main: u32| ![self.engine.head(), self.engine.running()].contains(&Some(main));
            unit_of(std::process::id()).as_ref() == Some(unit) || main_of(unit).is_some_and(other)
        };
        if let Some(unit) = unit.filter(|unit| !by_hand(unit)) {
            let name = unit.strip_suffix(".service").unwrap_or(&unit);
            let hint = match brand {
                Some(Brand::MySql) => format!(
                    "no unit of MySQL was tried: `systemctl stop {name}`, then `tidelock encrypt` \
                     or `decrypt`: docs/engines/mysql.md"
                ),
                _ => format!(
                    "name it too, as root: `tidelock protect {name} -D {0}`, or `tidelock \
                     unprotect {name} -D {0}`",
                    dir.display()
                ),
            };
            return Err(Error::refused(
                format!(
                    "{unit} runs the server on {}, and would start it as it was before",
                    dir.display()
                ),
                hint,
            ));
        }
        if brand == Some(Brand::MariaDb) {
            refuse_socket(dir)?;
        }
        Ok(())
    }

    /// Refuses a server that sees other files than the caller: its programs, options and sockets
    /// are not those of this machine.
    fn refuse_container(&self) -> Result<()> {
        let root = |of: &str| Identity::of(Path::new(&format!("/proc/{of}/root"))).ok();
        let Some(pid) = self.engine.running() else { return Ok(()) };
        match (root(&pid.to_string()), root("self")) {
            (Some(of_server), Some(ours)) if of_server != ours => Err(Error::refused(
                format!(
                    "the server on {} (process {pid}) runs in a container or under another root",
                    self.dir().display()
                ),
                "run this command in there; or stop the server there, then `tidelock encrypt` or \
                 `decrypt`",
            )),
            _ => Ok(()),
        }
    }

    /// A unit that is no cluster is systemd's alone.
    fn other_unit(&self) -> Option<&str> {
        self.unit.as_deref().filter(|_| !self.engine.starts_its_unit())
    }

    /// Active units that start the server's for whoever connects, as Debian's mariadb.socket does.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn triggers(&self) -> Result<Vec<String>> {
        let Some(unit) = self.other_unit() else { return Ok(Vec::new()) };
        let mut command = Command::new("systemctl");
        command.args(["show", unit, "--property=TriggeredBy", "--value"]);
        command.stdin(self.engine.stdin()?);
        let all = run(command)?;
        let active = |name: &&str| {
            let mut command = Command::new("systemctl");
            command.args(["is-active", "--quiet", name]).status().is_ok_and(|it| it.success())
        };
        Ok(all.split_whitespace().filter(active).map(str::to_owned).collect())
    }

    /// Stops the server, and first what would start it again without the library.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn stop(&self, triggers: &[String]) -> Result<()> {
        triggers.iter().try_for_each(|trigger| self.systemctl("stop", trigger))?;
        match self.other_unit() {
            Some(unit) => self.systemctl("stop", unit),
            None => self.engine.stop(),
        }
    }

    /// Before the server: beside one that runs, systemd starts no socket.
    pub(super) fn start_triggers(&self, triggers: &[String]) {
        for trigger in triggers {
            if let Err(why) = self.systemctl("start", trigger) {
                console::warn(why, format!("`systemctl start {trigger}` while the server is down"));
            }
        }
    }

    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn start(&self, options: &[String], log: Option<&Path>) -> Result<()> {
        let log = log.map_or_else(|| beside(self.dir(), ".log"), Path::to_path_buf);
        match self.other_unit() {
            Some(unit) => self.systemctl("start", unit),
            None => self.engine.start(options, &log),
        }
    }

    fn systemctl(&self, what: &str, unit: &str) -> Result<()> {
        let mut command = Command::new("systemctl");
        command.args([what, unit]).stdin(self.engine.stdin()?);
        run(command).map(drop)
    }
}

/// The main process of a unit, if systemd says so.
fn main_of(unit: &str) -> Option<u32> {
    let mut command = Command::new("systemctl");
    command.args(["show", unit, "--property=MainPID", "--value"]);
    let told = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let main = String::from_utf8(told.stdout).ok()?.trim().parse().ok()?;
    (main != 0).then_some(main)
}
