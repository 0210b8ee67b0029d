//! The servers of a ground: one for each arm, filled alike, all running while their cells are
//! measured.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tidelock_servers::mysqld::Mysqld;
use tidelock_servers::{Account, Cluster, Process, Workspace, cpu_seconds};

use super::{Progress, elsewhere};
use crate::arm::Definition;
use crate::error::{Error, Result};
use crate::experiment::{Engine, Experiment};
use crate::host::{Caps, DeviceNumber, GocryptfsMount, Group, Image, Volume, private_dir};
use crate::plan::{Ground, Instance};
use crate::trial::{Cell, Warning, WarningKind};

/// The servers of a ground.
#[derive(Debug)]
pub(super) struct Servers<'p> {
    pub(super) servers: Vec<Server<'p>>,
    settings: BTreeMap<String, String>,
}

/// One arm's server and what it stands on. The order of fields is that in which they are given up.
#[derive(Debug)]
pub(super) struct Server<'p> {
    pub(super) arm: Definition,
    number: u32,
    /// Name of its directory, as long as those of the other servers.
    directory: String,
    pub(super) database: Database<'p>,
    group: Option<Group>,
    mount: Option<GocryptfsMount>,
    volume: Option<Volume>,
    /// Its directory where the arm says where that is.
    on: Option<TempDir>,
    /// Limits that could not be set; each trial says so.
    pub(super) unlimited: Vec<Warning>,
    /// Why its CPU time is counted in ticks of the clock; `None` where its group counts it.
    pub(super) coarse: Option<Warning>,
}

/// The server itself.
#[derive(Debug)]
pub(super) enum Database<'p> {
    /// The cipher alone.
    None,
    Postgres(Cluster<'p>),
    Mysqld(Mysqld<'p>),
}

impl<'p> Servers<'p> {
    /// Makes, starts and fills a server for each arm.
    ///
    /// # Errors
    /// When one of them fails; those that run are stopped.
    pub(super) fn make(
        place: &'p Workspace,
        experiment: &Experiment,
        cell: &Cell,
        instances: Vec<Instance>,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let ground = crate::plan::ground(experiment, cell)?;
        let caps = Caps::resolve(&experiment.limits, &cell.0)?;
        let mut servers = Vec::new();
        let directories = directories(&instances);
        for (instance, directory) in instances.into_iter().zip(directories) {
            let arm = Definition::of(experiment, &instance.arm);
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            progress.preparing(&filling(&arm, &ground));
            let mut server = Server::new(arm, instance.number, directory);
            server.make(place, experiment.engine, &ground, &caps, stop)?;
            servers.push(server);
        }
        Ok(Self { servers, settings: ground.settings })
    }

    /// Puts the servers into this order: in it they are warmed up, read into the page cache and
    /// given equal work.
    pub(super) fn arrange(&mut self, order: &[Instance]) {
        let place = |server: &Server<'_>| order.iter().position(|one| *one == server.instance());
        self.servers.sort_by_key(place);
    }

    /// Restarts all servers if they have other settings. What an arm sets itself stays.
    ///
    /// # Errors
    /// When one does not come up again.
    pub(super) fn set(&mut self, settings: &BTreeMap<String, String>) -> Result<()> {
        if self.settings == *settings {
            return Ok(());
        }
        for server in self.servers.iter_mut().filter(|s| !s.database.is_elsewhere()) {
            let own = server.arm.extra.as_ref().map(|own| &own.settings);
            let mut others = settings.clone();
            others.retain(|name, _| own.is_none_or(|own| !own.contains_key(name)));
            server.database.set(&others)?;
            server.inside(|database| database.restart())?;
        }
        self.settings = settings.clone();
        Ok(())
    }

    pub(super) fn of(&self, arm: &str, number: u32) -> Result<&Server<'p>> {
        self.servers
            .iter()
            .find(|server| server.arm.name == arm && server.number == number)
            .ok_or_else(|| Error::Other(format!("no server was made for the arm {arm}")))
    }
}

impl<'p> Server<'p> {
    fn new(arm: Definition, number: u32, directory: String) -> Self {
        Self {
            arm,
            number,
            directory,
            database: Database::None,
            group: None,
            mount: None,
            volume: None,
            on: None,
            unlimited: Vec::new(),
            coarse: None,
        }
    }

    /// A server that others made.
    #[cfg(test)]
    pub(super) fn over(arm: Definition, database: Database<'p>) -> Self {
        let directory = name(&arm.name, 0);
        let mut server = Self::new(arm, 0, directory);
        server.database = database;
        server
    }

    fn make(
        &mut self,
        place: &'p Workspace,
        engine: Engine,
        ground: &Ground,
        caps: &Caps,
        stop: &AtomicBool,
    ) -> Result<()> {
        if engine == Engine::None {
            return Ok(());
        }
        if let Some(own) = self.arm.extra.clone().filter(|own| own.dsn.is_some()) {
            self.database = Database::Postgres(elsewhere::reach(place, &own)?);
        } else {
            self.limit(place, ground, caps)?;
            self.database = self.install(place, engine, ground)?;
            self.inside(|database| database.start())?;
        }
        if let Some(sql) = self.arm.extra.as_ref().and_then(|own| own.sql.as_ref()) {
            self.database.sql(sql)?;
        }
        if self.arm.extra.as_ref().is_some_and(|own| own.restart) {
            self.inside(|database| database.restart())?;
        }
        match &self.database {
            Database::Postgres(cluster) => fill(cluster, ground, stop),
            Database::Mysqld(mysqld) if ground.sysbench.0 > 0 => {
                crate::work::sysbench::fill(mysqld, ground.sysbench, stop)
            }
            Database::Mysqld(_) | Database::None => Ok(()),
        }
    }

    /// Which server of which arm it is.
    pub(super) fn instance(&self) -> Instance {
        Instance { arm: self.arm.name.clone(), number: self.number }
    }

    /// Its name among all servers.
    fn name(&self) -> String {
        name(&self.arm.name, self.number)
    }

    /// Makes the volume and the group that the ground asks for, as far as this machine allows.
    fn limit(&mut self, place: &Workspace, ground: &Ground, caps: &Caps) -> Result<()> {
        let mib = ground.limits.get("volume_mib").and_then(|mib| mib.parse().ok());
        let mib = mib.unwrap_or(VOLUME_MIB);
        if let Some(kind) = self.arm.extra.as_ref().and_then(|own| own.volume) {
            self.volume = Some(Volume::of_type(place.path(), kind, mib, Image::Direct)?);
        } else if let Some(fs) = ground.limits.get("volume").filter(|fs| *fs != "none") {
            let fs = fs.parse().map_err(Error::Other)?;
            match Volume::create(place.path(), fs, mib, Image::Direct) {
                Ok(volume) => self.volume = Some(volume),
                Err(why @ crate::host::VolumeError::NotRoot) => self
                    .unlimited
                    .push(Warning { kind: WarningKind::Unlimited, text: why.to_string() }),
                Err(error) => return Err(error.into()),
            }
        }
        // Also without limits: the group counts CPU time.
        let device = self.device();
        let reasons = match Group::create(&self.name()) {
            Ok(mut group) => {
                let reasons = group.apply(caps, device);
                if group.cpu_seconds().is_none() {
                    self.coarse = Some(coarse("this kernel's groups do not count CPU time"));
                }
                self.group = Some(group);
                reasons
            }
            Err(reason) => {
                self.coarse = Some(coarse(&reason.warning().text));
                if caps.any() { vec![reason] } else { Vec::new() }
            }
        };
        self.unlimited.extend(reasons.iter().map(crate::host::Unlimited::warning));
        Ok(())
    }

    /// The directory and the settings of a server that does not run yet.
    fn install(
        &mut self,
        place: &'p Workspace,
        engine: Engine,
        ground: &Ground,
    ) -> Result<Database<'p>> {
        let mut below = None;
        if let Some(volume) = &self.volume {
            let data = volume.data();
            place.account().give(&data)?;
            below = Some(data);
        }
        if self.arm.gocryptfs {
            let base = below.as_deref().unwrap_or(place.path());
            let mount = || GocryptfsMount::mount(base, place.account());
            let mount = match &self.group {
                Some(group) => group.inside(mount).unwrap_or_else(|_| mount())?,
                None => mount()?,
            };
            below = Some(mount.root().to_path_buf());
            self.mount = Some(mount);
        }
        if let Some(on) = self.arm.extra.as_ref().and_then(|own| own.on.as_ref()) {
            let made = private_dir(Path::new(on), "on");
            let made = made.map_err(Error::io(format!("making a directory in {on}")))?;
            below = Some(part_of_server(made.path(), place.account())?);
            self.on = Some(made);
        }
        let dir = below.map(|below| below.join("data"));
        let name = &self.directory;
        let Definition { arm, bin, env, .. } = &self.arm;
        let mut settings = ground.settings.clone();
        if let Some(own) = &self.arm.extra {
            for (name, value) in &own.settings {
                settings.insert(name.clone(), value.text(&BTreeMap::new())?);
            }
        }
        let database = if let Some(brand) = engine.brand() {
            let mut mysqld = Mysqld::at(place, brand, name, *arm)?.with(bin.clone(), env.clone());
            if let Some(dir) = dir {
                mysqld = mysqld.on(dir);
            }
            if self.arm.own {
                mysqld = mysqld.encrypting_itself()?;
            }
            for (name, value) in &settings {
                mysqld.set(name, value)?;
            }
            // The agent that it starts may outlive it, and its work counts.
            let install = || mysqld.install();
            match &self.group {
                Some(group) => group.inside(install).unwrap_or_else(|_| install())?,
                None => install()?,
            }
            Database::Mysqld(mysqld)
        } else {
            let cluster = Cluster::at(place, name, *arm)?.with(bin.clone(), env.clone());
            let mut cluster = cluster.with_its_own_io_method();
            if let Some(dir) = dir {
                cluster = cluster.on(dir);
            }
            // So may that of initdb.
            let more = self.arm.extra.iter().flat_map(|own| &own.initdb).map(String::as_str);
            let initdb: Vec<&str> = ["-k", "-N"].into_iter().chain(more).collect();
            let make = || cluster.make(&initdb);
            match &self.group {
                Some(group) => group.inside(make).unwrap_or_else(|_| make())?,
                None => make()?,
            }
            for (name, value) in &settings {
                cluster.set(name, value)?;
            }
            Database::Postgres(cluster)
        };
        Ok(database)
    }

    /// Does `work` on the database so that what it starts is in the group from the beginning.
    fn inside(&mut self, work: impl Fn(&Database<'p>) -> Result<()>) -> Result<()> {
        let Some(group) = &self.group else { return work(&self.database) };
        // The way back may be refused too: then it was done.
        let mut done = None;
        if let Err(reason) = group.inside(|| done = Some(work(&self.database))) {
            self.unlimited.push(reason.warning());
        }
        done.unwrap_or_else(|| work(&self.database))
    }

    /// The block device of its own, if it has one.
    pub(super) fn device(&self) -> Option<DeviceNumber> {
        self.volume.as_ref().and_then(|volume| volume.device().ok())
    }

    /// Whether its memory, page cache included, is limited.
    pub(super) fn limits_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::limits_memory)
    }

    /// Its control group, if it has one.
    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// CPU seconds that the server and what serves it (the agent, gocryptfs, the kernel for them)
    /// have used so far, in nanoseconds of its group. Without a group: those of the server's
    /// processes and of gocryptfs, in ticks; see `coarse`.
    ///
    /// # Errors
    /// When the server does not run, or its group counted before and does not now: ticks in its
    /// place would be taken for a difference.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        if let Some(group) = self.group.as_ref().filter(|_| self.coarse.is_none()) {
            let vanished = || {
                let what = "does not count CPU time any more: did something remove it?";
                Error::Other(format!("the control group of {} {what}", self.name()))
            };
            let seconds = group.cpu_seconds().ok_or_else(vanished)?;
            self.database.process()?;
            return Ok(seconds);
        }
        let server = cpu_seconds(self.database.process()?);
        let mount = self.mount.as_ref().and_then(GocryptfsMount::process).map_or(0.0, cpu_seconds);
        Ok(server + mount)
    }
}

/// A server's name: that of its arm, `sealed-2` for the second.
fn name(arm: &str, number: u32) -> String {
    match number {
        0 => arm.to_owned(),
        number => format!("{arm}-{}", number + 1),
    }
}

/// Names of the servers' directories, all of one length. A server has the path in its arguments and
/// on its stack; where these have other lengths, the same program has other addresses. No name of
/// an arm has a dot.
fn directories(instances: &[Instance]) -> Vec<String> {
    let names = || instances.iter().map(|one| name(&one.arm, one.number));
    let width = names().map(|name| name.len()).max().unwrap_or_default();
    names().map(|name| format!("{name:.<width$}")).collect()
}

/// A directory for the servers' account in one of ours. That stays ours: of what a killed lab left,
/// the next one removes nothing else.
fn part_of_server(ours: &Path, account: &Account) -> Result<PathBuf> {
    let part = ours.join("server");
    let failed = || Error::io(format!("making {}", part.display()));
    fs::create_dir(&part).map_err(failed())?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).map_err(failed())?;
    // The servers' account passes through.
    fs::set_permissions(ours, fs::Permissions::from_mode(0o711)).map_err(failed())?;
    account.give(&part)?;
    Ok(part)
}

impl Drop for Server<'_> {
    /// What the lab made elsewhere goes.
    fn drop(&mut self) {
        if let Database::Postgres(cluster) = &self.database
            && cluster.is_elsewhere()
            && let Err(why) = elsewhere::leave(&self.arm.name, cluster)
        {
            let schema = elsewhere::SCHEMA;
            tidelock_console::warn(
                format!("the lab's schema may be left there: {why}"),
                format!("DROP SCHEMA {schema} CASCADE, once nobody needs what is in it"),
            );
        }
    }
}

impl Database<'_> {
    /// Runs SQL once.
    fn sql(&self, text: &str) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Postgres(cluster) => Ok(cluster.sql(text).map(drop)?),
            Self::Mysqld(mysqld) => Ok(mysqld.sql(text).map(drop)?),
        }
    }

    /// Whether it is a server elsewhere: no process, no directory, no settings of ours.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Postgres(cluster) if cluster.is_elsewhere())
    }

    pub(super) fn process(&self) -> Result<Process> {
        match self {
            Self::None => Err(Error::Other("there is no server".into())),
            Self::Postgres(cluster) => Ok(cluster.postmaster()?),
            Self::Mysqld(mysqld) => Ok(mysqld.process()?),
        }
    }

    /// A checkpoint: what the server holds changed is on the disk then.
    pub(super) fn write_out(&self, stop: &AtomicBool) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Postgres(cluster) => {
                // On a slow volume it takes minutes.
                let tool = cluster.psql("postgres", "CHECKPOINT").limit(3600).log(cluster.log());
                crate::work::run(tool, stop).map(drop)
            }
            Self::Mysqld(mysqld) => Ok(mysqld.write_out()?),
        }
    }

    fn start(&self) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Postgres(cluster) => Ok(cluster.start()?),
            Self::Mysqld(mysqld) => Ok(mysqld.start()?),
        }
    }

    fn restart(&self) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Postgres(cluster) => Ok(cluster.restart()?),
            Self::Mysqld(mysqld) => Ok(mysqld.restart()?),
        }
    }

    fn set(&self, settings: &BTreeMap<String, String>) -> Result<()> {
        for (name, value) in settings {
            match self {
                Self::None => {}
                Self::Postgres(cluster) => cluster.set(name, value)?,
                Self::Mysqld(mysqld) => mysqld.set(name, value)?,
            }
        }
        Ok(())
    }
}

fn coarse(why: &str) -> Warning {
    let text = format!(
        "CPU time is that of the server's processes, in ticks of 10 ms and without the agent: {why}"
    );
    Warning { kind: WarningKind::CoarseClock, text }
}

fn fill(cluster: &Cluster<'_>, ground: &Ground, stop: &AtomicBool) -> Result<()> {
    if ground.scale > 0 {
        let scale = ground.scale.to_string();
        let fill = cluster.client("pgbench").args(["-i", "-q", "-s", &scale]);
        crate::work::run(fill.limit(LIMIT.as_secs()).log(cluster.log()), stop)?;
    }
    let mut text = format!("{};\n", ground.setup);
    // Elsewhere the rest of the database, and when it is written, are no business of ours.
    if !cluster.is_elsewhere() {
        text += "VACUUM FREEZE;\nCHECKPOINT";
    }
    let tool = cluster.psql("postgres", &text).limit(LIMIT.as_secs()).log(cluster.log());
    crate::work::run(tool, stop).map(drop)
}

fn filling(arm: &Definition, ground: &Ground) -> String {
    match (ground.scale, ground.sysbench) {
        (0, (0, _)) => format!("making the server {}", arm.name),
        (0, (tables, rows)) => {
            format!("making the server {}, {tables} tables of {rows} rows", arm.name)
        }
        (scale, _) => format!("making the server {}, scale {scale}", arm.name),
    }
}

/// Size of a volume if the experiment has none.
const VOLUME_MIB: u64 = 4096;
/// The longest time to fill a server.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::experiment;

    #[test]
    fn directories_of_all_servers_have_names_of_one_length() {
        let servers = [("plain", 0), ("control", 0), ("gocryptfs", 1)]
            .map(|(arm, number)| Instance { arm: arm.into(), number });
        assert_eq!(directories(&servers), ["plain......", "control....", "gocryptfs-2"]);
        assert_eq!(directories(&servers[..2]), ["plain..", "control"]);
        assert!(directories(&[]).is_empty());
    }

    #[test]
    fn a_group_that_vanished_is_an_error_and_not_the_clock_of_the_processes() {
        let arm = Definition::of(&experiment(&["plain"]), "plain");
        let mut server = Server::over(arm, Database::None);
        server.group = Some(Group::vanished());
        let why = server.cpu_seconds().unwrap_err().to_string();
        assert!(why.starts_with("the control group of plain does not count"), "{why}");
        // One that never counted has the processes', which here are none.
        server.coarse = Some(coarse("it never did"));
        let why = server.cpu_seconds().unwrap_err().to_string();
        assert_eq!(why, "there is no server");
    }
}
