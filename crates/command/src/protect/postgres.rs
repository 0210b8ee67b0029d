//! PostgreSQL: started by pg_ctl, or by Debian's pg_ctlcluster for a unit of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::engine::Engine;
use super::outside;
use crate::begun::Lock;
use crate::error::{Error, Result};
use crate::postgres::{Address, Instance, Running, Session, options};
use crate::service;

/// Versions whose programs were tried (docs/platforms.md).
const VERSIONS: std::ops::RangeInclusive<u32> = 13..=18;
/// Who is asked when nobody else is named.
const SUPERUSER: &str = "postgres";

impl Engine for Instance {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn hold(&mut self, lock: &Lock) -> Result<()> {
        self.programs.hold(lock)
    }

    fn stdin(&self) -> Result<Stdio> {
        self.programs.run_as().stdin()
    }

    fn unit(&self) -> Option<String> {
        self.cluster.as_ref().map(crate::postgres::Cluster::unit)
    }

    fn version(&self) -> Result<String> {
        let version = fs::read_to_string(self.dir.join("PG_VERSION")).unwrap_or_default();
        let version = version.trim();
        if !version.parse().is_ok_and(|version| VERSIONS.contains(&version)) {
            return Err(Error::refused(
                format!("{} is of PostgreSQL {version}", self.dir.display()),
                "versions 13 to 18 are known; upgrade it first",
            ));
        }
        Ok(format!("PostgreSQL {version}"))
    }

    fn program(&self) -> PathBuf {
        self.programs.path("postgres")
    }

    fn running(&self) -> Option<u32> {
        Running::on(&self.dir).map(|it| it.pid)
    }

    fn settled(&self) -> Option<u32> {
        Running::settled(&self.dir).map(|it| it.pid)
    }

    fn head(&self) -> Option<u32> {
        Engine::running(self)
    }

    fn options(&self) -> Result<Vec<String>> {
        options(&self.dir)
    }

    fn log(&self) -> Option<PathBuf> {
        Running::on(&self.dir)?.log()
    }

    fn notes(&self, user: Option<&str>, _: Option<&str>) -> Result<String> {
        if let Some(cluster) = &self.cluster {
            let (unit, folder) = (cluster.unit(), cluster.folder());
            service::refuse_another_directory(&unit, &folder, &self.dir, Path::new("/"))?;
        }
        let Some(running) = Running::on(&self.dir) else { return Ok(String::new()) };
        outside::refuse_log_inside(&self.dir, running.pid)?;
        let mut session = open(self, &running, user)?;
        if session.value("SELECT current_setting('io_method', true)")? == "io_uring" {
            return Err(Error::refused(
                "io_method is io_uring, which goes round libc: the sealed server would not start",
                "ALTER SYSTEM SET io_method = 'worker'; then restart the server",
            ));
        }
        let mut notes = String::new();
        let archive = session.value(
            "SELECT current_setting('archive_command') WHERE current_setting('archive_mode') \
             <> 'off' AND current_setting('archive_command') NOT IN ('', '(disabled)')",
        )?;
        if !archive.is_empty() {
            notes.push_str(&format!(
                "archive       archive_command will see sealed WAL (docs/service.md, helpers; \
                 pgBackRest\n{:14}needs --program); take a new base backup after this: {archive}\n",
                ""
            ));
        }
        let clients = session.value(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )?;
        notes.push_str(&format!("clients       {clients} connected, who are sent away\n"));
        let mut senders = |which: &str| {
            session.value(&format!("SELECT count(*) FROM pg_stat_replication WHERE {which}"))
        };
        let backups = senders("state = 'backup'")?;
        // A base backup takes its WAL by a second connection.
        let others =
            senders("state IS DISTINCT FROM 'backup' AND application_name <> 'pg_basebackup'")?;
        notes.push_str(&replication(&backups, &others));
        Ok(notes)
    }

    fn stop(&self) -> Result<()> {
        Self::stop(self)
    }

    fn start(&self, options: &[String], log: &Path) -> Result<()> {
        Self::start(self, options, log)
    }

    fn answer(&self, user: Option<&str>) -> Result<String> {
        let none = || Error::NoServer { dir: self.dir.clone() };
        let running = Running::on(&self.dir).ok_or_else(none)?;
        let databases = open(self, &running, user)?.value("SELECT count(*) FROM pg_database")?;
        Ok(format!("it has {databases} databases"))
    }

    fn dump(&self) -> &'static str {
        "pg_dumpall"
    }

    fn command(&self) -> String {
        format!("tidelock exec -D {0} -- pg_ctl -D {0} start", self.dir.display())
    }

    fn refuse_without_copies(&self) -> Result<()> {
        Ok(())
    }
}

/// What is cut off beside clients, by how many there are.
fn replication(backups: &str, others: &str) -> String {
    let mut lines = String::new();
    if backups != "0" {
        lines +=
            &format!("base backups  {backups} under way, which fail: begin them again after\n");
    }
    if others != "0" {
        lines +=
            &format!("standbys      {others} receive WAL (or pg_receivewal), and go on after\n");
    }
    lines
}

fn open(instance: &Instance, running: &Running, user: Option<&str>) -> Result<Session> {
    let user = user.unwrap_or(SUPERUSER).to_owned();
    let address = Address { host: running.host.clone(), port: running.port, user };
    Session::open(&instance.programs, &address, "postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_backups_and_standbys_stand_in_the_plan() {
        assert_eq!(replication("0", "0"), "");
        let lines = replication("1", "2");
        assert!(lines.contains("1 under way, which fail"), "{lines}");
        assert!(lines.contains("2 receive WAL"), "{lines}");
    }
}
