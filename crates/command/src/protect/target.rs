//! Which server is meant, and how it is stopped and started: a Debian cluster, another unit of
//! systemd, or a directory whose server has no unit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Goal;
use super::engine::Engine;
use crate::begun::beside;
use crate::console;
use crate::error::{Error, Result};
use crate::mysqld::{self, Brand, refuse_socket};
use crate::owner::Owner;
use crate::postgres::{Cluster, Instance, settings};
use crate::run_as::run;
use crate::server::unit_of;
use crate::starter::{
    self, Starter, is_called, is_of_people, main_of, of_patroni, starts_patroni, without_suffix,
};
use crate::whereabouts::Identity;

/// As long as a supervisor may take to start its server: Patroni asks for the leader before.
const PATIENCE: Duration = Duration::from_secs(120);
/// As long as a server may take to end behind its unit.
const BEHIND: Duration = Duration::from_secs(5);
/// How often a server that starts or stops is looked at.
const LOOK: Duration = Duration::from_millis(200);

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
    let (dir, _) = settings::named_directory(&folder)?.ok_or_else(|| {
        Error::refused(
            format!("{} has no data_directory", folder.join(settings::CONFIG).display()),
            "name the data directory itself",
        )
    })?;
    Ok(dir)
}

impl Target {
    pub(super) fn dir(&self) -> &Path {
        self.engine.dir()
    }

    /// Refuses a server that another unit starts than the one that is named, or that a unit starts
    /// and none is named: what is not told to a unit starts as it was.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_wrong_unit(&self, goal: Goal) -> Result<()> {
        self.refuse_container()?;
        let starter = self.engine.running().map(|pid| Starter::of(pid, self.engine.head()));
        if goal == Goal::Protect {
            self.refuse_patroni(starter.as_ref())?;
        }
        match (&self.unit, &starter) {
            (Some(unit), Some(starter)) => self.refuse_another_unit(unit, starter, goal),
            (Some(_), None) => Ok(()),
            (None, starter) => {
                if let Some(starter) = starter {
                    self.refuse_unnamed_unit(starter)?;
                    self.refuse_own_service()?;
                }
                match Brand::of(self.dir()) {
                    Some(Brand::MariaDb) => refuse_socket(self.dir()),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Refuses a directory alone if systemd starts its server, now or for the next client.
    fn refuse_unnamed_unit(&self, starter: &Starter) -> Result<()> {
        let Some(unit) = starter.unit() else { return Ok(()) };
        let (dir, name) = (self.dir().display(), without_suffix(unit));
        let hint = match starter {
            Starter::Supervisor { main, .. } => format!(
                "its process {main} starts the server: `systemctl stop {name}`, `tidelock encrypt \
                 {dir}`, `tidelock service install {name} -D {dir}`, `systemctl daemon-reload`, \
                 `systemctl start {name}`; or back: `tidelock decrypt {dir}`, `tidelock service \
                 remove {name}`"
            ),
            _ => format!(
                "name it too, as root: `tidelock protect {name} -D {dir}`, or `tidelock \
                 unprotect {name} -D {dir}`"
            ),
        };
        Err(Error::refused(
            format!("{unit} runs the server on {dir}, and would start it as it was before"),
            hint,
        ))
    }

    /// Refuses a server that would be started in the service that this command runs in, as below
    /// `systemd-run`, and would end with that.
    fn refuse_own_service(&self) -> Result<()> {
        let ours = unit_of(std::process::id()).filter(|unit| !is_of_people(unit));
        let Some(ours) = ours.filter(|_| starter::systemd_runs()) else { return Ok(()) };
        let theirs = self.engine.running().and_then(unit_of);
        if theirs.as_ref() == Some(&ours) || starter::spares_what_it_started(&ours) {
            return Ok(());
        }
        Err(Error::refused(
            format!(
                "this command runs in {ours}, and the server on {} would be started there: it \
                 would end with that service",
                self.dir().display()
            ),
            "run it in a login, or below `systemd-run --scope`; a provider of systemd's \
             credentials needs a unit that starts the server",
        ))
    }

    /// Refuses a unit that is named, and does not run the server: it would not stop that, and not
    /// start it either.
    fn refuse_another_unit(&self, named: &str, starter: &Starter, goal: Goal) -> Result<()> {
        let dir = self.dir().display();
        match starter.unit() {
            Some(unit) if is_called(unit, named) => Ok(()),
            Some(unit) => Err(Error::refused(
                format!("{unit} runs the server on {dir}, and not {named}"),
                format!(
                    "name that one: `tidelock {} {} -D {dir}`; or stop it for good, then the same \
                     command",
                    goal.command(),
                    without_suffix(unit)
                ),
            )),
            // Debian's programs stop one that was started by hand all the same.
            None if self.other_unit().is_none() || !starter::systemd_runs() => Ok(()),
            None => Err(Error::refused(
                format!("the server on {dir} was started by hand, and {named} would not stop it"),
                "stop it, then the same command; or leave the unit out, if none starts it",
            )),
        }
    }

    /// Refuses a server of Patroni unless the unit of that is named: Patroni would find sealed
    /// files, and has no keys to start the server with.
    fn refuse_patroni(&self, starter: Option<&Starter>) -> Result<()> {
        let Some(file) = of_patroni(self.dir()) else { return Ok(()) };
        let is_its_unit = |named: &str| match starter {
            Some(Starter::Supervisor { unit, .. }) => is_called(unit, named),
            // Patroni has ended and left its server running, as in its pause mode.
            Some(Starter::Unit(unit)) => is_called(unit, named) && starts_patroni(named),
            Some(Starter::Person) => false,
            None => starts_patroni(named),
        };
        if self.unit.as_deref().is_some_and(is_its_unit) {
            return Ok(());
        }
        let dir = self.dir().display();
        let unit = match starter {
            Some(Starter::Supervisor { unit, .. }) => without_suffix(unit),
            _ => "UNIT",
        };
        Err(Error::refused(
            format!(
                "Patroni has the server on {dir}, by {}, and its unit is not the one that is named",
                file.display()
            ),
            format!(
                "name the unit of Patroni: `tidelock protect {unit} -D {dir}`, node by node with \
                 the leader last (docs/service.md); if Patroni has left this directory for good, \
                 remove that file first"
            ),
        ))
    }

    fn refuse_container(&self) -> Result<()> {
        self.engine.running().map_or(Ok(()), |pid| refuse_container(self.dir(), pid))
    }

    /// A unit that is no cluster is systemd's alone.
    fn other_unit(&self) -> Option<&str> {
        self.unit.as_deref().filter(|_| !self.engine.starts_its_unit())
    }

    /// What the running server was started with, to start it again where no unit does.
    ///
    /// # Errors
    /// [`Error::Refused`] for what starts another server, or cannot be written down.
    pub(super) fn options(&self) -> Result<Vec<String>> {
        let options = self.engine.options()?;
        if self.other_unit().is_none() {
            self.engine.refuse_words(&options)?;
        }
        Ok(options)
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
        let Some(unit) = self.other_unit() else { return self.engine.stop() };
        self.systemctl("stop", unit)?;
        let until = Instant::now() + BEHIND;
        while let Some(pid) = self.engine.running() {
            if Instant::now() >= until {
                self.start_triggers(triggers);
                self.start_other_unit()?;
                return Err(Error::refused(
                    format!(
                        "the server on {} (process {pid}) goes on without {unit}, which was \
                         stopped and is started again",
                        self.dir().display()
                    ),
                    "a Patroni in pause leaves its server alone: `patronictl resume` first; else \
                     have the unit stop it (KillMode=, ExecStop=)",
                ));
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Starts a unit that is no cluster, whether or not its server runs; nothing happens if it is
    /// active.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn start_other_unit(&self) -> Result<()> {
        self.other_unit().map_or(Ok(()), |unit| self.systemctl("start", unit))
    }

    /// Refuses a server that somebody has started while a person has read the plan, which does not
    /// know it.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_started(&self, before: Option<u32>) -> Result<()> {
        match self.engine.running() {
            Some(pid) if before != Some(pid) => Err(Error::refused(
                format!(
                    "the server on {} (process {pid}) was started meanwhile",
                    self.dir().display()
                ),
                "run this again: a server is looked at before it is stopped",
            )),
            _ => Ok(()),
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

    /// The server that was started, once it neither starts nor stops. One that a supervisor starts,
    /// such as Patroni, comes a while after its unit: it is waited for while that is active.
    pub(super) fn started(&self) -> Option<u32> {
        let until = Instant::now() + PATIENCE;
        let mut told = false;
        loop {
            let server = self.engine.settled();
            let waits =
                |unit: &&str| server.is_none() && Instant::now() < until && main_of(unit).is_some();
            let Some(unit) = self.other_unit().filter(waits) else { return server };
            if !told {
                let line = format_args!("waits         for the server that {unit} starts\n");
                let _ = console::print(line);
                told = true;
            }
            sleep(LOOK);
        }
    }

    fn systemctl(&self, what: &str, unit: &str) -> Result<()> {
        let mut command = Command::new("systemctl");
        command.args([what, unit]).stdin(self.engine.stdin()?);
        run(command).map(drop)
    }
}

/// Refuses a server that sees other files than the caller: its programs, options and sockets are
/// not those of this machine.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_container(dir: &Path, pid: u32) -> Result<()> {
    let root = |of: &str| Identity::of(Path::new(&format!("/proc/{of}/root"))).ok();
    match (root(&pid.to_string()), root("self")) {
        (Some(of_server), Some(ours)) if of_server != ours => Err(Error::refused(
            format!(
                "the server on {} (process {pid}) runs in a container or under another root",
                dir.display()
            ),
            "run this command in there; or stop the server there, then `tidelock encrypt` or \
             `decrypt`",
        )),
        _ => Ok(()),
    }
}
