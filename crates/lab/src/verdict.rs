//! Judges published claims by what was measured: reproduced, not reproduced, cannot be told, not comparable.
//!
//! A claim speaks of one or more cells. Each block gives one ratio, the geometric mean over these cells,
//! and the interval is over blocks. How the ratio is judged stands in `rule`; nothing is claimed below
//! the noise floor, without a control, or from fewer than five blocks.

mod rule;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::{CONTROL, equal_arm, interval, pairs, phase_of, values};
use crate::experiment::{Claim, Experiment};
use crate::manifest::PlannedArm;
use crate::metric::Metric;
use crate::phrase;
use crate::statistics::{Interval, geometric_mean};
use crate::trial::{Cell, Trial, WORKLOAD};

/// A claim and what we say of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was published.
    pub claim: Claim,
    /// Our ratio; `None` where nothing was measured.
    pub ours: Option<Interval>,
    /// The control's ratio in the same cells and blocks.
    pub control: Option<Interval>,
    /// Our ratio of each block, over all cells.
    pub pairs: Vec<(u32, f64)>,
    /// The cells that it was measured in.
    pub cells: Vec<Cell>,
    /// The verdict.
    pub conclusion: Conclusion,
    /// Why, in one sentence without a full stop.
    pub why: String,
}

/// What a reader may conclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Ours agrees with what was published, and could have disagreed.
    Reproduced,
    /// Ours excludes what was published.
    NotReproduced,
    /// Ours is not precise enough.
    CannotBeTold,
    /// Nothing was measured that the claim could be compared with.
    NotComparable,
}

impl std::fmt::Display for Conclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::CannotBeTold => "cannot be told",
            Self::NotComparable => "not comparable",
        })
    }
}

/// Judges every claim of `experiment`. `arms` are those of the manifest: one that is missing says why.
#[must_use]
pub fn judge(
    experiment: &Experiment,
    arms: &[PlannedArm],
    trials: &[Trial],
    seed: u64,
) -> Vec<Verdict> {
    let of_experiment: Vec<&Trial> =
        trials.iter().filter(|trial| trial.experiment == experiment.name).collect();
    let one = |claim: &Claim| judge_one(experiment, claim, arms, &of_experiment, seed);
    experiment.claims.iter().map(one).collect()
}

fn judge_one(
    experiment: &Experiment,
    claim: &Claim,
    arms: &[PlannedArm],
    trials: &[&Trial],
    seed: u64,
) -> Verdict {
    let mut verdict = Verdict {
        claim: claim.clone(),
        ours: None,
        control: None,
        pairs: Vec::new(),
        cells: Vec::new(),
        conclusion: Conclusion::NotComparable,
        why: String::new(),
    };
    let Some(metric) = crate::metric::find(&claim.metric) else {
        verdict.why = format!("there is no metric {}", claim.metric);
        return verdict;
    };
    let measured = Measured::of(experiment, claim, metric, trials);
    verdict.pairs = measured.pairs;
    verdict.cells = measured.cells;
    verdict.ours = interval(&verdict.pairs, seed);
    verdict.control = interval(&measured.control, seed);
    if let Some(why) = not_comparable(experiment, claim, arms) {
        verdict.why = why;
        return verdict;
    }
    let Some(ours) = verdict.ours else {
        verdict.why = "it was not measured".into();
        return verdict;
    };
    let count = verdict.pairs.len();
    let floor = verdict.control.filter(|_| measured.control.len() >= LEAST_BLOCKS);
    (verdict.conclusion, verdict.why) = if count < LEAST_BLOCKS {
        let least = format!("at least {LEAST_BLOCKS} blocks are needed for an interval");
        (Conclusion::CannotBeTold, least)
    } else if let Some(floor) = floor {
        rule::apply(&claim.expect, &ours, floor.reach(1.0))
    } else {
        let none = format!("no control of at least {LEAST_BLOCKS} blocks tells what is noise");
        (Conclusion::CannotBeTold, none)
    };
    let cells = match verdict.cells.len() {
        1 => String::new(),
        cells => format!("{cells} cells, "),
    };
    verdict.why = format!("{} ({cells}{})", verdict.why, phrase::blocks(count));
    verdict
}

/// Why nothing that is measured here could be compared with the claim; `None` if something could.
fn not_comparable(experiment: &Experiment, claim: &Claim, arms: &[PlannedArm]) -> Option<String> {
    if let Some(why) = &claim.not_comparable {
        return Some(why.clone());
    }
    let missing = |name: &String| {
        let arm = arms.iter().find(|arm| arm.name == *name);
        match arm {
            Some(arm) => arm.missing.as_ref().map(|why| format!("arm {name} is missing: {why}")),
            None => Some(format!("arm {name} is not part of this run")),
        }
    };
    let against = claim.levels_against.is_none().then_some(&claim.against);
    if let Some(why) = [Some(&claim.arm), against].into_iter().flatten().find_map(missing) {
        return Some(why);
    }
    let levels = claim
        .levels_against
        .iter()
        .flat_map(|two| [(&two.factor, &two.level), (&two.factor, &two.base)]);
    let unknown = claim.levels.iter().chain(levels).find(|(factor, level)| {
        let known = experiment.factors.get(*factor);
        *factor != WORKLOAD && !known.is_some_and(|known| known.contains(level))
    });
    unknown.map(|(factor, level)| {
        format!("this size of the experiment has no {} {}", factor.replace('_', " "), level.0)
    })
}

/// The blocks that a claim can be judged by.
struct Measured {
    cells: Vec<Cell>,
    pairs: Vec<(u32, f64)>,
    control: Vec<(u32, f64)>,
}

impl Measured {
    fn of(experiment: &Experiment, claim: &Claim, metric: &Metric, trials: &[&Trial]) -> Self {
        let mut filter: BTreeMap<String, String> =
            claim.levels.iter().map(|(name, level)| (name.clone(), level.0.clone())).collect();
        if let Some(two) = &claim.levels_against {
            filter.remove(&two.factor);
        }
        let phase = phase_of(metric, trials);
        let mut by_cell: BTreeMap<&Cell, Vec<&Trial>> = BTreeMap::new();
        for trial in trials.iter().filter(|t| t.phase == phase && t.cell.matches(&filter)) {
            by_cell.entry(&trial.cell).or_default().push(trial);
        }
        let of = |cell: &Cell, arm: &str| {
            by_cell.get(cell).map_or_else(BTreeMap::new, |trials| values(trials, metric, arm))
        };
        let noise = |cell: &Cell| {
            let equal = equal_arm(experiment).unwrap_or_default();
            pairs(metric, &of(cell, CONTROL), &of(cell, equal))
        };
        let mut measured = Self { cells: Vec::new(), pairs: Vec::new(), control: Vec::new() };
        let (mut ratios, mut controls) = (Vec::new(), Vec::new());
        for cell in by_cell.keys().copied() {
            let (ratio, control) = match &claim.levels_against {
                None => (
                    pairs(metric, &of(cell, &claim.arm), &of(cell, &claim.against)),
                    vec![noise(cell)],
                ),
                Some(two) if cell.0.get(&two.factor) == Some(&two.level.0) => {
                    let mut base = cell.clone();
                    base.0.insert(two.factor.clone(), two.base.0.clone());
                    let (of_level, of_base) = (of(cell, &claim.arm), of(&base, &claim.arm));
                    (pairs(metric, &of_level, &of_base), vec![noise(cell), noise(&base)])
                }
                Some(_) => continue,
            };
            if !ratio.is_empty() {
                measured.cells.push(cell.clone());
                ratios.push(ratio);
                controls.extend(control);
            }
        }
        measured.pairs = combined(&ratios);
        measured.control = combined(&controls);
        measured
    }
}

/// One ratio for each block that all cells have: their geometric mean.
fn combined(cells: &[Vec<(u32, f64)>]) -> Vec<(u32, f64)> {
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (block, ratio) in cells.iter().flatten() {
        blocks.entry(*block).or_default().push(*ratio);
    }
    let whole = blocks.into_iter().filter(|(_, ratios)| ratios.len() == cells.len());
    whole.filter_map(|(block, ratios)| Some((block, geometric_mean(&ratios)?))).collect()
}

/// Blocks below which nothing is concluded: the range of four values holds the median in 87.5 % of cases
/// only, and no interval by resampling is wider than that.
pub const LEAST_BLOCKS: usize = 5;

#[cfg(test)]
mod tests;
