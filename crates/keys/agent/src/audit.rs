//! The audit log: one JSON line for each unlock, failed unlock, change of slots or keys, grant and
//! refusal, chained by a keyed MAC.
//!
//! ```text
//!   agent, commands --Entry--> record --flock--> chain: MAC over all since the last chained line
//!                                 |                place: which file
//!                                 +------------> journal: a copy, MAC included
//!   tidelock audit verify <----- verify
//! ```
//!
//! Whoever holds no key (a failed unlock) writes a line without a MAC, which the next chained line
//! covers but does not prove. FORMAT.md, "Audit log", draws the bytes; SECURITY.md says what the
//! chain does not show.

mod chain;
mod journal;
mod place;
mod verify;

use std::io::Write;

use serde::Serialize;
use tidelock_format::KeyringId;
use time::UtcDateTime;
use time::format_description::StaticFormatDescription;
use time::macros::format_description;

pub use chain::{ChainKey, Mac, last_mac};
pub use place::Log;
pub use verify::{Broken, Verified, verify, verify_each};

use crate::error::Error;

/// The version of the lines.
const VERSION: u8 = 2;
/// RFC 3339 in UTC, with milliseconds.
const TIME: StaticFormatDescription =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The agent began to listen.
    Start,
    /// A program got keys.
    Grant,
    /// A request was refused.
    Refuse,
    /// A program was listed for this run.
    Allow,
    /// The agent took over a changed keyring.
    Reload,
    /// The agent ended.
    End,
    /// A command opened the keyring, or could not.
    Unlock,
    /// A directory was made a protected one by itself.
    KeyringCreate,
    /// A copy of the keyring was written.
    KeyringBackup,
    /// A copy took the place of the keyring.
    KeyringRestore,
    /// Somebody asked whether the server would come back.
    KeyCheck,
    /// A slot was added.
    SlotAdd,
    /// A slot was removed.
    SlotRemove,
    /// A slot wraps under a new principal key.
    SlotRotate,
    /// The keyring has another keyring key.
    KeyringRenew,
    /// New files use another data key.
    DataKeyNew,
    /// Another node's data keys were taken in.
    DataKeyAdopt,
    /// Another node's data key was let go.
    DataKeyRelease,
    /// A retired data key was destroyed.
    DataKeyDestroy,
    /// All files are being sealed, made plain, or sealed again.
    ConversionBegin,
    /// All of them are.
    ConversionEnd,
    /// Other files stay plain, or other programs get keys.
    PolicyChange,
    /// Every file was read and a report of it was written.
    Report,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As asked.
    #[default]
    Done,
    /// A rule does not allow it.
    Refused,
    /// It could not be done.
    Failed,
}

/// Who did what with which key. What is `None` is not in the line.
#[derive(Clone, Default, Serialize)]
pub struct Details<'a> {
    /// The process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<&'a str>,
    /// The program that was listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<&'a str>,
    /// The protected directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<&'a str>,
    /// The provider, by its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<&'a str>,
    /// The slot's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The data key's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_key: Option<String>,
    /// The keyring that a data key came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The copy of a keyring, or where a keyring came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why not, or other words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Details<'_> {
    /// This process and its user.
    #[must_use]
    pub fn of_this_process() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let uid = rustix::process::geteuid().as_raw();
        Self { pid: Some(pid), uid: Some(uid), ..Self::default() }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    version: u8,
    time: String,
    event: Event,
    outcome: Outcome,
    keyring: String,
    #[serde(flatten)]
    details: &'a Details<'a>,
}

/// Writes one line. With a key it is chained, and with it whatever was written without one.
///
/// # Errors
/// [`Error::Io`]; then the log has no part of the line, unless it was written and could not be
/// synced or sent to the journal.
pub fn record(
    log: &Log,
    keyring: KeyringId,
    key: Option<&ChainKey>,
    event: Event,
    outcome: Outcome,
    details: &Details<'_>,
) -> Result<(), Error> {
    let time = text(UtcDateTime::now());
    let line =
        Line { version: VERSION, time, event, outcome, keyring: keyring.to_string(), details };
    let text = serde_json::to_string(&line).map_err(|why| Error::Io {
        what: "write to the audit log",
        path: log.file.clone(),
        source: why.into(),
    })?;
    // Programs come and go often, and none of them waits for a disk.
    let lasting = !matches!(event, Event::Grant | Event::Refuse | Event::Allow);
    let written = chain::append(log, keyring, key, text, lasting)?;
    if log.journal {
        journal::send(event, &written).map_err(Error::io("write to", journal::SOCKET))?;
    }
    Ok(())
}

fn text(time: UtcDateTime) -> String {
    time.format(TIME).expect("a time has all parts that the form names")
}

/// The agent's side: a line that cannot be written is no reason to refuse, but is said once, until
/// one can be written again.
pub(crate) struct Audit {
    log: Log,
    keyring: KeyringId,
    key: ChainKey,
    complained: bool,
}

impl Audit {
    /// Says at once if the log cannot be opened.
    pub(crate) fn open(log: &Log, keyring: KeyringId, key: ChainKey) -> Self {
        let mut audit = Self { log: log.clone(), keyring, key, complained: false };
        if let Err(why) = log.open() {
            audit.complain(&why);
        }
        audit
    }

    /// The keyring was changed: its oldest data key may be another.
    pub(crate) fn set_key(&mut self, key: ChainKey) {
        self.key = key;
    }

    pub(crate) fn write(&mut self, event: Event, details: &Details<'_>) {
        let outcome = if event == Event::Refuse { Outcome::Refused } else { Outcome::Done };
        match record(&self.log, self.keyring, Some(&self.key), event, outcome, details) {
            Ok(()) => self.complained = false,
            Err(why) => self.complain(&why),
        }
    }

    fn complain(&mut self, why: &Error) {
        if std::mem::replace(&mut self.complained, true) {
            return;
        }
        let text = format!("tidelock agent: the audit log fails: {why}");
        let _ = writeln!(std::io::stderr(), "{text}");
        // Once it serves, its standard error is /dev/null.
        let _ = journal::complain(&text);
    }
}

#[cfg(test)]
mod tests;
