//! Another keyring key, whenever a key that opened the old one is taken away.
//!
//! Whoever has an old copy of the keyring and a key that opened it has the keyring key of then, and
//! with that every later keyring that is sealed under it.

use tidelock_agent::audit::Event;
use tidelock_keyring::Provider;
use tidelock_providers::RecoveryKey;

use super::session::{Change, Opening, Session};
use crate::error::Result;

/// What an operator must know about everything that is taken away.
const OLD_COPIES: &str = "an old copy of the keyring and the key that opened it still open the \
                          data: \
     only sealing the data again under other data keys changes that";
/// The same where the keyring key stays.
const NOT_RENEWED: &str = "an old copy of the keyring and the key that opened it open this keyring \
                           and later ones too, whatever is sealed again: its own key is not renewed";

/// What must be said of old copies, after a renewal or without one.
pub(super) const fn of_old_copies(renewed: bool) -> &'static str {
    if renewed { OLD_COPIES } else { NOT_RENEWED }
}

#[derive(clap::Args)]
pub(super) struct Renewal {
    /// Renew the keyring key under every slot (the default); wants the key of each slot
    #[arg(long)]
    renew: bool,
    /// Leave the keyring key as it is: an old copy and the key that opened it then open the new
    /// keyring too
    #[arg(long, conflicts_with = "renew")]
    no_renew: bool,
}

impl Renewal {
    /// Before a key is made or asked for.
    ///
    /// # Errors
    /// [`tidelock_keyring::Error::SlotNotAtHand`] if the recovery key is needed and not given.
    pub(super) fn refuse_early(&self, opening: &Opening, session: &Session) -> Result<()> {
        let mut slots = session.keyring.slots().iter();
        match slots.find(|slot| slot.terms.kind == RecoveryKey::SLOT) {
            Some(slot) if !self.no_renew && opening.keys.recovery_file.is_none() => {
                let (slot, kind) = (slot.terms.id, slot.terms.kind);
                Err(tidelock_keyring::Error::SlotNotAtHand { slot, kind, why: None }.into())
            }
            _ => Ok(()),
        }
    }

    /// Renews, unless told not to. `new` opens the slots that were made just now.
    ///
    /// # Errors
    /// A slot's key is not at hand; what a provider says. The keyring key is then as before.
    pub(super) fn run(
        &self,
        opening: &Opening,
        session: &mut Session,
        new: &[&dyn Provider],
    ) -> Result<Option<Change>> {
        if self.no_renew {
            return Ok(None);
        }
        let providers = opening.providers(session)?;
        // First what has opened a slot already: nobody is asked twice.
        let all = new.iter().copied().chain(std::iter::once(&*session.opener));
        let all: Vec<&dyn Provider> = all.chain(providers.iter().map(|one| &**one)).collect();
        session.keyring.renew(&all)?;
        Ok(Some(Change::key(Event::KeyringRenew, None)))
    }
}
