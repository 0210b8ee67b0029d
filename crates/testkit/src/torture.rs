//! The torture of torn blocks: writers and readers on one file, with buffers at every address.
//!
//! Runs `trials/torture.c` on a volume, plain or through `tidelock exec`. The program decides what
//! is garbage; this module only chooses the file, for its class, and starts it.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tidelock_servers::home::{self, Agents};
use tidelock_servers::{Bounded as _, LIMIT, alone};

use crate::{
    trial::Trial,
    volume::{Volume, VolumeError, run},
};

/// One run on one file of a volume.
#[derive(Clone, Debug)]
pub struct Torture {
    /// The file, below the directory; its name decides its class.
    pub file: PathBuf,
    /// How long.
    pub seconds: u32,
    /// Another series of places and sizes.
    pub seed: u64,
    /// The command `tidelock`; without it the file is an ordinary one.
    pub tidelock: Option<PathBuf>,
}

impl Torture {
    /// A place of class log in the profile of PostgreSQL.
    pub const LOG: &'static str = "pg_wal/000000010000000000000001";
    /// A place of class paged.
    pub const PAGED: &'static str = "base/1/16384";
    /// A place of class bytes.
    pub const BYTES: &'static str = "global/pg_filenode.map";

    /// Makes the directory on `volume`, protected if there is a command, and runs the program.
    ///
    /// # Errors
    /// When the program could not do its work. Garbage is no error here: it is in the line.
    pub fn run(&self, trial: &Trial, volume: &Volume) -> Result<Value, TortureError> {
        let directory = volume.root().join("tortured");
        // Not on the volume, which an agent would keep busy.
        let home = volume.root().with_extension("home");
        std::fs::create_dir_all(&home)?;
        let _agents = Agents::of(&home, volume.root());
        if let Some(tidelock) = self.tidelock.as_ref().filter(|_| !directory.exists()) {
            self.protect(tidelock, &directory, &home)?;
        }
        let file = directory.join(&self.file);
        std::fs::create_dir_all(file.parent().unwrap_or(&directory))?;
        let mut command = match &self.tidelock {
            None => alone(trial.program()),
            Some(tidelock) => {
                let mut command = alone(tidelock);
                command.envs(home::variables(&home));
                command.args(["exec", "-D"]).arg(&directory).arg("--").arg(trial.program());
                command
            }
        };
        command.arg(&file).args([self.seconds.to_string(), self.seed.to_string()]);
        let output = command.finish_within(LIMIT + Duration::from_secs(self.seconds.into()))?;
        if !matches!(output.status.code(), Some(0 | 1)) {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(TortureError::Failed(said));
        }
        let mut line: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| TortureError::Failed(String::from_utf8_lossy(&output.stdout).into()))?;
        line["fs"] = volume.file_system().to_string().into();
        line["file"] = self.file.display().to_string().into();
        line["arm"] = if self.tidelock.is_some() { "sealed" } else { "plain" }.into();
        Ok(line)
    }

    fn protect(&self, tidelock: &Path, directory: &Path, home: &Path) -> Result<(), VolumeError> {
        let mut init = Command::new(tidelock);
        init.envs(home::variables(home)).arg("init").arg(directory);
        init.args(["--profile", "postgres", "--no-recovery", "--provider"]);
        init.arg(format!("file:{}", home.join("key").display()));
        run(&mut init)
    }
}

/// Why a run has no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TortureError {
    /// The directory could not be protected.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The program could not be started, or its directory not be made.
    #[error("the torture could not start: {0}")]
    Start(#[from] io::Error),
    /// The program gave up.
    #[error("the torture failed: {0}")]
    Failed(String),
}
