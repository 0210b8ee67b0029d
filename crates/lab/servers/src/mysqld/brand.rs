//! What differs in the names of both brands: programs, where they are, the profile.

use std::env;
use std::path::{Path, PathBuf, absolute};

use crate::error::{Error, Result};

/// Whose server it is. MariaDB began as MySQL: option files, sockets and most of SQL are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brand {
    /// MariaDB: `mariadbd`.
    MariaDb,
    /// MySQL, 8.0 and later: `mysqld`.
    MySql,
}

impl Brand {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// The server's program.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::MySql => "mysqld",
        }
    }

    /// Its name in `tidelock profile show`.
    #[must_use]
    pub const fn profile(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// The path of a program, which is asked for by MariaDB's name of it: in `bin` if given, where
    /// the brand's variable says, or in Debian's directories (the server is in /usr/sbin, which a
    /// user's PATH may not name). A tree of MySQL may have the server alone: then MariaDB's clients
    /// serve it.
    #[must_use]
    pub fn find(self, bin: Option<&Path>, name: &str) -> Option<PathBuf> {
        let debian = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
        let dirs = bin.map(Path::to_path_buf).into_iter().chain(self.named()).chain(debian);
        let names = [Some(name), self.other_name(name)];
        let paths = dirs.flat_map(|dir| names.into_iter().flatten().map(move |n| dir.join(n)));
        paths.into_iter().find(|path| path.is_file())
    }

    /// The same, or what to install.
    pub(super) fn program(self, bin: Option<&Path>, name: &str) -> Result<PathBuf> {
        let hint = match self {
            Self::MariaDb => {
                "install MariaDB (Debian: mariadb-server), or set TIDELOCK_MARIADB_BINDIR"
            }
            Self::MySql => {
                "set TIDELOCK_MYSQL_BINDIR to where mysqld is, and install clients of MySQL or \
                 MariaDB (Debian: mariadb-client)"
            }
        };
        self.find(bin, name).ok_or_else(|| Error::Missing { path: name.into(), hint })
    }

    /// Where the user says that programs are.
    fn named(self) -> Option<PathBuf> {
        let variable = match self {
            Self::MariaDb => "TIDELOCK_MARIADB_BINDIR",
            Self::MySql => "TIDELOCK_MYSQL_BINDIR",
        };
        // Programs run in the workspace.
        env::var_os(variable).and_then(|dir| absolute(dir).ok())
    }

    /// What MySQL calls a client that MariaDB has renamed.
    fn other_name(self, name: &str) -> Option<&'static str> {
        if self == Self::MariaDb {
            return None;
        }
        Some(match name {
            "mariadb" => "mysql",
            "mariadb-admin" => "mysqladmin",
            "mariadb-slap" => "mysqlslap",
            _ => return None,
        })
    }
}

/// A program of the server of another build: in `bin`, or beside it where that is the `bin` or
/// `sbin` of an installation (Debian has the server in `sbin`, upstream its scripts in `scripts`).
#[must_use]
pub fn program_of(bin: &Path, name: &str) -> Option<PathBuf> {
    let installed = bin.ends_with("bin") || bin.ends_with("sbin");
    let base = bin.parent().filter(|_| installed);
    let beside = ["bin", "sbin", "scripts"].into_iter();
    let beside = beside.filter_map(|dir| base.map(|base| base.join(dir)));
    let dirs = std::iter::once(bin.to_path_buf()).chain(beside);
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_mysql_is_found_by_either_name_and_mariadb_s_by_its_own() {
        let bin = tempfile::tempdir().unwrap();
        for name in ["mysqlslap", "mysqld"] {
            std::fs::write(bin.path().join(name), "").unwrap();
        }
        let dir = Some(bin.path());
        let found = |brand: Brand, name| brand.find(dir, name);
        assert_eq!(found(Brand::MySql, "mysqld"), Some(bin.path().join("mysqld")));
        assert_eq!(found(Brand::MySql, "mariadb-slap"), Some(bin.path().join("mysqlslap")));
        assert_ne!(found(Brand::MariaDb, "mariadb-slap"), Some(bin.path().join("mysqlslap")));
        std::fs::write(bin.path().join("mariadb-slap"), "").unwrap();
        assert_eq!(found(Brand::MySql, "mariadb-slap"), Some(bin.path().join("mariadb-slap")));
    }
}
