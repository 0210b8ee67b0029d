//! `tidelock profile`: what Tidelock knows of an engine, and what a program would meet.

mod show;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

/// Show a profile, or check what a program would meet
#[derive(Subcommand)]
pub(crate) enum ProfileCommand {
    Show(show::Show),
}

impl ProfileCommand {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Show(show) => show.run().map(|()| ExitCode::SUCCESS),
        }
    }
}
