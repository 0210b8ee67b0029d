//! An unlocked keyring that is being changed: written as one step, then told to those who run on it.

use std::path::PathBuf;

use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{RunDir, client};
use tidelock_format::DataKeyId;
use tidelock_keys::{Keyring, KeyringDir, Provider, Slot, SlotId};

use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::protected::{self, Protected};
use crate::server::Server;
use crate::status::{Found, Programs};
use crate::unlock::{self, KeyOptions};

/// Fewer digits of a slot's or data key's id are no name for it.
const SHORTEST: usize = 4;

/// One change of a keyring, for the audit log.
pub(super) struct Change {
    event: Event,
    slot: Option<SlotId>,
    data_key: Option<DataKeyId>,
    provider: Option<String>,
}

impl Change {
    /// Of a slot, and the kind of provider that opens it.
    pub(super) fn slot(event: Event, slot: SlotId, provider: impl ToString) -> Self {
        let provider = Some(provider.to_string());
        Self { event, slot: Some(slot), data_key: None, provider }
    }

    /// Of a data key, or of the keyring.
    pub(super) const fn key(event: Event, data_key: Option<DataKeyId>) -> Self {
        Self { event, slot: None, data_key, provider: None }
    }
}

/// The directory and who opens its keyring.
#[derive(clap::Args)]
pub(super) struct Opening {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    pub(super) dir: PathBuf,
    #[command(flatten)]
    pub(super) keys: KeyOptions,
}

/// Whether those who run on the keyring were told of its change.
#[must_use]
pub(super) struct Told(Result<()>);

impl Told {
    /// The end of the command, after everything that it says of the keyring itself.
    ///
    /// # Errors
    /// [`Error::Partly`]: running programs go on with what they have.
    pub(super) fn finish(self) -> Result<()> {
        self.0
    }
}

/// An unlocked keyring that is being changed.
pub(super) struct Session {
    pub(super) protected: Protected,
    pub(super) keyring: Keyring,
    folder: KeyringDir,
}

impl Opening {
    /// Unlocks.
    ///
    /// # Errors
    /// The directory is none; the keyring does not open.
    pub(super) fn begin(&self) -> Result<Session> {
        let (protected, folder) = Protected::hold(&protected::folder(&self.dir)?)?;
        let keyring = self.keys.unlock(&protected)?;
        Ok(Session { protected, keyring, folder })
    }

    /// Every provider at hand: what the command line names, and what is configured.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub(super) fn providers(&self, session: &Session) -> Result<Vec<Box<dyn Provider>>> {
        self.keys.all_providers(&session.protected.keyring, &session.protected.path)
    }
}

impl Session {
    /// Replaces the keyring on the disk, and tells those who run on it.
    ///
    /// # Errors
    /// It was changed by another command, or cannot be written; it is then as before.
    pub(super) fn write(mut self, changes: &[Change]) -> Result<Told> {
        let written = self.folder.write(&mut self.keyring);
        self.record(changes, written.as_ref().err());
        written?;
        let text = format!(
            "keyring {} of {} has generation {} now\n",
            self.keyring.id(),
            self.protected.path.display(),
            self.keyring.generation().0
        );
        console::print(text)?;
        Ok(Told(self.tell()))
    }

    fn record(&self, changes: &[Change], error: Option<&tidelock_keys::Error>) {
        let outcome = if error.is_some() { Outcome::Failed } else { Outcome::Done };
        for change in changes {
            let details = Details {
                slot: change.slot.map(|id| id.to_string()),
                data_key: change.data_key.map(|id| id.to_string()),
                provider: change.provider.as_deref(),
                reason: error.map(ToString::to_string),
                ..Details::of_this_process()
            };
            let Protected { path, keyring } = &self.protected;
            trail::write(keyring, path, Some(&self.keyring), change.event, outcome, &details);
        }
    }

    /// What runs gets the change with its next file: from its agent, or, where that is gone, from one that is started
    /// here.
    fn tell(&self) -> Result<()> {
        let path = &self.protected.path;
        let programs = Programs::of(path);
        let untold = |why: String| Error::Partly {
            what: format!(
                "the keyring is changed, but running programs go on with what they had: {why}"
            ),
            hint: format!(
                "`tidelock exec -D {} -- true` tells them; else restart the server at the next occasion",
                path.display()
            ),
        };
        match Found::look(&self.protected, &Server::on(path), &programs) {
            Found::Answers(agent) => {
                let told = client::connect(&agent.socket).and_then(|connection| match connection {
                    Some(connection) => connection.reload(self.keyring.keyring_key()).map(drop),
                    None => Ok(()),
                });
                told.map_err(|why| {
                    untold(format!("the agent (process {}) did not take it over: {why}", agent.pid))
                })
            }
            Found::Silent(agent) => Err(untold(format!("{agent} does not answer"))),
            Found::Nobody => {
                let started = match programs.heads().as_slice() {
                    [] => Ok(()),
                    heads => self.start_agent(&programs, heads),
                };
                // Programs that cannot be seen from here, or whose agent could not be started here, start one themselves
                // where their providers ask nobody.
                let _ = self.folder.announce(self.keyring.generation());
                started.map_err(|why| {
                    untold(format!("no agent is alive, and none could be started: {why}"))
                })
            }
        }
    }

    /// Where those programs look for one, as their user; it stays as long as they live.
    fn start_agent(&self, programs: &Programs, heads: &[i32]) -> Result<()> {
        let Protected { path, keyring } = &self.protected;
        let (Some(socket), Some(user)) = (programs.socket(keyring.id()), programs.user()) else {
            return Err(Error::refused("where they look for one cannot be told", ""));
        };
        let caller = Owner::caller();
        let another = user.uid != caller.uid;
        if another && caller.uid != 0 {
            return Err(Error::refused("they are another user's", ""));
        }
        let mut options =
            Options::new(RunDir::existing(socket.parent().unwrap_or(&socket), user.uid)?);
        let config = unlock::configured(keyring, path)?;
        options.allow_writable_programs = config.allow_writable_programs;
        options.core_dumps = config.core_dumps;
        options.log = Some(trail::log(keyring, path, &config)?);
        options.accompany = heads.to_vec();
        let mut command = AgentCommand::this_program();
        command.user = another.then_some((user.uid, user.gid));
        spawn::start(&self.keyring, path, &options, &command)?;
        Ok(())
    }

    /// The slot that begins with these digits.
    ///
    /// # Errors
    /// None or several do.
    pub(super) fn slot(&self, digits: &str) -> Result<&Slot> {
        one(self.keyring.slots(), |slot: &Slot| slot.terms.id.to_string(), digits, "slot")
    }

    /// For messages: type and first digits.
    pub(super) fn name(slot: &Slot) -> String {
        format!("slot {} ({})", short(slot.terms.id), slot.terms.kind)
    }
}

/// The first digits of a slot's id, as they are shown and taken.
pub(super) fn short(id: SlotId) -> String {
    id.to_string().chars().take(8).collect()
}

/// The only one of `all` whose id begins with `digits`.
///
/// # Errors
/// None or several do.
pub(super) fn one<'a, T>(
    all: &'a [T],
    id: impl Fn(&T) -> String,
    digits: &str,
    what: &str,
) -> Result<&'a T> {
    let digits = digits.to_ascii_lowercase();
    let mut found = all.iter().filter(|one| id(one).starts_with(&digits));
    match (found.next(), found.next()) {
        (Some(one), None) if digits.len() >= SHORTEST => Ok(one),
        (Some(_), _) => Err(Error::refused(
            format!("\"{digits}\" does not name one {what} alone"),
            "give more digits of its id",
        )),
        (None, _) => Err(Error::refused(
            format!("no {what} begins with \"{digits}\""),
            format!("`tidelock key list -D DIR` shows the {what}s"),
        )),
    }
}
