//! An unlocked keyring that is being changed: written as one step, then told to those who run on
//! it.

use std::path::{Path, PathBuf};

use procfs::process::Process;
use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{RunDir, client};
use tidelock_format::{DataKeyId, KeyringId};
use tidelock_keyring::{DataKeyEntry, Held, Keyring, KeyringDir, Provider, Slot, SlotId, SlotKind};

use super::new_provider;
use crate::audit::trail;
use crate::console;
use crate::error::{Error, HandoverFault, Result};
use crate::keyring::{Copies, copy_again};
use crate::owner::Owner;
use crate::protected::{self, Protected};
use crate::rollback;
use crate::running::{Found, Programs, users};
use crate::service;
use crate::unlock::{self, KeyOptions};

/// Fewer digits of a slot's or data key's id are no name for it.
const SHORTEST: usize = 4;

/// One change of a keyring, for the audit log.
pub(super) struct Change {
    event: Event,
    slot: Option<SlotId>,
    data_key: Option<DataKeyId>,
    provider: Option<SlotKind>,
    words: Option<String>,
    /// Where it came from: the keyring, and its directory or copy.
    source: Option<(KeyringId, PathBuf)>,
}

impl Change {
    /// Of a slot, and the kind of provider that opens it.
    pub(super) const fn slot(event: Event, slot: SlotId, provider: SlotKind) -> Self {
        let provider = Some(provider);
        Self { event, slot: Some(slot), data_key: None, provider, words: None, source: None }
    }

    /// Of a data key, or of the keyring.
    pub(super) const fn key(event: Event, data_key: Option<DataKeyId>) -> Self {
        Self { event, slot: None, data_key, provider: None, words: None, source: None }
    }

    /// Of a data key that was adopted.
    pub(super) fn adopted(data_key: DataKeyId, keyring: KeyringId, from: &Path) -> Self {
        let from = std::path::absolute(from).unwrap_or_else(|_| from.into());
        let source = Some((keyring, from));
        Self { source, ..Self::key(Event::DataKeyAdopt, Some(data_key)) }
    }

    /// Of the policy, as it was typed.
    pub(super) fn policy(words: String) -> Self {
        Self { words: Some(words), ..Self::key(Event::PolicyChange, None) }
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
    /// [`Error::NotHandedOver`]: running programs go on with what they have.
    pub(super) fn finish(self) -> Result<()> {
        self.0
    }

    /// True if everything that runs has the change, or gets it with its next file.
    pub(super) const fn is_complete(&self) -> bool {
        !matches!(self.0, Err(Error::NotHandedOver { .. }))
    }
}

/// Of a copy whose file is not known.
const NAMED: &str = "that the configuration names";

/// An unlocked keyring that is being changed.
pub(super) struct Session {
    pub(super) protected: Protected,
    pub(super) keyring: Keyring,
    /// What opened it.
    pub(super) opener: Box<dyn Provider>,
    folder: KeyringDir,
    /// Nobody else changes it from here on.
    held: Option<Held>,
}

impl Opening {
    /// Unlocks.
    ///
    /// # Errors
    /// The directory is not protected; the keyring does not open.
    pub(super) fn begin(&self) -> Result<Session> {
        let (protected, folder) = Protected::hold(&protected::folder(&self.dir)?)?;
        let (keyring, opener) = self.keys.unlock_with_opener(&protected)?;
        // A change of an old keyring would have the generation of another that is lost.
        rollback::refuse(&protected)?;
        if let Some(conversion) = keyring.conversion() {
            let (directory, direction) = (protected.path, conversion.direction);
            return Err(tidelock_agent::Error::HalfConverted { directory, direction }.into());
        }
        Ok(Session { protected, keyring, opener, folder, held: None })
    }

    /// Every other provider at hand: what the command line names, and what is configured.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub(super) fn providers(&self, session: &Session) -> Result<Vec<Box<dyn Provider>>> {
        self.keys.all_providers(&session.protected, session.keyring.slots())
    }
}

impl Session {
    /// Keeps other commands away until the keyring is written: before anything is changed that has
    /// to agree with it.
    ///
    /// # Errors
    /// It was changed by another command.
    pub(super) fn hold(&mut self) -> Result<()> {
        if self.held.is_none() {
            self.held = Some(self.folder.hold(&self.keyring)?);
        }
        Ok(())
    }

    /// Replaces the keyring on the disk, and tells those who run on it.
    ///
    /// # Errors
    /// It was changed by another command, or cannot be written; it is then as before.
    pub(super) fn write(mut self, changes: &[Change]) -> Result<Told> {
        let held = match self.held.take() {
            Some(held) => Ok(held),
            None => self.folder.hold(&self.keyring),
        };
        let written = held.and_then(|held| self.folder.write_held(&held, &mut self.keyring));
        self.record(changes, written.as_ref().err());
        written?;
        let text = format!(
            "keyring {} of {} has generation {} now\n",
            self.keyring.id(),
            self.protected.path.display(),
            self.keyring.generation().0
        );
        // What runs is told, whether or not anybody can read this.
        let said = console::print(text);
        // Running programs first: the copy may go to a slow disk.
        let told = self.tell();
        self.forget_openers();
        let copied = self.copy();
        if let (Err(_), Err(why)) = (&told, &copied) {
            console::warn(why, why.hint());
        }
        Ok(Told(told.and(copied).and(said)))
    }

    /// Slots that are gone leave providers in the configuration, which would be asked in vain.
    fn forget_openers(&self) {
        // Where another command has changed it since, what is configured is that command's.
        let Ok(_held) = self.folder.hold(&self.keyring) else { return };
        let is_left =
            |slot: &&Slot| self.keyring.slots().iter().any(|left| left.terms.id == slot.terms.id);
        let mut kinds: Vec<SlotKind> = Vec::new();
        for slot in self.protected.keyring.slots().iter().filter(|slot| !is_left(slot)) {
            if !kinds.contains(&slot.terms.kind) {
                kinds.push(slot.terms.kind);
            }
        }
        for kind in kinds {
            if let Err(why) = new_provider::forget(&self.protected, &self.keyring, kind) {
                console::warn(
                    format!("the configuration may name a provider that opens no slot: {why}"),
                    "take it out by hand",
                );
            }
        }
    }

    /// The copies are old now. The configuration may ask for a new one.
    fn copy(&self) -> Result<()> {
        let Protected { path, keyring, .. } = &self.protected;
        // The keyring is replaced, whatever becomes of this.
        let unknown = |why| Error::NotCopied { file: NAMED.into(), why: Box::new(why) };
        let config = unlock::configured(keyring, path).map_err(unknown)?;
        let Some(file) = config.keyring.map(|care| care.copy) else {
            self.warn_of_old_copies();
            return Ok(());
        };
        let copied = copy_again(&self.keyring, path, &file)
            .map_err(|why| Error::NotCopied { file: file.clone(), why: why.into() })?;
        console::print(format_args!("copy in {}\n", copied.path.display()))
    }

    fn warn_of_old_copies(&self) {
        let copies = Copies::of(&self.protected.path).0;
        let now = self.keyring.generation().0;
        let what = match copies.iter().map(|copy| copy.generation.0).max() {
            Some(newest) => format!(
                "the newest copy of the keyring has generation {newest}, the keyring has {now}"
            ),
            None => format!("generation {now} of the keyring has no copy"),
        };
        console::warn(
            what,
            "`tidelock keyring backup -D DIR FILE`, to another disk; `copy` of [keyring] in the \
             configuration does it after each change",
        );
    }

    fn record(&self, changes: &[Change], error: Option<&tidelock_keyring::Error>) {
        let outcome = if error.is_some() { Outcome::Failed } else { Outcome::Done };
        for change in changes {
            let details = Details {
                slot: change.slot.map(|id| id.to_string()),
                data_key: change.data_key.map(|id| id.to_string()),
                provider: change.provider.map(SlotKind::name),
                source: change.source.as_ref().map(|(keyring, _)| keyring.to_string()),
                file: change.source.as_ref().map(|(_, from)| from.display().to_string()),
                reason: error.map(ToString::to_string).or_else(|| change.words.clone()),
                ..Details::of_this_process()
            };
            let Protected { path, keyring, .. } = &self.protected;
            trail::write(keyring, path, Some(&self.keyring), change.event, outcome, &details);
        }
    }

    /// What runs gets the change with its next file: from its agent, or, where that is gone, from
    /// one that is started here.
    fn tell(&self) -> Result<()> {
        let path = &self.protected.path;
        let programs = Programs::of(path);
        let untold = |why| Error::NotHandedOver { dir: path.clone(), why };
        let agents = Found::all(path, self.keyring.id(), &programs);
        let heads = programs.heads();
        let mut told = if agents.is_empty() && !heads.is_empty() {
            let started = self.start_agent(&programs, &heads);
            vec![started.map_err(|why| HandoverFault::NotStarted(why.into()))]
        } else {
            // Each has programs of its own: root's does not serve those of the server's user.
            agents.iter().map(|found| self.tell_one(found)).collect()
        };
        if heads.is_empty() {
            // It had nobody to give keys to any more.
            told.retain(|one| !matches!(one, Err(HandoverFault::Ended { .. })));
        }
        // Whoever has not got it asks for it: programs that cannot be seen from here, or whose
        // agent has ended, start one themselves where their providers ask nobody. Not where an
        // agent refused: it would be asked again and again.
        let refused = |one: &std::result::Result<_, _>| {
            matches!(one, Err(HandoverFault::Refused { .. } | HandoverFault::Behind { .. }))
        };
        let generation = self.keyring.generation();
        if !told.iter().any(refused)
            && self.folder.announced().is_ok_and(|announced| announced < generation)
        {
            let _ = self.folder.announce(generation);
        }
        let users: Vec<Option<u32>> = told.iter().flatten().copied().collect();
        // All are told before the first failure is.
        told.into_iter().try_for_each(|one| one.map(drop)).map_err(untold)?;
        match out_of_reach(&heads, &users) {
            Some(why) => Err(untold(why)),
            None => Ok(()),
        }
    }

    /// The user of the agent, which has the change now.
    fn tell_one(&self, found: &Found) -> std::result::Result<Option<u32>, HandoverFault> {
        let agent = match found {
            Found::Answers(agent) => agent,
            Found::Silent(agent) => {
                return Err(HandoverFault::Silent { agent: agent.to_string() });
            }
            Found::Nobody => return Ok(None),
        };
        let pid = agent.pid;
        let connection = client::connect_to(&agent.socket, &users(&self.protected.path));
        let answer = connection
            .and_then(|it| it.map(|it| it.reload(self.keyring.keyring_key())).transpose());
        match answer {
            Ok(Some(now)) if now < self.keyring.generation() => {
                Err(HandoverFault::Behind { pid, generation: now.0 })
            }
            Ok(Some(_)) => Ok(agent.user),
            Ok(None) | Err(tidelock_agent::Error::Ended { .. }) => {
                Err(HandoverFault::Ended { pid })
            }
            Err(source) => Err(HandoverFault::Refused { pid, source }),
        }
    }

    /// Where those programs look for one, as their user; it stays as long as they live. Its user.
    fn start_agent(&self, programs: &Programs, heads: &[i32]) -> Result<Option<u32>> {
        let Protected { path, keyring, .. } = &self.protected;
        let (Some(socket), Some(user)) = (programs.socket(keyring.id()), programs.user()) else {
            return Err(Error::refused("the socket where they look for one is unknown", ""));
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
        service::fit(&mut command, path);
        spawn::start(&self.keyring, path, &options, &command)?;
        Ok(Some(user.uid))
    }

    /// The slot that begins with these digits.
    ///
    /// # Errors
    /// None or several do.
    pub(super) fn slot(&self, digits: &str) -> Result<&Slot> {
        one(
            self.keyring.slots(),
            |slot: &Slot| slot.terms.id.to_string(),
            digits,
            ("slot", "key list"),
        )
    }

    /// The data key that begins with these digits.
    ///
    /// # Errors
    /// None or several do.
    pub(super) fn data_key(&self, digits: &str) -> Result<DataKeyId> {
        let keys = self.keyring.data_keys();
        let shown = ("data key", "status");
        Ok(one(keys, |entry: &DataKeyEntry| entry.id.to_string(), digits, shown)?.id)
    }

    /// For messages: type and first digits.
    pub(super) fn name(slot: &Slot) -> String {
        format!("slot {} ({})", short(slot.terms.id), slot.terms.kind)
    }
}

/// The first program that no agent of these users gives keys to: an agent has its own user's and
/// root's. One whose user cannot be seen, or where an agent's cannot, is left out.
fn out_of_reach(programs: &[i32], agents: &[Option<u32>]) -> Option<HandoverFault> {
    if agents.contains(&None) || agents.is_empty() {
        return None;
    }
    programs.iter().find_map(|pid| {
        // Not the owner of its folder in /proc: that is root's of a server that has become another
        // user since it was started.
        let uid = Process::new(*pid).and_then(|process| process.status()).ok()?.euid;
        let is_out = uid != 0 && !agents.contains(&Some(uid));
        let user = Owner { uid, gid: 0 }.name();
        is_out.then_some(HandoverFault::OutOfReach { pid: *pid, user })
    })
}

/// The first digits of a slot's id, as they are shown and taken.
pub(super) fn short(id: SlotId) -> String {
    id.to_string().chars().take(8).collect()
}

/// The only one of `all` whose id begins with `digits`.
///
/// # Errors
/// None or several do.
pub(crate) fn one<'a, T>(
    all: &'a [T],
    id: impl Fn(&T) -> String,
    digits: &str,
    (what, shown_by): (&str, &str),
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
            format!("`tidelock {shown_by} -D DIR` shows the {what}s"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tidelock_servers::skip;

    use super::*;

    #[test]
    fn a_program_that_became_another_user_is_not_told_by_roots_agent() {
        if skip::unless_root("to become another user") {
            return;
        }
        // An account that every Debian has.
        let other: Owner = "daemon".parse().unwrap();
        let mut program = Command::new("setpriv")
            .args([format!("--reuid={}", other.uid), "--clear-groups".to_owned()])
            .args(["--", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let pids = [std::process::id().cast_signed(), program.id().cast_signed()];
        let of = |agents: &[u32]| {
            let agents: Vec<_> = agents.iter().copied().map(Some).collect();
            out_of_reach(&pids, &agents)
        };
        let found = of(&[0]);
        let Some(HandoverFault::OutOfReach { pid, user }) = found else { panic!("{found:?}") };
        assert_eq!((pid, &*user), (pids[1], "daemon"));
        assert!(of(&[0, other.uid]).is_none() && of(&[]).is_none());
        assert!(out_of_reach(&pids[..1], &[Some(other.uid)]).is_none());
        program.kill().unwrap();
        program.wait().unwrap();
    }
}
