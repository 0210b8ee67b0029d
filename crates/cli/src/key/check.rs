//! `tidelock key check`: would a server come back if it restarted now?

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use tidelock_keys::{Health, ProviderChoice, Slot, SlotKind};

use super::session::short;
use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::unlock;

/// Ask every slot's provider: would a server come back if it restarted now?
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: std::path::PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    directory: &'a Path,
    keyring: String,
    /// A restart without anybody at a terminal would succeed.
    unattended: bool,
    slots: Vec<SlotReport>,
}

#[derive(Serialize)]
struct SlotReport {
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
    /// Ends with 4 if no slot opens without a person.
    ///
    /// # Errors
    /// The directory is none; a configuration that cannot be trusted.
    pub(super) fn run(self) -> Result<ExitCode> {
        let protected = Protected::open(&self.dir)?;
        let choices = unlock::configured(&protected.keyring, &protected.path)?.providers;
        let slots: Vec<_> = protected
            .keyring
            .slots()
            .iter()
            .map(|slot| check(slot, &choices, &protected.path))
            .collect();
        let unattended = slots.iter().any(|slot| slot.verdict == Verdict::Opens);
        let (directory, keyring) = (protected.path.as_path(), protected.keyring.id().to_string());
        let report = Report { directory, keyring, unattended, slots };
        if self.json {
            console::print_json("key check", &report)?;
        } else {
            console::print(text(&report, protected.keyring.slots()))?;
        }
        for warning in report.slots.iter().flat_map(|slot| &slot.warnings) {
            console::warn(warning, "docs/keys.md lists the providers");
        }
        if unattended {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Error::BadKey {
            what: "no slot opens without a person: a server would not come back by itself".into(),
            hint: "mend what is named above, or add a slot with `tidelock key add`".into(),
        })
    }
}

fn check(slot: &Slot, choices: &[ProviderChoice], dir: &Path) -> SlotReport {
    let kind = slot.terms.kind;
    let mut report = SlotReport {
        id: slot.terms.id.to_string(),
        kind: kind.name(),
        verdict: Verdict::NotConfigured,
        detail: "no configured provider is of this type".into(),
        expires: None,
        warnings: Vec::new(),
    };
    if matches!(kind, SlotKind::Passphrase | SlotKind::Recovery) {
        report.verdict = Verdict::NeedsAPerson;
        report.detail = "not asked".into();
        return report;
    }
    for choice in choices.iter().filter(|choice| choice.kind() == kind) {
        let asked = if choice.is_unattended() {
            tidelock_providers::open(choice, dir, None)
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
                return SlotReport {
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

fn text(report: &Report<'_>, slots: &[Slot]) -> String {
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
