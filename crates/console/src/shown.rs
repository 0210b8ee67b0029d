//! What programs print: colours only on a terminal and without NO_COLOR, errors in two lines.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use indicatif::ProgressBar;
use serde::Serialize;
use tidelock_engine::is_plain;

use crate::error::{Error, Result};

/// The version of everything that `--json` prints.
const JSON_VERSION: u32 = 1;

/// Prints the two lines of an error.
pub fn fail(error: impl Display, hint: impl Display) {
    tell("error:", "31", error);
    tell("hint: ", "36", hint);
}

/// Prints a warning and what to do about it.
pub fn warn(what: impl Display, hint: impl Display) {
    tell("warning:", "33", what);
    tell("hint: ", "36", hint);
}

/// One line on standard error.
pub fn tell(label: &str, colour: &str, text: impl Display) {
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
pub fn print(text: impl Display) -> Result<()> {
    let text = harmless(&text.to_string(), |letter| format!("\\x{letter:02x}"));
    finish_output(io::stdout().lock().write_all(text.as_bytes()))
}

/// Prints what is shown only once, and returns when it has left the process. A reader that is gone
/// is a failure here, and so is standard output that was closed: it is /dev/null then.
///
/// # Errors
/// [`Error::Io`]; some of it may have been shown.
pub fn print_for_sure(text: &str) -> Result<()> {
    show(text).map_err(Error::io("write to", "standard output"))
}

/// Past the standard library's own writer, which takes a descriptor that cannot be written for one
/// that nobody reads.
fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.flush()?;
    let mut file = File::from(out.as_fd().try_clone_to_owned()?);
    let what = file.metadata()?;
    if what.file_type().is_char_device() && what.rdev() == NULL_DEVICE {
        return Err(io::Error::other("it is closed, or /dev/null"));
    }
    file.write_all(text.as_bytes())?;
    if what.is_file() { file.sync_all() } else { Ok(()) }
}

/// Major number 1, minor number 3.
const NULL_DEVICE: u64 = 0x103;

/// `fields` behind `"version"` and `"command"`.
#[derive(Serialize)]
struct Document<'c, T> {
    version: u32,
    command: &'c str,
    #[serde(flatten)]
    fields: &'c T,
}

/// Prints versioned JSON: `fields` behind `"version"` and `"command"`.
///
/// # Errors
/// [`Error::Io`].
pub fn print_json(command: &str, fields: &impl Serialize) -> Result<()> {
    let document = Document { version: JSON_VERSION, command, fields };
    print_text(serde_json::to_string_pretty(&document))
}

/// As [`print_json`], in one line: for commands that print several.
///
/// # Errors
/// [`Error::Io`].
pub fn print_json_line(command: &str, fields: &impl Serialize) -> Result<()> {
    let document = Document { version: JSON_VERSION, command, fields };
    print_text(serde_json::to_string(&document))
}

fn print_text(text: serde_json::Result<String>) -> Result<()> {
    let text = text.map_err(|why| Error::io("write", "standard output")(why.into()))?;
    print_json_text(&format!("{text}\n"))
}

/// Prints a text that is JSON already, and stays it.
///
/// # Errors
/// [`Error::Io`].
pub fn print_json_text(text: &str) -> Result<()> {
    print(harmless(text, |letter| format!("\\u{letter:04x}")))
}

/// What became of a write to standard output: a reader that has seen enough is no failure.
///
/// # Errors
/// [`Error::Io`].
pub fn finish_output(done: io::Result<()>) -> Result<()> {
    match done.and_then(|()| io::stdout().flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Error::io("write to", "standard output")),
    }
}

/// A line on standard error that says what goes on, if that is a terminal.
#[must_use]
pub fn spinner() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// A message in one line: a parser's words may have several.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A text in which nothing moves a cursor or colours a line, whosever names are in it: each such
/// letter as `escape` writes its number. Line ends and tabs are layout; names that are shown in
/// lists have theirs escaped before (`Shown`).
fn harmless(text: &str, escape: impl Fn(u32) -> String) -> String {
    let plain = |letter: char| is_plain(letter) || matches!(letter, '\n' | '\t');
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
}
