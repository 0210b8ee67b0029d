//! What MySQL's data directory and options have that MariaDB's have not.
//!
//! Of 8.0 and later, whose data dictionary is the file mysql.ibd.

use std::path::{Path, PathBuf};

use super::brand::Brand;
use crate::error::{Error, Result};

pub(super) const GATE: [&str; 2] = ["ibdata1", "mysql.ibd"];
pub(super) const LOCKED: [&str; 2] = ["ibdata1", "mysql.ibd"];
/// A server makes it when it starts, and removes it when it stops in order.
pub(super) const TRACES: [&str; 1] = ["ibtmp1"];

/// True if it looks like a data directory: the data dictionary. The system tablespace may lie on
/// another disk (`innodb_data_home_dir`).
pub(super) fn is_data_directory(dir: &Path) -> bool {
    dir.join("mysql.ibd").is_file()
}

/// Groups that its wrapper reads too.
pub(super) const OF_WRAPPER: [&str; 2] = ["mysqld_safe", "safe_mysqld"];

/// The groups of the option files that a server reads: one is named by its series, which `told`
/// has, what the server prints of its version.
///
/// # Errors
/// The server does not tell its version.
pub(super) fn groups(server: &Path, told: &[u8]) -> Result<Vec<String>> {
    let told = String::from_utf8_lossy(told);
    let series = series(&told).ok_or_else(|| {
        // No refusal: which options it reads stays unknown.
        Error::Tool {
            program: server.display().to_string(),
            ended: "exit status: 0".to_owned(),
            said: format!("it does not tell its version: {}", told.trim()),
        }
    })?;
    Ok(vec!["mysqld".to_owned(), "server".to_owned(), format!("mysqld-{series}")])
}

/// The server that `named` is, or that it starts.
pub(super) fn server(named: &Path) -> PathBuf {
    let is_wrapper = named.file_name().is_some_and(|name| name == "mysqld_safe");
    if !is_wrapper {
        return named.to_path_buf();
    }
    let name = Brand::MySql.server();
    let beside =
        named.parent().into_iter().flat_map(|dir| [dir.join(name), dir.join("../sbin/mysqld")]);
    beside.into_iter().find(|path| path.is_file()).unwrap_or_else(|| name.into())
}

/// `8.4` of `/usr/sbin/mysqld  Ver 8.4.6 for Linux on x86_64 ((Debian))`.
fn series(told: &str) -> Option<String> {
    let version = told.split_once(" Ver ")?.1;
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
    let (major, minor) = (numbers.next()?, numbers.next()?);
    (!major.is_empty() && !minor.is_empty()).then(|| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_read_from_what_a_server_tells() {
        for (told, wanted) in [
            ("/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", Some("9.7")),
            ("mysqld  Ver 8.0.15 for linux-glibc2.12 on x86_64 (MySQL Community)", Some("8.0")),
            ("mysqld  Ver ", None),
            ("", None),
        ] {
            assert_eq!(series(told).as_deref(), wanted, "{told}");
        }
    }
}
