//! From trials to comparisons: each arm against the base, cell by cell, metric by metric.
//!
//! Only trials of one block are paired. A comparison carries the control's noise floor, below which
//! nothing is claimed.

use std::collections::BTreeMap;

use crate::experiment::Experiment;
use crate::metric::{Better, Metric};
use crate::statistics::{Interval, ratio};
use crate::trial::{Cell, Phase, Trial};

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
    /// Performance as a part of the base's: 1 is the same, below 1 a loss (for times: base over arm).
    pub ratio: Interval,
    /// The ratio of each block, by block number.
    pub pairs: Vec<(u32, f64)>,
    /// Blocks whose pair lies far from the others; shown, never dropped.
    pub outliers: Vec<u32>,
    /// The control against the base in the same cell: what two equal arms seem to differ by.
    pub control: Option<Interval>,
}

impl Comparison {
    /// The smallest difference that can be told from noise here, as a part of 1: how far the control's
    /// interval reaches from 1. `None` without a control.
    #[must_use]
    pub fn floor(&self) -> Option<f64> {
        self.control.map(|control| (1.0 - control.low).max(control.high - 1.0))
    }
}

/// Every comparison that the trials of `experiment` allow: each arm but the base, each cell, each metric
/// that has a better direction.
#[must_use]
pub fn compare(experiment: &Experiment, trials: &[Trial], seed: u64) -> Vec<Comparison> {
    let Some(base) = experiment.arms.first() else { return Vec::new() };
    let mut groups: BTreeMap<(Phase, Cell), Vec<&Trial>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.experiment == experiment.name) {
        groups.entry((trial.phase, trial.cell.clone())).or_default().push(trial);
    }
    let mut comparisons = Vec::new();
    for ((phase, cell), trials) in groups {
        for metric in crate::metric::METRICS.iter().filter(|m| m.better != Better::Neither) {
            let against_base = |arm: &str| pairs(&trials, metric, arm, base);
            let control = interval(&against_base(CONTROL), seed);
            for arm in experiment.arms.iter().filter(|arm| *arm != base) {
                let pairs = against_base(arm);
                let Some(ratio) = interval(&pairs, seed) else { continue };
                comparisons.push(Comparison {
                    cell: cell.clone(),
                    phase,
                    arm: arm.clone(),
                    base: base.clone(),
                    metric,
                    ratio,
                    pairs,
                    outliers: Vec::new(),
                    control,
                });
            }
        }
    }
    comparisons
}

/// Performance of `arm` as a part of the base's, for each block that has both.
fn pairs(trials: &[&Trial], metric: &Metric, arm: &str, base: &str) -> Vec<(u32, f64)> {
    let values = |arm: &str| -> BTreeMap<u32, f64> {
        let of_arm = trials.iter().filter(|trial| trial.arm == arm);
        of_arm.filter_map(|t| Some((t.block, *t.metrics.get(metric.name)?))).collect()
    };
    let base = values(base);
    values(arm)
        .into_iter()
        .filter_map(|(block, value)| {
            let base = *base.get(&block)?;
            let ratio = if metric.better == Better::Lower { base / value } else { value / base };
            (ratio.is_finite() && ratio > 0.0).then_some((block, ratio))
        })
        .collect()
}

fn interval(pairs: &[(u32, f64)], seed: u64) -> Option<Interval> {
    let ratios: Vec<f64> = pairs.iter().map(|(_, ratio)| *ratio).collect();
    ratio(&ratios, &vec![1.0; ratios.len()], seed)
}

/// Name of the arm that is plain once more.
pub const CONTROL: &str = "control";
