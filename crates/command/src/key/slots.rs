//! `tidelock key add | remove | recovery`: what opens the keyring.

use std::path::{Path, PathBuf};

use tidelock_agent::audit::Event;
use tidelock_keyring::{KeyringDir, SlotId};
use tidelock_providers::{ProviderChoice, RecoveryKey};

use super::new_provider::{self, NewPassphrase};
use super::renewal::{Renewal, of_old_copies};
use super::session::{Change, Opening, Session, short};
use super::unattended;
use crate::console;
use crate::error::Result;
use crate::init::{refuse_to_print_into_logs, write_recovery_key};

/// Add a slot: one more way to open the keyring
#[derive(clap::Args)]
pub(crate) struct Add {
    #[command(flatten)]
    opening: Opening,
    /// What will open it too: file:PATH (made if it does not exist), passphrase, command:CMD, ...
    #[arg(value_name = "PROVIDER")]
    new: ProviderChoice,
    #[command(flatten)]
    passphrase: NewPassphrase,
}

/// Remove a slot, and renew the keyring key under every slot that is left
#[derive(clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    opening: Opening,
    /// The first digits of its id, as `tidelock key list` shows them
    slot: String,
    #[command(flatten)]
    renewal: Renewal,
    /// Remove it although nothing that is left opens the keyring without a person
    #[arg(long)]
    yes: bool,
}

/// Make a new recovery key, which replaces the old one, and renew the keyring key under every slot
#[derive(clap::Args)]
pub(crate) struct Recovery {
    #[command(flatten)]
    opening: Opening,
    /// Write the new recovery key to this new file instead of printing it
    #[arg(long, value_name = "FILE")]
    new_recovery_file: Option<PathBuf>,
    /// Print the new recovery key although standard output is a pipe or a log, not a terminal
    #[arg(long, conflicts_with = "new_recovery_file")]
    print_recovery: bool,
    #[command(flatten)]
    renewal: Renewal,
}

impl Add {
    /// # Errors
    /// The keyring does not open, or the new provider refuses.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let (choice, provider) = new_provider::make(&self.new, &session, &self.passphrase.first())?;
        let id = session.keyring.add_slot(&*provider)?;
        new_provider::configure(&mut session, &choice)?;
        let told = session.write(&[Change::slot(Event::SlotAdd, id, provider.kind())])?;
        console::print(format_args!("slot {} opens with {}\n", short(id), provider.describe()))?;
        told.finish()
    }
}

impl Remove {
    /// # Errors
    /// It is the only slot; another slot's provider is not at hand; a server would not come back by
    /// itself, and nobody said yes.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let slot = session.slot(&self.slot)?;
        let (id, name) = (slot.terms.id, Session::name(slot));
        let kind = slot.terms.kind;
        let mut changes = vec![Change::slot(Event::SlotRemove, id, kind)];
        session.keyring.remove_slot(id)?;
        if unattended::depends_on(&session, kind)? {
            unattended::confirm(&name, self.yes)?;
        }
        let renewed = self.renewal.run(&self.opening, &mut session, &[])?;
        let is_renewed = renewed.is_some();
        changes.extend(renewed);
        let told = session.write(&changes)?;
        console::print(format_args!("{name} is removed\n"))?;
        let hint = "destroy the key of its provider when nothing needs it";
        console::warn(of_old_copies(is_renewed), hint);
        told.finish()
    }
}

impl Recovery {
    /// # Errors
    /// The keyring does not open; the file exists.
    pub(super) fn run(self) -> Result<()> {
        if self.new_recovery_file.is_none() {
            refuse_to_print_into_logs(
                self.print_recovery,
                "write it to a file with --new-recovery-file FILE, or say --print-recovery",
            )?;
        }
        let mut session = self.opening.begin()?;
        // What would refuse the change refuses it before a key is shown or written.
        session.hold()?;
        let key = RecoveryKey::random()?;
        let slots = session.keyring.slots();
        let old = slots.iter().find(|slot| slot.terms.kind == RecoveryKey::SLOT);
        let old = old.map(|slot| slot.terms.id);
        let (event, id) = match old {
            Some(old) => (Event::SlotRotate, session.keyring.replace_slot(old, &key)?),
            None => (Event::SlotAdd, session.keyring.add_slot(&key)?),
        };
        // A first one takes nothing away.
        let renewed = match old {
            Some(_) => self.renewal.run(&self.opening, &mut session, &[&key])?,
            None => None,
        };
        let is_old_left = old.is_some() && renewed.is_none();
        let made = match &self.new_recovery_file {
            Some(file) => {
                tidelock_providers::refuse_inside(file, &session.protected.path)?;
                Some(write_recovery_key(file, &key)?)
            }
            None => None,
        };
        if made.is_none() {
            show(&key)?;
        }
        let dir = session.protected.path.clone();
        let changes = Some(Change::slot(event, id, RecoveryKey::SLOT)).into_iter().chain(renewed);
        let written = session.write(&changes.collect::<Vec<_>>());
        if written.is_err() && !is_slot_of(&dir, id) {
            match &made {
                // It opens nothing.
                Some(made) => drop(made.remove()),
                None => console::warn(
                    "the recovery key that was printed opens nothing",
                    "throw it away; the keyring is as it was",
                ),
            }
        }
        let told = written?;
        if let Some(file) = &self.new_recovery_file {
            console::print(format_args!("recovery key in {}\n", file.display()))?;
        }
        if is_old_left {
            let hint = "`tidelock key recovery` without --no-renew ends that";
            console::warn(of_old_copies(false), hint);
        }
        told.finish()
    }
}

/// Before the old one is replaced: whoever is cut off has one that opens.
fn show(key: &RecoveryKey) -> Result<()> {
    let text = zeroize::Zeroizing::new(format!(
        "recovery key  {}\n{:14}Write it down now: it is not shown again. Keep the old one until \
         the next line\n{:14}says that the keyring has a new generation: from then on this one \
         opens it.\n",
        &*key.to_text(),
        "",
        ""
    ));
    console::print_for_sure(&text)
}

/// True unless the keyring on the disk lacks this slot: what failed may have failed behind the
/// replacement.
fn is_slot_of(dir: &Path, id: SlotId) -> bool {
    let there = KeyringDir::open(dir).and_then(|folder| folder.read());
    there.map_or(true, |there| there.slots().iter().any(|slot| slot.terms.id == id))
}
