//! MariaDB and MySQL: started by a unit, by mariadbd-safe or mysqld_safe, or bare.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::engine::Engine;
use crate::begun::Lock;
use crate::console;
use crate::error::{Error, Result};
use crate::mysqld::{
    Answer, Brand, Instance, Unseen, check_unit, refuse_files_elsewhere, refuse_tables_elsewhere,
};
use crate::run_as::run;

/// The versions whose programs were tried (docs/engines).
fn tried(brand: Brand) -> &'static [&'static str] {
    match brand {
        Brand::MariaDb => &["10.11"],
        Brand::MySql => &["8.0.15", "9.7"],
    }
}

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
        command.args(["--no-defaults", "--version"]).env("LC_ALL", "C");
        let told = run(command)?;
        // mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)
        let version = told.split_once("Ver ").map_or("", |(_, rest)| rest);
        let version = version.split([' ', '-']).next().unwrap_or_default();
        let (name, tried) = (self.brand.name(), tried(self.brand));
        let is_of = |series: &str| {
            version
                .strip_prefix(series)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !tried.iter().any(|series| is_of(series)) {
            console::warn(
                format!("this is {name} {version}, and {} is what was tried", tried.join(", ")),
                "try it on a copy first; `tidelock unprotect` takes it back",
            );
        }
        Ok(format!("{name} {version}"))
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

    fn refuse_to_stop(&self, user: Option<&str>, unit: Option<&str>) -> Result<()> {
        match (self.brand, Self::settled(self)) {
            (Brand::MariaDb, Some(_)) => self.cluster(user, unit).map(drop),
            _ => Ok(()),
        }
    }

    fn refuse_words(&self, words: &[String]) -> Result<()> {
        Self::refuse_words(words)?;
        self.refuse_variables()
    }

    fn notes(&self, user: Option<&str>, unit: Option<&str>) -> Result<String> {
        match unit {
            Some(unit) => check_unit(unit, &self.dir, Unseen::Refuse)?,
            None => self.refuse_places_outside(&Self::options(self)?)?,
        }
        refuse_tables_elsewhere(&self.dir)?;
        if Self::settled(self).is_none() {
            return Ok(String::new());
        }
        let mut notes = match self.brand {
            Brand::MariaDb => self.cluster(user, unit)?,
            Brand::MySql => {
                self.refuse_files_outside(user)?;
                self.own_encryption(user)?
            }
        };
        let clients = "SELECT COUNT(*) - 1 FROM information_schema.PROCESSLIST \
                       WHERE USER NOT IN ('system user', 'event_scheduler')";
        if let Answer::Value(clients) = self.ask(&self.user(user), clients)? {
            notes.push_str(&format!("clients       {clients} connected, who are sent away\n"));
        }
        Ok(notes)
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

    fn dump(&self) -> &'static str {
        match self.brand {
            Brand::MariaDb => "mariadb-dump --all-databases",
            Brand::MySql => "mysqldump --all-databases",
        }
    }

    fn command(&self) -> String {
        let server = self.brand.server();
        format!("tidelock exec -D {0} -- {server} --datadir={0}", self.dir.display())
    }

    fn refuse_without_copies(&self) -> Result<()> {
        let (name, page) = (self.brand.name(), self.brand.profile());
        Err(Error::refused(
            format!("a running {name} is not copied by this command"),
            format!("make the copy a replica: docs/engines/{page}.md"),
        ))
    }
}

impl Instance {
    /// A line for a node of Galera.
    ///
    /// # Errors
    /// [`Error::Refused`] for one that would not come up by itself; it does not answer.
    fn cluster(&self, user: Option<&str>, unit: Option<&str>) -> Result<String> {
        let size = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
                    WHERE VARIABLE_NAME = 'wsrep_cluster_size' AND VARIABLE_VALUE > 0";
        let user = self.user(user);
        let size = match self.ask(&user, size)? {
            Answer::Value(size) if !size.is_empty() => size,
            _ => return Ok(String::new()),
        };
        // Of the schema, which a node answers from that has lost its cluster.
        let address = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES \
                       WHERE VARIABLE_NAME = 'wsrep_cluster_address'";
        let Answer::Value(address) = self.ask(&user, address)? else {
            return Ok(String::new());
        };
        let begins = |word: &String| word.replace('_', "-").starts_with(NEW_CLUSTER);
        let begins = unit.is_none() && Self::options(self)?.iter().any(begins);
        refuse_lost_node(&size, &address, begins)?;
        Ok(format!("cluster       of {size} nodes: this one leaves it, and joins at its start\n"))
    }

    /// Refuses tables and tablespaces outside of the directory. MySQL's data dictionary has their
    /// paths, so a server that does not let the user in leaves them unknown.
    fn refuse_files_outside(&self, user: Option<&str>) -> Result<()> {
        // Before 8.0.21 one may lie outside by a relative path too.
        let files = "SELECT FILE_NAME FROM information_schema.FILES WHERE FILE_NAME IS NOT NULL";
        let user = self.user(user);
        match self.ask(&user, files)? {
            Answer::Value(files) => refuse_files_elsewhere(&files, &self.dir),
            Answer::Denied => {
                console::warn(
                    format!(
                        "the server does not tell the user {user} where its tables lie: one \
                         outside of {} would stay plain",
                        self.dir.display()
                    ),
                    "name a user with the right PROCESS by --username",
                );
                Ok(())
            }
        }
    }

    /// A line for a server that encrypts tablespaces itself, which goes on below ours.
    fn own_encryption(&self, user: Option<&str>) -> Result<String> {
        let count = "SELECT COUNT(*) FROM information_schema.INNODB_TABLESPACES \
                     WHERE ENCRYPTION = 'Y'";
        Ok(match self.ask(&self.user(user), count)? {
            Answer::Value(count) if count != "0" => {
                format!("encrypted     {count} tablespaces by MySQL itself, which stay so: twice\n")
            }
            _ => String::new(),
        })
    }

    /// MariaDB lets the account that owns its files in by its socket, if nobody has changed that
    /// (mariadb-install-db). MySQL knows no such account by itself.
    fn user(&self, named: Option<&str>) -> String {
        named.map_or_else(|| self.run_as.owner().name(), str::to_owned)
    }
}

/// Has a node begin a cluster instead of joining one.
const NEW_CLUSTER: &str = "--wsrep-new-cluster";

/// Refuses a node that does not find its cluster again when it is started as it was: the only one,
/// whose address names others, and one of several that begins a cluster of its own, by its address
/// or by an option of its start (`begins`).
///
/// # Errors
/// [`Error::Refused`].
fn refuse_lost_node(size: &str, address: &str, begins: bool) -> Result<()> {
    let hosts = address.trim().trim_start_matches("gcomm://");
    let names_nobody = hosts.split('?').next().is_none_or(str::is_empty);
    match (size == "1", begins || names_nobody) {
        (true, false) => Err(Error::refused(
            format!("this is the only node of its cluster, and looks for others in {address}"),
            "let another node join first; or stop it, convert it by `tidelock encrypt` or \
             `tidelock decrypt`, and start it by `galera_new_cluster`",
        )),
        (false, true) => Err(Error::refused(
            format!("this is one of {size} nodes, and was started to begin a cluster of its own"),
            format!(
                "restart it first, without {NEW_CLUSTER} and with the other nodes in \
                 wsrep_cluster_address: it is started again in the same way"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_would_not_find_its_cluster_again_is_refused() {
        for (size, address, begins, goes) in [
            ("3", "gcomm://a,b,c", false, true),
            ("1", "gcomm://", false, true),
            ("1", "gcomm://a,b", true, true),
            ("1", "gcomm://a,b", false, false),
            ("2", "gcomm://a,b", true, false),
            ("2", "gcomm://", false, false),
            ("1", "gcomm://?pc.wait_prim=no", false, true),
            ("2", "gcomm://?pc.wait_prim=no", false, false),
            ("2", "gcomm://a,b?pc.wait_prim=no", false, true),
        ] {
            let judged = refuse_lost_node(size, address, begins);
            assert_eq!(judged.is_ok(), goes, "{size} {address} {begins}");
        }
    }
}
