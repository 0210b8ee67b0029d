//! `tidelock key new-data-key | destroy`: what new files are sealed with, and the end of old keys.

use tidelock_agent::audit::Event;
use tidelock_format::DataKeyId;

use super::session::{Change, Opening, Session};
use crate::census::Census;
use crate::console;
use crate::error::{Error, Result};
use crate::running::{Found, Programs};
use crate::server::Server;

/// Seal new files under a new data key from now on, in running servers too; old files stay readable
#[derive(clap::Args)]
pub(crate) struct NewDataKey {
    #[command(flatten)]
    opening: Opening,
}

/// Destroy a retired data key that no file uses: what it sealed, in any backup, is then lost for
/// good
#[derive(clap::Args)]
pub(crate) struct Destroy {
    #[command(flatten)]
    opening: Opening,
    /// The first digits of its id, as `tidelock status` shows them
    data_key: String,
    /// Do it: the command cannot look into backups and archives that were sealed under it
    #[arg(long)]
    yes: bool,
}

/// Files named of those that still use a key.
const NAMED: usize = 20;

impl NewDataKey {
    /// # Errors
    /// The keyring does not open or cannot be written.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let id = session.keyring.add_data_key()?;
        let told = session.write(&[Change::key(Event::DataKeyNew, Some(id))])?;
        match told.is_complete() {
            true => console::print(format_args!("data key {id} seals new files\n"))?,
            false => console::print(format_args!(
                "data key {id} is made, but running programs seal new files under the old one\n"
            ))?,
        }
        told.finish()
    }
}

impl Destroy {
    /// # Errors
    /// A file uses it, or may do so; a program has it in its memory.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let id = session.data_key(&self.data_key)?;
        let dir = session.protected.path.clone();
        refuse_used(&session, id)?;
        refuse_running(&session)?;
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
            "copies of the keyring still have it, and so do old blocks of the keyring on this disk",
            "destroy the old copies, and write new ones with `tidelock keyring backup`; give every \
             slot a new principal key, and destroy the old ones, which open those blocks \
             (docs/keys.md, \"Erasing for good\")",
        );
        told.finish()
    }
}

/// # Errors
/// [`Error::Refused`] if an agent or a program has the data keys: it may write under each.
pub(super) fn refuse_running(session: &Session) -> Result<()> {
    let dir = &session.protected.path;
    let programs = Programs::of(dir);
    let who = match Found::look(&session.protected, &Server::on(dir), &programs) {
        Found::Answers(agent) => format!("agent, process {}", agent.pid),
        Found::Silent(agent) => agent.to_string(),
        Found::Nobody => match programs.heads().first() {
            Some(pid) => format!("process {pid}"),
            None => return Ok(()),
        },
    };
    Err(Error::refused(
        format!("running programs have the key ({who})"),
        "stop the server; the agent ends a few seconds after it",
    ))
}

/// # Errors
/// [`Error::Refused`] if a file is sealed under the data key, or may be.
pub(super) fn refuse_used(session: &Session, id: DataKeyId) -> Result<()> {
    let dir = &session.protected.path;
    let census = Census::take(dir, session.keyring.policy());
    let used = census.files_under(id);
    if used > 0 {
        for name in census.first_under(id, NAMED) {
            console::print(format_args!("{name}\n"))?;
        }
        if used > NAMED {
            console::print(format_args!("... and {} more\n", used - NAMED))?;
        }
        return Err(Error::refused(
            format!(
                "data key {id} still seals {} of {}",
                console::count(used, "file"),
                dir.display()
            ),
            format!(
                "`tidelock status -D {} --under {}` lists them; `tidelock rekey` seals them \
                 under the current key, docs/keys.md says how",
                dir.display(),
                id
            ),
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
    Ok(())
}
