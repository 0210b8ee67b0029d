//! Kills a program in the middle of its work, and compares what it had acknowledged with what is
//! there.
//!
//! ```text
//!   write ---- "WRITER NUMBER" ----> record, outside of the directory, appended after each commit
//!     |  kill -9: once the record has so many lines, or at the N-th call that changes a file
//!   check ---- "ok", then "WRITER NUMBER" for each row that is there
//! ```
//!
//! The record is plain and written by the program itself, and the page cache outlives a kill: what
//! it names was acknowledged. A commit may be there without its line: at most one for each kill.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::{Bounded as _, LIMIT};

/// How many commits each writer has, by its name.
type Counts = BTreeMap<String, u64>;

/// What was promised so far.
#[derive(Debug)]
pub struct Promises {
    record: PathBuf,
    /// Found by the last check: what was there once must stay.
    found: Counts,
}

impl Promises {
    /// Of writers that append to `record`, and have not begun.
    #[must_use]
    pub fn new(record: &Path) -> Self {
        Self { record: record.to_path_buf(), found: Counts::new() }
    }

    /// Runs `check` after a kill; how many commits are there.
    ///
    /// # Errors
    /// When the program fails or finds anything wrong; names the writer of which something
    /// acknowledged is gone, or of which more is there than it can have begun.
    pub fn check(&mut self, check: &mut Command) -> io::Result<u64> {
        let done = check.finish()?;
        let told = String::from_utf8_lossy(&done.stdout);
        let mut lines = told.lines();
        if !done.status.success() || lines.next() != Some("ok") {
            let words = String::from_utf8_lossy(&done.stderr);
            return Err(io::Error::other(format!("{}:\n{told}{words}", done.status)));
        }
        self.compare(counts(lines)?)
    }

    fn compare(&mut self, found: Counts) -> io::Result<u64> {
        let acknowledged = counts(lines_of(&self.record)?.iter().map(String::as_str))?;
        let count = |of: &Counts, writer: &String| of.get(writer).copied().unwrap_or(0);
        for writer in acknowledged.keys().chain(self.found.keys()).chain(found.keys()) {
            let had = count(&acknowledged, writer).max(count(&self.found, writer));
            let has = count(&found, writer);
            if has < had || has > had + 1 {
                let words = format!("writer {writer}: {had} commits acknowledged, {has} found");
                return Err(io::Error::other(words));
            }
        }
        self.found = found;
        Ok(self.found.values().sum())
    }
}

/// Starts a program that acknowledges, kills it with signal 9 once the record has `lines` more
/// lines than now, and waits until it is gone.
///
/// # Errors
/// When it cannot be started, ends by itself, or does not get so far within [`LIMIT`].
pub fn kill_after(writers: &mut [Command], record: &Path, lines: usize) -> io::Result<()> {
    cut_after(writers, record, lines, || Ok(()))
}

/// The same, with something that happens before the kill: a power cut.
///
/// # Errors
/// As [`kill_after`], and those of `cut`.
pub fn cut_after(
    writers: &mut [Command],
    record: &Path,
    lines: usize,
    cut: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let wanted = lines_of(record)?.len() + lines;
    let mut started = Vec::new();
    for writer in writers {
        let printed = tempfile::tempfile()?;
        writer.stderr(printed.try_clone()?);
        started.push((writer.start()?, printed));
    }
    let begin = Instant::now();
    while lines_of(record)?.len() < wanted {
        for (writer, printed) in &mut started {
            if let Some(status) = writer.try_wait()? {
                let mut words = format!("the writer ended by itself: {status}\n");
                printed.rewind()?;
                printed.read_to_string(&mut words)?;
                return Err(io::Error::other(words));
            }
        }
        if begin.elapsed() > LIMIT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "too few acknowledgements"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    cut()?;
    // Each with its group, if it leads one.
    for (mut writer, _) in started {
        writer.end();
    }
    Ok(())
}

/// Whole lines; a line that is being written has no end yet.
fn lines_of(record: &Path) -> io::Result<Vec<String>> {
    let text = match fs::read_to_string(record) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    Ok(whole.lines().map(str::to_owned).collect())
}

/// The last number of each writer; they grow.
fn counts<'l>(lines: impl Iterator<Item = &'l str>) -> io::Result<Counts> {
    let mut counts = Counts::new();
    for line in lines {
        let number = line
            .split_once(' ')
            .and_then(|(writer, number)| Some((writer.to_owned(), number.parse::<u64>().ok()?)));
        let (writer, number) = number.ok_or_else(|| io::Error::other(format!("\"{line}\"?")))?;
        let last = counts.entry(writer).or_default();
        if number <= *last {
            return Err(io::Error::other(format!("\"{line}\" follows {last}")));
        }
        *last = number;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]);
        sh
    }

    #[test]
    fn a_loss_an_invention_and_a_complaint_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        let mut promises = Promises::new(&record);
        assert!(promises.check(&mut sh("echo ok; echo a 2")).is_err(), "nobody promised two");
        assert_eq!(promises.check(&mut sh("echo ok; echo a 1")).unwrap(), 1);
        fs::write(&record, "a 1\na 2\nb 1\na 4\na ").unwrap();
        assert!(promises.check(&mut sh("echo ok; echo a 3; echo b 1")).is_err(), "a has lost one");
        assert!(promises.check(&mut sh("echo ok; echo a 4")).is_err(), "b has lost all");
        assert!(promises.check(&mut sh("echo damaged; echo a 4; echo b 1")).is_err());
        assert!(promises.check(&mut sh("echo ok; echo a 4; echo b 1; exit 1")).is_err());
        assert_eq!(promises.check(&mut sh("echo ok; echo a 5; echo b 1")).unwrap(), 6);
        assert!(promises.check(&mut sh("echo ok; echo a 4; echo b 1")).is_err(), "5 was there");
        for bad in ["a 2\na 2\n", "a 2\na 1\n", "a\n", "a x\n"] {
            fs::write(&record, bad).unwrap();
            assert!(promises.check(&mut sh("echo ok; echo a 5; echo b 1")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_writer_is_killed_after_its_lines_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        let script =
            format!("i=0; while :; do i=$((i+1)); echo a $i >> {}; done", record.display());
        kill_after(&mut [sh(&script)], &record, 3).unwrap();
        let lines = lines_of(&record).unwrap().len();
        assert!(lines >= 3, "{lines}");
        assert!(kill_after(&mut [sh("exit 3")], &record, 1).is_err(), "it never acknowledged");
    }
}
