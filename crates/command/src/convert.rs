//! `tidelock encrypt`, `decrypt` and `rekey`: all files of a stopped instance, in place.
//!
//! ```text
//!   instance    stopped, cleanly, and whose?        estimate   how long, how much space
//!      |                                            foresee    asked before the server stops
//!   rights      may the owner, with whose rights it is done, convert each file?
//!      |
//!   keyring     the conversion is recorded in it: from now on no program gets keys
//!      |
//!   leftovers   of one that was killed               scan      which files, each once
//!                                                    places    outside, by links
//!      |
//!   workers     batches: written, synced, compared, renamed        descriptors   how large
//!      |           file: one file      content: its bytes in either form      throttle
//!      |
//!   keyring     the conversion has ended             progress
//! ```
//!
//! A file is replaced as a whole, and says itself which form it has. So a conversion that was
//! killed goes on where it was, and can be turned round. Only a command does that, never the start
//! of a server.

mod begin;
mod content;
mod descriptors;
mod estimate;
mod file;
mod filesystem;
mod foresee;
mod instance;
mod leftovers;
mod places;
mod progress;
mod rights;
mod scan;
mod throttle;
mod workers;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_keyring::{Conversion, Direction, Keyring, KeyringDir};

use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::init::Making;
use crate::protected::{Protected, is_protected};
use crate::sealed::Keys;
use crate::unlock::KeyOptions;
use crate::walk;
use descriptors::Descriptors;
use file::{Conditions, Task};
pub(crate) use foresee::{Foreseen, Opened};
use progress::Progress;
use scan::{Item, Scan};
use throttle::{Rate, Throttle};
use workers::{Manner, Tally};

/// More workers than that are never faster.
const MOST_JOBS: usize = 64;
/// What a batch may hold besides its last file.
const BATCH: u64 = 32 << 20;

/// Seal all files of an existing, cleanly stopped instance, in place
#[derive(clap::Args)]
pub(crate) struct Encrypt {
    /// The data directory
    dir: PathBuf,
    /// What is sealed and how: a built-in profile, or the path of one [default: by what is in
    /// DIR]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    #[command(flatten)]
    making: Making,
    #[command(flatten)]
    how: How,
}

/// Make all files of a cleanly stopped instance plain again, in place
#[derive(clap::Args)]
pub(crate) struct Decrypt {
    /// The protected directory
    dir: PathBuf,
    /// Where a copy of the keyring goes, which opens sealed backups and archives still [default:
    /// beside the configuration of the keyring]
    #[arg(long, value_name = "FILE")]
    keep_keyring: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
    #[command(flatten)]
    how: How,
}

/// Encrypt all files of a cleanly stopped instance again, under a new data key
#[derive(clap::Args)]
pub(crate) struct Rekey {
    /// The protected directory
    dir: PathBuf,
    #[command(flatten)]
    keys: KeyOptions,
    #[command(flatten)]
    how: How,
}

/// How a conversion is done.
#[derive(clap::Args, Default)]
pub(crate) struct How {
    /// Go on with one that was interrupted
    #[arg(long)]
    resume: bool,
    /// Change nothing: say what would be done, how long it takes, and how much space
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    /// Work on so many files at once [default: the number of processors, at most 4]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Read no more than this in a second, for example 100MiB/s
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Do not read the new files back and compare them with the old ones
    #[arg(long)]
    no_compare: bool,
    /// Convert files that have other names outside of the directory; these stay as they are
    #[arg(long)]
    leave_links: bool,
    /// Convert what links to folders outside of the directory lead to: those of a copy may lead to
    /// what the original has
    #[arg(long)]
    outside: bool,
    /// Print progress and the report as lines of JSON
    #[arg(long)]
    json: bool,
}

impl How {
    /// As usual but for these.
    pub(crate) fn new(jobs: Option<usize>, leave_links: bool) -> Self {
        Self { jobs, leave_links, ..Self::default() }
    }

    fn jobs(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.jobs.unwrap_or(cores.min(4)).clamp(1, MOST_JOBS)
    }
}

/// The end of a conversion, for programs.
#[derive(Serialize)]
struct Report {
    event: &'static str,
    directory: String,
    files: u64,
    bytes: u64,
    already: u64,
    empty: usize,
    plain: usize,
    seconds: f64,
    compared_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keyring_copy: Option<String>,
}

/// A conversion that is recorded in the keyring.
struct Running<'h> {
    direction: Direction,
    path: PathBuf,
    keyring: Keyring,
    folder: KeyringDir,
    how: &'h How,
    /// It was begun by an earlier call, which has converted some files.
    resumed: bool,
    /// Held until the end: nobody else uses the directory.
    _alone: File,
    /// What a bare server would lock.
    locked: Vec<File>,
}

impl Running<'_> {
    /// Converts what is left.
    ///
    /// # Errors
    /// A file cannot be converted, or somebody interrupted it. What is done stays done.
    fn go(mut self, kept: Option<&Path>) -> Result<()> {
        let done = self.convert().and_then(|done| self.end().map(|()| done));
        if done.is_err() {
            let (command, dir) = (self.direction.command(), self.path.display());
            console::warn(
                "the conversion has not ended: start nothing on the directory",
                format!("`tidelock {command} --resume {dir}` goes on"),
            );
        }
        let (scan, tally, took) = done?;
        self.tell(&scan, &tally, took, kept)
    }

    fn convert(&mut self) -> Result<(Scan, Tally, Duration)> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(Error::io("catch signals for", &self.path))?;
        }
        for folder in walk::other_versions(&self.path) {
            console::warn(
                format!("{} stays as it is: a cluster of another version has it", folder.display()),
                "if an upgrade has left it, pg_upgrade's delete_old_cluster.sh removes it",
            );
        }
        let keys = Keys::install(&self.keyring)?;
        let descriptors = Descriptors::raise();
        let conditions = Conditions {
            keys: &keys,
            task: self.direction.into(),
            throttle: Arc::new(Throttle::new(self.how.rate)),
            stop: &stop,
        };
        let found = scan::scan(&self.path, self.keyring.policy(), self.how.leave_links)?;
        found.refuse_written(&self.locked)?;
        leftovers::clean(&found)?;
        // What a killed conversion renamed may not last yet. All that follows relies on it: that
        // zeros are plain, that the control file is the first or the last, that no key is needed.
        workers::sync_folders(&found.folders)?;
        if self.direction != Direction::Rekey {
            let conditions = Conditions { task: Task::Head, ..conditions.clone() };
            self.give_headers(&conditions, &descriptors)?;
        }
        let policy = self.keyring.policy();
        let mut scan = scan::scan(&self.path, policy, self.how.leave_links)?;
        if self.resumed {
            scan.mark_done(self.direction, &self.keyring);
        }
        let growth = begin::growth(self.direction, keys.layout);
        let (jobs, _) = estimate::room(&scan, growth, self.how.jobs(), BATCH)?;
        if jobs < self.how.jobs() {
            console::warn(
                "there is no room for several files at once: they are converted one by one",
                "with more room it is faster",
            );
        }
        let command = self.direction.command();
        let progress = Progress::new(command, self.how.json, scan.items.len(), scan.bytes());
        let (jobs, files) = descriptors.share(jobs);
        let manner = Manner { jobs, files, compare: !self.how.no_compare };
        let mut gate: Vec<Item> = instance::gate(instance::engine(&self.path, policy.profile()))
            .iter()
            .filter_map(|name| scan.take(&self.path.join(name)))
            .collect();
        let one = Manner { jobs: 1, ..manner };
        let mut tally = Tally::default();
        if self.direction != Direction::Decrypt {
            tally.add(&workers::run(&conditions, &gate, one, &progress)?);
            // A bare server that was quicker has the control file already.
            instance::refuse_running(&self.path)?;
        }
        tally.add(&workers::run(&conditions, &scan.items, manner, &progress)?);
        if self.direction == Direction::Decrypt {
            gate.reverse();
            tally.add(&workers::run(&conditions, &gate, one, &progress)?);
        }
        progress.finish();
        Ok((scan, tally, progress.elapsed()))
    }

    /// Gives a header to each sealed file that never got one: among plain files it would look like
    /// one of them.
    fn give_headers(
        &mut self,
        conditions: &Conditions<'_>,
        descriptors: &Descriptors,
    ) -> Result<()> {
        let Some(conversion) = self.keyring.conversion().filter(|it| !it.zeros_are_plain) else {
            return Ok(());
        };
        let scan = scan::scan(&self.path, self.keyring.policy(), true)?;
        let mut items = Vec::new();
        for item in scan.items {
            if item.begins_with_zeros()? {
                items.push(item);
            }
        }
        let (jobs, files) = descriptors.share(1);
        let manner = Manner { jobs, files, compare: !self.how.no_compare };
        let silent = Progress::silent();
        workers::run(conditions, &items, manner, &silent)?;
        self.keyring.set_conversion(Some(Conversion { zeros_are_plain: true, ..conversion }));
        Ok(self.folder.write(&mut self.keyring)?)
    }

    /// Records that it has ended.
    fn end(&mut self) -> Result<()> {
        let left = || scan::scan(&self.path, self.keyring.policy(), true);
        match self.direction {
            Direction::Decrypt => left()?.refuse_any_sealed(&self.keyring)?,
            Direction::Encrypt => left()?.refuse_any_plain()?,
            Direction::Rekey => {}
        }
        self.keyring.set_conversion(None);
        if self.direction == Direction::Decrypt {
            self.record(Event::ConversionEnd);
            return self.remove_keyring();
        }
        self.folder.write(&mut self.keyring)?;
        self.record(Event::ConversionEnd);
        Ok(())
    }

    /// Nothing is sealed any more.
    fn remove_keyring(&self) -> Result<()> {
        let control = Entry::of(self.folder.path())?;
        let folder = control.open_folder()?;
        // The keyring last: without it the directory would look like one that has lost it.
        let mut names = folder.names()?;
        names.sort_by_key(|name| name == tidelock_keyring::KEYRING);
        for name in names {
            folder.entry(name).remove()?;
        }
        control.remove_folder()?;
        control.folder().sync()
    }

    fn record(&self, event: Event) {
        if let Ok(sealed) = self.folder.read() {
            let details = Details {
                reason: Some(self.direction.command().to_owned()),
                ..Details::of_this_process()
            };
            let (keyring, path) = (Some(&self.keyring), &self.path);
            trail::write(&sealed, path, keyring, event, Outcome::Done, &details);
        }
    }

    fn tell(&self, scan: &Scan, tally: &Tally, took: Duration, kept: Option<&Path>) -> Result<()> {
        if let Some(first) = &tally.first_bad_end {
            console::warn(
                format!(
                    "{} an end that a power cut or somebody has left, the first of them {first}",
                    match tally.bad_ends {
                        1 => "1 file had".to_owned(),
                        many => format!("{many} files had"),
                    }
                ),
                "they have what a server saw of them: see with its own tools that it is all",
            );
        }
        let compared = (!self.how.no_compare).then_some(tally.compared.as_secs_f64());
        if self.how.json {
            return console::print_json_line(
                self.direction.command(),
                &Report {
                    event: "report",
                    directory: self.path.display().to_string(),
                    files: tally.files,
                    bytes: tally.bytes,
                    already: tally.before,
                    empty: scan.empty,
                    plain: scan.plain.len(),
                    seconds: took.as_secs_f64(),
                    compared_seconds: compared,
                    keyring_copy: kept.map(|path| path.display().to_string()),
                },
            );
        }
        let files = |count: u64| console::count(usize::try_from(count).unwrap_or(0), "file");
        let mut text = format!(
            "{} {}: {} in {:.1} s, {}\n",
            files(tally.files),
            self.direction.participle(),
            console::bytes(tally.bytes),
            took.as_secs_f64(),
            match compared {
                Some(seconds) => format!("{seconds:.1} s of it for comparing"),
                None => "not compared".to_owned(),
            }
        );
        text += &format!(
            "{} done before, {} empty, {} plain by the profile\n",
            tally.before,
            scan.empty,
            scan.plain.len()
        );
        if let Some(path) = kept {
            text += &format!("the keyring is kept in {}\n", path.display());
        }
        console::print(text)?;
        let (what, hint) = match self.direction {
            Direction::Encrypt => (
                "what was plain before is not erased: blocks of the disk, backups, archives",
                "docs/lifecycle.md says what to do about each",
            ),
            Direction::Decrypt => (
                "sealed backups and archives are opened by the keyring that was kept",
                "keep it, and its key, as long as any of them is needed",
            ),
            Direction::Rekey => (
                "older data keys still open old blocks of the disk, backups and archives",
                "`tidelock key destroy` removes them from the keyring; a key that was stolen with \
                 the keyring opens it still, until `tidelock key rotate --to` or `key recovery` \
                 replaces that key",
            ),
        };
        console::warn(what, hint);
        Ok(())
    }
}

/// Nobody else may use the directory.
fn hold(protected: &Path, folder: &KeyringDir) -> Result<File> {
    let file = folder.meeting_place()?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::refused(
            format!("programs use {}, or another conversion runs there", protected.display()),
            "stop them first: `tidelock status` names them",
        )),
        Err(errno) => Err(Error::io("lock", folder.path())(errno.into())),
    }
}

/// The directory, if it has a keyring.
fn protected(dir: &Path) -> Result<Option<Protected>> {
    is_protected(dir).then(|| Protected::open(dir)).transpose()
}
