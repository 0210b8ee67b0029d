//! From trials to comparisons: each arm against the base, cell by cell, metric by metric.
//!
//! Only trials of one block are paired. A comparison carries the control's noise floor, below which
//! nothing is claimed.

use std::collections::BTreeMap;

use crate::experiment::{Experiment, OwnArm};
use crate::metric::{Better, Metric};
use crate::phrase;
use crate::statistics::{self, Interval, ratio};
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
    /// The control against plain in the same cell: what two equal arms seem to differ by.
    pub control: Option<Interval>,
}

impl Comparison {
    /// The smallest difference that can be told from noise here, as a part of 1: how far the control's
    /// interval reaches from 1. `None` without a control.
    #[must_use]
    pub fn floor(&self) -> Option<f64> {
        self.control.map(|control| control.reach(1.0))
    }

    /// The comparison in words: `a loss of 3.1 % [2.2, 4.0]`.
    #[must_use]
    pub fn phrase(&self) -> String {
        phrase::difference(&self.ratio, self.floor())
    }
}

/// Every comparison that the trials of `experiment` allow: each arm but the base, each cell, each metric
/// that has a better direction.
#[must_use]
pub fn compare(experiment: &Experiment, trials: &[Trial], seed: u64) -> Vec<Comparison> {
    let Some(base) = experiment.arms.first() else { return Vec::new() };
    let mut groups: BTreeMap<(Phase, &Cell), Vec<&Trial>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.experiment == experiment.name) {
        groups.entry((trial.phase, &trial.cell)).or_default().push(trial);
    }
    let mut comparisons = Vec::new();
    for ((phase, cell), trials) in groups {
        for metric in crate::metric::METRICS.iter().filter(|m| m.better != Better::Neither) {
            let of = |arm: &str| values(&trials, metric, arm);
            let control = equal_arm(experiment)
                .and_then(|equal| interval(&pairs(metric, &of(CONTROL), &of(equal)), seed));
            for arm in experiment.arms.iter().filter(|arm| *arm != base) {
                let pairs = pairs(metric, &of(arm), &of(base));
                let Some(ratio) = interval(&pairs, seed) else { continue };
                comparisons.push(Comparison {
                    cell: cell.clone(),
                    phase,
                    arm: arm.clone(),
                    base: base.clone(),
                    metric,
                    ratio,
                    outliers: outliers(&pairs),
                    pairs,
                    control,
                });
            }
        }
    }
    comparisons
}

/// The arm that the control repeats: `plain`, or a base that is like it. `None` where there is neither,
/// and so nothing that two equal arms could be seen to differ by.
pub(crate) fn equal_arm(experiment: &Experiment) -> Option<&str> {
    let base = experiment.arms.first()?;
    let like_plain = |own: &OwnArm| own.name == *base && own.like == PLAIN;
    if experiment.arms.iter().any(|arm| arm == PLAIN) {
        Some(PLAIN)
    } else {
        experiment.own_arms.iter().any(like_plain).then_some(base)
    }
}

/// Latencies are those at a fixed rate where there are any, everything else is at capacity.
pub(crate) fn phase_of(metric: &Metric, trials: &[&Trial]) -> Phase {
    let at_fixed_rate =
        |t: &&Trial| t.phase == Phase::FixedRate && t.metrics.contains_key(metric.name);
    if metric.name.starts_with("latency") && trials.iter().any(at_fixed_rate) {
        Phase::FixedRate
    } else {
        Phase::Capacity
    }
}

/// What `metric` was in each block of `arm`.
pub(crate) fn values(trials: &[&Trial], metric: &Metric, arm: &str) -> BTreeMap<u32, f64> {
    let of_arm = trials.iter().filter(|trial| trial.arm == arm);
    of_arm.filter_map(|t| Some((t.block, *t.metrics.get(metric.name)?))).collect()
}

/// Performance `of` one as a part of that of the one it is compared `to`, for each block that has both.
pub(crate) fn pairs(
    metric: &Metric,
    of: &BTreeMap<u32, f64>,
    to: &BTreeMap<u32, f64>,
) -> Vec<(u32, f64)> {
    let both = of.iter().filter_map(|(block, of)| Some((*block, *of, *to.get(block)?)));
    both.map(|(block, of, to)| {
        (block, if metric.better == Better::Lower { to / of } else { of / to })
    })
    .filter(|(_, ratio)| ratio.is_finite() && *ratio > 0.0)
    .collect()
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

/// Name of the arm that is plain once more.
pub const CONTROL: &str = "control";
/// Name of the unmodified server.
pub const PLAIN: &str = "plain";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, experiment};

    #[test]
    fn a_slower_arm_loses_whether_more_or_less_is_better() {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 0.9);
        let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials, 1);
        let sealed: Vec<_> = comparisons.iter().filter(|c| c.arm == "sealed").collect();
        assert_eq!(sealed.len(), 2, "throughput and CPU");
        for comparison in sealed {
            assert!((comparison.ratio.mid - 0.9).abs() < 0.01, "{}", comparison.ratio);
            assert!(comparison.floor().unwrap() < 0.02);
            assert_eq!(comparison.pairs.len(), 10);
        }
    }

    #[test]
    fn a_far_block_is_flagged_and_stays() {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
        let of_sealed = run.trials.iter_mut().filter(|t| t.arm == "sealed" && t.block == 4);
        for trial in of_sealed {
            trial.metrics.values_mut().for_each(|value| *value *= 1.5);
        }
        for comparison in compare(&experiment(&["plain", "sealed"]), &run.trials, 1) {
            assert!(comparison.outliers.contains(&4) && comparison.outliers.len() <= 2);
            assert_eq!(comparison.pairs.len(), 10);
            assert_eq!(comparison.floor(), None, "no control was measured");
        }
    }

    #[test]
    fn a_block_without_its_base_is_not_paired() {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
        run.trials.retain(|trial| trial.arm != "plain" || trial.block < 7);
        let comparisons = compare(&experiment(&["plain", "sealed"]), &run.trials, 1);
        assert!(comparisons.iter().all(|c| c.pairs.len() == 7));
    }

    #[test]
    fn the_control_is_compared_with_plain_though_the_base_is_another() {
        let mut run = Synthetic::new(10);
        run.arm("own", "select", 0.5).arm("plain", "select", 1.0).arm("control", "select", 1.0);
        for comparison in compare(&experiment(&["own", "plain", "control"]), &run.trials, 1) {
            assert!(comparison.floor().unwrap() < 0.02, "{:?}", comparison.control);
        }
    }
}
