//! The audit log: one JSON line for each grant, refusal, addition, start and end.
//!
//! Appended in one write; a line that cannot be written is no reason to refuse, but is said on
//! standard error once. The chain of MACs that shows a removed line is the keys issue's.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use serde::Serialize;
use tidelock_format::KeyringId;

use crate::error::Error;

/// The version of the lines.
const VERSION: u8 = 1;

/// An open audit log.
pub(crate) struct Audit {
    file: File,
    keyring: String,
    complained: bool,
}

/// What happened.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// The agent began to listen.
    Start,
    /// A program got keys.
    Grant,
    /// A request was refused.
    Refuse,
    /// A program was listed for this run.
    Allow,
    /// The agent ended.
    End,
}

/// Who did it, and why not.
#[derive(Default, Serialize)]
pub(crate) struct Details<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    version: u8,
    time: String,
    event: Event,
    keyring: &'a str,
    #[serde(flatten)]
    details: &'a Details<'a>,
}

impl Audit {
    pub(crate) fn open(path: &Path, keyring: KeyringId) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(Error::io("open the audit log", path))?;
        Ok(Self { file, keyring: keyring.to_string(), complained: false })
    }

    pub(crate) fn write(&mut self, event: Event, details: &Details<'_>) {
        let time = timestamp(SystemTime::now());
        let line = Line { version: VERSION, time, event, keyring: &self.keyring, details };
        let written = serde_json::to_vec(&line).map_err(Into::into).and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)
        });
        if let (Err(why), false) = (written, self.complained) {
            self.complained = true;
            let _ = writeln!(std::io::stderr(), "tidelock agent: the audit log fails: {why}");
        }
    }
}

/// UTC, as RFC 3339 with milliseconds.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + late, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_date_command() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_program_name_cannot_forge_a_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("log");
        let mut audit = Audit::open(&path, KeyringId([1; 16])).unwrap();
        let details = Details { program: Some("/x\n{\"event\":\"grant\"}"), ..Details::default() };
        audit.write(Event::Refuse, &details);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["event"], "refuse");
    }
}
