//! `tidelock profile`: what Tidelock knows of an engine, what a program would meet, and changes of
//! what is in force in a directory (`key/policy`).

mod check;
mod imports;
mod show;

use clap::Subcommand;

use crate::error::Result;
use crate::key::ProfileSet;

/// Show or change a profile, or check what a program would meet
#[derive(Subcommand)]
pub(crate) enum ProfileCommand {
    Show(show::Show),
    Check(check::Check),
    Set(ProfileSet),
}

impl ProfileCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Show(show) => show.run(),
            Self::Check(check) => check.run(),
            Self::Set(set) => set.run(),
        }
    }
}
