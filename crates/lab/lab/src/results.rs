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
mod damaged;
mod outside;
mod whole;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::experiment::Claim;
use crate::manifest::Manifest;
use crate::plan;
use crate::trial::{Phase, Trial};
pub(crate) use counted::{Block, block_of, instances};
pub use damaged::Damaged;
use whole::sync;
pub(crate) use whole::{Existing, replaced, whole};

/// Everything of a run that was read.
#[derive(Clone, Debug)]
pub struct Results {
    /// Its directory.
    pub dir: PathBuf,
    /// What was to be measured.
    pub manifest: Manifest,
    /// What was measured and counts, in order of time.
    pub trials: Vec<Trial>,
    /// Lines that are no trials.
    pub broken: Vec<Damaged>,
    /// Rows that are trials and do not count, in sentences without a full stop: of what was not
    /// planned, or of what another row has.
    pub outside: Vec<String>,
    /// Arms of an experiment that have no row at all where others have some, as `sealed in quick`.
    pub absent: Vec<String>,
    /// Blocks that were cut before all arms had been measured; their trials are left out.
    pub cut: usize,
    /// Which they are.
    pub(crate) cut_blocks: BTreeSet<Block>,
    /// How often the lab was started for it.
    pub sittings: u32,
    /// Whether the lab came to the end of the plan. A run of before this was written has not that
    /// mark, and says `false`.
    pub finished: bool,
    /// What the pre-flight said, line by line; empty where there was none, and of older runs.
    pub forecast: Vec<String>,
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
        let claims = manifest.experiments.iter().flat_map(|planned| &planned.experiment.claims);
        if let Some(why) = claims.map(Claim::check).find_map(Result::err) {
            return Err(not_a_run(format!("{MANIFEST}: {why}")));
        }
        let path = dir.join(RESULTS);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(format!("reading {}", path.display()))(e)),
        };
        let (trials, broken) = damaged::read(&bytes);
        let sittings = trials.iter().map(|trial: &Trial| trial.sitting + 1).max().unwrap_or(0);
        let (trials, mut outside) = outside::of_plan(&manifest, trials);
        let trials = counted::of_latest_sittings(trials);
        let trials = outside::each_once(trials, &mut outside);
        let absent = counted::absent(&manifest, &trials);
        let (mut trials, cut_blocks) = counted::of_whole_blocks(&manifest, trials);
        counted::drop_sparse_percentiles(&mut trials);
        let finished = dir.join(FINISHED).is_file();
        let forecast = fs::read_to_string(dir.join(FORECAST)).unwrap_or_default();
        Ok(Self {
            dir: dir.into(),
            manifest,
            trials,
            broken,
            outside,
            absent,
            cut: cut_blocks.len(),
            cut_blocks,
            sittings,
            finished,
            forecast: forecast.lines().map(str::to_owned).collect(),
        })
    }
}

impl Results {
    /// Whether a precision was to end it, and it did not come to the end of its plan: how many
    /// blocks it has may be due to what they said.
    #[must_use]
    pub fn ended_by_hand(&self) -> bool {
        let mut all = self.manifest.experiments.iter().map(|planned| &planned.experiment.stop);
        !self.finished && all.any(|stop| stop.control_precision.is_some())
    }

    /// How many lines are no trials, and the first of them: `3 lines of results.jsonl are no
    /// trials: line 5 (EOF while ...), 7, 9`. `None` where all are.
    #[must_use]
    pub fn damaged(&self) -> Option<String> {
        let (first, others) = self.broken.split_first()?;
        let all = match others.len() {
            0 => format!("1 line of {RESULTS} is no trial"),
            others => format!("{} lines of {RESULTS} are no trials", others + 1),
        };
        let named: String =
            others.iter().take(NAMED).map(|damaged| format!(", {}", damaged.line)).collect();
        let more = match others.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("{all}: line {} ({}){named}{more}", first.line, first.why))
    }

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

/// Damaged lines that are named beside the first.
const NAMED: usize = 4;

/// Version of both files.
pub const FORMAT: u32 = 1;
/// Name of the manifest.
pub const MANIFEST: &str = "run.json";
/// Name of the results.
pub const RESULTS: &str = "results.jsonl";
/// Name of the mark of a run whose plan came to its end.
const FINISHED: &str = "finished";
/// Name of the file with what the pre-flight said.
pub(crate) const FORECAST: &str = "forecast";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis;
    use crate::experiment::{Crypto, Expectation, Size, Work};
    use crate::synthetic::{Synthetic, results};

    const ARMS: [&str; 2] = ["plain", "sealed"];

    fn run() -> Results {
        let mut run = Synthetic::new(3);
        run.arm("plain", "w", 1.0).arm("sealed", "w", 0.9);
        let mut results = results(run, &ARMS);
        let work = Work::Crypto(Crypto { block: "1".into(), seconds: "1".into() });
        results.manifest.experiments[0].experiment.workload.insert("w".into(), work);
        results
    }

    /// What is read of these rows.
    fn read_of(manifest: &Manifest, rows: &[Trial]) -> Results {
        let dir = tempfile::tempdir().unwrap();
        Writer::create(dir.path(), manifest).unwrap().add_all(rows).unwrap();
        Results::read(dir.path()).unwrap()
    }

    #[test]
    fn rows_of_what_was_not_planned_are_said_and_do_not_count() {
        type Change = fn(&mut Trial);
        let run = run();
        let changes: [(Change, &str); 5] = [
            (|trial| trial.experiment = "other".into(), "an experiment"),
            (|trial| trial.arm = "other".into(), "an arm"),
            (|trial| trial.instance = 1, "a server"),
            (|trial| _ = trial.cell.0.insert("scale".into(), "7".into()), "a cell"),
            (|trial| trial.block = 10, "a block"),
        ];
        for (change, what) in changes {
            let mut rows = run.trials.clone();
            for trial in run.trials.iter().filter(|trial| trial.block == 1) {
                let mut other = trial.clone();
                change(&mut other);
                rows.push(other);
            }
            let read = read_of(&run.manifest, &rows);
            assert_eq!((read.trials.len(), read.cut), (6, 0), "{what}: {:?}", read.outside);
            let [said] = &read.outside[..] else { panic!("{what}: {:?}", read.outside) };
            assert!(said.starts_with(&format!("2 rows are of {what} that")), "{said}");
        }
        let read = read_of(&run.manifest, &run.trials);
        assert!(read.outside.is_empty() && read.absent.is_empty(), "{read:?}");
    }

    /// A cell has the factors that matter to its workload, all of them and no others.
    #[test]
    fn rows_with_a_factor_too_few_or_too_many_do_not_count() {
        let mut run = run();
        let experiment = &mut run.manifest.experiments[0].experiment;
        for factor in ["load", "idle"] {
            experiment.factors.insert(factor.into(), vec!["4".into()]);
        }
        experiment.settings.insert("a".into(), "{load}".into());
        let lacking = run.trials[0].clone();
        for trial in &mut run.trials {
            trial.cell.0.insert("load".into(), "4".into());
        }
        let mut more = run.trials[0].clone();
        more.cell.0.insert("idle".into(), "4".into());
        let mut rows = run.trials.clone();
        rows.extend([lacking, more]);
        let read = read_of(&run.manifest, &rows);
        assert_eq!(read.trials.len(), run.trials.len());
        assert!(read.outside[0].starts_with("2 rows are of a cell that"), "{:?}", read.outside);
    }

    #[test]
    fn a_second_row_of_a_trial_counts_once_and_one_that_differs_is_not_trusted() {
        let run = run();
        for (part, differ) in [(1.0, false), (0.5, true)] {
            let mut rows = run.trials.clone();
            let mut twice = rows[4].clone();
            twice.metrics.values_mut().for_each(|value| *value *= part);
            rows.insert(0, twice);
            let read = read_of(&run.manifest, &rows);
            assert_eq!(read.trials.len(), 6);
            let marked = read.trials.iter().filter(|trial| analysis::is_contradicted(trial));
            assert_eq!(marked.count(), usize::from(differ), "{:?}", read.outside);
            let said = if differ { "cannot be trusted" } else { "1 row is there twice" };
            assert!(read.outside[0].contains(said), "{:?}", read.outside);
        }
    }

    #[test]
    fn an_arm_without_a_row_is_named() {
        let mut run = run();
        run.trials.retain(|trial| trial.arm == "plain");
        let read = read_of(&run.manifest, &run.trials);
        assert_eq!((read.trials.len(), read.cut), (0, 3));
        assert_eq!(read.absent, ["sealed in synthetic"]);
    }

    #[test]
    fn many_damaged_lines_are_one_sentence() {
        let mut run = run();
        assert_eq!(run.damaged(), None);
        run.broken = vec![Damaged::at(3)];
        assert_eq!(run.damaged().unwrap(), "1 line of results.jsonl is no trial: line 3 (torn)");
        run.broken = (3..20).map(Damaged::at).collect();
        let said = "17 lines of results.jsonl are no trials: line 3 (torn), 4, 5, 6, 7 and 12 more";
        assert_eq!(run.damaged().unwrap(), said);
    }

    #[test]
    fn a_run_whose_claim_has_no_figure_is_refused_by_its_name() {
        let text = "name = 't'\nquestion = ''\nengine = 'none'\narms = ['plain']\n\
                    [workload.w]\nkind = 'crypto'\nblock = 1\nseconds = 1\n[stop]\nblocks = 1\n\
                    [[claim]]\nid = 'c'\ntext = ''\nsource = ''\nmetric = 'elapsed'\n\
                    arm = 'plain'\nagainst = 'plain'\nexpect = { between = [0.5, 1.5] }\n";
        let read = |text: &str| crate::experiment::read("t", text, Size::Small);
        let why = read(&text.replace("0.5, 1.5", "1.5, 0.5")).unwrap_err().to_string();
        assert!(why.contains("claim `c`: between is 1.5 to 0.5"), "{why}");
        let mut manifest = run().manifest;
        manifest.experiments[0].experiment = read(text).unwrap();
        manifest.experiments[0].experiment.claims[0].expect = Expectation::EqualWithin(-0.5);
        let dir = tempfile::tempdir().unwrap();
        drop(Writer::create(dir.path(), &manifest).unwrap());
        let error = Results::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains("claim `c`: equal_within is -0.5"), "{error}");
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
