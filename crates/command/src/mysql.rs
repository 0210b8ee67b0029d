//! What MySQL's data directory and options have that MariaDB's have not; the rest is `mariadb`.
//!
//! Of 8.0 and later, whose data dictionary is the file mysql.ibd. Units of MySQL are not known.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// The name of the profile.
pub(crate) const PROFILE: &str = "mysql";
/// Files without which no bare server starts, whatever it is told: sealed first, made plain last.
pub(crate) const GATE: [&str; 2] = ["ibdata1", "mysql.ibd"];
/// Files that a server locks before it uses any.
pub(crate) const LOCKED: [&str; 2] = ["ibdata1", "mysql.ibd"];
/// A server makes it when it starts, and removes it when it stops in order.
const TRACE: &str = "ibtmp1";
const SERVER: &str = "mysqld";

/// True if it looks like a data directory: the system tablespace, and the data dictionary.
pub(crate) fn is_data_directory(dir: &Path) -> bool {
    dir.join("ibdata1").is_file() && dir.join("mysql.ibd").is_file()
}

/// Refuses what was not stopped in order: recovery belongs to the server that has crashed.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_unclean(dir: &Path) -> Result<()> {
    if dir.join(TRACE).symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::refused(
        format!("the server on {} was not stopped cleanly: it has left {TRACE}", dir.display()),
        "start it, let it recover, and stop it with `mysqladmin shutdown`",
    ))
}

/// The groups of the option files that a server reads, and its wrapper: one is named by the
/// server's series.
///
/// # Errors
/// The server cannot be run, or does not tell its version.
pub(crate) fn groups(named: &Path) -> Result<Vec<String>> {
    let server = server(named);
    let mut command = Command::new(&server);
    command.args(["--no-defaults", "--version"]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let told = command.output().map_err(Error::io("run", &server))?;
    let told = String::from_utf8_lossy(&told.stdout);
    let series = series(&told).ok_or_else(|| {
        Error::refused(
            format!("{} does not tell its version: {}", server.display(), told.trim()),
            "without it, the options that the server reads are unknown",
        )
    })?;
    Ok(["mysqld", "server", "mysqld_safe", "safe_mysqld"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("mysqld-{series}")])
        .collect())
}

/// The server that `named` is, or that it starts.
fn server(named: &Path) -> PathBuf {
    let is_wrapper = named.file_name().is_some_and(|name| name == "mysqld_safe");
    if !is_wrapper {
        return named.to_path_buf();
    }
    let beside =
        named.parent().into_iter().flat_map(|dir| [dir.join(SERVER), dir.join("../sbin/mysqld")]);
    beside.into_iter().find(|path| path.is_file()).unwrap_or_else(|| SERVER.into())
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

    #[test]
    fn a_directory_without_a_data_dictionary_is_not_mysqls() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ibdata1"), "").unwrap();
        assert!(!is_data_directory(dir.path()));
        std::fs::write(dir.path().join("mysql.ibd"), "").unwrap();
        assert!(is_data_directory(dir.path()) && refuse_unclean(dir.path()).is_ok());
        std::fs::write(dir.path().join(TRACE), "").unwrap();
        assert!(refuse_unclean(dir.path()).is_err());
    }
}
