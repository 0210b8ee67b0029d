//! `tidelock key check`: would a server come back if it restarted now?
//!
//! ```text
//!   slots     each provider is asked           who could open the keyring
//!   keyring   opened as a server's agent does  is it whole, is it the newest
//!   files     each header                      is its data key in the keyring
//! ```
//!
//! All of it as the user who will unlock: what root may read says nothing of the server.

mod files;
mod user;

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_keyring::{Health, Keyring, Slot};
use tidelock_providers::{Config, Kind, ProviderChoice};

use super::session::short;
use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::rollback;
use crate::unlock;
use files::Files;

/// Would a server come back if it restarted now? Asks every slot's provider, opens the keyring, and
/// looks whether it has the data key of each file; root asks as the owner of the directory
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: std::path::PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    told: user::As,
}

#[derive(Serialize)]
struct Output<'a> {
    directory: &'a Path,
    keyring: String,
    /// As whom it was asked.
    user: String,
    /// A restart without anybody at a terminal would open the keyring.
    unattended: bool,
    /// It would, and the keyring is the newest and has the keys of all files.
    restarts: bool,
    /// Why not.
    why_not: Option<String>,
    slots: Vec<SlotOutput>,
    /// What the headers of the files need; nothing unless the keyring opened.
    files: Option<Files>,
}

#[derive(Serialize)]
struct SlotOutput {
    id: String,
    kind: &'static str,
    verdict: Verdict,
    /// Who was asked, and what it said.
    detail: String,
    /// What runs out first, and the seconds left.
    expires: Option<(String, u64)>,
    warnings: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Opens,
    /// A passphrase, a recovery key.
    NeedsAPerson,
    NotConfigured,
    DoesNotOpen,
}

impl Check {
    /// Ends with 4 if a restart would fail for want of a key.
    ///
    /// # Errors
    /// The directory is not protected; a configuration that cannot be trusted.
    pub(super) fn run(self) -> Result<ExitCode> {
        let user = user::choose(&self.dir, &self.told, self.json)?;
        let protected = Protected::open(&self.dir)?;
        let config = unlock::to_open(&protected.keyring, &protected.path, protected.owner)?;
        let mut slots: Vec<_> = protected
            .keyring
            .slots()
            .iter()
            .map(|slot| check(slot, &config.providers, &protected.path))
            .collect();
        let opened = open(&protected, &config, &mut slots);
        let files = match &opened {
            Ok(keyring) => Some(Files::look(&protected.path, keyring)?),
            Err(_) => None,
        };
        let unattended = opened.is_ok();
        let fault = match (&opened, &files) {
            (Ok(keyring), Some(files)) => fault(&protected, keyring, files).err(),
            _ => None,
        };
        record(&protected, opened.as_ref().ok(), opened.as_ref().err().or(fault.as_ref()));
        let fault = opened.err().or(fault);
        let (directory, keyring) = (protected.path.as_path(), protected.keyring.id().to_string());
        let report = Output {
            directory,
            keyring,
            user: user.name,
            unattended,
            restarts: fault.is_none(),
            why_not: fault.as_ref().map(ToString::to_string),
            slots,
            files,
        };
        if self.json {
            console::print_json("key check", &report)?;
        } else {
            console::print(text(&report, protected.keyring.slots()))?;
        }
        for warning in report.slots.iter().flat_map(|slot| &slot.warnings) {
            console::warn(warning, "docs/keys.md lists the providers");
        }
        if let Some(files) = report.files.as_ref().filter(|files| files.doubtful > 0) {
            console::warn(files.doubt(), "`tidelock verify -D DIR` names them");
        }
        fault.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// As the agent of a server that starts: a slot that opens is not enough, the rest must verify.
fn open(protected: &Protected, config: &Config, slots: &mut [SlotOutput]) -> Result<Keyring> {
    if slots.iter().all(|slot| slot.verdict != Verdict::Opens) {
        return Err(Error::NothingOpensUnattended);
    }
    let opened = unlock::unattended(protected, config);
    if let Err(why) = &opened {
        for slot in slots.iter_mut().filter(|slot| slot.verdict == Verdict::Opens) {
            slot.verdict = Verdict::DoesNotOpen;
            slot.detail = match why {
                Error::Locked { source, .. } => source.to_string(),
                other => other.to_string(),
            };
        }
    }
    opened
}

/// What would stop a server although its keyring opens.
fn fault(protected: &Protected, keyring: &Keyring, files: &Files) -> Result<()> {
    if let Some(conversion) = keyring.conversion() {
        let (directory, direction) = (protected.path.clone(), conversion.direction);
        return Err(tidelock_agent::Error::HalfConverted { directory, direction }.into());
    }
    rollback::refuse(protected)?;
    files.verdict(&protected.path)
}

fn record(protected: &Protected, opened: Option<&Keyring>, fault: Option<&Error>) {
    let outcome = if fault.is_some() { Outcome::Failed } else { Outcome::Done };
    let details = Details { reason: fault.map(ToString::to_string), ..Details::of_this_process() };
    let Protected { path, keyring, .. } = protected;
    trail::write(keyring, path, opened, Event::KeyCheck, outcome, &details);
}

fn check(slot: &Slot, choices: &[ProviderChoice], dir: &Path) -> SlotOutput {
    let kind = slot.terms.kind;
    let mut report = SlotOutput {
        id: slot.terms.id.to_string(),
        kind: kind.name(),
        verdict: Verdict::NotConfigured,
        detail: "no configured provider is of this type".into(),
        expires: None,
        warnings: Vec::new(),
    };
    if Kind::of(kind).is_some_and(|kind| kind.is_a_persons) {
        report.verdict = Verdict::NeedsAPerson;
        report.detail = "not asked".into();
        return report;
    }
    for choice in choices.iter().filter(|choice| choice.kind().slot == kind) {
        let asked = if choice.is_unattended() {
            choice.open(dir, None)
        } else {
            report.verdict = Verdict::NeedsAPerson;
            report.detail = "not asked".into();
            continue;
        };
        let checked = asked.and_then(|provider| {
            let health = slot.check(&*provider)?;
            Ok((provider.describe(), health, provider.warnings()))
        });
        match checked {
            Ok((who, Health { expires }, warnings)) => {
                return SlotOutput {
                    verdict: Verdict::Opens,
                    detail: who,
                    expires,
                    warnings,
                    ..report
                };
            }
            Err(why) => {
                report.verdict = Verdict::DoesNotOpen;
                report.detail = why.to_string();
            }
        }
    }
    report
}

fn text(report: &Output<'_>, slots: &[Slot]) -> String {
    let mut text = String::new();
    for (slot, terms) in report.slots.iter().zip(slots) {
        let verdict = match slot.verdict {
            Verdict::Opens => "opens",
            Verdict::NeedsAPerson => "needs a person",
            Verdict::NotConfigured => "not configured",
            Verdict::DoesNotOpen => "DOES NOT OPEN",
        };
        let id = short(terms.terms.id);
        // Writing to a String cannot fail.
        let _ = write!(text, "{id}  {:<10}  {verdict:<14}  {}", slot.kind, slot.detail);
        if let Some((what, seconds)) = &slot.expires {
            let _ = write!(text, "; {what} ends in {}", span(*seconds));
        }
        text.push('\n');
    }
    if let Some(files) = &report.files {
        let _ = writeln!(text, "{files}");
    }
    text
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
