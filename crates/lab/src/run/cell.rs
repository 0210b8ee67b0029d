//! One cell: settings, warm-up, blocks at full speed, then blocks at a fixed rate.

use super::servers::Servers;
use super::{Lab, Progress, trial, warm_up};
use crate::analysis;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Work};
use crate::manifest::Planned;
use crate::plan;
use crate::trial::{Cell, Phase, Trial};

/// The part of the plain server's capacity at which latencies are measured.
const RATE: f64 = 0.7;

/// Blocks before which no cell ends early.
const LEAST: u32 = 5;

impl Lab<'_> {
    pub(super) fn cell(
        &mut self,
        planned: &Planned,
        cell: &Cell,
        servers: &mut Servers<'_>,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let experiment = &planned.experiment;
        let Some(work) = experiment.workload.get(cell.workload()) else { return Ok(()) };
        servers.set(&plan::ground(experiment, cell)?.settings)?;
        for server in &servers.servers {
            self.check_stop()?;
            progress.preparing(&format!("warming up {}: {cell}", server.arm.name));
            warm_up::run(server, work, cell, experiment.stop.warm_up, &self.options.stop)?;
        }
        let steps = self.steps(planned, cell);
        for (number, step) in steps.iter().enumerate() {
            self.check_stop()?;
            if self.is_done(planned, step) {
                continue;
            }
            if step.order == 0 && self.is_precise(experiment, step) {
                let rest = steps[number..].iter().filter(|s| s.phase == step.phase);
                let spared = rest.filter(|s| s.block == step.block).count();
                progress.spared(spared);
                continue;
            }
            if step.order > 0 && !self.block_began(planned, step) {
                continue;
            }
            progress.trial(&experiment.name, step, plan::blocks(experiment, work, step.phase));
            let rate = match step.phase {
                Phase::Capacity => None,
                Phase::FixedRate => Some(RATE * self.capacity(experiment, cell)?),
            };
            let server = servers.of(&step.arm)?;
            let measured = trial::measure(server, work, step, rate, &self.options.stop)?;
            for trial in trial::trials(experiment, step, measured) {
                self.writer.add(&trial)?;
                progress.finished(&trial);
                self.trials.push(trial);
            }
        }
        Ok(())
    }

    /// Whether a block that is not first in its order has trials: if not, the block was spared.
    fn block_began(&self, planned: &Planned, step: &plan::Step) -> bool {
        let arms = super::measurable(planned);
        arms.iter()
            .any(|arm| self.is_done(planned, &plan::Step { arm: arm.clone(), ..step.clone() }))
    }

    /// Transactions a second of the base: the median of its trials.
    fn capacity(&self, experiment: &Experiment, cell: &Cell) -> Result<f64> {
        let base = experiment.arms.first().map(String::as_str).unwrap_or_default();
        let mut values: Vec<f64> = self
            .trials
            .iter()
            .filter(|t| t.experiment == experiment.name && t.phase == Phase::Capacity)
            .filter(|t| t.cell == *cell && t.arm == base)
            .filter_map(|t| t.metrics.get("transactions_per_second").copied())
            .collect();
        values.sort_by(f64::total_cmp);
        crate::statistics::quantile(&values, 0.5)
            .ok_or_else(|| Error::Other(format!("the capacity of {base} was not measured: {cell}")))
    }

    /// Whether the stop rule says that this cell is known well enough.
    fn is_precise(&self, experiment: &Experiment, step: &plan::Step) -> bool {
        let Some(precision) = experiment.stop.precision else { return false };
        if step.phase != Phase::Capacity || step.block < LEAST {
            return false;
        }
        let of_cell: Vec<Trial> = self
            .trials
            .iter()
            .filter(|t| t.cell == step.cell && t.phase == step.phase)
            .cloned()
            .collect();
        let known = analysis::compare(experiment, &of_cell, self.manifest.seed);
        !known.is_empty() && known.iter().all(|c| (c.ratio.high - c.ratio.low) / 2.0 <= precision)
    }
}

/// Which workloads have a state of their own that a trial leaves behind.
pub(super) fn writes(work: &Work) -> bool {
    !matches!(
        work,
        Work::Pgbench(crate::experiment::Pgbench {
            script: crate::experiment::Script::SelectOnly,
            ..
        }) | Work::Crypto(_)
    )
}
