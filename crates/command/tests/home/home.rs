//! A private directory for one test, HOME and working directory of what runs there. Its agents end
//! with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidelock_servers::alone;
use tidelock_servers::home::{self, Agents};

pub(crate) struct Home {
    _agents: Agents,
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        // Short: the path of a socket has 107 bytes.
        let dir = tempfile::Builder::new().prefix("tl").tempdir_in("/tmp").unwrap();
        Self { _agents: Agents::of(dir.path(), dir.path()), dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// A program in a session of its own, which finds nothing of the caller's.
    pub(crate) fn command(&self, program: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().unwrap();
        let mut command = alone(program);
        command
            .current_dir(self.dir())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .envs(home::variables(self.dir()))
            // By HOME, which some lines change.
            .env_remove("XDG_CONFIG_HOME")
            .env("LC_ALL", "C");
        command
    }

    /// A line of shell.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let mut command = self.command("/bin/sh");
        command.args(["-c", line]);
        command
    }
}
