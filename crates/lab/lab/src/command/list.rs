//! `tidelock-lab list`: the experiments that come with the lab.

use serde::Serialize;
use tidelock_lab::catalogue;
use tidelock_lab::experiment::{Experiment, Size};

use super::error::Result;

/// List the experiments
#[derive(clap::Args)]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self) -> Result<()> {
        let experiments: Vec<_> = catalogue::names()
            .map(|name| catalogue::find(name, Size::Small))
            .collect::<tidelock_lab::Result<_>>()?;
        if self.json {
            return Ok(tidelock_console::print_json("list", &Listed { experiments })?);
        }
        let width = experiments.iter().map(|e| e.name.len()).max().unwrap_or(0);
        for Experiment { name, question, .. } in &experiments {
            tidelock_console::print(format_args!("{name:width$}  {question}\n"))?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Listed {
    experiments: Vec<Experiment>,
}
