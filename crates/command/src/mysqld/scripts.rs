//! Programs that start servers whose options nobody sees before: scripts of init, and those for
//! several servers at once.
//!
//! Each gives its servers options of groups that only it reads, so places outside of the directory
//! would not be judged. Known by their names; what another script starts is not looked for.

use std::ffi::OsStr;
use std::path::Path;

use super::brand::Brand;
use crate::error::{Error, Result};

/// Wherever they lie. MariaDB has the older name as a link.
const NAMES: [&str; 3] = ["mysqld_multi", "mariadbd-multi", "mysql.server"];
/// Scripts of init; elsewhere programs with these names are clients and servers.
const SCRIPTS: [&str; 3] = ["mysql", "mysqld", "mariadb"];
const FOLDER: &str = "init.d";

/// True for such a program, by its name.
pub(super) fn hides_options(program: &Path) -> bool {
    let Some(name) = program.file_name().and_then(OsStr::to_str) else { return false };
    let is_in_folder = program.parent().is_some_and(|folder| folder.ends_with(FOLDER));
    NAMES.contains(&name) || (is_in_folder && SCRIPTS.contains(&name))
}

/// Refuses such a program for a directory of this brand.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse(program: &Path, brand: Brand) -> Result<()> {
    if !hides_options(program) {
        return Ok(());
    }
    let wrapper = match brand {
        Brand::MariaDb => "mariadbd-safe",
        Brand::MySql => "mysqld_safe",
    };
    let server = brand.server();
    Err(Error::refused(
        format!(
            "{} starts a server whose options are not seen before: what they name outside of the \
             directory would have plain rows",
            program.display()
        ),
        format!("start {server} or {wrapper} itself: tidelock exec -D DIR -- {server} [OPTION]..."),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_hides_the_options_of_its_server_is_refused_and_a_client_is_not() {
        for program in [
            "/usr/bin/mysqld_multi",
            "/usr/bin/mariadbd-multi",
            "/usr/share/mysql/mysql.server",
            "/etc/init.d/mysql",
            "/etc/init.d/mariadb",
            "/etc/rc.d/init.d/mysqld",
        ] {
            let why = refuse(Path::new(program), Brand::MySql).unwrap_err();
            assert!(why.exit_code() == 3 && why.to_string().starts_with(program), "{why}");
            assert!(why.hint().contains("mysqld or mysqld_safe itself"), "{}", why.hint());
        }
        for program in ["/usr/bin/mysql", "mariadb", "/usr/sbin/mysqld", "/etc/init.d/ssh", "/"] {
            refuse(Path::new(program), Brand::MariaDb).unwrap();
        }
    }
}
