//! `tidelock verify`: reads every file of a protected directory and names each that is not as it
//! must be.
//!
//! Checks what the format promises: header, MAC, key, size rules, nothing plain where sealed must
//! be. Changed data is not found by it: XTS has no integrity, page checksums do that. With `--deep`
//! the raw bytes are searched for plaintext too, past header and key: a third opinion.
//!
//! Names come from a walk, and hours of reading follow, in which a server renames, makes and
//! removes files. So the directory is walked again, and what was not examined yet is, a few times;
//! what is new even then is counted. A key command may replace the keyring meanwhile: where a file
//! does not agree with the one that was read, the newer one is taken.

mod deep;
mod examine;
mod open;
mod seen;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;
use tidelock_cipher::Secret;
use tidelock_evidence::Coverage;
use tidelock_keyring::{Direction, Keyring};

use crate::console;
use crate::error::{Error, Result};
use crate::protected::{Protected, is_protected};
use crate::sealed::Keys;
use crate::this_program;
use crate::unlock::KeyOptions;
use crate::walk::{self, Found};
pub(crate) use deep::Deep;
use deep::Search;
pub(crate) use examine::Finding;
use examine::{Examiner, Outcome};
use seen::Seen;

/// Files that change while they are read are looked at again, so many times in all. Not every
/// server shows itself.
const SECOND_LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);
/// How often files that the walk before has not found are read, at most: a server makes new ones
/// for ever.
const AGAIN: u32 = 3;

/// Of a note.
const KEYRING_CHANGED: &str = "keyring_changed";

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
    /// How many markers were looked for, if any were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    markers: Option<usize>,
    pub(crate) problems: Vec<Finding>,
    pub(crate) notes: Vec<Finding>,
    /// Folders of clusters of other versions, which have a note each.
    #[serde(skip)]
    pub(crate) left_out: Vec<String>,
    /// Each `lost+found` that may hold files, which has a note too.
    #[serde(skip)]
    pub(crate) lost: Vec<String>,
    /// Links into other protected directories, which have a note each.
    #[serde(skip)]
    pub(crate) anothers: Vec<String>,
    /// Links to what is somebody else's, which have a note each.
    #[serde(skip)]
    pub(crate) foreign: Vec<String>,
    /// A conversion that has not ended.
    #[serde(skip)]
    pub(crate) half: Option<Direction>,
    /// The keyring as a command has replaced it meanwhile.
    #[serde(skip)]
    pub(crate) newer: Option<(Protected, Keyring)>,
    /// When reading began, in seconds since 1970.
    #[serde(skip)]
    pub(crate) began: u64,
}

/// Files by what they are.
#[derive(Serialize, Default)]
pub(crate) struct Counts {
    pub(crate) sealed: u64,
    pub(crate) empty: u64,
    pub(crate) plain: u64,
    /// Not found any more when they were to be read, under no name: removed, or a disk went away
    /// with them.
    pub(crate) gone: u64,
    /// New at the very end, and not read.
    pub(crate) appeared: u64,
}

impl Verify {
    /// # Errors
    /// The keyring does not open; a file is not as it must be.
    pub(crate) fn run(self) -> Result<ExitCode> {
        // The weekly check is a service of root.
        if self.keys.passphrase_fd.is_none() {
            this_program::begin_again(&[])?;
        }
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
        began: console::now(),
        coverage: search.is_some().then(Coverage::default),
        markers: search.as_ref().map(Search::markers).filter(|count| *count > 0),
        half: keyring.conversion().map(|it| it.direction),
        ..Output::default()
    };
    let others = walk::other_versions(&protected.path);
    report.left_out = others.iter().map(|folder| folder.display().to_string()).collect();
    report.notes.extend(report.left_out.iter().map(|folder| Finding {
        file: folder.clone(),
        kind: "other_version",
        what: "not looked at: a cluster of another version has it".into(),
    }));
    let mut pass = Pass {
        dir: &protected.path,
        keyring,
        keys: &keys,
        search,
        second_looks: SECOND_LOOKS,
        seen: Seen::default(),
        bar: console::progress(0, "verify"),
        report,
    };
    let first = pass.unread();
    pass.read(&first);
    drop(first);
    for round in 0.. {
        let new = pass.unread();
        if round == AGAIN {
            pass.report.files.appeared = new.len() as u64;
        }
        if round == AGAIN || new.is_empty() {
            break;
        }
        pass.read(&new);
    }
    Ok(pass.end())
}

/// A directory while its files are read.
struct Pass<'p> {
    dir: &'p Path,
    keyring: &'p Keyring,
    keys: &'p Keys,
    search: &'p Option<Search<'p>>,
    second_looks: u32,
    seen: Seen,
    bar: ProgressBar,
    report: Output,
}

impl Pass<'_> {
    /// Walks the directory: what was not examined yet.
    fn unread(&mut self) -> Vec<Found> {
        let mut files = self.report.list(self.dir);
        files.retain(|found| !self.seen.holds(found, self.examiner().class(found)));
        files
    }

    /// The newest keyring that was read.
    fn keyring(&self) -> &Keyring {
        self.report.newer.as_ref().map_or(self.keyring, |(_, newer)| newer)
    }

    fn examiner(&self) -> Examiner<'_> {
        Examiner { keys: self.keys, policy: self.keyring().policy() }
    }

    /// Examines files, each once.
    fn read(&mut self, files: &[Found]) {
        self.bar.inc_length(files.iter().map(|found| found.metadata.len()).sum());
        for found in files {
            let mut outcome = self.look(found);
            let Output { coverage, newer, .. } = &mut self.report;
            if let (Some(search), Some(coverage)) = (self.search, coverage) {
                let keyring = newer.as_ref().map_or(self.keyring, |(_, newer)| newer);
                search.file(found, keyring, coverage, &mut outcome);
            }
            self.bar.inc(found.metadata.len());
            self.seen.add(found, self.examiner().class(found), outcome.kind);
            self.report.add(outcome);
        }
    }

    /// A server may have been between two calls: what stays bad is bad. A command may have replaced
    /// the keyring: what the newer one does not mend is bad.
    fn look(&mut self, found: &Found) -> Outcome {
        let mut left = self.second_looks;
        let outcome = look(&self.examiner(), found, &mut left);
        self.second_looks = left;
        if outcome.is_about_keyring() && self.renew() {
            return self.examiner().examine(found);
        }
        outcome
    }

    /// Reads the keyring again if it has been replaced since, by the keyring key that is held. True
    /// if it was.
    fn renew(&mut self) -> bool {
        let held = self.keyring();
        let (id, generation) = (held.id(), held.generation());
        let key = Secret::new(*held.keyring_key().expose());
        let Ok(now) = Protected::open(self.dir) else { return false };
        if now.keyring.id() != id || now.keyring.generation() <= generation {
            return false;
        }
        let opened = now.keyring.unlock_with(key).ok();
        let opened = opened.filter(|keyring| Keys::install(keyring).is_ok());
        match opened {
            Some(keyring) => {
                self.report.generation = keyring.generation().0;
                self.report.half = self.report.half.or(keyring.conversion().map(|it| it.direction));
                self.report.newer = Some((now, keyring));
                true
            }
            None => {
                self.report.keyring_changed(self.dir);
                false
            }
        }
    }

    /// The result, with what was missing to the end.
    fn end(mut self) -> Output {
        self.renew();
        let Self { dir, seen, bar, mut report, .. } = self;
        bar.finish_and_clear();
        for (path, kind) in seen.missing() {
            report.miss(path, kind);
        }
        if report.files.gone > 0 {
            report.miss_keyring(dir);
        }
        report.tell_half(dir);
        report
    }
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
            // Its file may turn up under another name.
            examine::Kind::Gone | examine::Kind::Changed => {}
            // The problems name it.
            examine::Kind::NotSealed => {}
        }
        self.bytes_read += outcome.bytes_read;
        self.problems.extend(outcome.problems);
        self.notes.extend(outcome.notes);
    }

    /// The files of a directory. What cannot be listed is a problem, once: at the end a disk may
    /// have gone away, and is named as it would have been at the beginning.
    fn list(&mut self, dir: &Path) -> Vec<Found> {
        let mut unlisted = Vec::new();
        let listing = walk::own(dir, &mut |path, why| {
            unlisted.push(Finding::unreadable(path, &why));
        });
        unlisted.retain(|found| self.problems.iter().all(|known| known.file != found.file));
        self.problems.append(&mut unlisted);
        for folder in listing.lost {
            let what = "not looked at: a repair of the file system may have put files there";
            leave_out((&mut self.lost, &mut self.notes), &folder, "lost_and_found", what.into());
        }
        for (link, other) in listing.anothers {
            let what = format!(
                "not looked at: it leads into {}, which is protected by itself",
                other.display()
            );
            leave_out((&mut self.anothers, &mut self.notes), &link, "another_directory", what);
        }
        for (link, target) in listing.foreign {
            let what = format!(
                "not looked at: it leads to {}, which belongs to somebody else than the link",
                target.display()
            );
            leave_out((&mut self.foreign, &mut self.notes), &link, "foreign_link", what);
        }
        listing.files
    }

    /// Names a conversion that has not ended, before what comes of it.
    fn tell_half(&mut self, dir: &Path) {
        let Some(direction) = self.half else { return };
        let what = format!(
            "it is half {}: `tidelock {}` has not ended, and files named below may be those that \
             it has not come to",
            direction.participle(),
            direction.command()
        );
        let file = dir.display().to_string();
        self.problems.insert(0, Finding { file, kind: "half_converted", what });
    }

    /// The keyring was replaced, and the newer one does not open with the key of the older.
    fn keyring_changed(&mut self, dir: &Path) {
        if self.notes.iter().any(|note| note.kind == KEYRING_CHANGED) {
            return;
        }
        self.notes.push(Finding {
            file: dir.display().to_string(),
            kind: KEYRING_CHANGED,
            what: "the keyring was changed meanwhile, and got another key: run this again".into(),
        });
    }

    /// A file was not under its name any more, nor under another one.
    fn miss(&mut self, path: &Path, kind: examine::Kind) {
        self.files.gone += 1;
        if kind == examine::Kind::Changed {
            self.notes.push(Finding {
                file: path.display().to_string(),
                kind: "changed",
                what: "not read: something else took its name meanwhile".into(),
            });
        }
    }

    /// Files are missing. A server removes some; where a disk went away with them, that is a
    /// problem.
    fn miss_keyring(&mut self, dir: &Path) {
        let named = dir.display().to_string();
        if is_protected(dir) || self.problems.iter().any(|known| known.file == named) {
            return;
        }
        let why = io::Error::other("its keyring is gone: is its disk not mounted any more?");
        self.problems.push(Finding::unreadable(dir, &why));
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
        if let Some(markers) = self.markers {
            text += &format!("{} looked for\n", console::count(markers, "marker"));
        }
        let Counts { sealed, empty, plain, gone, appeared } = self.files;
        let some = |count: u64, what: &str| match count {
            0 => String::new(),
            _ => format!(", {count} {what}"),
        };
        let gone = some(gone, "not found any more");
        let appeared = some(appeared, "new at the end and not read");
        text += &format!(
            "{sealed} sealed, {empty} empty, {plain} plain by the profile{gone}{appeared}; {} \
             read; {}, {}\n",
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
        if let Some(direction) = self.half {
            return Err(Error::Verification {
                what: format!("{} is half {}", dir.display(), direction.participle()),
                hint: format!(
                    "`tidelock {} --resume {}` goes on, unless it runs just now; until it has \
                     ended, move nothing out and delete nothing",
                    direction.command(),
                    dir.display()
                ),
            });
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
        } else if self.notes.iter().any(|note| note.kind == KEYRING_CHANGED) {
            "the keyring was changed while files were read: run this again"
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

/// Notes a place that is not looked at, once.
fn leave_out(
    (known, notes): (&mut Vec<String>, &mut Vec<Finding>),
    place: &Path,
    kind: &'static str,
    what: String,
) {
    let file = place.display().to_string();
    if !known.contains(&file) {
        notes.push(Finding { file: file.clone(), kind, what });
        known.push(file);
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

    #[test]
    fn a_disk_that_files_went_away_with_is_named_once() {
        let home = tempfile::tempdir().unwrap();
        let (dir, far) = (home.path().join("data"), home.path().join("far"));
        fs::create_dir_all(dir.join(FOLDER)).unwrap();
        fs::write(dir.join(FOLDER).join(KEYRING), "a keyring").unwrap();
        fs::create_dir(&far).unwrap();
        symlink("../far", dir.join("link")).unwrap();
        let mut report = Output::default();
        report.miss(&dir.join("link/file"), examine::Kind::Gone);
        report.miss_keyring(&dir);
        assert!(report.list(&dir).is_empty());
        assert_eq!(report.files.gone, 1);
        assert!(report.problems.is_empty(), "a server may have removed it");

        fs::remove_dir(&far).unwrap();
        for _ in 0..2 {
            report.list(&dir);
            assert_eq!(report.problems.len(), 1);
        }
        assert_eq!(report.problems[0].file, dir.join("link").display().to_string());
        assert!(report.verdict(&dir).is_err_and(|why| matches!(why, Error::Unread { .. })));

        fs::remove_dir_all(&dir).unwrap();
        for _ in 0..2 {
            report.miss_keyring(&dir);
            assert_eq!(report.problems.len(), 2);
        }
        assert!(report.problems[1].what.contains("its keyring is gone"));
    }

    #[test]
    fn a_file_whose_name_something_else_took_is_missing_and_no_problem() {
        let mut report = Output::default();
        report.miss(Path::new("/data/file"), examine::Kind::Changed);
        report.files.appeared = 1;
        assert_eq!((report.files.gone, report.notes.len()), (1, 1));
        assert!(report.verdict(Path::new("/data")).is_ok());
    }
}
