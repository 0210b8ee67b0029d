//! A status for people.

use std::fmt::{Display, Write as _};

use crate::console;
use crate::keyring::CopyState;
use crate::server::{Loaded, Server};
use crate::status::{Output, Unlocked};

/// Lines of a label and words.
struct Lines(String);

impl Lines {
    fn add(&mut self, label: &str, words: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{label:<13}{words}");
    }
}

/// The report in lines.
pub(super) fn of(report: &Output) -> String {
    let mut lines = Lines(String::new());
    lines.add("directory", report.directory.display());
    if let Some(all) = &report.unlocked {
        let (cipher, offset) = (all.cipher, all.data_offset);
        lines.add("profile", &all.profile);
        lines.add("cipher", format!("{cipher}, units of 4096 bytes, data from byte {offset}"));
    }
    if let Some(it) = report.unlocked.as_ref().and_then(|all| all.conversion.as_ref()) {
        let (half, begun) = (it.direction.participle(), console::time(it.begun));
        lines.add("conversion", format!("half {half}: `tidelock {}` began {begun}", it.command));
    }
    lines
        .add("keyring", format!("{}, generation {}", report.keyring.id, report.keyring.generation));
    for slot in &report.keyring.slots {
        lines.add(
            "slot",
            format!("{} {}, made {}", slot.id, slot.kind, console::time(slot.created)),
        );
    }
    for copy in &report.keyring.copies {
        let state = match copy.state {
            CopyState::Good => "",
            CopyState::Other => "; something else is there now",
            CopyState::Away => "; not visible from here",
        };
        let (path, time) = (copy.path.display(), console::time(copy.time));
        lines.add("second copy", format!("{path}, generation {}, {time}{state}", copy.generation));
    }
    if let Some(all) = &report.unlocked {
        files(&mut lines, all);
    }
    running(&mut lines, report);
    lines.0
}

fn files(lines: &mut Lines, all: &Unlocked) {
    for key in &all.data_keys {
        let words = format!("{} {}: {}", key.id, key.state, tally(key.files, key.bytes));
        lines.add("data key", words);
        if let Some(first) = key.first_files.first() {
            let more = match key.files.saturating_sub(1) {
                0 => String::new(),
                more => {
                    format!(" and {more} more (--under {})", key.id.get(..8).unwrap_or(&key.id))
                }
            };
            lines.add("", format!("still used by {first}{more}"));
        }
    }
    let sealed = all.files.sealed;
    let words = format!("{}; {} empty", tally(sealed.files, sealed.bytes), all.files.empty);
    lines.add("sealed", words);
    for rule in &all.files.plain {
        let more = if rule.files > rule.examples.len() as u64 { ", ..." } else { "" };
        let shown = |name: &String| tidelock_ffi::Shown(name.as_bytes()).to_string();
        let names: Vec<_> = rule.examples.iter().map(shown).collect();
        lines.add("plain", format!("{}{more}: {}", names.join(", "), rule.reason));
    }
    if let Some(control) = &all.control_file {
        let checksums = if control.data_checksums { "on" } else { "off" };
        lines.add("cluster", format!("{}, data checksums {checksums}", control.state));
    }
}

fn running(lines: &mut Lines, report: &Output) {
    match &report.server {
        Server::Stopped if report.shows_servers() => lines.add("server", "none runs"),
        Server::Stopped => lines
            .add("server", "none of PostgreSQL, MariaDB or MySQL runs, and no program with keys"),
        Server::Unseen => lines.add("server", "unknown: processes cannot be looked at"),
        Server::Running { pid, program, library } => {
            let program =
                program.as_ref().map(|it| format!(", {}", it.display())).unwrap_or_default();
            let library = match library {
                Loaded::Yes if report.other_library => {
                    "the library is loaded, with another file of the library than this one"
                }
                Loaded::Yes => "the library is loaded",
                Loaded::No => "THE LIBRARY IS NOT LOADED",
                Loaded::CannotBeTold => "unknown whether the library is loaded",
            };
            lines.add("server", format!("process {pid}{program}; {library}"));
        }
    }
    match (&report.agent, &report.silent_agent) {
        (None, Some(agent)) => lines.add(
            "agent",
            match agent.pid {
                Some(pid) => format!("process {pid} does not answer"),
                None => format!("no answer at {}", agent.socket.display()),
            },
        ),
        (None, None) => lines.add("agent", "not running"),
        (Some(agent), _) => {
            let (pid, kept) = (agent.pid, &agent.protection);
            let clients = console::count(usize::try_from(agent.clients).unwrap_or(0), "client");
            lines.add("agent", format!("process {pid}, {clients}, keys in {kept}"));
        }
    }
}

fn tally(files: u64, bytes: u64) -> String {
    let files = console::count(usize::try_from(files).unwrap_or(usize::MAX), "file");
    format!("{files}, {}", console::bytes(bytes))
}
