//! `tidelock key new-data-key | destroy`: what new files are sealed with, and the end of old keys.

use tidelock_agent::audit::Event;
use tidelock_keys::DataKeyEntry;

use super::session::{Change, Opening, one};
use crate::console;
use crate::error::{Error, Result};
use crate::server::Server;
use crate::status::{Census, Found, Programs};

/// Seal new files under a new data key from now on, in running servers too; old files stay readable
#[derive(clap::Args)]
pub(crate) struct NewDataKey {
    #[command(flatten)]
    opening: Opening,
}

/// Destroy a retired data key that no file uses: what it sealed, in any backup, is then lost for good
#[derive(clap::Args)]
pub(crate) struct Destroy {
    #[command(flatten)]
    opening: Opening,
    /// The first digits of its id, as `tidelock status` shows them
    data_key: String,
    /// Do it: backups and archives that were sealed under it cannot be looked for from here
    #[arg(long)]
    yes: bool,
}

impl NewDataKey {
    /// # Errors
    /// The keyring does not open or cannot be written.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let id = session.keyring.add_data_key()?;
        let told = session.write(&[Change::key(Event::DataKeyNew, Some(id))])?;
        console::print(format_args!("data key {id} seals new files\n"))?;
        told.finish()
    }
}

impl Destroy {
    /// # Errors
    /// A file uses it, or may do so; a program has it in its memory.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let keys = session.keyring.data_keys();
        let entry =
            one(keys, |entry: &DataKeyEntry| entry.id.to_string(), &self.data_key, "data key")?;
        let id = entry.id;
        let dir = session.protected.path.clone();
        let census = Census::take(&dir, session.keyring.policy());
        let used = census.files_under(id);
        if used > 0 {
            return Err(Error::refused(
                format!(
                    "data key {id} still seals {} of {}",
                    console::count(used, "file"),
                    dir.display()
                ),
                "write them anew first: VACUUM FULL and REINDEX do, or dump and load",
            ));
        }
        if census.untold() > 0 {
            return Err(Error::refused(
                format!(
                    "{} not be read, and may be sealed under it",
                    console::count(census.untold(), "file could")
                ),
                "`tidelock verify -D DIR` names them",
            ));
        }
        let programs = Programs::of(&dir);
        let who = match Found::look(&session.protected, &Server::on(&dir), &programs) {
            Found::Answers(agent) => Some(format!("agent, process {}", agent.pid)),
            Found::Silent(agent) => Some(agent.to_string()),
            Found::Nobody => programs.heads().first().map(|pid| format!("process {pid}")),
        };
        if let Some(who) = who {
            return Err(Error::refused(
                format!("running programs have the key ({who})"),
                "stop the server; the agent ends a few seconds after it",
            ));
        }
        session.keyring.destroy_data_key(id)?;
        if !self.yes {
            return Err(Error::refused(
                format!(
                    "no file of {} uses data key {id}; backups and archives may",
                    dir.display()
                ),
                "give --yes if nothing that it sealed is needed any more",
            ));
        }
        let told = session.write(&[Change::key(Event::DataKeyDestroy, Some(id))])?;
        console::print(format_args!("data key {id} is destroyed\n"))?;
        console::warn(
            "copies of the keyring still have it",
            "destroy the old copies, and write new ones with `tidelock keyring backup`",
        );
        told.finish()
    }
}
