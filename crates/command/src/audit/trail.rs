//! What commands write to the audit log of a keyring.
//!
//! A line that cannot be written is a warning, never a reason not to do what was asked.

use std::path::Path;

use tidelock_agent::audit::{ChainKey, Details, Event, Log, Outcome, record};
use tidelock_keyring::{Keyring, SealedKeyring};
use tidelock_providers::{AuditTarget, Config};

use crate::console;
use crate::error::{Error, Result};
use crate::{this_program, unlock};

/// The log of a keyring; `place` is its directory, or the file of a copy.
///
/// # Errors
/// [`Error::Agent`] if there is no place for it.
pub(crate) fn log(keyring: &SealedKeyring, place: &Path, config: &Config) -> Result<Log> {
    let (file, journal) = match &config.audit {
        Some(AuditTarget::File(path)) => (Some(path.as_path()), false),
        Some(AuditTarget::Journal) => (None, true),
        None => (None, false),
    };
    Ok(Log::of(keyring.id(), place, file, journal)?)
}

/// A keyring was opened, or was not: by which slot, or which kinds of providers were tried.
pub(crate) fn unlocked(
    keyring: &SealedKeyring,
    place: &Path,
    provider: String,
    opened: std::result::Result<&Keyring, &Error>,
) {
    let slot = opened.ok().and_then(Keyring::opened_by);
    let provider = slot.map_or(provider, |slot| slot.terms.kind.name().to_owned());
    let details = Details {
        slot: slot.map(|slot| slot.terms.id.to_string()),
        provider: Some(&provider).filter(|kinds| !kinds.is_empty()).map(String::as_str),
        reason: opened.err().map(ToString::to_string),
        ..Details::of_this_process()
    };
    let outcome = if opened.is_ok() { Outcome::Done } else { Outcome::Failed };
    write(keyring, place, opened.ok(), Event::Unlock, outcome, &details);
}

/// Writes a line about `keyring`, whose directory is `place`; chained if it is open.
pub(crate) fn write(
    keyring: &SealedKeyring,
    place: &Path,
    opened: Option<&Keyring>,
    event: Event,
    outcome: Outcome,
    details: &Details<'_>,
) {
    let program = this_program::path().unwrap_or_default().display().to_string();
    let directory = place.display().to_string();
    let details =
        Details { program: Some(&program), directory: Some(&directory), ..details.clone() };
    let key = opened.map(|keyring| ChainKey::of(keyring, crate::primitives::primitives().lock));
    // A configuration that cannot be read is the caller's error already.
    let config = unlock::configured(keyring, place).unwrap_or_default();
    let written = log(keyring, place, &config)
        .and_then(|log| Ok(record(&log, keyring.id(), key.as_ref(), event, outcome, &details)?));
    if let Err(why) = written {
        console::warn(
            format!("the audit log did not record this: {why}"),
            "make its directory writable, or name a file in the configuration: audit = \
             \"file:PATH\"",
        );
    }
}
