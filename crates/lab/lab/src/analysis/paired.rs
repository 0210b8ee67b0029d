//! The ratio of two arms in each block: only trials of one block are paired.
//!
//! An arm may have several servers; its value in a block is their geometric mean. plain and control
//! are one arm: whatever is compared with plain is compared with both.
//! Knows nothing of intervals, and leaves no block out in silence.

use std::collections::{BTreeMap, BTreeSet};

use super::{CONTROL, PLAIN};
use crate::experiment::{Experiment, OwnArm};
use crate::metric::{Better, Metric};
use crate::statistics::{Estimate, contrasts, geometric_mean};
use crate::trial::Trial;

/// The blocks of one arm beside those of another.
#[derive(Debug, Default)]
pub(crate) struct Paired {
    /// Performance of the one as a part of the other's, for each block that has both.
    pub(crate) pairs: Vec<(u32, f64)>,
    /// Blocks that both ran, and in which one of them only has the metric, or one stood still.
    pub(crate) without_ratio: Vec<u32>,
    /// Percent of CPU time that the hypervisor took in the trials of the one, less that of the
    /// other, for each of `pairs`; empty where it is not known.
    steal: Vec<f64>,
    /// For each of both arms what its servers differ by, as contrasts, block by block.
    servers: [Vec<Vec<f64>>; 2],
}

impl Paired {
    /// The mean of the blocks with its error; `None` with fewer than two.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        let logs: Vec<f64> = self.pairs.iter().map(|(_, ratio)| ratio.ln()).collect();
        let steal = (!self.steal.is_empty()).then_some(&*self.steal);
        Some(Estimate::of(&logs, steal)?.with_servers([&self.servers[0], &self.servers[1]]))
    }
}

/// Pairs the trials `of` one arm with those of the arm that it is compared `to`.
pub(crate) fn paired(metric: &Metric, of: (&[&Trial], &str), to: (&[&Trial], &str)) -> Paired {
    let second = (to.1 == PLAIN && of.1 != CONTROL && of.1 != PLAIN).then_some(CONTROL);
    let (of, to) = (Side::of(metric, of, None), Side::of(metric, to, second));
    let mut paired = Paired { servers: [&of, &to].map(Side::servers), ..Paired::default() };
    for (block, trials) in &of.blocks {
        let Some(others) = to.blocks.get(block) else { continue };
        let ratio = match (value(trials), value(others)) {
            (Some(of), Some(to)) if metric.better == Better::Lower => to / of,
            (Some(of), Some(to)) => of / to,
            // Neither was to have it.
            _ if of.lacks(*block) && to.lacks(*block) => continue,
            _ => f64::NAN,
        };
        if ratio.is_finite() && ratio > 0.0 {
            paired.pairs.push((*block, ratio));
            paired.steal.extend(steal(trials).zip(steal(others)).map(|(of, to)| of - to));
        } else {
            paired.without_ratio.push(*block);
        }
    }
    if paired.steal.len() != paired.pairs.len() {
        paired.steal.clear();
    }
    paired
}

/// The trials `of` one arm as a part of a published figure, for each block that has the metric.
pub(crate) fn absolute(metric: &Metric, of: (&[&Trial], &str), figure: f64) -> Paired {
    let of = Side::of(metric, of, None);
    let part = |(block, trials): (&u32, &Vec<Measured>)| {
        let value = value(trials)?;
        let part = if metric.better == Better::Lower { figure / value } else { value / figure };
        (part.is_finite() && part > 0.0).then_some((*block, part))
    };
    Paired { pairs: of.blocks.iter().filter_map(part).collect(), ..Paired::default() }
}

/// One side of a pair: its servers' trials, block by block.
struct Side {
    blocks: BTreeMap<u32, Vec<Measured>>,
    better: Better,
}

struct Measured {
    server: (bool, u32),
    value: Option<f64>,
    steal: Option<f64>,
}

impl Side {
    fn of(metric: &Metric, (trials, arm): (&[&Trial], &str), second: Option<&str>) -> Self {
        let mut blocks: BTreeMap<u32, Vec<Measured>> = BTreeMap::new();
        let own: BTreeSet<u32> = trials.iter().filter(|t| t.arm == arm).map(|t| t.block).collect();
        for trial in trials {
            let is_second = second == Some(trial.arm.as_str());
            if (trial.arm == arm || is_second) && own.contains(&trial.block) {
                blocks.entry(trial.block).or_default().push(Measured {
                    server: (is_second, trial.instance),
                    value: trial.metrics.get(metric.name).copied(),
                    steal: trial.metrics.get("steal_percent").copied(),
                });
            }
        }
        Self { blocks, better: metric.better }
    }

    fn lacks(&self, block: u32) -> bool {
        let mut all = self.blocks.get(&block).into_iter().flatten();
        all.all(|measured| measured.value.is_none())
    }

    /// What its servers differ by in each block in which all have a value; nothing where it has
    /// one.
    fn servers(&self) -> Vec<Vec<f64>> {
        let all: BTreeSet<(bool, u32)> =
            self.blocks.values().flatten().map(|measured| measured.server).collect();
        let mut logs: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
        for measured in self.blocks.values() {
            let log = |server| {
                let log = measured.iter().find(|m| m.server == server)?.value?.ln();
                let log = if self.better == Better::Lower { -log } else { log };
                log.is_finite().then_some(log)
            };
            let whole: Option<Vec<f64>> = all.iter().map(|server| log(*server)).collect();
            let places = logs.iter_mut().zip(whole.into_iter().flatten());
            places.for_each(|(logs, log)| logs.push(log));
        }
        contrasts(&logs)
    }
}

/// The value of all servers in a block; `None` if one of them has none.
fn value(trials: &[Measured]) -> Option<f64> {
    let values: Option<Vec<f64>> = trials.iter().map(|measured| measured.value).collect();
    geometric_mean(&values?)
}

fn steal(trials: &[Measured]) -> Option<f64> {
    let all: Option<Vec<f64>> = trials.iter().map(|measured| measured.steal).collect();
    let all = all.filter(|all| !all.is_empty())?;
    Some(all.iter().sum::<f64>() / all.len() as f64)
}

/// What two equal servers seem to differ by in each block of one cell; nothing without a control.
pub(crate) fn noise(experiment: &Experiment, metric: &Metric, trials: &[&Trial]) -> Paired {
    // It is to tell how well blocks know what they measure, and whether these servers are equal.
    Paired { servers: Default::default(), ..control(experiment, metric, trials) }
}

/// The same with what the servers of each of both arms differ by, where these are several.
pub(super) fn control(experiment: &Experiment, metric: &Metric, trials: &[&Trial]) -> Paired {
    let Some(equal) = equal_arm(experiment) else { return Paired::default() };
    let found = paired(metric, (trials, CONTROL), (trials, equal));
    // A server that stood still is noise, and more of it than the other blocks show.
    if found.without_ratio.is_empty() { found } else { Paired::default() }
}

/// The arm that the control repeats: `plain`, or a base that is like it. `None` where there is
/// neither, and so nothing that two equal arms could be seen to differ by.
pub(super) fn equal_arm(experiment: &Experiment) -> Option<&str> {
    let base = experiment.arms.first()?;
    let like_plain = |own: &OwnArm| own.name == *base && own.like == PLAIN;
    if experiment.arms.iter().any(|arm| arm == PLAIN) {
        Some(PLAIN)
    } else {
        experiment.own_arms.iter().any(like_plain).then_some(base)
    }
}
