//! `tidelock completions` and `tidelock man`: what a package installs beside the program.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::command::Cli;
use crate::console;
use crate::error::{Error, Result};

/// Print the completions of a shell
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tidelock", &mut text);
        console::print(String::from_utf8_lossy(&text))
    }
}

/// Write the manual pages, one for each call
#[derive(clap::Args)]
pub(crate) struct Man {
    /// The directory that gets them
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.dir).map_err(Error::io("make", &self.dir))?;
        clap_mangen::generate_to(Cli::command(), &self.dir)
            .map_err(Error::io("write the manual pages in", self.dir))
    }
}
