//! The directory of a run: `run.json`, and `results.jsonl` to which each finished trial is
//! appended.
//!
//! A trial counts once its line has reached the disk (write, fdatasync). A torn last line, left by
//! a crash, and a corrupt one are named with their number and never read as a trial; everything
//! else stays.
//!
//! Trials are paired within a block, and only if they were measured in one sitting, on the same
//! servers. A block that an interruption cut in two is measured again as a whole: then the trials
//! of its latest sitting count, and what the earlier one had of it stays in the file unread.
//! `counted` has what else does not count.

mod counted;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::plan;
use crate::trial::{Phase, Trial};
pub(crate) use counted::{block_of, instances};

/// Everything of a run that was read.
#[derive(Clone, Debug)]
pub struct Results {
    /// Its directory.
    pub dir: PathBuf,
    /// What was to be measured.
    pub manifest: Manifest,
    /// What was measured and counts, in order of time.
    pub trials: Vec<Trial>,
    /// Lines that are no trials: number from 1, and why.
    pub broken: Vec<(usize, String)>,
    /// Blocks that were cut before all arms had been measured; their trials are left out.
    pub cut: usize,
    /// How often the lab was started for it.
    pub sittings: u32,
    /// Whether the lab came to the end of the plan. A run of before this was written has not that
    /// mark, and says `false`.
    pub finished: bool,
}

impl Results {
    /// Reads a run.
    ///
    /// # Errors
    /// [`Error::NotARun`] without a readable `run.json`; a results file that is not there is empty.
    pub fn read(dir: &Path) -> Result<Self> {
        let not_a_run = |why: String| Error::NotARun { path: dir.into(), why };
        let text = fs::read_to_string(dir.join(MANIFEST))
            .map_err(|e| not_a_run(format!("{MANIFEST}: {e}")))?;
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|e| not_a_run(format!("{MANIFEST}: {e}")))?;
        if manifest.format != FORMAT {
            return Err(not_a_run(format!("its format is {}, not {FORMAT}", manifest.format)));
        }
        let path = dir.join(RESULTS);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(format!("reading {}", path.display()))(e)),
        };
        let mut trials = Vec::new();
        let mut broken = Vec::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(trial) => trials.push(trial),
                Err(why) => broken.push((number + 1, why.to_string())),
            }
        }
        let sittings = trials.iter().map(|trial: &Trial| trial.sitting + 1).max().unwrap_or(0);
        let trials = counted::of_latest_sittings(trials);
        let (mut trials, cut) = counted::of_whole_blocks(&manifest, trials);
        counted::drop_sparse_percentiles(&mut trials);
        let finished = dir.join(FINISHED).is_file();
        Ok(Self { dir: dir.into(), manifest, trials, broken, cut, sittings, finished })
    }
}

impl Results {
    /// Blocks that were planned where something can be measured here, and how many of them were
    /// not. Those that a precision ends are planned by nobody.
    #[must_use]
    pub fn blocks(&self) -> (usize, usize) {
        let measured: BTreeSet<_> = self.trials.iter().map(block_of).collect();
        let (mut all, mut missing) = (0, 0);
        for planned in &self.manifest.experiments {
            let experiment = &planned.experiment;
            let cells = plan::cells(experiment).unwrap_or_default();
            for cell in cells.iter().filter(|_| !instances(planned).is_empty()) {
                for phase in Phase::ALL {
                    let work = experiment.workload.get(cell.workload());
                    let by_rule =
                        phase == Phase::EqualWork && experiment.stop.control_precision.is_some();
                    let blocks =
                        work.filter(|_| !by_rule).map_or(0, |w| plan::blocks(experiment, w, phase));
                    let is_missing = |block: &u32| {
                        let block = (experiment.name.clone(), cell.clone(), phase, *block);
                        !measured.contains(&block)
                    };
                    all += blocks as usize;
                    missing += (0..blocks).filter(is_missing).count();
                }
            }
        }
        (all, missing)
    }
}

/// Appends trials.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
}

impl Writer {
    /// Makes the directory and writes the manifest: whole and on the disk, or not at all.
    ///
    /// # Errors
    /// When the directory has a run already, or cannot be written.
    pub fn create(dir: &Path, manifest: &Manifest) -> Result<Self> {
        let what = format!("making {}", dir.display());
        fs::create_dir_all(dir).map_err(Error::io(what))?;
        let text = serde_json::to_string_pretty(manifest)
            .map_err(|e| Error::Other(format!("the manifest cannot be written: {e}")))?;
        whole(dir, MANIFEST, text.as_bytes(), Existing::Refused)?;
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        sync(above.unwrap_or(Path::new(".")))?;
        Self::append(dir)
    }

    /// Goes on with a run. A torn last line is ended, so that the next trial has a line of its own.
    ///
    /// # Errors
    /// When it is no run, the results cannot be opened, or another lab writes them.
    pub fn append(dir: &Path) -> Result<Self> {
        if !dir.join(MANIFEST).is_file() {
            return Err(Error::NotARun {
                path: dir.into(),
                why: format!("{MANIFEST} is not there"),
            });
        }
        let path = dir.join(RESULTS);
        let failed = || Error::io(format!("opening {}", path.display()));
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy { path, holder: "unknown".into() });
            }
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
        let torn = fs::read(&path).map_err(failed())?.last().is_some_and(|byte| *byte != b'\n');
        if torn {
            file.write_all(b"\n").map_err(failed())?;
        }
        sync(dir)?;
        Ok(Self { file, path })
    }

    /// Appends a trial and waits until it is on the disk.
    ///
    /// # Errors
    /// As [`Writer::add_all`].
    pub fn add(&mut self, trial: &Trial) -> Result<()> {
        self.add_all(std::slice::from_ref(trial))
    }

    /// Appends the parts of a trial, all or none, and waits until they are on the disk.
    ///
    /// # Errors
    /// When they could not be written whole: a full disk. What was there before stays readable.
    pub fn add_all(&mut self, trials: &[Trial]) -> Result<()> {
        let failed = || Error::io(format!("writing {}", self.path.display()));
        let mut lines = Vec::new();
        for trial in trials {
            serde_json::to_writer(&mut lines, trial)
                .map_err(|e| Error::Other(format!("a trial cannot be written: {e}")))?;
            lines.push(b'\n');
        }
        let before = self.file.metadata().map_err(failed())?.len();
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            // The part of a line that did fit must not stay in front of the next one.
            let _ = self.file.set_len(before);
            failed()(error)
        })
    }
}

/// Marks a run whose plan came to its end.
///
/// # Errors
/// When the mark cannot be written.
pub(crate) fn finish(dir: &Path) -> Result<()> {
    whole(dir, FINISHED, b"", Existing::Replaced)
}

/// Takes the mark away, if it is there: the run goes on.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn go_on(dir: &Path) -> Result<()> {
    match fs::remove_file(dir.join(FINISHED)) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", dir.join(FINISHED).display()))(why))
        }
        _ => Ok(()),
    }
}

/// What becomes of a file that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and that is an error.
    Refused,
    /// The new one takes its place.
    Replaced,
}

/// Writes a file under another name, waits until it is on the disk, and gives it its name.
pub(crate) fn whole(dir: &Path, name: &str, bytes: &[u8], existing: Existing) -> Result<()> {
    let path = dir.join(name);
    let failed = || Error::io(format!("writing {}", path.display()));
    // As any other file is made: the umask takes away.
    let mode = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .prefix(&format!(".{name}-"))
        .permissions(mode)
        .tempfile_in(dir)
        .map_err(failed())?;
    let written = file.write_all(bytes).and_then(|()| file.as_file().sync_all());
    written.map_err(failed())?;
    let named = match existing {
        Existing::Refused => file.persist_noclobber(&path),
        Existing::Replaced => file.persist(&path),
    };
    named.map_err(|error| failed()(error.error))?;
    sync(dir)
}

/// Waits until the names in a directory are on the disk.
fn sync(dir: &Path) -> Result<()> {
    let failed = Error::io(format!("writing the directory {}", dir.display()));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// Version of both files.
pub const FORMAT: u32 = 1;
/// Name of the manifest.
pub const MANIFEST: &str = "run.json";
/// Name of the results.
pub const RESULTS: &str = "results.jsonl";
/// Name of the mark of a run whose plan came to its end.
const FINISHED: &str = "finished";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, results};

    const ARMS: [&str; 2] = ["plain", "sealed"];

    fn run() -> Results {
        let mut run = Synthetic::new(3);
        run.arm("plain", "w", 1.0).arm("sealed", "w", 0.9);
        results(run, &ARMS)
    }

    #[test]
    fn a_manifest_is_never_replaced_and_never_half_there() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/run");
        let run = run();
        drop(Writer::create(&out, &run.manifest).unwrap());
        let error = Writer::create(&out, &run.manifest).unwrap_err();
        assert!(error.hint().contains("lab resume"), "{error}");
        let mut names: Vec<_> =
            fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [RESULTS, MANIFEST], "something else was left");
        assert_eq!(Results::read(&out).unwrap().manifest, run.manifest);
    }

    #[test]
    fn two_labs_do_not_write_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let first = Writer::create(dir.path(), &run().manifest).unwrap();
        assert!(matches!(Writer::append(dir.path()), Err(Error::Busy { .. })));
        drop(first);
        Writer::append(dir.path()).unwrap();
        let none = tempfile::tempdir().unwrap();
        assert!(matches!(Writer::append(none.path()), Err(Error::NotARun { .. })));
        assert!(fs::read_dir(none.path()).unwrap().next().is_none(), "it was made a run");
    }

    #[test]
    fn half_a_block_does_not_pair_with_what_a_later_sitting_measured() {
        let dir = tempfile::tempdir().unwrap();
        let run = run();
        let mut writer = Writer::create(dir.path(), &run.manifest).unwrap();
        let (half, whole): (Vec<Trial>, Vec<Trial>) =
            run.trials.into_iter().partition(|trial| trial.block == 1);
        writer.add_all(&whole).unwrap();
        writer.add(&half[0]).unwrap();
        for trial in half {
            writer.add(&Trial { sitting: 2, ..trial }).unwrap();
        }
        let read = Results::read(dir.path()).unwrap();
        let sittings = |block: u32| -> Vec<u32> {
            read.trials.iter().filter(|t| t.block == block).map(|t| t.sitting).collect()
        };
        assert_eq!((sittings(0), sittings(1), sittings(2)), (vec![0; 2], vec![2; 2], vec![0; 2]));
    }

    #[test]
    fn a_sitting_whose_only_block_was_cut_keeps_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let run = run();
        let mut writer = Writer::create(dir.path(), &run.manifest).unwrap();
        let late = |trial: &Trial| Trial { sitting: 1, ..trial.clone() };
        let (cut, whole): (Vec<&Trial>, Vec<&Trial>) =
            run.trials.iter().partition(|t| t.block == 2);
        writer.add_all(&whole.into_iter().cloned().collect::<Vec<_>>()).unwrap();
        writer.add(&late(cut[0])).unwrap();
        let read = Results::read(dir.path()).unwrap();
        assert_eq!((read.trials.len(), read.cut, read.sittings), (4, 1, 2));
        assert!(!read.finished);
        finish(dir.path()).unwrap();
        assert!(Results::read(dir.path()).unwrap().finished);
        go_on(dir.path()).unwrap();
        go_on(dir.path()).unwrap();
        assert!(!Results::read(dir.path()).unwrap().finished);
    }

    #[test]
    fn a_trial_of_the_first_sitting_is_written_as_it_always_was() {
        let trial = run().trials.remove(0);
        let text = serde_json::to_string(&trial).unwrap();
        assert!(!text.contains("sitting"), "{text}");
        assert_eq!(serde_json::from_str::<Trial>(&text).unwrap().sitting, 0);
        let later = serde_json::to_string(&Trial { sitting: 3, ..trial }).unwrap();
        assert_eq!(serde_json::from_str::<Trial>(&later).unwrap().sitting, 3);
    }
}
