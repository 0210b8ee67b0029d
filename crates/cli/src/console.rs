//! How things are shown: colours only on a terminal and without NO_COLOR, errors in two lines,
//! progress on terminals only.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::error::{Error, Result};

/// The version of everything that `--json` prints.
pub(crate) const JSON_VERSION: u32 = 1;

/// Prints the two lines of an error.
pub(crate) fn report(error: &Error) {
    tell("error:", "31", error);
    tell("hint: ", "36", error.hint());
}

/// Prints a warning and what to do about it.
pub(crate) fn warn(what: impl Display, hint: impl Display) {
    tell("warning:", "33", what);
    tell("hint: ", "36", hint);
}

/// One line on standard error.
pub(crate) fn tell(label: &str, colour: &str, text: impl Display) {
    let text = harmless(&one_line(&text.to_string()), |letter| format!("\\x{letter:02x}"));
    let line = if colours(&io::stderr()) {
        format!("\x1b[1;{colour}m{label}\x1b[0m {text}\n")
    } else {
        format!("{label} {text}\n")
    };
    // Standard error may be closed; then there is nobody to tell.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Prints lines on standard output.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print(text: impl Display) -> Result<()> {
    let text = harmless(&text.to_string(), |letter| format!("\\x{letter:02x}"));
    finish_output(io::stdout().lock().write_all(text.as_bytes()))
}

/// Prints one line of versioned JSON: `fields` behind `"version"` and `"command"`.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn print_json(command: &str, fields: &impl Serialize) -> Result<()> {
    #[derive(Serialize)]
    struct Document<'c, T> {
        version: u32,
        command: &'c str,
        #[serde(flatten)]
        fields: &'c T,
    }
    let document = Document { version: JSON_VERSION, command, fields };
    let text = serde_json::to_string_pretty(&document)
        .map_err(|why| Error::io("write", "standard output")(why.into()))?;
    let text = harmless(&text, |letter| format!("\\u{letter:04x}"));
    print(format_args!("{text}\n"))
}

/// What became of a write to standard output: a reader that has seen enough is no failure.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn finish_output(done: io::Result<()>) -> Result<()> {
    match done.and_then(|()| io::stdout().flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Error::io("write to", "standard output")),
    }
}

/// Bytes done of `total`, drawn on standard error if that is a terminal.
pub(crate) fn progress(total: u64, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
    );
    let bar = ProgressBar::new(total).with_message(what);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("##-")),
        Err(_) => bar,
    }
}

/// A line on standard error that says what goes on, if that is a terminal.
pub(crate) fn spinner() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// `1.5 MiB`, exact below 1 KiB.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

/// `1 file`, `2 files`.
pub(crate) fn count(count: usize, of: &str) -> String {
    if count == 1 { format!("1 {of}") } else { format!("{count} {of}s") }
}

/// Seconds since 1970 as a date and time in UTC.
pub(crate) fn time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The Gregorian date of a day since 1970 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + (month <= 2) as u64, month, day)
}

/// A message in one line: a parser's words may have several.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A text in which nothing moves a cursor or colours a line, whosever names are in it: each such letter as `escape` writes its
/// number. Line ends and tabs are layout; names that are shown in lists have theirs escaped before (`Shown`).
fn harmless(text: &str, escape: impl Fn(u32) -> String) -> String {
    let plain = |letter: char| tidelock_ffi::is_plain(letter) || matches!(letter, '\n' | '\t');
    if text.chars().all(plain) {
        return text.to_owned();
    }
    text.chars()
        .map(|letter| if plain(letter) { letter.to_string() } else { escape(letter.into()) })
        .collect()
}

/// Set and not empty, NO_COLOR means no colours (<https://no-color.org>).
fn colours(stream: &impl IsTerminal) -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stream.is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let text = |it: &str| harmless(it, |letter| format!("\\x{letter:02x}"));
        assert_eq!(text("two\tlines\nof gr\u{fc}n"), "two\tlines\nof gr\u{fc}n");
        assert_eq!(text("\u{1b}[2J\r\u{7f}\u{9b}0m"), "\\x1b[2J\\x0d\\x7f\\x9b0m");
        let json = harmless("\u{9b}\u{202e}", |letter| format!("\\u{letter:04x}"));
        assert_eq!(json, "\\u009b\\u202e");
    }

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
