//! Runs a plan: starts the servers, measures, appends each finished trial, and cleans up what it
//! started.
//!
//! ```text
//!   Lab            the whole run: lock, manifest, results, what is done already
//!     ground       cells that share servers: one private place, one server an arm
//!       cell       settings, warm-up, blocks at full speed, blocks at a fixed rate
//!         trial    one arm, one block
//! ```
//!
//! Whatever fails ends the run with its error; what was measured stays, and `resume` goes on: on
//! the same machine, with each block that was cut in two measured again as a whole.

mod cell;
mod elsewhere;
mod equal_work;
mod forecast;
mod lock;
mod machine;
mod precision;
mod servers;
mod trial;
mod warm_up;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use servers::Servers;
use tidelock_servers::{Arm, Programs, Workspace};

use crate::arm::{self, Definition};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Size, Work};
use crate::manifest::{Machine, Manifest, Planned};
use crate::phrase::LEAST_FOR_PUBLICATION;
use crate::plan;
use crate::results::{self, Existing, FORMAT, Results, Writer, instances};
use crate::trial::{Cell, Phase, Trial};

pub(crate) use cell::settles;
pub(crate) use machine::OURS;
pub use machine::machine;
pub use precision::{MOST_BLOCKS, pre_flight_seconds, seconds};
pub(crate) use trial::WARM;

/// What a run needs to know beside its experiments.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of `run.json` and `results.jsonl`.
    pub out: PathBuf,
    /// Directory below which the servers' data lies, on the disk that is to be measured.
    pub work: PathBuf,
    /// Minutes after which blocks that only make it more precise are over; `None` if whenever it
    /// takes, or in [`resume`] if those that the run began with.
    pub minutes: Option<u32>,
    /// Set to end the run after the tool that runs now.
    pub stop: Arc<AtomicBool>,
}

/// What a run tells while it goes on. All calls come from one thread.
pub trait Progress {
    /// So many trials are to be done in this run, so many of them are already.
    fn planned(&mut self, trials: usize, done: usize);
    /// Something that takes a while and is no trial: servers are filled, warmed up.
    fn preparing(&mut self, what: &str);
    /// A sentence that the user has to see: of what an earlier lab left, and who uses it.
    fn note(&mut self, what: &str);
    /// A trial begins: experiment, cell, block of how many, arm.
    fn trial(&mut self, experiment: &str, step: &plan::Step, blocks: u32);
    /// A trial is on the disk.
    fn finished(&mut self, trial: &Trial);
}

/// Makes the manifest of a new run.
#[must_use]
pub fn manifest(experiments: Vec<Experiment>, size: Size, seed: u64, machine: Machine) -> Manifest {
    let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let machine = machine::with_builds_of(&experiments, machine);
    let plan = |experiment: Experiment| Planned {
        arms: arm::planned(&experiment, &machine),
        limits: limits(&experiment, &machine),
        experiment,
    };
    Manifest {
        format: FORMAT,
        tidelock: env!("CARGO_PKG_VERSION").into(),
        commit: env!("TIDELOCK_COMMIT").into(),
        created: created.map_or(0, |since| since.as_secs()),
        seed,
        size,
        experiments: experiments.into_iter().map(plan).collect(),
        machine,
    }
}

/// What this machine keeps from being said.
fn limits(experiment: &Experiment, machine: &Machine) -> Vec<String> {
    let mut limits = Vec::new();
    let blocks = experiment.stop.blocks;
    if (blocks as usize) < LEAST_FOR_PUBLICATION {
        let noun = if blocks == 1 { "block" } else { "blocks" };
        limits.push(format!(
            "{blocks} {noun} a cell; {LEAST_FOR_PUBLICATION} are the least for publication"
        ));
    }
    if experiment.limits != crate::experiment::Limits::default() && !machine.root {
        let why = match rustix::process::geteuid().is_root() {
            true => "no control group can be made here",
            false => "not root: no control groups and no volumes",
        };
        limits.push(format!("{why}, so everything runs unthrottled"));
    }
    limits.extend(arm::limits_of_places(experiment, machine));
    limits
}

/// Starts a new run.
///
/// # Errors
/// When another lab runs, the directory has a run already, or anything of it fails; see the module.
pub fn start(manifest: &Manifest, options: &Options, progress: &mut dyn Progress) -> Result<()> {
    check_programs(manifest)?;
    arm::check_programs(&manifest.experiments)?;
    let only = lock::take(&options.work)?;
    clean_up(manifest, options, &only, progress);
    let writer = Writer::create(&options.out, manifest)?;
    note_work(options)?;
    note_minutes(options)?;
    let until = until(options.minutes);
    Lab { manifest, options, only, writer, until, trials: Vec::new(), sitting: 0 }.run(progress)
}

/// The command and the library, if an arm of the plan needs them.
fn check_programs(manifest: &Manifest) -> Result<()> {
    let loads_library = |planned: &Planned| {
        let mut arms = planned.arms.iter().filter(|arm| arm.missing.is_none());
        arms.any(|arm| Definition::of(&planned.experiment, &arm.name).arm != Arm::Plain)
    };
    if manifest.experiments.iter().any(loads_library) {
        Programs::check()?;
    }
    Ok(())
}

/// Goes on with a run that did not end. Lines that are no trials are measured again, and so is all
/// of a block that was not finished.
///
/// # Errors
/// As [`start`], when `options.out` is no run, and [`Error::OtherMachine`] when this machine would
/// give other numbers.
pub fn resume(options: &Options, progress: &mut dyn Progress) -> Result<()> {
    let only = lock::take(&options.work)?;
    let writer = Writer::append(&options.out)?;
    let Results { manifest, trials, sittings: sitting, .. } = Results::read(&options.out)?;
    let differences = machine::differences(&manifest, &options.work);
    if !differences.is_empty() {
        return Err(Error::OtherMachine { path: options.out.clone(), differences });
    }
    check_programs(&manifest)?;
    clean_up(&manifest, options, &only, progress);
    note_work(options)?;
    note_minutes(options)?;
    let until = until(options.minutes.or_else(|| noted_minutes(&options.out)));
    Lab { manifest: &manifest, options, only, writer, until, trials, sitting }.run(progress)
}

/// The work directory that a run was last measured in.
#[must_use]
pub fn noted_work(dir: &Path) -> Option<PathBuf> {
    let path = std::fs::read(dir.join(WORK)).ok()?;
    (!path.is_empty()).then(|| OsString::from_vec(path).into())
}

fn note_work(options: &Options) -> Result<()> {
    let path = options.work.as_os_str().as_bytes();
    results::whole(&options.out, WORK, path, Existing::Replaced)
}

/// The minutes that a run was begun with.
fn noted_minutes(dir: &Path) -> Option<u32> {
    std::fs::read_to_string(dir.join(MINUTES)).ok()?.parse().ok()
}

fn note_minutes(options: &Options) -> Result<()> {
    let Some(minutes) = options.minutes else { return Ok(()) };
    results::whole(&options.out, MINUTES, minutes.to_string().as_bytes(), Existing::Replaced)
}

fn until(minutes: Option<u32>) -> Option<Instant> {
    minutes.map(|minutes| Instant::now() + Duration::from_secs(u64::from(minutes) * 60))
}

/// Ends and removes what a lab that was killed left behind: servers, mounts, loop devices, control
/// groups. Only with the lock, so that none of it is in use.
fn clean_up(
    manifest: &Manifest,
    options: &Options,
    only: &lock::Only,
    progress: &mut dyn Progress,
) {
    for dir in only.left.iter().filter(|dir| dir.is_dir()) {
        progress.preparing(&format!("ending the servers of an earlier lab in {}", dir.display()));
        for bystander in crate::host::end_users(dir) {
            progress.note(&bystander);
        }
    }
    let arms = manifest.experiments.iter().flat_map(|planned| &planned.experiment.own_arms);
    let mut bases: Vec<&Path> = arms.filter_map(|own| own.on.as_deref()).map(Path::new).collect();
    bases.push(&options.work);
    bases.sort_unstable();
    bases.dedup();
    for what in crate::host::remove_leftovers(&bases) {
        progress.note(&what);
    }
    for dir in only.left.iter().filter(|dir| dir.is_dir()) {
        progress.note(&crate::host::remove_dir(dir));
    }
}

/// What of an experiment this machine cannot measure: a sentence for each arm, or for all of it
/// where its first arm is missing.
fn unmeasured(planned: &Planned) -> Vec<String> {
    let name = &planned.experiment.name;
    let mut lacks = planned.arms.iter().filter_map(|arm| Some((arm, arm.missing.as_ref()?)));
    if instances(planned).is_empty() {
        return lacks
            .next()
            .map(|(_, why)| format!("{name} is not measured: {why}"))
            .into_iter()
            .collect();
    }
    lacks.map(|(arm, why)| format!("{name} is measured without {}: {why}", arm.name)).collect()
}

/// A run that goes on.
struct Lab<'l> {
    manifest: &'l Manifest,
    options: &'l Options,
    only: lock::Only,
    writer: Writer,
    /// When blocks that only make it more precise are over.
    until: Option<Instant>,
    /// What counts: whole blocks of earlier sittings, and everything of this one.
    trials: Vec<Trial>,
    sitting: u32,
}

impl Lab<'_> {
    fn run(&mut self, progress: &mut dyn Progress) -> Result<()> {
        let (mut all, mut missing) = (0, 0);
        for planned in &self.manifest.experiments {
            for cell in plan::cells(&planned.experiment)? {
                let steps = self.steps(planned, &cell);
                all += steps.len();
                missing += steps.iter().filter(|step| !self.is_done(planned, step)).count();
            }
        }
        progress.planned(all, all - missing);
        for planned in &self.manifest.experiments {
            for what in unmeasured(planned) {
                progress.note(&what);
            }
        }
        if missing > 0 {
            results::go_on(&self.options.out)?;
            self.pre_flight(progress)?;
        }
        for planned in &self.manifest.experiments {
            self.experiment(planned, progress)?;
        }
        results::finish(&self.options.out)
    }

    fn experiment(&mut self, planned: &Planned, progress: &mut dyn Progress) -> Result<()> {
        let experiment = &planned.experiment;
        let mut cells = plan::cells(experiment)?;
        cells.retain(|cell| self.steps(planned, cell).iter().any(|s| !self.is_done(planned, s)));
        while let Some(first) = cells.first() {
            let ground = plan::ground(experiment, first)?;
            let mut shared = Vec::new();
            for cell in &cells {
                let other = plan::ground(experiment, cell)?;
                let other = plan::Ground { settings: ground.settings.clone(), ..other };
                if other == ground {
                    shared.push(cell.clone());
                }
            }
            cells.retain(|cell| !shared.contains(cell));
            self.ground(planned, &shared, progress)?;
        }
        Ok(())
    }

    fn ground(
        &mut self,
        planned: &Planned,
        cells: &[Cell],
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let arms = instances(planned);
        let Some(first) = cells.first() else { return Ok(()) };
        let place = Workspace::below(&self.options.work)?;
        self.only.note(place.path())?;
        let stop = &self.options.stop;
        let experiment = &planned.experiment;
        let arms = plan::drawn(arms, &experiment.name, first, self.manifest.seed);
        let mut servers = Servers::make(&place, experiment, first, arms, stop, progress)?;
        for cell in cells {
            self.cell(planned, cell, &mut servers, progress)?;
        }
        Ok(())
    }

    /// All trials of a cell, in all phases.
    fn steps(&self, planned: &Planned, cell: &Cell) -> Vec<plan::Step> {
        let servers = instances(planned);
        let experiment = &planned.experiment;
        let Some(work) = experiment.workload.get(cell.workload()) else { return Vec::new() };
        [Phase::Capacity, Phase::EqualWork, Phase::FixedRate]
            .into_iter()
            .flat_map(|phase| {
                let mut blocks = plan::blocks(experiment, work, phase);
                if phase == Phase::EqualWork {
                    let enough = self.equal_work_blocks(experiment, cell);
                    blocks = enough.map_or(blocks, |enough| enough.min(blocks));
                }
                plan::steps(cell, phase, blocks, &servers, self.manifest.seed)
            })
            .collect()
    }

    fn is_done(&self, planned: &Planned, step: &plan::Step) -> bool {
        let same = |trial: &Trial| {
            trial.experiment == planned.experiment.name
                && trial.phase == step.phase
                && trial.block == step.block
                && trial.arm == step.arm
                && trial.instance == step.instance
                && base_cell(&planned.experiment, trial) == step.cell
        };
        self.trials.iter().any(same)
    }

    fn check_stop(&self) -> Result<()> {
        if self.options.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The planned cell of a trial: each phase of the batch engine is a workload of its own there,
/// `billing/phase1`.
fn base_cell(experiment: &Experiment, trial: &Trial) -> Cell {
    let mut cell = trial.cell.clone();
    if let Some((work, _)) = cell
        .workload()
        .split_once('/')
        .filter(|(work, _)| matches!(experiment.workload.get(*work), Some(Work::Billing(_))))
    {
        let work = work.to_owned();
        cell.0.insert(crate::trial::WORKLOAD.into(), work);
    }
    cell
}

/// Where the servers' data lies if nobody says: the directory for temporary files.
#[must_use]
pub fn default_work() -> PathBuf {
    std::env::var_os("TIDELOCK_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Whether `dir` has a run.
#[must_use]
pub fn exists(dir: &Path) -> bool {
    dir.join(crate::results::MANIFEST).exists()
}

/// Name of the file that has the work directory.
const WORK: &str = "work-directory";
/// Name of the file that has the minutes that `--precision` may take.
const MINUTES: &str = "minutes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_goes_on_has_the_minutes_that_it_began_with() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options {
            out: dir.path().into(),
            work: dir.path().into(),
            minutes: None,
            stop: Arc::default(),
        };
        note_minutes(&options).unwrap();
        assert_eq!(noted_minutes(dir.path()), None);
        for minutes in [90, 30] {
            options.minutes = Some(minutes);
            note_minutes(&options).unwrap();
            assert_eq!(noted_minutes(dir.path()), Some(minutes));
        }
    }
}
