//! `--precision`: measure until the control is known so well, and say before how long that takes;
//! of a run without it, how long [`USUAL`] would take.
//!
//! Blind: nothing but the control decides, so to stop early finds no difference that is not there.
//! The pre-flight fills a plain server and its control with the smallest data, gives them equal
//! work for 20 seconds, and reckons from what two equal servers differ by.

use std::time::{Duration, Instant};

use tidelock_servers::Workspace;

use super::equal_work::Bench;
use super::servers::Servers;
use super::{Lab, Progress, instances, trial, warm_up};
use crate::analysis::{CONTROL, PART, PLAIN, noise};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Param, Size, Work};
use crate::manifest::Planned;
use crate::metric::{Metric, find};
use crate::phrase::{LEAST_FOR_PUBLICATION, part};
use crate::plan;
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

    /// Says how long the precision takes that was asked for. Of a new run without one: how long
    /// [`USUAL`] would take, and whether the run is shorter.
    ///
    /// # Errors
    /// When a server or its work fails, and a precision was asked for.
    pub(super) fn pre_flight(&self, progress: &mut dyn Progress) -> Result<()> {
        let told = self.manifest.size != Size::Miniature && self.sitting == 0;
        let usual = told.then_some(USUAL);
        let asked = self.manifest.experiments.iter().find_map(|planned| {
            let wanted = planned.experiment.stop.control_precision.or(usual)?;
            let cells = plan::cells(&planned.experiment).ok()?;
            let cell = cells.into_iter().find(|cell| blocks(&planned.experiment, cell) > 0)?;
            let has = |name| planned.arms.iter().any(|arm| arm.name == name);
            (has(PLAIN) && has(CONTROL)).then_some((planned, cell, wanted))
        });
        let Some((planned, cell, wanted)) = asked else { return Ok(()) };
        progress.preparing("pre-flight: what two equal servers differ by");
        let is_asked = planned.experiment.stop.control_precision.is_some();
        let (estimate, measured, seconds) = match self.equal_servers(planned, &cell, progress) {
            Err(why) if !is_asked && !matches!(why, Error::Interrupted) => {
                progress.note(&format!("what can be told here is not known: {why}"));
                return Ok(());
            }
            found => found?,
        };
        let needed = estimate.blocks_for(measured, (1.0 + wanted).ln(), LEAST_FOR_PUBLICATION);
        let (mut all, mut rest, mut this_run) = (0.0, 0.0, 0.0);
        for planned in &self.manifest.experiments {
            let experiment = &planned.experiment;
            let servers = instances(planned).len();
            for cell in plan::cells(experiment)? {
                let paced = f64::from(blocks(experiment, &cell));
                let as_planned = plan::seconds(experiment, &cell, servers)?;
                let rounds = experiment.stop.equal_work_rounds;
                let equal_work = plan::equal_work_seconds(rounds) * servers as f64;
                this_run += as_planned;
                rest += as_planned - paced * equal_work;
                if paced > 0.0 {
                    all += needed as f64 * seconds / 2.0 * servers as f64;
                }
            }
        }
        let minutes = ((all + rest) / 60.0).ceil();
        let more = match estimate.reaches((1.0 + wanted).ln(), MOST_BLOCKS as usize, measured) {
            true => String::new(),
            false => format!(", more than the {MOST_BLOCKS} that are measured at most"),
        };
        let needs = format!("{} % needs about {minutes:.0} min here", part(wanted));
        progress.note(&if is_asked {
            format!("{needs}: {needed} blocks of equal work in each cell{more}")
        } else {
            instead(&needs, minutes, (this_run / 60.0).ceil())
        });
        Ok(())
    }

    /// What plain and control differ by with the smallest data, from how many blocks, and the
    /// seconds of one of these.
    fn equal_servers(
        &self,
        planned: &Planned,
        cell: &Cell,
        progress: &mut dyn Progress,
    ) -> Result<(Estimate, usize, f64)> {
        let mut experiment = planned.experiment.clone();
        experiment.arms.retain(|arm| [PLAIN, CONTROL].contains(&arm.as_str()));
        match experiment.workload.get_mut(cell.workload()) {
            Some(Work::Pgbench(work)) if work.scale != Param::from("0") => {
                work.scale = Param::from("1");
            }
            Some(Work::Sysbench(work)) => work.rows = Param::from("10000"),
            _ => {}
        }
        let stop = &self.options.stop;
        let place = Workspace::below(&self.options.work)?;
        self.only.note(place.path())?;
        let both = plan::instances(&experiment, &experiment.arms);
        let servers = Servers::make(&place, &experiment, cell, both.clone(), stop, progress)?;
        let lacks = || Error::Other(format!("{cell} has no equal work"));
        let work = experiment.workload.get(cell.workload()).ok_or_else(lacks)?;
        for server in &servers.servers {
            warm_up::run(server, work, cell, 2, stop)?;
        }
        let plain = servers.of(PLAIN, 0)?;
        let capacity = warm_up::rate(plain, work, cell, (2, 2), stop)?.ok_or_else(lacks)?;
        let first = (self.manifest.seed, 0);
        let mut bench = Bench::make(&servers, &experiment, cell, capacity, first, stop)?;
        let steps = plan::steps(cell, Phase::EqualWork, 1000, &both, self.manifest.seed);
        let (start, mut trials, mut count) = (Instant::now(), Vec::new(), 0);
        for block in steps.chunk_by(|a, b| a.block == b.block) {
            if count >= LEAST_BLOCKS && start.elapsed() > PRE_FLIGHT {
                break;
            }
            let block: Vec<&plan::Step> = block.iter().collect();
            for (step, measured) in block.iter().zip(bench.block(&block, stop)?) {
                trials.extend(trial::trials(&experiment, step, 0, measured));
            }
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64() / count as f64;
        let all: Vec<&Trial> = trials.iter().collect();
        let found = noise(&experiment, cpu()?, &all);
        let estimate = found.estimate().ok_or_else(|| {
            Error::Other("the pre-flight measured no CPU time of plain and control".into())
        })?;
        Ok((estimate, found.pairs.len(), seconds))
    }
}

/// What a run of so many minutes says of the time that is needed.
fn instead(needs: &str, needed: f64, minutes: f64) -> String {
    let this_run = format!("{needs}; this run takes {minutes:.0} min");
    match minutes < needed {
        true => format!("{this_run}, too few to decide that: --precision measures until then"),
        false => this_run,
    }
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

fn blocks(experiment: &Experiment, cell: &Cell) -> u32 {
    let work = experiment.workload.get(cell.workload());
    work.map_or(0, |work| plan::blocks(experiment, work, Phase::EqualWork))
}

fn cpu() -> Result<&'static Metric> {
    find("cpu_per_unit").ok_or_else(|| Error::Other("there is no CPU time".into()))
}

/// Blocks of equal work in a cell at most, if a precision is asked for.
pub const MOST_BLOCKS: u32 = 500;
/// What a run is told of that asked for no precision.
const USUAL: f64 = 0.02;
/// Blocks of a pre-flight at least: fewer do not tell what blocks differ by.
const LEAST_BLOCKS: usize = 4;
/// How long a pre-flight measures.
const PRE_FLIGHT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, experiment};

    #[test]
    fn a_run_that_is_too_short_to_decide_says_so() {
        let said = instead("2.0 % needs about 50 min here", 50.0, 9.0);
        let begin = "2.0 % needs about 50 min here; this run takes 9 min, too few to decide that";
        assert!(said.starts_with(begin), "{said}");
        let said = instead("2.0 % needs about 5 min here", 5.0, 9.0);
        assert_eq!(said, "2.0 % needs about 5 min here; this run takes 9 min");
    }

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
