//! `tidelock key`: slots, rotation, data keys. Everything here is online: no file of the data is
//! touched, and running servers get what changed from their agent.
//!
//! ```text
//!   principal key --wraps--> keyring key --wraps--> data keys --> file keys
//!     add, remove, rotate,     renewed by          new-data-key, adopt,
//!     recovery, check          remove, rotate,     release, destroy
//!                              recovery
//!
//!   order of every change: configuration names the new provider -> keyring replaced -> agent told
//! ```
//!
//! So whenever it is cut off, the keyring opens with a provider that is configured.

mod adopt;
mod check;
mod data_key;
mod list;
mod new_provider;
mod policy;
mod renewal;
mod rotate;
mod session;
mod slots;
mod unattended;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use policy::ProfileSet;

use crate::error::Result;
pub(crate) use session::one;

/// Add, remove and rotate what opens the keyring; change data keys
#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    List(list::List),
    Add(slots::Add),
    Remove(slots::Remove),
    Rotate(rotate::Rotate),
    Recovery(slots::Recovery),
    Check(check::Check),
    NewDataKey(data_key::NewDataKey),
    Adopt(adopt::Adopt),
    Release(adopt::Release),
    Destroy(data_key::Destroy),
}

impl KeyCommand {
    /// # Errors
    /// What went wrong; the keyring is then as before.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self {
            Self::List(list) => list.run().map(done),
            Self::Add(add) => add.run().map(done),
            Self::Remove(remove) => remove.run().map(done),
            Self::Rotate(rotate) => rotate.run().map(done),
            Self::Recovery(recovery) => recovery.run().map(done),
            Self::Check(check) => check.run(),
            Self::NewDataKey(new) => new.run().map(done),
            Self::Adopt(adopt) => adopt.run().map(done),
            Self::Release(release) => release.run().map(done),
            Self::Destroy(destroy) => destroy.run().map(done),
        }
    }
}
