//! One cell: settings, warm-up, blocks at full speed, blocks of equal work, blocks at a fixed rate.

use super::equal_work::{Bench, Rate};
use super::servers::Servers;
use super::warm_up::{self, PageCache};
use super::{Lab, Progress, trial};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Pgbench, Script, Sysbench, SysbenchScript, Work};
use crate::manifest::Planned;
use crate::plan;
use crate::results::instances;
use crate::trial::{Cell, Phase, Trial, Warning, WarningKind};

/// The part of the plain server's capacity at which latencies are measured.
const RATE: f64 = 0.7;

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
        let order = plan::drawn(instances(planned), &experiment.name, cell, self.manifest.seed);
        servers.arrange(&order);
        servers.set(&plan::ground(experiment, cell)?.settings)?;
        for server in &servers.servers {
            self.check_stop()?;
            progress.preparing(&format!("warming up {}: {cell}", server.arm.name));
            warm_up::run(server, work, cell, experiment.stop.warm_up, &self.options.stop)?;
        }
        // All planned blocks, however clear the first ones look: to end where the interval happens
        // to be narrow would find differences where there are none.
        let steps = self.steps(planned, cell);
        let (paced, others): (Vec<_>, Vec<_>) =
            steps.iter().partition(|step| step.phase == Phase::EqualWork);
        let (capacity, fixed): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|step| step.phase == Phase::Capacity);
        // Once for all blocks: what is free changes, and warm and cold blocks are not alike.
        let servers = &*servers;
        let cache = PageCache::of(&servers.servers);
        self.one_by_one(planned, cell, (servers, &cache), &capacity, progress)?;
        self.equal_work(planned, cell, (servers, &cache), &paced, progress)?;
        self.one_by_one(planned, cell, (servers, &cache), &fixed, progress)
    }

    /// Trials of one server each.
    fn one_by_one(
        &mut self,
        planned: &Planned,
        cell: &Cell,
        (servers, cache): (&Servers<'_>, &PageCache),
        steps: &[&plan::Step],
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let experiment = &planned.experiment;
        let Some(work) = experiment.workload.get(cell.workload()) else { return Ok(()) };
        let mut warm = None;
        for step in steps {
            self.check_stop()?;
            if self.is_done(planned, step) {
                continue;
            }
            if warm != Some(step.block) {
                cache.fill(&servers.servers);
                warm = Some(step.block);
            }
            progress.trial(&experiment.name, step, plan::blocks(experiment, work, step.phase));
            let rate = match step.phase {
                Phase::Capacity | Phase::EqualWork => None,
                Phase::FixedRate => Some(RATE * self.capacity(experiment, cell)?),
            };
            let server = servers.of(&step.arm, step.instance)?;
            let mut measured = trial::measure(server, work, step, rate, &self.options.stop)?;
            cache.tell(&mut measured);
            self.keep(experiment, step, measured, progress)?;
        }
        Ok(())
    }

    /// Blocks of equal work, each as a whole.
    fn equal_work(
        &mut self,
        planned: &Planned,
        cell: &Cell,
        (servers, cache): (&Servers<'_>, &PageCache),
        steps: &[&plan::Step],
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let experiment = &planned.experiment;
        let mut bench = None;
        for block in steps.chunk_by(|a, b| a.block == b.block) {
            self.check_stop()?;
            let number = block.first().map_or(0, |step| step.block);
            if self.equal_work_blocks(experiment, cell).is_some_and(|enough| number >= enough) {
                break;
            }
            let Some(first) = block.iter().find(|step| !self.is_done(planned, step)) else {
                continue;
            };
            let blocks = experiment.stop.equal_work_blocks;
            progress.trial(&experiment.name, first, blocks);
            let (stop, seed) = (&self.options.stop, self.manifest.seed);
            cache.fill(&servers.servers);
            let bench = match &mut bench {
                Some(bench) => bench,
                none => {
                    let capacity = self.capacity(experiment, cell)?;
                    none.insert(Bench::make(
                        servers,
                        experiment,
                        cell,
                        (capacity, self.rate(experiment, cell)),
                        (seed, first.block),
                        stop,
                    )?)
                }
            };
            for (step, mut measured) in block.iter().zip(bench.block(block, stop)?) {
                cache.tell(&mut measured);
                self.keep(experiment, step, measured, progress)?;
            }
        }
        Ok(())
    }

    /// Puts a trial on the disk.
    fn keep(
        &mut self,
        experiment: &Experiment,
        step: &plan::Step,
        measured: Vec<trial::Measured>,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let trials = trial::trials(experiment, step, self.sitting, measured);
        self.writer.add_all(&trials)?;
        for trial in trials {
            progress.finished(&trial);
            self.trials.push(trial);
        }
        Ok(())
    }

    /// The rate of equal work, where some blocks of it were measured.
    fn rate(&self, experiment: &Experiment, cell: &Cell) -> Option<Rate> {
        let of_cell = |t: &&Trial| {
            t.experiment == experiment.name && t.phase == Phase::EqualWork && t.cell == *cell
        };
        let trial = self.trials.iter().find(of_cell)?;
        let is_lowered = |warning: &&Warning| warning.kind == WarningKind::LoweredRate;
        let lowered = trial.warnings.iter().find(is_lowered).cloned();
        Some(Rate { per_second: *trial.metrics.get("rate")?, lowered })
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
}

/// Which workloads leave changed pages behind that a checkpoint writes at the end of a trial.
pub(crate) fn settles(work: &Work) -> bool {
    !matches!(
        work,
        Work::Pgbench(Pgbench { script: Script::SelectOnly, .. } | Pgbench { warm: 1.., .. })
            | Work::Sysbench(Sysbench { script: SysbenchScript::OltpReadOnly, .. })
            | Work::Crypto(_)
    )
}
