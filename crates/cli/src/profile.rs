//! `tidelock profile`: what Tidelock knows of an engine, and what a program would meet.

mod check;
mod imports;
mod show;

use clap::Subcommand;

use crate::error::Result;

/// Show a profile, or check what a program would meet
#[derive(Subcommand)]
pub(crate) enum ProfileCommand {
    Show(show::Show),
    Check(check::Check),
}

impl ProfileCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Show(show) => show.run(),
            Self::Check(check) => check.run(),
        }
    }
}
