//! Trials in C: small programs under `trials/` that ask the kernel one question.
//!
//! They are C so that nothing stands between them and libc, and so that the preload library meets
//! the calls of an ordinary program. The harness compiles them; it does not judge their answers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tidelock_servers::alone;

use crate::{
    twins::{Product, Workspace},
    volume::{VolumeError, run},
};

/// A compiled trial.
#[derive(Debug)]
pub struct Trial {
    program: PathBuf,
    _private: tempfile::TempDir,
}

impl Trial {
    /// Compiles `trials/NAME.c` into a private directory that every user can read.
    ///
    /// # Errors
    /// When there is no compiler or it refuses.
    pub fn compile(name: &str) -> Result<Self, VolumeError> {
        let private = tempfile::Builder::new().prefix("tidelock-trial-").tempdir()?;
        let program = private.path().join(name);
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("trials").join(name).with_extension("c");
        run(Command::new("chmod").arg("0755").arg(private.path()))?;
        run(Command::new("gcc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(&source))?;
        // The agent gives no keys to a program that its own user may change.
        run(Command::new("chmod").arg("0555").arg(&program))?;
        Ok(Self { program, _private: private })
    }

    /// The program under the library, in a session of its own, so that what hangs is ended with its
    /// children.
    #[must_use]
    pub fn sealed(&self, product: &Product, place: &Workspace, directory: &Path) -> Command {
        let exec = place.command(product);
        let mut command = alone(exec.get_program());
        command.env_clear().envs(exec.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir("/").args(["exec", "-D"]).arg(directory).arg("--").arg(&self.program);
        command
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }
}
