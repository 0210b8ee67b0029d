//! What a server is told when it starts: options of its files, by its own my_print_defaults, then
//! those of its command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::brand::Brand;
use super::instance::WRAPPERS;
use super::{mariadb, mysql};
use crate::console;
use crate::error::{Error, Result};
use crate::run_as::{RunAs, without_secrets};

/// Prints what the option files say.
const PRINTER: &str = "my_print_defaults";
/// They come before all others, and say which files are read.
const WHICH_FILES: [&str; 4] =
    ["--defaults-file", "--defaults-extra-file", "--defaults-group-suffix", "--no-defaults"];

/// With one of these no other files are read, whoever looks for them.
const NO_OTHER_FILES: [&str; 2] = ["--defaults-file", "--no-defaults"];

/// A start of a server.
pub(super) struct Start<'a> {
    pub(super) brand: Brand,
    /// The server's program, or a wrapper of it.
    pub(super) server: &'a Path,
    pub(super) arguments: &'a [OsString],
    /// Who runs the programs beside the server, if that is not the caller. Whoever owns a directory
    /// may have put them there, so root does not.
    pub(super) run_as: Option<&'a RunAs>,
}

impl Start<'_> {
    /// All options in their order.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn options(&self) -> Result<Vec<OsString>> {
        let groups = match self.brand {
            Brand::MariaDb => vec![mariadb::GROUPS.to_owned()],
            Brand::MySql => {
                let server = mysql::server(self.server);
                let mut command = self.program(&server)?;
                command.args(["--no-defaults", "--version"]);
                mysql::groups(&server, &printed(command)?)?
            }
        };
        let mut options = self.of_files(&self.with_wrapper(groups))?;
        self.warn_of_another_printer();
        let own = self.arguments.iter().skip_while(|argument| is_first(argument));
        options.extend(own.cloned());
        Ok(options)
    }

    /// What the option files that the arguments choose say in these groups, an option a line.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn of_files<G: AsRef<OsStr>>(&self, groups: &[G]) -> Result<Vec<OsString>> {
        let printer = self.printer().unwrap_or_else(|| PRINTER.into());
        let mut command = self.program(&printer)?;
        command.args(self.arguments.iter().take_while(|it| is_first(it))).args(groups);
        let told = printed(command)?;
        let lines = told.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
    }

    /// These groups of a server, and what its wrapper reads beside them, if that is what is
    /// started: a bare server does not read those.
    fn with_wrapper(&self, mut groups: Vec<String>) -> Vec<String> {
        let more = match self.brand {
            Brand::MariaDb => &mariadb::OF_WRAPPER[..],
            Brand::MySql => &mysql::OF_WRAPPER,
        };
        let name = self.server.file_name().and_then(OsStr::to_str);
        if name.is_some_and(|name| WRAPPERS.contains(&name)) {
            groups.extend(more.iter().map(|&group| group.to_owned()));
        }
        groups
    }

    /// The printer of this server: beside it, or in `bin` beside its `sbin`; of a link, also where
    /// that leads.
    fn printer(&self) -> Option<PathBuf> {
        let real = self.server.canonicalize().ok();
        let servers = [Some(self.server), real.as_deref()].into_iter().flatten();
        let places = servers.filter(|path| path.is_absolute()).filter_map(Path::parent);
        let mut printers =
            places.flat_map(|dir| [dir.join(PRINTER), dir.join("../bin").join(PRINTER)]);
        printers.find(|path| path.is_file())
    }

    /// That of another server may read other files.
    fn warn_of_another_printer(&self) {
        let is_told = |word: &OsString| NO_OTHER_FILES.iter().any(|it| begins(word, it));
        if self.printer().is_some() || self.arguments.first().is_some_and(is_told) {
            return;
        }
        console::warn(
            format!(
                "there is no {PRINTER} beside {}: that of another server has said what the option \
                 files have, and may have read others",
                self.server.display()
            ),
            "name the file as the first option: --defaults-file=FILE",
        );
    }

    fn program(&self, path: &Path) -> Result<Command> {
        match self.run_as {
            Some(run_as) => run_as.program(path),
            None => {
                let mut command = without_secrets(Command::new(path));
                command.stdin(Stdio::null());
                Ok(command)
            }
        }
    }
}

/// What a program prints; what it complains of is for the caller's eyes.
fn printed(mut command: Command) -> Result<Vec<u8>> {
    let program = PathBuf::from(command.get_program());
    command.stderr(Stdio::inherit());
    let told = command.output().map_err(Error::io("run", &program))?;
    if told.status.success() {
        return Ok(told.stdout);
    }
    // No refusal: what it is asked for stays unknown.
    Err(Error::Tool {
        program: program.display().to_string(),
        ended: told.status.to_string(),
        said: "it did not read the server's options; what it says above names the file".to_owned(),
    })
}

fn is_first(argument: &OsString) -> bool {
    WHICH_FILES.iter().any(|which| begins(argument, which))
}

/// True for the option `name`, with a value or without.
fn begins(argument: &OsString, name: &str) -> bool {
    argument.as_bytes().split(|byte| *byte == b'=').next() == Some(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn start(brand: Brand, server: &Path) -> Start<'_> {
        Start { brand, server, arguments: &[], run_as: None }
    }

    #[test]
    fn the_groups_of_a_wrapper_count_for_a_wrapper_alone() {
        for (brand, server, wrapped) in [
            (Brand::MariaDb, "/usr/sbin/mariadbd", false),
            (Brand::MariaDb, "/usr/bin/mariadbd-safe", true),
            (Brand::MySql, "/usr/sbin/mysqld", false),
            (Brand::MySql, "/usr/bin/mysqld_safe", true),
        ] {
            let groups = start(brand, Path::new(server)).with_wrapper(vec!["mysqld".to_owned()]);
            assert_eq!(groups.len() > 1, wrapped, "{groups:?}");
            for name in ["mysqld_safe", "safe_mysqld"] {
                assert_eq!(groups.iter().any(|it| it == name), wrapped, "{groups:?}");
            }
        }
    }

    #[test]
    fn the_printer_of_a_server_is_that_of_its_own_package() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        for name in ["sbin", "bin", "links"] {
            fs::create_dir(home.join(name)).unwrap();
        }
        let (server, link) = (home.join("sbin/mariadbd"), home.join("links/mariadbd"));
        fs::write(&server, "").unwrap();
        std::os::unix::fs::symlink(&server, &link).unwrap();
        assert_eq!(start(Brand::MariaDb, &link).printer(), None);
        fs::write(home.join("bin").join(PRINTER), "").unwrap();
        for server in [&server, &link] {
            let found = start(Brand::MariaDb, server).printer().unwrap();
            let wanted = home.join("bin").join(PRINTER).canonicalize().unwrap();
            assert_eq!(found.canonicalize().unwrap(), wanted);
        }
        fs::write(home.join("sbin").join(PRINTER), "").unwrap();
        let beside = start(Brand::MariaDb, &server).printer();
        assert_eq!(beside, Some(home.join("sbin").join(PRINTER)));
        // A name alone is looked for in PATH, and not where the caller works.
        assert_eq!(start(Brand::MariaDb, Path::new("mariadbd")).printer(), None);
    }
}
