//! MariaDB: started by its unit, by mariadbd-safe or bare.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::engine::Engine;
use crate::begun::Lock;
use crate::console;
use crate::error::{Error, Result};
use crate::mariadb::{Answer, Instance, check_unit};
use crate::run_as::run;

/// The version whose programs were tried (docs/engines/mariadb.md).
const TRIED: &str = "10.11.";

impl Engine for Instance {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn hold(&mut self, lock: &Lock) -> Result<()> {
        self.run_as.hold(lock)
    }

    fn stdin(&self) -> Result<Stdio> {
        self.run_as.stdin()
    }

    fn unit(&self) -> Option<String> {
        None
    }

    fn version(&self) -> Result<String> {
        let mut command = self.run_as.program(&self.server())?;
        command.arg("--version").env("LC_ALL", "C");
        let told = run(command)?;
        // mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)
        let version = told.split_once("Ver ").map_or("", |(_, rest)| rest);
        let version = version.split([' ', '-']).next().unwrap_or_default();
        if !version.starts_with(TRIED) {
            console::warn(
                format!("this is MariaDB {version}, and 10.11 is what was tried"),
                "try it on a copy first; `tidelock unprotect` takes it back",
            );
        }
        Ok(format!("MariaDB {version}"))
    }

    fn program(&self) -> PathBuf {
        self.server()
    }

    fn running(&self) -> Option<u32> {
        Self::running(self).map(|it| it.pid)
    }

    fn settled(&self) -> Option<u32> {
        Self::settled(self).map(|it| it.pid)
    }

    fn head(&self) -> Option<u32> {
        Self::head(self)
    }

    fn options(&self) -> Result<Vec<String>> {
        Self::options(self)
    }

    fn log(&self) -> Option<PathBuf> {
        Self::log(self)
    }

    fn notes(&self, user: Option<&str>, unit: Option<&str>) -> Result<String> {
        match unit {
            Some(_) => check_unit(&self.dir)?,
            None => self.refuse_places_outside(&Self::options(self)?)?,
        }
        if Self::settled(self).is_none() {
            return Ok(String::new());
        }
        let mut notes = String::new();
        let cluster = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                       WHERE VARIABLE_NAME = 'wsrep_cluster_size' AND VARIABLE_VALUE > 0";
        if let Answer::Value(size) = self.ask(&self.user(user), cluster)?
            && !size.is_empty()
        {
            notes.push_str(&format!(
                "cluster       of {size} nodes: this one leaves it, and joins again at its start\n"
            ));
        }
        let clients = "SELECT COUNT(*) - 1 FROM information_schema.PROCESSLIST \
                       WHERE USER NOT IN ('system user', 'event_scheduler')";
        if let Answer::Value(clients) = self.ask(&self.user(user), clients)? {
            notes.push_str(&format!("clients       {clients} connected, who are sent away\n"));
        }
        Ok(notes)
    }

    fn places(&self) -> Result<Vec<PathBuf>> {
        let mut places = vec![self.dir.clone()];
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                let link = entry.path();
                let place = link.canonicalize().map_err(Error::io("follow", &link))?;
                if place.is_dir() && !place.starts_with(&self.dir) {
                    places.push(place);
                }
            }
        }
        Ok(places)
    }

    fn stop(&self) -> Result<()> {
        Self::stop(self)
    }

    fn start(&self, options: &[String], log: &Path) -> Result<()> {
        Self::start(self, options, log)
    }

    fn answer(&self, user: Option<&str>) -> Result<String> {
        let user = self.user(user);
        Ok(match self.ask(&user, "SELECT COUNT(*) FROM information_schema.SCHEMATA")? {
            Answer::Value(databases) => format!("it has {databases} databases"),
            Answer::Denied => format!("it answers, and does not let the user {user} in"),
        })
    }

    fn command(&self) -> String {
        format!("tidelock exec -D {0} -- mariadbd --datadir={0}", self.dir.display())
    }

    fn refuse_without_copies(&self) -> Result<()> {
        Err(Error::refused(
            "a running MariaDB is not copied by this command",
            "make the copy a replica: docs/engines/mariadb.md, backups and replicas",
        ))
    }
}

impl Instance {
    /// The server lets the account that owns its files in by its socket, if nobody has changed that
    /// (mariadb-install-db).
    fn user(&self, named: Option<&str>) -> String {
        named.map_or_else(|| self.run_as.owner().name(), str::to_owned)
    }
}
