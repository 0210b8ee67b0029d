//! `tidelock key add | remove | rotate | recovery`: what opens the keyring.

use std::path::PathBuf;

use tidelock_agent::audit::Event;
use tidelock_keys::{Provider, ProviderChoice, RecoveryKey, SlotId, SlotKind};

use super::new_provider;
use super::session::{Change, Opening, Session, short};
use crate::console;
use crate::error::{Error, Result};
use crate::init::{refuse_to_print_into_logs, write_recovery_key};

/// What an operator must know about everything that is taken away.
const OLD_COPIES: &str = "whoever kept an old copy of the keyring and the key that opened it still reads the data: \
                          only sealing the data anew under other data keys changes that";

/// Add a slot: one more way to open the keyring
#[derive(clap::Args)]
pub(crate) struct Add {
    #[command(flatten)]
    opening: Opening,
    /// What will open it too: file:PATH (made if it does not exist), passphrase, command:CMD, ...
    #[arg(value_name = "PROVIDER")]
    new: ProviderChoice,
    /// Read the new passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N")]
    new_passphrase_fd: Option<u32>,
}

/// Remove a slot, and renew the keyring key under every slot that is left
#[derive(clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    opening: Opening,
    /// The first digits of its id, as `tidelock key list` shows them
    slot: String,
    /// Renew the keyring key: the default, and here to be said aloud
    #[arg(long)]
    renew: bool,
    /// Leave the keyring key as it is: the removed slot of an old copy then opens the new keyring too
    #[arg(long, conflicts_with = "renew")]
    no_renew: bool,
}

/// Wrap the keyring key again, under a new principal key
#[derive(clap::Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    opening: Opening,
    /// Only this slot: the first digits of its id [default: every slot but the recovery key's]
    #[arg(long, value_name = "SLOT")]
    slot: Option<String>,
    /// The new provider; needed where the old one has a key of its own, such as a file
    #[arg(long, value_name = "PROVIDER", requires = "slot")]
    to: Option<ProviderChoice>,
    /// Read the new passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N")]
    new_passphrase_fd: Option<u32>,
}

/// Make a new recovery key, in the place of the old one
#[derive(clap::Args)]
pub(crate) struct Recovery {
    #[command(flatten)]
    opening: Opening,
    /// Write the new recovery key to this new file instead of printing it
    #[arg(long, value_name = "FILE")]
    new_recovery_file: Option<PathBuf>,
    /// Print the new recovery key though standard output is no terminal, but a pipe or a log
    #[arg(long, conflicts_with = "new_recovery_file")]
    print_recovery: bool,
}

impl Add {
    /// # Errors
    /// The keyring does not open, or the new provider refuses.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let dir = &session.protected.path;
        let (choice, provider) = new_provider::make(&self.new, dir, self.new_passphrase_fd)?;
        let id = session.keyring.add_slot(&*provider)?;
        new_provider::configure(&session, &choice)?;
        let told = session.write(&[Change::slot(Event::SlotAdd, id, provider.kind())])?;
        console::print(format_args!("slot {} opens with {}\n", short(id), provider.describe()))?;
        told.finish()
    }
}

impl Remove {
    /// # Errors
    /// It is the only slot; another slot's provider is not at hand.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let slot = session.slot(&self.slot)?;
        let (id, name) = (slot.terms.id, Session::name(slot));
        let mut changes = vec![Change::slot(Event::SlotRemove, id, slot.terms.kind)];
        session.keyring.remove_slot(id)?;
        if !self.no_renew {
            let providers = self.opening.providers(&session)?;
            let providers: Vec<&dyn Provider> = providers.iter().map(|one| &**one).collect();
            session.keyring.renew(&providers)?;
            changes.push(Change::key(Event::KeyringRenew, None));
        }
        let told = session.write(&changes)?;
        console::print(format_args!("{name} is removed\n"))?;
        console::warn(
            OLD_COPIES,
            "the provider may still stand in the configuration; destroy its key when nothing needs it",
        );
        told.finish()
    }
}

impl Rotate {
    /// # Errors
    /// A provider does not answer, or needs a new key to be named.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let slots = match &self.slot {
            Some(digits) => vec![session.slot(digits)?.terms.clone()],
            None => session
                .keyring
                .slots()
                .iter()
                .map(|slot| slot.terms.clone())
                .filter(|terms| terms.kind != SlotKind::Recovery)
                .collect(),
        };
        let (mut changes, mut lines) = (Vec::new(), Vec::new());
        for terms in &slots {
            let (new, line) = self.rotate(&mut session, terms.id, terms.kind)?;
            changes.push(Change::slot(Event::SlotRotate, new, terms.kind));
            lines.push(line);
        }
        let told = session.write(&changes)?;
        for line in lines {
            console::print(format_args!("{line}\n"))?;
        }
        console::warn(OLD_COPIES, "destroy the old principal key when no backup needs it");
        told.finish()
    }

    /// Replaces one slot; the new one, and what to tell about it.
    fn rotate(
        &self,
        session: &mut Session,
        id: SlotId,
        kind: SlotKind,
    ) -> Result<(SlotId, String)> {
        let choice = match (&self.to, kind) {
            (Some(choice), _) => choice.clone(),
            (None, SlotKind::Passphrase) => ProviderChoice::Passphrase {},
            (None, SlotKind::File | SlotKind::Env | SlotKind::Systemd | SlotKind::Recovery) => {
                return Err(Error::refused(
                    format!(
                        "slot {} ({kind}) has a key of its own: a new one must be named",
                        short(id)
                    ),
                    format!(
                        "`tidelock key rotate --slot {} --to PROVIDER`; `key recovery` for the recovery key",
                        short(id)
                    ),
                ));
            }
            (None, _) => self.configured(session, id, kind)?,
        };
        let dir = &session.protected.path;
        let (choice, provider) = new_provider::make(&choice, dir, self.new_passphrase_fd)?;
        let new = session.keyring.replace_slot(id, &*provider)?;
        new_provider::configure(session, &choice)?;
        let line = format!(
            "slot {} is slot {} now, which opens with {}",
            short(id),
            short(new),
            provider.describe()
        );
        Ok((new, line))
    }

    /// The configured provider that opens the slot: it wraps again, under the newest version of its key.
    fn configured(&self, session: &Session, id: SlotId, kind: SlotKind) -> Result<ProviderChoice> {
        let slots = session.protected.keyring.slots();
        let slot = slots.iter().find(|slot| slot.terms.id == id);
        let choices =
            self.opening.keys.choices(&session.protected.keyring, &session.protected.path);
        let opens = |choice: &ProviderChoice| {
            let provider = tidelock_providers::open(choice, &session.protected.path, None).ok()?;
            (provider.kind() == kind && slot?.check(&*provider).is_ok()).then_some(())
        };
        choices.into_iter().find(|choice| opens(choice).is_some()).ok_or_else(|| {
            Error::refused(
                format!("no configured provider opens slot {} ({kind})", short(id)),
                "`tidelock key check -D DIR` tells why",
            )
        })
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
        let key = RecoveryKey::random()?;
        let made = match &self.new_recovery_file {
            Some(file) => {
                tidelock_keys::refuse_inside(file, &session.protected.path)?;
                Some(write_recovery_key(file, &key)?)
            }
            None => None,
        };
        let slots = session.keyring.slots();
        let old = slots.iter().find(|slot| slot.terms.kind == SlotKind::Recovery);
        let (event, id) = match old.map(|slot| slot.terms.id) {
            Some(old) => (Event::SlotRotate, session.keyring.replace_slot(old, &key)?),
            None => (Event::SlotAdd, session.keyring.add_slot(&key)?),
        };
        let written = session.write(&[Change::slot(event, id, SlotKind::Recovery)]);
        if let (Some(made), Err(_)) = (&made, &written) {
            // It opens nothing.
            let _ = made.remove();
        }
        let told = written?;
        match &self.new_recovery_file {
            Some(file) => console::print(format_args!("recovery key in {}\n", file.display()))?,
            None => {
                let text = zeroize::Zeroizing::new(format!("recovery key  {}\n", &*key.to_text()));
                console::print(&*text)?;
            }
        }
        told.finish()
    }
}
