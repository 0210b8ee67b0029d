//! `tidelock status`: what a protected directory is, how much of it is sealed under which key,
//! whether the library is really at work, and what is dangerous.
//!
//! Reads headers and settings, not data: `verify` does that. Without a key it tells what the open
//! part of the keyring and the running server say, and ends with 7.

mod leaks;
mod pgbackrest;
mod text;
mod warnings;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use tidelock_contract::wire::KeyState;
use tidelock_keyring::{DataKeyEntry, Direction, Keyring};

use crate::census::{Census, Tally};
use crate::console;
use crate::error::{Error, Result};
use crate::key::one;
use crate::keyring::{Copies, CopyState};
use crate::postgres::ControlFile;
use crate::postgres::settings::{self, Setting};
use crate::protected::Protected;
use crate::running::{Agent, Found, Programs, SilentAgent};
use crate::sealed::Keys;
use crate::server::{Loaded, Server, is_known};
use crate::unlock::{self, KeyOptions};
pub(crate) use warnings::CRYPTOPERIOD_DAYS;
use warnings::Warning;

/// Show what is sealed under which key, whether the library is loaded, and what is dangerous
#[derive(clap::Args)]
pub(crate) struct Status {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only list the files that are sealed under this data key: the first digits of its id
    #[arg(long, value_name = "KEY", conflicts_with = "json")]
    under: Option<String>,
    #[command(flatten)]
    keys: KeyOptions,
}

/// All of it.
#[derive(Serialize)]
pub(crate) struct Output {
    #[serde(serialize_with = "console::lossy")]
    directory: PathBuf,
    keyring: KeyringReport,
    /// What only an unlocked keyring tells.
    unlocked: Option<Unlocked>,
    /// Why it did not open.
    locked: Option<String>,
    server: Server,
    /// The server has another file of the library than this command starts programs with.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    other_library: bool,
    agent: Option<Agent>,
    /// One that is there and does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_agent: Option<SilentAgent>,
    settings: Vec<Setting>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct KeyringReport {
    id: String,
    generation: u64,
    slots: Vec<Slot>,
    copies: Vec<CopyReport>,
}

#[derive(Serialize)]
struct Slot {
    id: String,
    kind: &'static str,
    created: u64,
}

#[derive(Serialize)]
struct CopyReport {
    #[serde(serialize_with = "console::lossy")]
    path: PathBuf,
    generation: u64,
    time: u64,
    state: CopyState,
}

#[derive(Serialize)]
struct Unlocked {
    profile: String,
    cipher: &'static str,
    data_offset: u32,
    /// A conversion that has begun and not ended.
    conversion: Option<ConversionReport>,
    data_keys: Vec<DataKey>,
    /// Who gets keys.
    #[serde(skip)]
    programs: Vec<String>,
    files: Census,
    control_file: Option<ControlFile>,
}

#[derive(Serialize)]
struct ConversionReport {
    /// The command that does it.
    command: &'static str,
    begun: u64,
    #[serde(skip)]
    direction: Direction,
}

#[derive(Serialize)]
struct DataKey {
    id: String,
    state: &'static str,
    created: u64,
    retired: Option<u64>,
    /// How long it has sealed new files, or did.
    age_days: u64,
    files: u64,
    bytes: u64,
    /// Of a key that seals no new files: the first of those that still use it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_files: Vec<String>,
}

/// Files named of each such key.
const NAMED: usize = 20;

impl Status {
    /// # Errors
    /// The directory is not protected; the library is not loaded, or nobody can say whether it is.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let protected = Protected::open(&self.dir)?;
        if let Some(digits) = &self.under {
            return self.list(&protected, digits);
        }
        let opened = match self.keys.unlock(&protected) {
            Err(Error::Locked { source: tidelock_keyring::Error::Interrupted, .. }) => {
                return Err(tidelock_keyring::Error::Interrupted.into());
            }
            other => other,
        };
        let report = look(&protected, &self.keys, opened.as_ref())?;
        if self.json {
            console::print_json("status", &report)?;
        } else {
            console::print(text::of(&report))?;
            for warning in &report.warnings {
                console::warn(&warning.what, warning.hint);
            }
        }
        verdict(&report, opened.err())
    }

    /// The files under one data key, a line each.
    fn list(&self, protected: &Protected, digits: &str) -> Result<ExitCode> {
        let keyring = self.keys.unlock(protected)?;
        let id = |entry: &DataKeyEntry| entry.id.to_string();
        let key = one(keyring.data_keys(), id, digits, ("data key", "status"))?;
        let census = Census::take(&protected.path, keyring.policy());
        let names = census.names_under(key.id);
        console::print(names.into_iter().map(|name| name + "\n").collect::<String>())?;
        match census.untold() {
            0 => Ok(ExitCode::SUCCESS),
            count => Err(Error::Unread { count, dir: protected.path.clone() }),
        }
    }
}

/// All that can be seen without reading data; `opened` is the keyring, or why it did not open.
///
/// # Errors
/// More data keys than can be held.
pub(crate) fn look(
    protected: &Protected,
    keys: &KeyOptions,
    opened: std::result::Result<&Keyring, &Error>,
) -> Result<Output> {
    let programs = Programs::of(&protected.path);
    let policy = opened.ok().map(Keyring::policy);
    let server = Server::or_program_on(&protected.path, &programs.heads(), policy);
    let config = keys.configured(&protected.keyring, &protected.path).unwrap_or_default();
    let mut choices = keys.choices(&protected.keyring, &protected.path);
    choices.retain(|choice| unlock::may_open(choice, protected));
    let unlocked = opened.ok().map(|keyring| unlocked(protected, keyring)).transpose()?;
    let (agent, silent_agent) = match Found::look(protected, &server, &programs) {
        Found::Answers(agent) => (Some(agent), None),
        Found::Silent(agent) => (None, Some(agent)),
        Found::Nobody => (None, None),
    };
    let mut report = Output {
        keyring: keyring_report(protected),
        agent,
        silent_agent,
        settings: settings::of(&protected.path),
        locked: opened.err().map(ToString::to_string),
        directory: protected.path.clone(),
        unlocked,
        other_library: server.has_another_library(),
        server,
        warnings: Vec::new(),
    };
    report.warnings = warnings::of(&report, &programs.heads(), &choices, &config);
    Ok(report)
}

impl Output {
    /// True if a server of this directory would have been seen whether it has keys or not.
    fn shows_servers(&self) -> bool {
        let profile = self.unlocked.as_ref().map_or("", |all| all.profile.as_str());
        is_known(&self.directory, profile)
    }
}

fn verdict(report: &Output, locked: Option<Error>) -> Result<ExitCode> {
    match (&report.server, locked) {
        (Server::Running { pid, library: Loaded::No, .. }, _) => {
            Err(Error::WithoutLibrary { pid: *pid })
        }
        (_, Some(why)) => Err(Error::SealedUnknown(why.into())),
        (Server::Running { pid, library: Loaded::CannotBeTold, .. }, None) => {
            Err(Error::LibraryUnknown { pid: *pid })
        }
        (Server::Unseen, None) => Err(Error::ServerUnseen),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn keyring_report(protected: &Protected) -> KeyringReport {
    let keyring = &protected.keyring;
    let slot = |slot: &tidelock_keyring::Slot| Slot {
        id: slot.terms.id.to_string(),
        kind: slot.terms.kind.name(),
        created: slot.terms.created,
    };
    let copies = Copies::of(&protected.path).0.into_iter().map(|copy| CopyReport {
        state: copy.state(keyring.id()),
        generation: copy.generation.0,
        time: copy.time,
        path: copy.path,
    });
    KeyringReport {
        id: keyring.id().to_string(),
        generation: keyring.generation().0,
        slots: keyring.slots().iter().map(slot).collect(),
        copies: copies.collect(),
    }
}

fn unlocked(protected: &Protected, keyring: &Keyring) -> Result<Unlocked> {
    let keys = Keys::install(keyring)?;
    let files = Census::take(&protected.path, keyring.policy());
    let data_key = |entry: &DataKeyEntry| {
        let under = files.under.get(&entry.id).map_or_else(Tally::default, |under| under.tally);
        let current = entry.state == KeyState::Current;
        DataKey {
            id: entry.id.to_string(),
            state: entry.state.name(),
            created: entry.created,
            retired: entry.retired,
            age_days: entry.retired.unwrap_or_else(console::now).saturating_sub(entry.created)
                / 86_400,
            files: under.files,
            bytes: under.bytes,
            first_files: files.first_under(entry.id, if current { 0 } else { NAMED }),
        }
    };
    // The current one first.
    let mut entries: Vec<_> = keyring.data_keys().iter().collect();
    entries.sort_by_key(|entry| entry.state != KeyState::Current);
    let data_keys = entries.into_iter().map(data_key).collect();
    Ok(Unlocked {
        profile: keyring.policy().profile().to_owned(),
        cipher: "AES-256-XTS",
        data_offset: keyring.layout().data_offset(),
        conversion: keyring.conversion().map(|it| ConversionReport {
            command: it.direction.command(),
            begun: it.begun,
            direction: it.direction,
        }),
        data_keys,
        programs: keyring.policy().programs().to_vec(),
        control_file: ControlFile::read(&protected.path, &keys),
        files,
    })
}
