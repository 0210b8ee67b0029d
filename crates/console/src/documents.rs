//! What a package installs beside a program: completions and manual pages.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::error::{Error, Result};
use crate::shown::print;

/// Print the completions of a shell
#[derive(clap::Args)]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// Prints those of the program `C`.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run<C: CommandFactory>(self) -> Result<()> {
        let mut program = C::command();
        let name = program.get_name().to_owned();
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut program, name, &mut text);
        print(String::from_utf8_lossy(&text))
    }
}

/// Write the manual pages, one for each command
#[derive(clap::Args)]
pub struct Man {
    /// The directory that gets them
    dir: PathBuf,
}

impl Man {
    /// Writes those of the program `C`.
    ///
    /// # Errors
    /// When the directory or a page cannot be made.
    pub fn run<C: CommandFactory>(self) -> Result<()> {
        std::fs::create_dir_all(&self.dir).map_err(Error::io("make", &self.dir))?;
        clap_mangen::generate_to(C::command(), &self.dir)
            .map_err(Error::io("write the manual pages in", self.dir))
    }
}
