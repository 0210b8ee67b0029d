//! How things are shown beyond what all programs share: sizes, dates, progress on terminals only.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Serialize, Serializer};
pub(crate) use tidelock_console::{tell, warn};
use time::UtcDateTime;
use time::macros::format_description;

use crate::error::{Error, Result};

/// Prints the two lines of an error.
pub(crate) fn report(error: &Error) {
    tidelock_console::fail(error, error.hint());
}

/// Prints lines on standard output.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print(text: impl Display) -> Result<()> {
    Ok(tidelock_console::print(text)?)
}

/// Prints what is shown only once.
///
/// # Errors
/// [`Error::Io`], also if nobody reads it: it may not have been shown.
pub(crate) fn print_for_sure(text: &str) -> Result<()> {
    Ok(tidelock_console::print_for_sure(text)?)
}

/// Prints versioned JSON in one line: `fields` behind `"version"` and `"command"`.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print_json_line(command: &str, fields: &impl Serialize) -> Result<()> {
    Ok(tidelock_console::print_json_line(command, fields)?)
}

/// Prints versioned JSON: `fields` behind `"version"` and `"command"`.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print_json(command: &str, fields: &impl Serialize) -> Result<()> {
    Ok(tidelock_console::print_json(command, fields)?)
}

/// Prints a text that is JSON already.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print_json_text(text: &str) -> Result<()> {
    Ok(tidelock_console::print_json_text(text)?)
}

/// A path in JSON, which has no bytes that are not UTF-8: these become a mark each.
///
/// # Errors
/// The serializer's.
pub(crate) fn lossy<S: Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// As [`lossy`]; `null` for none.
///
/// # Errors
/// The serializer's.
pub(crate) fn lossy_if_any<S: Serializer>(
    path: &Option<PathBuf>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    match path {
        Some(path) => lossy(path, to),
        None => to.serialize_none(),
    }
}

/// What became of a write to standard output: a reader that has seen enough is no failure.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn finish_output(done: io::Result<()>) -> Result<()> {
    Ok(tidelock_console::finish_output(done)?)
}

/// Asks once whether a plan that was printed shall be done.
///
/// # Errors
/// [`Error::Refused`] unless somebody at a terminal says yes, or `yes` says so.
pub(crate) fn agree(yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Error::refused(
            "nobody is there to agree to this plan",
            "say --yes, or run it at a terminal",
        ));
    }
    // A question that cannot be shown is answered by nobody, and so with no.
    let _ = io::stderr().write_all(b"go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(Error::io("read", "standard input"))?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::refused("nothing was done", "answer y to go on")),
    }
}

/// Bytes done of `total`, drawn on standard error if that is a terminal.
pub(crate) fn progress(total: u64, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
    );
    let bar = ProgressBar::new(total).with_message(what);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("##-")),
        Err(_) => bar,
    }
}

/// `1.5 MiB`, exact below 1 KiB.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

/// `1 file`, `2 files`.
pub(crate) fn count(count: usize, of: &str) -> String {
    if count == 1 { format!("1 {of}") } else { format!("{count} {of}s") }
}

/// Seconds since 1970, for [`time()`].
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Seconds since 1970 as a date and time in UTC.
pub(crate) fn time(seconds: u64) -> String {
    let form = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    let time = i64::try_from(seconds).ok().and_then(|at| UtcDateTime::from_unix_timestamp(at).ok());
    let text = time.and_then(|time| time.format(form).ok());
    text.unwrap_or_else(|| format!("{seconds} s after 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // date -u -d @N
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (4_102_444_800, "2100-01-01 00:00:00 UTC"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
