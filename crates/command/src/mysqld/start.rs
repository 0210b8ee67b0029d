//! What a server is told when it starts: options of its files, by its own my_print_defaults, then
//! those of its command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::brand::Brand;
use super::{mariadb, mysql};
use crate::error::{Error, Result};
use crate::run_as::{RunAs, without_secrets};

/// Prints what the option files say.
const PRINTER: &str = "my_print_defaults";
/// They come before all others, and say which files are read.
const WHICH_FILES: [&str; 4] =
    ["--defaults-file", "--defaults-extra-file", "--defaults-group-suffix", "--no-defaults"];

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
        let mut options = match self.brand {
            Brand::MariaDb => self.of_files(&mariadb::GROUPS)?,
            Brand::MySql => {
                let server = mysql::server(self.server);
                let mut command = self.program(&server)?;
                command.args(["--no-defaults", "--version"]);
                self.of_files(&mysql::groups(&server, &printed(command)?)?)?
            }
        };
        let own = self.arguments.iter().skip_while(|argument| is_first(argument));
        options.extend(own.cloned());
        Ok(options)
    }

    /// What the option files that the arguments choose say in these groups, an option a line.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn of_files<G: AsRef<OsStr>>(&self, groups: &[G]) -> Result<Vec<OsString>> {
        let beside = self.server.parent().map(|dir| dir.join(PRINTER));
        let printer = beside.filter(|path| path.is_file()).unwrap_or_else(|| PRINTER.into());
        let mut command = self.program(&printer)?;
        command.args(self.arguments.iter().take_while(|it| is_first(it))).args(groups);
        let told = printed(command)?;
        let lines = told.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
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
    let name = argument.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
    WHICH_FILES.iter().any(|which| which.as_bytes() == name)
}
