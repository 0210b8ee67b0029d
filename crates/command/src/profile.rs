//! `tidelock profile`: what Tidelock knows of an engine, what a program would meet, and changes of
//! what is in force in a directory (`key/policy`).

mod check;
mod imports;
mod path;
mod show;
mod trace;
mod watch;

use clap::Subcommand;
use tidelock_keyring::Profile;

use crate::error::{Error, Result};
use crate::key::ProfileSet;

/// Show or change a profile, or check what a program would meet
#[derive(Subcommand)]
pub(crate) enum ProfileCommand {
    Show(show::Show),
    Check(check::Check),
    Path(path::PathCommand),
    Set(ProfileSet),
}

impl ProfileCommand {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Show(show) => show.run(),
            Self::Check(check) => check.run(),
            Self::Path(path) => path.run(),
            Self::Set(set) => set.run(),
        }
    }
}

/// A built-in profile, or that of a file: a path, with a slash in it.
///
/// # Errors
/// No profile has the name; the file cannot be read, or is no profile, by its own words.
pub(crate) fn named(name: &str) -> Result<Profile> {
    if !name.contains('/') {
        return Ok(Profile::builtin(name)?);
    }
    let text = std::fs::read_to_string(name).map_err(Error::io("read the profile", name))?;
    Profile::parse_whole(&text).map_err(|why| {
        Error::usage(format!("the profile {name}: {}", why.to_string().trim_end()), why.hint())
    })
}
