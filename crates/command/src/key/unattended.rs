//! Would a server still come back by itself? Asked before the last slot is removed or replaced that
//! opens without a person.

use std::io::{self, IsTerminal, Write};

use tidelock_keyring::SlotKind;
use tidelock_providers::{Kind, ProviderChoice};

use super::session::Session;
use crate::console;
use crate::error::{Error, Result};
use crate::unlock;

/// True if a slot of this kind, which is not left here, may have opened without a person, and none
/// that is left does: each is asked. Where nothing is configured from here, the kinds decide.
///
/// # Errors
/// A configuration that cannot be trusted or read.
pub(super) fn depends_on(session: &Session, kind: SlotKind) -> Result<bool> {
    let dir = &session.protected.path;
    let choices = unlock::configured(&session.protected.keyring, dir)?.providers;
    if choices.is_empty() {
        // The owner's own configuration cannot be seen from here: by the kinds of the slots.
        let needs_nobody = |kind| Kind::of(kind).is_some_and(|kind| !kind.is_a_persons);
        let mut left = session.keyring.slots().iter();
        return Ok(needs_nobody(kind) && !left.any(|slot| needs_nobody(slot.terms.kind)));
    }
    let unattended = || choices.iter().filter(|choice| choice.is_unattended());
    let opens = |choice: &ProviderChoice| {
        let mut left = session.keyring.slots().iter();
        choice.open(dir, None).is_ok_and(|provider| {
            left.any(|slot| slot.terms.kind == provider.kind() && slot.check(&*provider).is_ok())
        })
    };
    Ok(unattended().any(|choice| choice.kind().slot == kind) && !unattended().any(opens))
}

/// Warns, and asks a person for a yes unless it was given.
///
/// # Errors
/// [`Error::Refused`] without a yes.
pub(super) fn confirm(name: &str, yes: bool) -> Result<()> {
    let what = format!(
        "{name} is the last that opens without a person: without it a server does not come back by \
         itself"
    );
    let hint = "add another slot first, or say --yes";
    if yes {
        console::warn(what, "`tidelock key add -D DIR PROVIDER` adds one");
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Error::refused(what, hint));
    }
    console::warn(&what, hint);
    let ask = || -> io::Result<String> {
        write!(io::stderr(), "Go on all the same? [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(Error::io("ask at", "the terminal"))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Error::refused("nothing was changed", hint)),
    }
}
