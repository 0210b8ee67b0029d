//! `tidelock verify`: reads every file of a protected directory and names each that is not as it
//! must be.
//!
//! Checks what the format promises: header, MAC, key, size rules, nothing plain where sealed must
//! be. Changed data is not found by it: XTS has no integrity, page checksums do that. With `--deep`
//! the raw bytes are searched for plaintext too, past header and key: a third opinion.

mod deep;
mod examine;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;
use tidelock_evidence::Coverage;
use tidelock_keyring::Keyring;

use crate::console;
use crate::error::{Error, Result};
use crate::protected::{Protected, is_protected};
use crate::sealed::Keys;
use crate::server::Server;
use crate::unlock::KeyOptions;
use crate::walk::{self, Found};
pub(crate) use deep::Deep;
use deep::Search;
use examine::{Examiner, Finding, Outcome};

/// Files that change under a running server are looked at again, so many times in all.
const SECOND_LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);

/// Read every file: header, MAC, key, sizes, plain files where none should be; exit code 5 if any
/// is bad
#[derive(clap::Args)]
pub(crate) struct Verify {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deep: Deep,
    #[command(flatten)]
    keys: KeyOptions,
}

/// What became of all files.
#[derive(Serialize, Default)]
pub(crate) struct Output {
    directory: String,
    keyring: String,
    generation: u64,
    pub(crate) files: Counts,
    pub(crate) bytes_read: u64,
    /// What the search for plaintext saw, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) coverage: Option<Coverage>,
    pub(crate) problems: Vec<Finding>,
    pub(crate) notes: Vec<Finding>,
    /// Folders of clusters of other versions, which have a note each.
    #[serde(skip)]
    pub(crate) left_out: Vec<String>,
}

/// Files by what they are.
#[derive(Serialize, Default)]
pub(crate) struct Counts {
    pub(crate) sealed: u64,
    pub(crate) empty: u64,
    pub(crate) plain: u64,
    /// Removed before they were read, or a disk went away with them.
    pub(crate) gone: u64,
}

impl Verify {
    /// # Errors
    /// The keyring does not open; a file is not as it must be.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let markers = self.deep.markers()?;
        let protected = Protected::open(&self.dir)?;
        let keyring = self.keys.unlock(&protected)?;
        let report = verify(&protected, &keyring, &self.deep.search(&markers))?;
        if self.json {
            console::print_json("verify", &report)?;
        } else {
            report.tell()?;
        }
        report.verdict(&protected.path)
    }
}

/// Reads every file, and its raw bytes too if they are searched.
///
/// # Errors
/// More data keys than can be held.
pub(crate) fn verify(
    protected: &Protected,
    keyring: &Keyring,
    search: &Option<Search<'_>>,
) -> Result<Output> {
    let keys = Keys::install(keyring)?;
    let mut report = Output {
        directory: protected.path.display().to_string(),
        keyring: keyring.id().to_string(),
        generation: keyring.generation().0,
        coverage: search.is_some().then(Coverage::default),
        ..Output::default()
    };
    let mut unlisted = Vec::new();
    let others = walk::other_versions(&protected.path);
    report.left_out = others.iter().map(|folder| folder.display().to_string()).collect();
    report.notes.extend(report.left_out.iter().map(|folder| Finding {
        file: folder.clone(),
        kind: "other_version",
        what: "not looked at: a cluster of another version has it".into(),
    }));
    let files = walk::files(&protected.path, &mut |path, why| {
        unlisted.push(Finding::unreadable(path, &why));
    });
    report.problems.append(&mut unlisted);
    let total = files.iter().map(|found| found.metadata.len()).sum();
    let bar = console::progress(total, "verify");
    let runs = matches!(Server::on(&protected.path), Server::Running { .. });
    let mut second_looks = if runs { SECOND_LOOKS } else { 0 };
    let examiner = Examiner { keys: &keys, policy: keyring.policy() };
    for found in &files {
        let mut outcome = look(&examiner, found, &mut second_looks);
        if let (Some(search), Some(coverage)) = (search, &mut report.coverage) {
            search.file(found, keyring, coverage, &mut outcome);
        }
        bar.inc(found.metadata.len());
        report.add(outcome);
    }
    bar.finish_and_clear();
    if report.files.gone > 0 {
        report.look_again(&protected.path);
    }
    Ok(report)
}

/// A server may have been between two calls: what stays bad is bad.
fn look(examiner: &Examiner<'_>, found: &Found, second_looks: &mut u32) -> Outcome {
    let mut outcome = examiner.examine(found);
    for _ in 0..3 {
        if outcome.problems.is_empty() || *second_looks == 0 {
            break;
        }
        *second_looks -= 1;
        sleep(PAUSE);
        outcome = examiner.examine(found);
    }
    outcome
}

impl Output {
    fn add(&mut self, outcome: Outcome) {
        match outcome.kind {
            examine::Kind::Sealed => self.files.sealed += 1,
            examine::Kind::Empty => self.files.empty += 1,
            examine::Kind::Plain => self.files.plain += 1,
            examine::Kind::Gone => self.files.gone += 1,
        }
        self.bytes_read += outcome.bytes_read;
        self.problems.extend(outcome.problems);
        self.notes.extend(outcome.notes);
    }

    /// Files are gone. A server removes some; where a disk went away with them, that is a problem,
    /// as it would have been at the beginning.
    fn look_again(&mut self, dir: &Path) {
        let mut missing = Vec::new();
        if !is_protected(dir) {
            let why = io::Error::other("its keyring is gone: is its disk not mounted any more?");
            missing.push(Finding::unreadable(dir, &why));
        }
        walk::files(dir, &mut |path, why| missing.push(Finding::unreadable(path, &why)));
        missing.retain(|found| self.problems.iter().all(|known| known.file != found.file));
        self.problems.append(&mut missing);
    }

    fn tell(&self) -> Result<()> {
        let mut text = String::new();
        for finding in &self.problems {
            text += &format!("{}: {}\n", shown(&finding.file), finding.what);
        }
        for finding in &self.notes {
            text += &format!("{}: note: {}\n", shown(&finding.file), finding.what);
        }
        if let Some(coverage) = &self.coverage {
            text += &deep::table(coverage);
        }
        let Counts { sealed, empty, plain, gone } = self.files;
        let removed = match gone {
            0 => String::new(),
            _ => format!(", {gone} removed meanwhile"),
        };
        text += &format!(
            "{sealed} sealed, {empty} empty, {plain} plain by the profile{removed}; {} read; {}, \
             {}\n",
            console::bytes(self.bytes_read),
            console::count(self.problems.len(), "problem"),
            console::count(self.notes.len(), "note"),
        );
        console::print(text)
    }

    /// Success if there is no problem.
    ///
    /// # Errors
    /// [`Error::Unread`], [`Error::Verification`].
    pub(crate) fn verdict(&self, dir: &Path) -> Result<ExitCode> {
        if self.problems.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        // Several problems of one file stand together.
        let mut names: Vec<_> = self.problems.iter().map(|finding| &finding.file).collect();
        names.dedup();
        let bad = names.len();
        if self.problems.iter().all(|finding| finding.kind == "unreadable") {
            return Err(Error::Unread { count: bad, dir: dir.to_path_buf() });
        }
        Err(Error::Verification {
            what: format!("{} has {}", dir.display(), console::count(bad, "bad file")),
            hint: self.hint(),
        })
    }

    fn hint(&self) -> String {
        let has = |kind: &str| self.problems.iter().any(|finding| finding.kind == kind);
        let hint = if has("plaintext") {
            "bytes that are not sealed are on the disk: find out which program wrote them, and \
             restore the named files from a backup; old blocks stay on the disk until they are \
             written over"
        } else if has("plain_where_sealed") {
            "a plain file was put there by a program without the library: move it out, or keep \
             such files plain: `tidelock profile set -D DIR --plain GLOB`"
        } else if has("rolled_back") {
            "restore the newest keyring with `tidelock keyring restore`"
        } else if has("unknown_key") {
            "a file of another directory was put there: move it out, or restore the keyring that \
             has its key"
        } else {
            "restore the named files from a backup"
        };
        hint.to_owned()
    }
}

/// A name in a line of its own.
fn shown(name: &str) -> tidelock_ffi::Shown<'_> {
    tidelock_ffi::Shown(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tidelock_contract::control::FOLDER;
    use tidelock_keyring::KEYRING;

    use super::*;

    fn gone() -> Outcome {
        Outcome {
            kind: examine::Kind::Gone,
            bytes_read: 0,
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn files_that_a_disk_took_along_are_counted_and_their_place_is_named_once() {
        let home = tempfile::tempdir().unwrap();
        let (dir, far) = (home.path().join("data"), home.path().join("far"));
        fs::create_dir_all(dir.join(FOLDER)).unwrap();
        fs::write(dir.join(FOLDER).join(KEYRING), "a keyring").unwrap();
        fs::create_dir(&far).unwrap();
        symlink("../far", dir.join("link")).unwrap();
        let mut report = Output::default();
        report.add(gone());
        report.look_again(&dir);
        assert_eq!(report.files.gone, 1);
        assert!(report.problems.is_empty(), "a server may have removed it");

        fs::remove_dir(&far).unwrap();
        for _ in 0..2 {
            report.look_again(&dir);
            assert_eq!(report.problems.len(), 1);
        }
        assert_eq!(report.problems[0].file, dir.join("link").display().to_string());
        assert!(report.verdict(&dir).is_err_and(|why| matches!(why, Error::Unread { .. })));

        fs::remove_dir_all(&dir).unwrap();
        report.look_again(&dir);
        assert!(report.problems[1].what.contains("its keyring is gone"));
    }
}
