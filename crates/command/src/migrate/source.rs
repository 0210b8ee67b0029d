//! What the running source says of itself, and what stands in the way of a standby.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::console;
use crate::error::{Error, Result};
use crate::postgres::{Address, Cluster, Instance, Running, Session};
use crate::protect::refuse_container;
use crate::run_as::run;
use crate::starter::{Starter, is_called, of_patroni, without_suffix};
use crate::whereabouts::Identity;

/// A standby with less of these refuses to follow (PostgreSQL, "Administrator's Overview").
const AT_LEAST: [&str; 5] = [
    "max_connections",
    "max_worker_processes",
    "max_wal_senders",
    "max_prepared_transactions",
    "max_locks_per_transaction",
];
/// The first version with backup manifests.
const OLDEST: u32 = 130_000;
/// A busy server may have some files of WAL that wait for its archive.
const MANY_WAIT: usize = 16;

/// The running source.
pub(super) struct Source {
    pub(super) instance: Instance,
    pub(super) address: Address,
    pub(super) session: Session,
    settings: BTreeMap<String, String>,
    pub(super) facts: Facts,
}

/// What was found.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) pid: u32,
    pub(super) tablespaces: Vec<PathBuf>,
    /// Other slots: name, type.
    pub(super) slots: Vec<(String, String)>,
    /// Other standbys, by name and address.
    pub(super) standbys: Vec<String>,
    pub(super) clients: usize,
    /// Databases with unlogged sequences that were used, or tables that have rows, and how many.
    unlogged: Vec<(String, usize)>,
    /// Databases that let nobody in.
    closed: Vec<String>,
    pub(super) slot_exists: bool,
    /// The file that the server writes its log to.
    pub(super) log: Option<PathBuf>,
    /// Who starts it.
    pub(super) starter: Starter,
    in_recovery: bool,
    superuser: bool,
    senders: u32,
    all_slots: u32,
    /// Why a connection for replication is refused.
    no_replication: Option<String>,
}

/// Something that has to be changed first, and how.
pub(super) struct Obstacle {
    pub(super) what: String,
    pub(super) hint: String,
}

impl Source {
    /// Asks the server that runs on the directory; `slot` is ours.
    ///
    /// # Errors
    /// None runs; it does not let us in.
    pub(super) fn ask(instance: Instance, user: &str, slot: &str) -> Result<Self> {
        let running = Running::on(&instance.dir).ok_or_else(|| {
            Error::refused(
                format!("no server runs on {}", instance.dir.display()),
                "start it: a migration copies from a running server; for a stopped one, see \
                 `tidelock encrypt`",
            )
        })?;
        refuse_container(&instance.dir, running.pid)?;
        let address =
            Address { host: running.host.clone(), port: running.port, user: user.to_owned() };
        let mut session = Session::open(&instance.programs, &address, "postgres")?;
        let settings = session.ask("SELECT name, setting FROM pg_settings")?;
        let settings = settings
            .into_iter()
            .filter_map(|row| Some((row.first()?.clone(), row.get(1)?.clone())));
        let settings: BTreeMap<String, String> = settings.collect();
        refuse_another(&settings, &instance.dir)?;
        let (log, starter) = (running.log(), Starter::of(running.pid, None));
        let mut facts = Facts { pid: running.pid, log, starter, ..Facts::default() };
        let yes = |value: String| value == "t";
        facts.in_recovery = yes(session.value("SELECT pg_is_in_recovery()")?);
        facts.superuser =
            yes(session.value("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")?);
        let number = |value: String| value.parse().unwrap_or(u32::MAX);
        facts.senders = number(session.value("SELECT count(*) FROM pg_stat_replication")?);
        facts.all_slots = number(session.value("SELECT count(*) FROM pg_replication_slots")?);
        let first = |row: Vec<String>| row.into_iter().next();
        let spaces = session.ask(
            "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE oid NOT IN (1663, 1664)",
        )?;
        facts.tablespaces = spaces.into_iter().filter_map(first).map(PathBuf::from).collect();
        for row in session
            .ask("SELECT slot_name, slot_type FROM pg_replication_slots WHERE NOT temporary")?
        {
            match row.as_slice() {
                [name, _] if name == slot => facts.slot_exists = true,
                [name, kind] => facts.slots.push((name.clone(), kind.clone())),
                _ => {}
            }
        }
        let standbys = session.ask(&format!(
            "SELECT application_name || coalesce(' at ' || host(client_addr), '') \
             FROM pg_stat_replication \
             WHERE application_name <> '{slot}' AND application_name NOT LIKE 'pg_basebackup%'"
        ))?;
        facts.standbys = standbys.into_iter().filter_map(first).collect();
        let clients = session.value(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )?;
        facts.clients = clients.parse().unwrap_or(0);
        let mut source = Self { instance, address, session, settings, facts };
        source.facts.no_replication = source.try_replication()?;
        if source.facts.superuser && !source.facts.in_recovery {
            source.facts.unlogged = source.find_unlogged()?;
            let closed = "SELECT datname FROM pg_database \
                          WHERE NOT datallowconn AND datname <> 'template0' ORDER BY 1";
            source.facts.closed = source.session.ask(closed)?.into_iter().flatten().collect();
        }
        Ok(source)
    }

    /// A setting as the server has it now.
    pub(super) fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map(String::as_str).unwrap_or_default()
    }

    fn number(&self, name: &str) -> u32 {
        self.setting(name).parse().unwrap_or(0)
    }

    /// Its configuration file, if that lies outside of the directory.
    pub(super) fn config(&self) -> Option<PathBuf> {
        let file = Path::new(self.setting("config_file"));
        (!file.as_os_str().is_empty() && !file.starts_with(&self.instance.dir)).then(|| file.into())
    }

    /// What a standby has to have at least, and what it must not take from the source.
    pub(super) fn at_least(&self) -> Vec<(String, String)> {
        let pair = |name: &str| (name.to_owned(), self.setting(name).to_owned());
        let mut all: Vec<_> = AT_LEAST.iter().map(|name| pair(name)).collect();
        if self.setting("archive_mode") == "always" {
            // Two servers would archive the same segments.
            all.push(("archive_mode".to_owned(), "on".to_owned()));
        }
        // PostgreSQL 16 has removed it. If its file exists, the copy would promote itself.
        if self.settings.contains_key("promote_trigger_file") {
            all.push(("promote_trigger_file".to_owned(), String::new()));
        }
        // PostgreSQL 17 has brought it. The promoted copy forgets the source by ALTER SYSTEM.
        if self.settings.contains_key("allow_alter_system") {
            all.push(("allow_alter_system".to_owned(), "on".to_owned()));
        }
        all
    }

    /// Those that let somebody in.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn databases(&mut self) -> Result<Vec<String>> {
        let names = "SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname";
        Ok(self.session.ask(names)?.into_iter().flatten().collect())
    }

    /// A base backup leaves the rows of unlogged tables out, and a promoted standby has none; a
    /// sequence begins again.
    fn find_unlogged(&mut self) -> Result<Vec<(String, usize)>> {
        let mut found = Vec::new();
        for database in self.databases()? {
            let mut session = Session::open(&self.instance.programs, &self.address, &database)?;
            let count = session.value(
                "SELECT count(*) FROM pg_class WHERE relpersistence = 'u' AND \
                 (relkind = 'S' AND pg_sequence_last_value(oid::regclass) IS NOT NULL OR \
                 relkind IN ('r', 'm') AND pg_relation_size(oid::regclass) > 0)",
            )?;
            // What is no number is not none.
            let count = count.parse().unwrap_or(usize::MAX);
            if count > 0 {
                found.push((database, count));
            }
        }
        Ok(found)
    }

    /// Tried as pg_basebackup will: pg_hba.conf has lines of its own for it.
    fn try_replication(&self) -> Result<Option<String>> {
        let mut command = self.instance.programs.bare("psql")?;
        let conninfo = self.address.conninfo(&[("replication", "true"), ("dbname", "postgres")]);
        command.args(["-X", "-w", "-d", &conninfo, "-c", "IDENTIFY_SYSTEM"]).env("LC_ALL", "C");
        match run(command) {
            Ok(_) => Ok(None),
            Err(Error::Tool { said, .. }) => Ok(Some(said)),
            Err(other) => Err(other),
        }
    }

    /// What its archiver has failed with, or is behind with; nothing if all is well.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn archive_lag(&mut self) -> Result<Option<String>> {
        if self.setting("archive_mode") == "off" {
            return Ok(None);
        }
        let failed = self.session.value(
            "SELECT last_failed_wal FROM pg_stat_archiver \
             WHERE last_failed_time > coalesce(last_archived_time, '-infinity')",
        )?;
        let waiting = not_archived(&self.instance.dir).len();
        if failed.is_empty() && waiting < MANY_WAIT {
            return Ok(None);
        }
        let last = if failed.is_empty() { failed } else { format!("; {failed} failed last") };
        let files = console::count(waiting, "file");
        Ok(Some(format!("{files} of WAL at the source not archived yet{last}")))
    }

    /// What would start the source again, or look for it where it was. `is_away`: the user has
    /// taken that away.
    pub(super) fn supervised(&self, is_away: bool) -> Option<Obstacle> {
        if let Some(file) = of_patroni(&self.instance.dir) {
            return Some(Obstacle {
                what: format!(
                    "Patroni has the source, by {}, and would start it on its old directory again",
                    file.display()
                ),
                hint: "seal such a cluster node by node: each replica is built again with \
                       `auto_init`, then the leader after `patronictl switchover` \
                       (docs/service.md); if Patroni has left this directory for good, remove \
                       that file first"
                    .to_owned(),
            });
        }
        let cluster = self.instance.cluster.as_ref().map(Cluster::unit);
        let what = match &self.facts.starter {
            Starter::Supervisor { unit, main } => {
                format!("{unit} runs the source, and its process {main} may start that again")
            }
            Starter::Unit(unit) => {
                let cluster = cluster.filter(|cluster| !is_called(unit, cluster))?;
                format!("{unit} runs the source, and not {cluster}")
            }
            Starter::Person => return None,
        };
        let name = self.facts.starter.unit().map_or("", without_suffix);
        let hint = format!(
            "have {name} leave the server alone and say --without-supervisor: after the switchover \
             it is yours to point at the new directory; or stop {name}, then `tidelock encrypt`"
        );
        (!is_away).then_some(Obstacle { what, hint })
    }

    /// What has to be changed at the source before a standby can follow it. `begun`: our slot is
    /// there already, or may be.
    pub(super) fn obstacles(&self, slot: &str, begun: bool, leave_behind: bool) -> Vec<Obstacle> {
        let mut found = Vec::new();
        let mut add = |what: String, hint: String| found.push(Obstacle { what, hint });
        let facts = &self.facts;
        let version = self.number("server_version_num");
        if version < OLDEST {
            add(
                format!("the source is PostgreSQL {}", self.setting("server_version")),
                "migrate copies from version 13 on; use pg_dump, or upgrade first".into(),
            );
        }
        if facts.in_recovery {
            add(
                "the source is a standby".into(),
                "migrate its primary; build the standby again with pg_basebackup under \
                 `tidelock exec`"
                    .into(),
            );
        }
        if !facts.superuser {
            add(
                format!("{} is not a superuser at the source", self.address.user),
                "name a superuser with --username".into(),
            );
        }
        if self.setting("wal_level") == "minimal" {
            add(
                "wal_level is minimal at the source: no standby can follow".into(),
                "ALTER SYSTEM SET wal_level = 'replica'; then restart the source".into(),
            );
        }
        let senders = self.number("max_wal_senders");
        if !begun && senders < facts.senders.saturating_add(2) {
            add(
                format!(
                    "max_wal_senders is {senders}, and {} are in use: a copy needs two more",
                    facts.senders
                ),
                format!(
                    "ALTER SYSTEM SET max_wal_senders = {}; then restart the source",
                    facts.senders.saturating_add(10)
                ),
            );
        }
        let slots = self.number("max_replication_slots");
        if !facts.slot_exists && slots <= facts.all_slots {
            add(
                format!("max_replication_slots is {slots}, and all are in use"),
                format!(
                    "ALTER SYSTEM SET max_replication_slots = {}; then restart the source",
                    facts.all_slots.saturating_add(10)
                ),
            );
        }
        if facts.slot_exists && !begun {
            add(
                format!("the source has a replication slot {slot} already"),
                format!(
                    "another migration to a directory of this name goes on, or was cut off: \
                     SELECT pg_drop_replication_slot('{slot}')"
                ),
            );
        }
        if let Some(said) = facts.no_replication.as_ref().filter(|_| senders > 0) {
            let host = &self.address.host;
            let line = if host.is_absolute() {
                format!("local replication {} peer", self.address.user)
            } else {
                format!(
                    "host replication {} {}/32 scram-sha-256",
                    self.address.user,
                    host.display()
                )
            };
            add(
                format!("the source refuses a connection for replication: {said}"),
                format!(
                    "add the line `{line}` to {}, then SELECT pg_reload_conf()",
                    self.setting("hba_file")
                ),
            );
        }
        let synchronous = self.setting("synchronous_standby_names");
        if synchronous.contains('*') {
            add(
                format!(
                    "synchronous_standby_names is {synchronous}: the copy would count as a \
                     synchronous standby, and hold up commits"
                ),
                "name the standbys: ALTER SYSTEM SET synchronous_standby_names = '...'; SELECT \
                 pg_reload_conf()"
                    .into(),
            );
        }
        for name in [
            "recovery_target",
            "recovery_target_lsn",
            "recovery_target_name",
            "recovery_target_time",
            "recovery_target_xid",
        ] {
            if !self.setting(name).is_empty() {
                add(
                    format!("{name} is set at the source: the copy would stop there"),
                    format!(
                        "ALTER SYSTEM RESET {name}, or take it out of postgresql.conf; then reload"
                    ),
                );
            }
        }
        for name in ["data_directory", "hba_file", "ident_file"] {
            let named = Path::new(self.setting(name));
            let own = match name {
                "data_directory" => true,
                "hba_file" => named == self.instance.dir.join("pg_hba.conf"),
                _ => named == self.instance.dir.join("pg_ident.conf"),
            };
            if !own && named.starts_with(&self.instance.dir) {
                add(
                    format!("{name} is {}, which is not its usual place", named.display()),
                    format!("take {name} out of postgresql.conf, move the file, then restart"),
                );
            }
        }
        if !leave_behind {
            for (database, count) in &facts.unlogged {
                add(
                    format!(
                        "{} of the database {database} would be empty at the new server, or begin \
                         again",
                        console::count(*count, "unlogged table or sequence")
                    ),
                    "ALTER TABLE ... SET LOGGED, ALTER SEQUENCE ... SET LOGGED; or TRUNCATE ... \
                     RESTART IDENTITY what is not needed; with --leave-behind what they have is left \
                     behind"
                        .into(),
                );
            }
            for database in &facts.closed {
                add(
                    format!(
                        "the database {database} lets nobody in: its tables cannot be looked at"
                    ),
                    "ALTER DATABASE ... ALLOW_CONNECTIONS true for the while; with --leave-behind \
                     what its unlogged tables have is left behind"
                        .into(),
                );
            }
            for (name, kind) in &facts.slots {
                add(
                    format!("the {kind} replication slot {name} does not go along"),
                    format!(
                        "SELECT pg_drop_replication_slot('{name}') if it is not needed; with \
                         --leave-behind its consumer is yours to move"
                    ),
                );
            }
            for standby in &facts.standbys {
                add(
                    format!("the standby {standby} follows the source, not the new server"),
                    "with --leave-behind it is yours to point at the new server after the \
                     switchover"
                        .into(),
                );
            }
        }
        found
    }
}

/// Drops the slot at the server that runs on the directory; false if none does.
///
/// # Errors
/// [`Error::Tool`]; [`Error::Refused`] if another server answers, or the slot is still there.
pub(super) fn drop_slot(instance: &Instance, user: &str, slot: &str) -> Result<bool> {
    let Some(running) = Running::on(&instance.dir) else { return Ok(false) };
    let address = Address { host: running.host.clone(), port: running.port, user: user.to_owned() };
    let mut session = Session::open(&instance.programs, &address, "postgres")?;
    let named = session.value("SHOW data_directory")?;
    refuse_another(&BTreeMap::from([("data_directory".to_owned(), named)]), &instance.dir)?;
    let of_slot = format!("FROM pg_replication_slots WHERE slot_name = '{slot}'");
    session.ask(&format!("SELECT pg_drop_replication_slot(slot_name) {of_slot}"))?;
    match session.value(&format!("SELECT count(*) {of_slot}"))?.as_str() {
        "0" => Ok(true),
        _ => Err(Error::refused(
            format!("the slot {slot} is still at the source, where it keeps WAL"),
            format!("SELECT pg_drop_replication_slot('{slot}'), then the same command"),
        )),
    }
}

/// Refuses a server that works on another directory than `dir`: where one has crashed, another may
/// have its port by now.
fn refuse_another(settings: &BTreeMap<String, String>, dir: &Path) -> Result<()> {
    let Some(named) = settings.get("data_directory").map(Path::new) else { return Ok(()) };
    match (Identity::of(named), Identity::of(dir)) {
        (Ok(theirs), Ok(ours)) if theirs != ours => Err(Error::refused(
            format!("the server at the port of {} has {}", dir.display(), named.display()),
            "end what is left of the server that had this directory, and start it again",
        )),
        _ => Ok(()),
    }
}

/// The files of WAL in a data directory that no archive has yet, by their names and in order.
pub(super) fn not_archived(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("pg_wal/archive_status")).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(".ready").map(str::to_owned)
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_the_archive_is_told_in_order() {
        let dir = tempfile::tempdir().unwrap();
        assert!(not_archived(dir.path()).is_empty());
        let status = dir.path().join("pg_wal/archive_status");
        fs::create_dir_all(&status).unwrap();
        for name in ["0003.ready", "0001.done", "0002.ready"] {
            fs::write(status.join(name), "").unwrap();
        }
        assert_eq!(not_archived(dir.path()), ["0002", "0003"]);
    }
}
