//! The ratio of two arms in each block: only trials of one block are paired.
//!
//! Knows nothing of intervals, and leaves no block out in silence.

use std::collections::BTreeMap;

use super::{CONTROL, PLAIN};
use crate::experiment::{Experiment, OwnArm};
use crate::metric::{Better, Metric};
use crate::trial::Trial;

/// The blocks of one arm beside those of another.
#[derive(Debug, Default)]
pub(crate) struct Paired {
    /// Performance of the one as a part of the other's, for each block that has both.
    pub(crate) pairs: Vec<(u32, f64)>,
    /// Blocks that both ran, and in which one of them only has the metric, or one stood still.
    pub(crate) without_ratio: Vec<u32>,
}

/// Pairs the trials `of` one arm with those of the arm that it is compared `to`.
pub(crate) fn paired(metric: &Metric, of: (&[&Trial], &str), to: (&[&Trial], &str)) -> Paired {
    let blocks = |(trials, arm): (&[&Trial], &str)| -> BTreeMap<u32, Option<f64>> {
        let of_arm = trials.iter().filter(|trial| trial.arm == arm);
        of_arm.map(|t| (t.block, t.metrics.get(metric.name).copied())).collect()
    };
    let (of, to) = (blocks(of), blocks(to));
    let mut paired = Paired::default();
    for (block, of) in of {
        match (of, to.get(&block)) {
            (_, None) | (None, Some(None)) => {}
            (Some(of), Some(Some(to))) => {
                let ratio = if metric.better == Better::Lower { to / of } else { of / to };
                if ratio.is_finite() && ratio > 0.0 {
                    paired.pairs.push((block, ratio));
                } else {
                    paired.without_ratio.push(block);
                }
            }
            _ => paired.without_ratio.push(block),
        }
    }
    paired
}

/// What two equal arms seem to differ by in each block of one cell; nothing without a control.
pub(crate) fn noise(
    experiment: &Experiment,
    metric: &Metric,
    trials: &[&Trial],
) -> Vec<(u32, f64)> {
    let Some(equal) = equal_arm(experiment) else { return Vec::new() };
    let Paired { pairs, without_ratio } = paired(metric, (trials, CONTROL), (trials, equal));
    // A server that stood still is noise, and more of it than the other blocks show.
    if without_ratio.is_empty() { pairs } else { Vec::new() }
}

/// The arm that the control repeats: `plain`, or a base that is like it. `None` where there is
/// neither, and so nothing that two equal arms could be seen to differ by.
fn equal_arm(experiment: &Experiment) -> Option<&str> {
    let base = experiment.arms.first()?;
    let like_plain = |own: &OwnArm| own.name == *base && own.like == PLAIN;
    if experiment.arms.iter().any(|arm| arm == PLAIN) {
        Some(PLAIN)
    } else {
        experiment.own_arms.iter().any(like_plain).then_some(base)
    }
}
