//! `--precision`: measure until the control is known so well, and say before how long that takes
//! and what will not be known so well; of a run without it, the same of [`USUAL`].
//!
//! Blind: nothing but the control decides, so to stop early finds no difference that is not there.
//! For each kind of load the pre-flight makes a plain server and its control. With equal work, both
//! get the smallest data (custom scripts: their own) and equal work for 20 seconds; without, whole
//! trials in turns. `forecast` reckons from what the two differ by.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidelock_servers::Workspace;

use super::equal_work::Bench;
use super::forecast::{self, Forecast, Spread, Spreads};
use super::servers::Servers;
use super::{Lab, Progress, trial, warm_up};
use crate::analysis::{CONTROL, PART, PLAIN, noise};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Param, Size, Work};
use crate::manifest::Planned;
use crate::metric::{Metric, find};
use crate::phrase::LEAST_FOR_PUBLICATION;
use crate::plan;
use crate::results::{self, Existing, instances};
use crate::statistics::Estimate;
use crate::trial::{Cell, Phase, Trial};

impl Lab<'_> {
    /// How many blocks of equal work a cell needs still: all that are planned, or those that it has
    /// where the control is known well enough, or the time is over.
    pub(super) fn equal_work_blocks(&self, experiment: &Experiment, cell: &Cell) -> Option<u32> {
        let wanted = experiment.stop.control_precision?;
        let trials: Vec<&Trial> = self
            .trials
            .iter()
            .filter(|t| t.experiment == experiment.name && t.phase == Phase::EqualWork)
            .filter(|t| t.cell == *cell)
            .collect();
        let done = trials.iter().map(|trial| trial.block + 1).max().unwrap_or(0);
        let over = self.until.is_some_and(|until| Instant::now() > until);
        (over || is_precise(experiment, &trials, wanted)).then_some(done)
    }

    /// Says how long the precision takes that was asked for, and which families will not be known
    /// so well. The same of a new run without one that is [`LONG`], of [`USUAL`].
    ///
    /// # Errors
    /// When a server or its work fails, and a precision was asked for.
    pub(super) fn pre_flight(&self, progress: &mut dyn Progress) -> Result<()> {
        let told = self.manifest.size != Size::Miniature && self.sitting == 0 && self.is_long()?;
        let experiments = &self.manifest.experiments;
        let asked = experiments.iter().find_map(|p| p.experiment.stop.control_precision);
        let Some(wanted) = asked.or_else(|| told.then_some(USUAL)) else { return Ok(()) };
        let mut spreads = Spreads::new();
        for (load, (planned, cell)) in forecast::to_try(experiments)? {
            let kind = load.kind.title();
            let what = format!("pre-flight, {kind}: what two equal servers differ by");
            progress.preparing(&what);
            if let Some(why) = too_long(&planned.experiment, &cell, load.phase)? {
                spreads.insert(load, Err(why));
                continue;
            }
            let spread = match self.equal_servers(planned, &cell, load.phase, progress) {
                Err(why) if asked.is_some() || matches!(why, Error::Interrupted) => {
                    return Err(why);
                }
                found => found.map_err(|why| why.to_string()),
            };
            spreads.insert(load, spread);
        }
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let forecast = Forecast::of(experiments, &spreads, wanted, left)?;
        let lines: Vec<String> =
            forecast.time(asked.is_some()).into_iter().chain(forecast.families()).collect();
        for line in &lines {
            progress.note(line);
        }
        if self.sitting > 0 {
            return Ok(());
        }
        // Whoever reads the run can hold it to this.
        let text = lines.join("\n") + "\n";
        results::whole(&self.options.out, results::FORECAST, text.as_bytes(), Existing::Replaced)
    }

    fn is_long(&self) -> Result<bool> {
        Ok(seconds(&self.manifest.experiments)? > LONG)
    }

    /// What plain and control differ by: in equal work with little data, else in whole trials.
    fn equal_servers(
        &self,
        planned: &Planned,
        cell: &Cell,
        phase: Phase,
        progress: &mut dyn Progress,
    ) -> Result<Spread> {
        let experiment = equal_and_small(&planned.experiment, cell);
        let stop = &self.options.stop;
        let place = Workspace::below(&self.options.work)?;
        self.only.note(place.path())?;
        let both = plan::instances(&experiment, &experiment.arms);
        let order = plan::drawn(both.clone(), &experiment.name, cell, self.manifest.seed);
        let servers = Servers::make(&place, &experiment, cell, order, stop, progress)?;
        let no_work = || Error::Other(format!("there is no workload {}", cell.workload()));
        let work = experiment.workload.get(cell.workload()).ok_or_else(no_work)?;
        for server in &servers.servers {
            warm_up::run(server, work, cell, 2, stop)?;
        }
        let mut bench = match phase {
            Phase::EqualWork => {
                let lacks = || Error::Other(format!("{cell} has no equal work"));
                let plain = servers.of(PLAIN, 0)?;
                let capacity = warm_up::rate(plain, work, cell, (2, 2), stop)?.ok_or_else(lacks)?;
                let first = (self.manifest.seed, 0);
                Some(Bench::make(&servers, &experiment, cell, (capacity, None), first, stop)?)
            }
            Phase::Capacity | Phase::FixedRate => None,
        };
        let steps = plan::steps(cell, phase, 1000, &both, self.manifest.seed);
        let (start, mut trials, mut count) = (Instant::now(), Vec::new(), 0);
        for block in steps.chunk_by(|a, b| a.block == b.block) {
            if count >= LEAST_BLOCKS && start.elapsed() > PRE_FLIGHT {
                break;
            }
            let block: Vec<&plan::Step> = block.iter().collect();
            let measured = match &mut bench {
                Some(bench) => bench.block(&block, stop)?,
                None => whole_trials(&servers, work, &block, stop)?,
            };
            for (step, measured) in block.iter().zip(measured) {
                trials.extend(trial::trials(&experiment, step, 0, measured));
            }
            count += 1;
        }
        let of_each = (count * both.len()) as f64;
        let seconds = start.elapsed().as_secs_f64() / of_each;
        let (estimate, measured) = widest(&experiment, &trials)?;
        Ok(Spread { estimate, measured, seconds })
    }
}

/// The experiment with plain and control alone and the smallest data of this cell. A script of
/// somebody's own keeps its data: how long it takes may depend on them, as that of a scan does.
fn equal_and_small(experiment: &Experiment, cell: &Cell) -> Experiment {
    let mut experiment = experiment.clone();
    experiment.arms.retain(|arm| [PLAIN, CONTROL].contains(&arm.as_str()));
    match experiment.workload.get_mut(cell.workload()) {
        Some(Work::Pgbench(work)) if work.custom.is_none() && work.scale != Param::from("0") => {
            work.scale = Param::from("1");
        }
        Some(Work::Sysbench(work)) if work.script.is_oltp() => work.rows = Param::from("10000"),
        _ => {}
    }
    experiment
}

/// Seconds that the experiments take, roughly, without the pre-flight.
///
/// # Errors
/// When a parameter is no number.
pub fn seconds(experiments: &[Planned]) -> Result<f64> {
    let mut seconds = 0.0;
    for planned in experiments {
        let (experiment, servers) = (&planned.experiment, instances(planned).len());
        seconds += plan::seconds_to_fill(experiment, servers)?;
        for cell in plan::cells(experiment)? {
            seconds += plan::seconds(experiment, &cell, servers)?;
        }
    }
    Ok(seconds)
}

/// Seconds of the pre-flight of a new run, roughly: 0 where it has none. Miniatures have one only
/// where a precision was asked for.
///
/// # Errors
/// As [`seconds`].
pub fn pre_flight_seconds(experiments: &[Planned], size: Size) -> Result<f64> {
    let asked = experiments.iter().any(|p| p.experiment.stop.control_precision.is_some());
    let is_miniature = size == Size::Miniature;
    if !asked && (is_miniature || seconds(experiments)? <= LONG) {
        return Ok(0.0);
    }
    let mut all = 0.0;
    for (load, (planned, cell)) in forecast::to_try(experiments)? {
        if too_long(&planned.experiment, &cell, load.phase)?.is_some() {
            continue;
        }
        let experiment = equal_and_small(&planned.experiment, &cell);
        let Some(work) = experiment.workload.get(cell.workload()) else { continue };
        let servers = plan::instances(&experiment, &experiment.arms).len();
        let (trial, around) = plan::trial_seconds(&experiment, work, &cell)?;
        // One block of all servers, and what is done before the first.
        let (block, before) = match load.phase {
            Phase::EqualWork => {
                let block = plan::equal_work_seconds(&experiment, work);
                // Two seconds of warm-up, and slices that do not count; the capacity of one server.
                (block, 2.0 + 1.2 + 2.0 / servers as f64)
            }
            Phase::Capacity | Phase::FixedRate => (trial + around, trial + around),
        };
        let (block, before) = (block * servers as f64, before * servers as f64);
        // It ends with the first block that is over after that time.
        let measured = match block * LEAST_BLOCKS as f64 {
            least if least > PRE_FLIGHT.as_secs_f64() => least,
            _ => PRE_FLIGHT.as_secs_f64() + block / 2.0,
        };
        let ground = plan::ground(&experiment, &cell)?;
        all += plan::seconds_of_ground(&ground, servers) + before + measured;
    }
    Ok(all)
}

/// Why whole trials of a cell are not tried: the least number of them takes too long.
fn too_long(experiment: &Experiment, cell: &Cell, phase: Phase) -> Result<Option<String>> {
    let Some(work) = experiment.workload.get(cell.workload()) else { return Ok(None) };
    if phase == Phase::EqualWork {
        return Ok(None);
    }
    let (trial, around) = plan::trial_seconds(experiment, work, cell)?;
    let experiment = equal_and_small(experiment, cell);
    let servers = plan::instances(&experiment, &experiment.arms).len();
    let seconds = (trial + around) * servers as f64 * LEAST_BLOCKS as f64;
    let minutes = (seconds / 60.0).ceil();
    Ok((seconds > MOST.as_secs_f64()).then(|| format!("it takes {minutes:.0} min to try")))
}

/// A block of trials at capacity, as a run measures them.
fn whole_trials(
    servers: &Servers<'_>,
    work: &Work,
    block: &[&plan::Step],
    stop: &AtomicBool,
) -> Result<Vec<Vec<trial::Measured>>> {
    warm_up::page_cache(&servers.servers);
    let one = |step: &&plan::Step| {
        let server = servers.of(&step.arm, step.instance)?;
        trial::measure(server, work, step, None, stop)
    };
    block.iter().map(one).collect()
}

/// What plain and control differed by in these trials, and in how many blocks. Of a workload with
/// parts, the part with the widest interval.
pub(super) fn widest(experiment: &Experiment, trials: &[Trial]) -> Result<(Estimate, usize)> {
    let mut parts: BTreeMap<&Cell, Vec<&Trial>> = BTreeMap::new();
    for trial in trials {
        parts.entry(&trial.cell).or_default().push(trial);
    }
    let cpu = cpu()?;
    let known = |trials: &Vec<&Trial>| {
        let found = noise(experiment, cpu, trials);
        found.estimate().map(|estimate| (estimate, found.pairs.len()))
    };
    let of_all: Option<Vec<(Estimate, usize)>> = parts.values().map(known).collect();
    let width = |(estimate, _): &(Estimate, usize)| {
        let interval = estimate.interval(PART);
        interval.high / interval.low
    };
    let widest =
        of_all.unwrap_or_default().into_iter().max_by(|a, b| width(a).total_cmp(&width(b)));
    widest.ok_or_else(|| {
        Error::Other("the pre-flight measured no CPU time of plain and control".into())
    })
}

/// Whether the control of a cell is known to `wanted`, a part of 1.
fn is_precise(experiment: &Experiment, trials: &[&Trial], wanted: f64) -> bool {
    let Ok(metric) = cpu() else { return false };
    let found = noise(experiment, metric, trials);
    let Some(estimate) = found.estimate() else { return false };
    let interval = estimate.interval(PART);
    let reach = (interval.high / interval.low).ln() / 2.0;
    found.pairs.len() >= LEAST_FOR_PUBLICATION && reach <= (1.0 + wanted).ln()
}

fn cpu() -> Result<&'static Metric> {
    find("cpu_per_unit").ok_or_else(|| Error::Other("there is no CPU time".into()))
}

/// Blocks of equal work in a cell at most, if a precision is asked for.
pub const MOST_BLOCKS: u32 = 500;
/// What a run is told of that asked for no precision.
const USUAL: f64 = 0.02;
/// Seconds from which on a run is told so: a pre-flight takes half a minute for each kind of load.
const LONG: f64 = 180.0;
/// Blocks of a pre-flight at least: fewer do not tell what blocks differ by.
const LEAST_BLOCKS: usize = 4;
/// How long a pre-flight measures a kind of load, unless fewer blocks than that are measured.
const PRE_FLIGHT: Duration = Duration::from_secs(20);
/// What a pre-flight of whole trials may take.
const MOST: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, experiment};

    #[test]
    fn only_the_control_decides_when_to_stop() {
        let arms = ["plain", "control", "sealed"];
        let precise = |blocks: u32, noise: f64, sealed: f64, wanted: f64| {
            let mut run = Synthetic::new(blocks);
            run.noise = noise;
            run.arm("plain", "w", 1.0).arm("control", "w", 1.0);
            run.noise = 0.5;
            run.arm("sealed", "w", sealed);
            let trials: Vec<&Trial> = run.trials.iter().collect();
            is_precise(&experiment(&arms), &trials, wanted)
        };
        for sealed in [1.0, 0.5, 2.0] {
            assert!(precise(10, 0.01, sealed, 0.02), "{sealed}");
            assert!(!precise(10, 0.05, sealed, 0.02), "{sealed}");
        }
        assert!(!precise(9, 0.001, 1.0, 0.02), "fewer blocks than can be published");
    }
}
