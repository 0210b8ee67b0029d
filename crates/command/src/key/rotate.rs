//! `tidelock key rotate`: the keyring key wrapped again, slot by slot, as each kind of provider
//! allows; another keyring key where a principal key is replaced.

use tidelock_agent::audit::Event;
use tidelock_keyring::{Provider, Slot, SlotId, SlotKind, Wrapping};
use tidelock_providers::{Kind, New, ProviderChoice, RecoveryKey, Rotation, has_terminal};

use super::new_provider::{self, NewPassphrase};
use super::renewal::{Renewal, of_old_copies};
use super::session::{Change, Opening, Session, short};
use super::unattended;
use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;

/// Wrap the keyring key again, under the newest version of a principal key; under a new principal
/// key, renew it under every slot
#[derive(clap::Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    opening: Opening,
    /// Only this slot: the first digits of its id [default: every slot that can be rotated without
    /// naming a new key; the recovery key's is left to `key recovery`]
    #[arg(long, value_name = "SLOT")]
    slot: Option<String>,
    /// The new provider; needed where the old one has a key of its own, such as a file
    #[arg(long, value_name = "PROVIDER", requires = "slot")]
    to: Option<ProviderChoice>,
    /// Replace it although nothing opens the keyring without a person then
    #[arg(long, requires = "to")]
    yes: bool,
    #[command(flatten)]
    passphrase: NewPassphrase,
    #[command(flatten)]
    renewal: Renewal,
}

/// What the principal key of a slot is to the slot in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OldKey {
    /// It opens that too.
    OpensToo,
    /// It may be needed: the service did not say, or keeps several keys under one name.
    InDoubt,
    /// Another one opens that.
    Replaced,
}

/// A slot that was replaced.
struct Rotated {
    change: Change,
    /// For people.
    line: String,
    /// `slot 1a2b3c4d (file)`.
    old: String,
    old_key: OldKey,
    /// To be configured, and what it makes; nothing if what opened the old slot wraps again.
    new: Option<Made>,
}

/// What is in the place of a slot.
struct Replaced {
    id: SlotId,
    old_key: OldKey,
    made: Made,
}

/// A provider as it is configured, and itself.
type Made = (ProviderChoice, Box<dyn Provider>);

/// A slot that stays as it is.
struct Left {
    name: String,
    why: Error,
}

impl Left {
    fn tell(&self) {
        let why = self.why.to_string().replacen(&self.name, "it", 1);
        console::warn(format!("{} is not rotated: {why}", self.name), self.why.hint());
    }
}

impl Rotate {
    /// Ends with 6 if slots are left as they were.
    ///
    /// # Errors
    /// A provider does not answer, or needs a new key to be named; nothing is changed then.
    pub(super) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let (done, left) = match &self.slot {
            Some(digits) => {
                let slot = session.slot(digits)?.clone();
                (vec![self.rotate(&mut session, &slot, 0)?], Vec::new())
            }
            None => self.rotate_each(&mut session)?,
        };
        if done.is_empty() {
            left.iter().for_each(Left::tell);
            return Err(Error::refused(
                "no slot can be rotated without more words",
                "do for each slot what is said above; the recovery key has `tidelock key recovery`",
            ));
        }
        let renewed = match done.iter().all(|one| one.old_key == OldKey::OpensToo) {
            true => None,
            false => {
                let new = done.iter().filter_map(|one| one.new.as_ref());
                let new: Vec<&dyn Provider> = new.map(|(_, provider)| &**provider).collect();
                self.renewal.run(&self.opening, &mut session, &new)?
            }
        };
        let is_renewed = renewed.is_some();
        let (mut changes, mut rotated) = (Vec::new(), Vec::new());
        for Rotated { change, line, old, old_key, new } in done {
            if let Some((choice, _)) = new {
                new_provider::configure(&mut session, &choice)?;
            }
            changes.push(change);
            rotated.push((line, old, old_key));
        }
        changes.extend(renewed);
        let told = session.write(&changes)?;
        for (line, ..) in &rotated {
            console::print(format_args!("{line}\n"))?;
        }
        console::warn(of_old_copies(is_renewed), what_becomes_of_keys(&rotated));
        left.iter().for_each(Left::tell);
        told.finish()?;
        match left.as_slice() {
            [] => Ok(()),
            some => Err(Error::SlotsLeft {
                names: some.iter().map(|one| &*one.name).collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// All slots but the recovery key's; those that cannot be rotated, with the reason.
    fn rotate_each(&self, session: &mut Session) -> Result<(Vec<Rotated>, Vec<Left>)> {
        let (mut done, mut left) = (Vec::new(), Vec::new());
        let slots = session.keyring.slots().to_vec();
        let mut asked = 0;
        for slot in slots.iter().filter(|slot| slot.terms.kind != RecoveryKey::SLOT) {
            let asks = rotation(slot.terms.kind) == Some(Rotation::Asks);
            match self.rotate(session, slot, asked) {
                Ok(rotated) => {
                    asked += usize::from(asks);
                    done.push(rotated);
                }
                Err(why @ Error::Keys(tidelock_keyring::Error::Interrupted)) => return Err(why),
                // A person who is there, and gave what cannot be taken, is told so.
                Err(why) if asks && self.may_ask() => return Err(why),
                Err(why) => left.push(Left { name: Session::name(slot), why }),
            }
        }
        Ok((done, left))
    }

    /// Replaces one slot; `line` of the descriptor has its new passphrase.
    fn rotate(&self, session: &mut Session, slot: &Slot, line: usize) -> Result<Rotated> {
        let (id, kind) = (slot.terms.id, slot.terms.kind);
        let choice = match (&self.to, rotation(kind)) {
            (Some(choice), _) => Some(choice.clone()),
            (None, Some(Rotation::Asks)) => Some(kind.name().parse()?),
            (None, Some(Rotation::Named)) => return Err(Self::not_named(session, id, kind)),
            (None, _) => None,
        };
        let (new, describe, old_key, made) = match choice {
            Some(choice) => {
                let Replaced { id, old_key, made } = self.replace(session, slot, &choice, line)?;
                (id, made.1.describe(), old_key, Some(made))
            }
            None => {
                let found = self.configured(session, slot)?;
                let provider = found.as_ref().unwrap_or(&session.opener);
                let new = session.keyring.replace_slot(id, &**provider)?;
                (new, provider.describe(), OldKey::OpensToo, None)
            }
        };
        let line = format!(
            "slot {} is slot {} now, which opens with {}{}",
            short(id),
            short(new),
            describe,
            if old_key == OldKey::OpensToo { ", as before" } else { "" }
        );
        let opened_by = made.as_ref().map_or(kind, |(_, provider)| provider.kind());
        let change = Change::slot(Event::SlotRotate, new, opened_by);
        Ok(Rotated { change, line, old: Session::name(slot), old_key, new: made })
    }

    /// By the slot of another provider.
    fn replace(
        &self,
        session: &mut Session,
        slot: &Slot,
        choice: &ProviderChoice,
        line: usize,
    ) -> Result<Replaced> {
        let (id, kind) = (slot.terms.id, slot.terms.kind);
        let instead_of = Some(id);
        let new = New { line, instead_of, ..self.passphrase.first() };
        if choice.key_file().is_some_and(|file| file.symlink_metadata().is_err()) {
            // Before it is made.
            self.renewal.refuse_early(&self.opening, session)?;
        }
        let (choice, provider) = new_provider::make(choice, session, &new)?;
        // A name alone says nothing: a secret has versions, an alias and a label move.
        let is_of_kind = provider.kind() == kind && provider.wrapping() == slot.terms.wrapping;
        let opens = || slot.check(&*provider);
        // Only this error says so: a service fails for a moment, or lets nobody decrypt.
        let is_another = !is_of_kind || opens().is_err_and(|why| why.is_wrong_key());
        if (self.to.is_some() || self.may_ask()) && is_another {
            self.renewal.refuse_early(&self.opening, session)?;
        }
        let new = session.keyring.replace_slot(id, &*provider)?;
        // Where the service wraps, what has the name may hold the old key too.
        let reference = provider.reference();
        let same_name = !reference.is_empty() && slot.terms.reference == reference;
        let may_hold_both = same_name && is_of_kind && provider.wrapping() == Wrapping::Remote;
        // The secret may have another version by now; a passphrase was asked for meanwhile.
        let is_surely_another = is_another && (choice.is_unattended() || !is_of_kind);
        let old_key = match (!is_surely_another).then(opens) {
            Some(Ok(_)) => OldKey::OpensToo,
            Some(Err(why)) if !why.is_wrong_key() => OldKey::InDoubt,
            _ if may_hold_both => OldKey::InDoubt,
            _ => OldKey::Replaced,
        };
        if !choice.is_unattended() && unattended::depends_on(session, kind)? {
            unattended::confirm(&Session::name(slot), self.yes)?;
        }
        Ok(Replaced { id: new, old_key, made: (choice, provider) })
    }

    /// True if a person is there, or has given new passphrases.
    fn may_ask(&self) -> bool {
        has_terminal() || self.passphrase.new_passphrase_fd.is_some()
    }

    fn not_named(session: &Session, id: SlotId, kind: SlotKind) -> Error {
        let (slot, dir) = (short(id), session.protected.path.display());
        if kind == RecoveryKey::SLOT {
            return Error::refused(
                format!("slot {slot} is the recovery key's, which has a command of its own"),
                format!("`tidelock key recovery -D {dir}`"),
            );
        }
        Error::refused(
            format!("slot {slot} ({kind}) has a key of its own, so a new one must be named"),
            format!("`tidelock key rotate -D {dir} --slot {slot} --to PROVIDER`"),
        )
    }

    /// The configured provider that opens the slot: it wraps again, under the newest version of its
    /// key. Nothing if the one that has opened the keyring does.
    fn configured(&self, session: &Session, slot: &Slot) -> Result<Option<Box<dyn Provider>>> {
        let (id, kind) = (slot.terms.id, slot.terms.kind);
        let opens = |one: &dyn Provider| one.kind() == kind && slot.check(one).is_ok();
        if opens(&*session.opener) {
            return Ok(None);
        }
        let Protected { path, keyring, .. } = &session.protected;
        let keys = &self.opening.keys;
        for choice in keys.choices(keyring, path).iter().filter(|it| it.kind().slot == kind) {
            match choice.open(path, keys.passphrase_fd.as_ref()) {
                Ok(provider) if opens(&*provider) => return Ok(Some(provider)),
                _ => {}
            }
        }
        Err(Error::refused(
            format!("no configured provider opens slot {} ({kind})", short(id)),
            format!("`tidelock key check -D {}` says why", path.display()),
        ))
    }
}

fn rotation(kind: SlotKind) -> Option<Rotation> {
    Kind::of(kind).map(|kind| kind.rotation)
}

/// A key that still opens a slot must not be destroyed on our advice.
fn what_becomes_of_keys(rotated: &[(String, String, OldKey)]) -> String {
    let said = [
        (OldKey::OpensToo, "keep the principal key of ", ": it opens the new slot too"),
        (OldKey::InDoubt, "keep the principal key of ", ": the new slot may need it"),
        (
            OldKey::Replaced,
            "destroy the old principal key of ",
            " when no backup, no other slot and no other keyring needs it",
        ),
    ];
    let said = said.into_iter().filter_map(|(what, before, behind)| {
        let of = rotated.iter().filter(|(_, _, old_key)| *old_key == what);
        let names: Vec<&str> = of.map(|(_, old, _)| old.as_str()).collect();
        (!names.is_empty()).then(|| format!("{before}{}{behind}", names.join(", ")))
    });
    said.collect::<Vec<_>>().join("; ")
}
