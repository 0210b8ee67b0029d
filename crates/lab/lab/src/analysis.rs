//! From trials to comparisons: each arm against the base, cell by cell, metric by metric.
//!
//! Only trials of one block are paired. A comparison carries the control's noise floor, below which
//! nothing is claimed, and whatever else keeps it from saying something: `told` has the rule.

mod paired;

use std::collections::BTreeMap;

pub(crate) use paired::{Paired, noise, paired};

use crate::error::Result;
use crate::experiment::{Experiment, Work};
use crate::metric::{Better, Metric};
use crate::phrase;
use crate::plan;
use crate::statistics::{self, Interval, ratio};
use crate::trial::{Cell, Phase, Trial, WORKLOAD, WarningKind};
use crate::work::billing::PHASES;

/// One arm against the base in one cell, by one metric.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Levels of the factors.
    pub cell: Cell,
    /// What the trials were for.
    pub phase: Phase,
    /// Arm.
    pub arm: String,
    /// The arm that it is compared with.
    pub base: String,
    /// What is compared.
    pub metric: &'static Metric,
    /// Performance as a part of the base's: 1 is the same, below 1 a loss (for times: base over
    /// arm).
    pub ratio: Interval,
    /// The ratio of each block, by block number.
    pub pairs: Vec<(u32, f64)>,
    /// Blocks whose pair lies far from the others; shown, never dropped.
    pub outliers: Vec<u32>,
    /// Blocks that both arms ran and that have no ratio: nothing was done in them, or it was not
    /// counted.
    pub without_ratio: Vec<u32>,
    /// The control against plain in the same cell: what two equal arms seem to differ by. `None`
    /// without a control of at least [`LEAST_BLOCKS`] blocks.
    pub control: Option<Interval>,
    /// Why a limit of the experiment was not in force in some of the trials.
    pub unlimited: Option<String>,
}

impl Comparison {
    /// The smallest difference that can be told from noise here, as a part of 1: how far the
    /// control's interval reaches from 1. `None` without a control.
    #[must_use]
    pub fn floor(&self) -> Option<f64> {
        self.control.map(|control| control.reach(1.0))
    }

    /// The noise floor that the ratio may be held against.
    ///
    /// # Errors
    /// Why nothing can be told of it.
    pub fn told(&self) -> Result<f64, String> {
        told(self.pairs.len(), self.without_ratio.len(), self.floor())
    }

    /// The comparison in words: `a loss of 3.1 % [2.2, 4.0]`.
    #[must_use]
    pub fn phrase(&self) -> String {
        let said = match self.told() {
            Ok(floor) => phrase::difference(&self.ratio, floor),
            Err(why) => phrase::untold(&self.ratio, &why),
        };
        match &self.unlimited {
            Some(why) => format!("{said}, with a limit not in force: {why}"),
            None => said,
        }
    }
}

/// The noise floor that a ratio of so many blocks may be held against, or why nothing can be told
/// of it.
pub(crate) fn told(blocks: usize, without_ratio: usize, floor: Option<f64>) -> Result<f64, String> {
    if blocks < LEAST_BLOCKS {
        return Err(format!("at least {LEAST_BLOCKS} blocks are needed to tell a difference"));
    }
    if without_ratio > 0 {
        // To leave out the blocks in which an arm stood still would make it look better than it is.
        let blocks = if without_ratio == 1 { "block has" } else { "blocks have" };
        return Err(format!("{without_ratio} more {blocks} no ratio"));
    }
    floor.ok_or_else(|| format!("no control of at least {LEAST_BLOCKS} blocks tells what is noise"))
}

/// Every comparison that the trials of `experiment` allow: each arm but the base, each cell, each
/// metric that has a better direction. A throughput at a fixed rate is what was asked for, and is
/// none.
#[must_use]
pub fn compare(experiment: &Experiment, trials: &[Trial], seed: u64) -> Vec<Comparison> {
    let Some(base) = experiment.arms.first() else { return Vec::new() };
    let mut groups: BTreeMap<(Phase, &Cell), Vec<&Trial>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.experiment == experiment.name) {
        groups.entry((trial.phase, &trial.cell)).or_default().push(trial);
    }
    let mut comparisons = Vec::new();
    for ((phase, cell), trials) in groups {
        let is_result = |metric: &&Metric| match metric.better {
            Better::Lower => true,
            Better::Higher => phase == Phase::Capacity,
            Better::Neither => false,
        };
        for metric in crate::metric::METRICS.iter().filter(is_result) {
            let control = noise(experiment, metric, &trials);
            let control = interval(&control, seed).filter(|_| control.len() >= LEAST_BLOCKS);
            for arm in experiment.arms.iter().filter(|arm| *arm != base) {
                let Paired { pairs, without_ratio } =
                    paired(metric, (&trials, arm), (&trials, base));
                let Some(ratio) = interval(&pairs, seed) else { continue };
                let of_both = trials.iter().filter(|t| t.arm == *arm || t.arm == *base);
                comparisons.push(Comparison {
                    cell: cell.clone(),
                    phase,
                    arm: arm.clone(),
                    base: base.clone(),
                    metric,
                    ratio,
                    outliers: outliers(&pairs),
                    pairs,
                    without_ratio,
                    control,
                    unlimited: of_both.copied().find_map(not_in_force),
                });
            }
        }
    }
    comparisons
}

/// Where a claim or a limit looks for `metric`: latencies are those at a fixed rate, everything
/// else is at capacity. At capacity a latency says what the throughput says.
pub(crate) fn phase_of(metric: &Metric) -> Phase {
    if metric.name.starts_with("latency") { Phase::FixedRate } else { Phase::Capacity }
}

/// The planned cells as trials have them: each phase of the batch engine is a workload of its own
/// there, `billing/phase1`. Only those that have blocks of `phase`.
///
/// # Errors
/// As [`plan::cells`].
pub(crate) fn planned_cells(experiment: &Experiment, phase: Phase) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for cell in plan::cells(experiment)? {
        let Some(work) = experiment.workload.get(cell.workload()) else { continue };
        if plan::blocks(experiment, work, phase) == 0 {
            continue;
        }
        if !matches!(work, Work::Billing(_)) {
            cells.push(cell);
            continue;
        }
        for part in PHASES {
            let mut cell = cell.clone();
            let name = format!("{}/phase{}", cell.workload(), part.number());
            cell.0.insert(WORKLOAD.into(), name);
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Why a limit of the experiment was not in force in this trial.
pub(crate) fn not_in_force(trial: &Trial) -> Option<String> {
    let of_limits = trial.warnings.iter().find(|w| w.kind == WarningKind::Unlimited);
    of_limits.map(|warning| warning.text.clone())
}

/// The ratio of all blocks; `None` without any.
pub(crate) fn interval(pairs: &[(u32, f64)], seed: u64) -> Option<Interval> {
    let ratios: Vec<f64> = pairs.iter().map(|(_, ratio)| *ratio).collect();
    ratio(&ratios, &vec![1.0; ratios.len()], seed)
}

/// Blocks whose ratio lies far from the others', by its logarithm.
pub(crate) fn outliers(pairs: &[(u32, f64)]) -> Vec<u32> {
    let logs: Vec<f64> = pairs.iter().map(|(_, ratio)| ratio.ln()).collect();
    statistics::outliers(&logs).into_iter().map(|index| pairs[index].0).collect()
}

/// Blocks below which nothing is concluded: the range of four values holds the median in 87.5 % of
/// cases only, and no interval by resampling is wider than that.
pub const LEAST_BLOCKS: usize = 5;
/// Name of the arm that is plain once more.
pub const CONTROL: &str = "control";
/// Name of the unmodified server.
pub const PLAIN: &str = "plain";

#[cfg(test)]
mod tests;
