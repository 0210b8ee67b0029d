//! The random differential model: calls of several processes and threads at one time, on plain and
//! sealed files.
//!
//! Runs `trials/differential.c`, whose shadow knows every order that a plain file allows. The
//! program judges; this module chooses the place and the seed, starts it, and lets the command look
//! at what is left.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tidelock_servers::{Bounded as _, alone};

use crate::trial::Trial;
use crate::twins::{Product, Workspace};

/// One run.
#[derive(Clone, Debug)]
pub struct Differential {
    /// How long.
    pub seconds: u64,
    /// Decides all that is drawn.
    pub seed: u64,
    /// More arguments: `--spoil`, `--class`, `--share`, `--episode`.
    pub more: Vec<&'static str>,
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub enum Shown {
    /// Each round has an explanation; the figures.
    Explained(Value),
    /// What happened that no plain file does, for people.
    Unexplained(String),
}

impl Differential {
    /// The program in a directory without the library.
    ///
    /// # Errors
    /// What kept it from its work.
    pub fn run_plain(&self, trial: &Trial, directory: &Path) -> Result<Shown, String> {
        self.run(alone(trial.program()), directory)
    }

    /// The program under the library in a directory of its own, whose files the command verifies
    /// afterwards.
    ///
    /// # Errors
    /// What kept it from its work, and what verify found.
    pub fn run_sealed(&self, trial: &Trial) -> Result<Shown, String> {
        let told = |error: crate::twins::Error| error.to_string();
        let (product, place) =
            (Product::find().map_err(told)?, Workspace::new("model").map_err(told)?);
        let directory = place.protect(&product, "postgres").map_err(told)?;
        let shown = self.run(trial.sealed(&product, &place, &directory), &directory)?;
        if matches!(shown, Shown::Explained(_)) {
            place.verify(&product, &directory).map_err(told)?;
        }
        Ok(shown)
    }

    fn run(&self, mut command: Command, directory: &Path) -> Result<Shown, String> {
        command.arg(directory).arg(self.seconds.to_string());
        command.args(["--seed", &self.seed.to_string()]).args(&self.more);
        let limit = Duration::from_secs(self.seconds + 120);
        let output = command.finish_within(limit).map_err(|error| error.to_string())?;
        let printed = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => serde_json::from_str(&printed)
                .map(Shown::Explained)
                .map_err(|error| format!("{error}: {printed}")),
            Some(1) => Ok(Shown::Unexplained(printed.into_owned())),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("{}: {printed}{said}", output.status))
            }
        }
    }
}
