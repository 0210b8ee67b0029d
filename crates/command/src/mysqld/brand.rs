//! Whose server a directory belongs to, MariaDB's or MySQL's, and what they call the same things.
//!
//! MariaDB began as MySQL: option files, sockets, signals and the protocol of clients are the same.

use std::path::Path;

use super::{mariadb, mysql};
use crate::error::{Error, Result};

/// Whose server it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brand {
    /// MariaDB.
    MariaDb,
    /// MySQL, 8.0 and later.
    MySql,
}

impl Brand {
    pub(super) const ALL: [Self; 2] = [Self::MariaDb, Self::MySql];

    /// Whose data directory this is, as far as it looks like one.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        if mariadb::is_data_directory(dir) {
            return Some(Self::MariaDb);
        }
        mysql::is_data_directory(dir).then_some(Self::MySql)
    }

    /// Whose profile has this name.
    pub(crate) fn of_profile(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|brand| brand.profile() == name)
    }

    /// Whose server this machine's packages have installed. Debian's MariaDB has a link `mysqld`.
    pub(super) fn installed() -> Self {
        let is_there = |brand: &Self| Path::new(brand.packaged()).is_file();
        Self::ALL.into_iter().find(is_there).unwrap_or(Self::MariaDb)
    }

    /// The name of the profile.
    pub(crate) fn profile(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// Its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// The name of the server's program.
    pub(crate) fn server(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::MySql => "mysqld",
        }
    }

    /// Where packages put the server's program.
    pub(super) fn packaged(self) -> &'static str {
        match self {
            Self::MariaDb => "/usr/sbin/mariadbd",
            Self::MySql => "/usr/sbin/mysqld",
        }
    }

    /// Names of the client, the server's own first.
    pub(super) fn clients(self) -> [&'static str; 2] {
        match self {
            Self::MariaDb => ["mariadb", "mysql"],
            Self::MySql => ["mysql", "mariadb"],
        }
    }

    /// Files without which no bare server starts, whatever it is told: sealed first, made plain
    /// last.
    pub(crate) fn gate(self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &mariadb::GATE,
            Self::MySql => &mysql::GATE,
        }
    }

    /// Files that a server locks before it uses any.
    pub(crate) fn locked(self) -> [&'static str; 2] {
        match self {
            Self::MariaDb => mariadb::LOCKED,
            Self::MySql => mysql::LOCKED,
        }
    }

    /// Refuses what was not stopped in order: recovery belongs to the server that has crashed.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn refuse_unclean(self, dir: &Path) -> Result<()> {
        let (traces, admin) = match self {
            Self::MariaDb => (&mariadb::TRACES[..], "mariadb-admin"),
            Self::MySql => (&mysql::TRACES[..], "mysqladmin"),
        };
        match traces.iter().find(|name| dir.join(name).symlink_metadata().is_ok()) {
            None => Ok(()),
            Some(name) => Err(Error::refused(
                format!(
                    "the server on {} was not stopped cleanly: it has left {name}",
                    dir.display()
                ),
                format!("start it, let it recover, and stop it with `{admin} shutdown`"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_told_by_files_that_only_one_brand_has() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(dir.path().join(name), "").unwrap();
        write("ibdata1");
        assert_eq!(Brand::of(dir.path()), None);
        write("mysql.ibd");
        assert_eq!(Brand::of(dir.path()), Some(Brand::MySql));
        fs::create_dir(dir.path().join("mysql")).unwrap();
        assert_eq!(Brand::of(dir.path()), Some(Brand::MySql));
        write("aria_log_control");
        assert_eq!(Brand::of(dir.path()), Some(Brand::MariaDb));
    }

    #[test]
    fn a_directory_whose_logs_or_tablespace_lie_elsewhere_is_told_too() {
        for (name, brand) in [
            ("mysql.ibd", Brand::MySql),
            ("mysql/global_priv.frm", Brand::MariaDb),
            ("mysql/global_priv.MAI", Brand::MariaDb),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("mysql")).unwrap();
            assert_eq!(Brand::of(dir.path()), None);
            fs::write(dir.path().join(name), "").unwrap();
            assert_eq!(Brand::of(dir.path()), Some(brand), "{name}");
        }
    }

    #[test]
    fn what_a_crash_leaves_is_named() {
        for (brand, trace) in [(Brand::MariaDb, "ddl_recovery.log"), (Brand::MySql, "ibtmp1")] {
            let dir = tempfile::tempdir().unwrap();
            brand.refuse_unclean(dir.path()).unwrap();
            fs::write(dir.path().join(trace), "").unwrap();
            let told = brand.refuse_unclean(dir.path()).unwrap_err().to_string();
            assert!(told.contains(trace), "{told}");
        }
    }

    #[test]
    fn each_profile_is_found_by_its_name() {
        for brand in Brand::ALL {
            assert_eq!(Brand::of_profile(brand.profile()), Some(brand));
        }
        assert_eq!(Brand::of_profile("postgres"), None);
    }
}
