//! The blocks that a claim can be judged by: those that are complete in every cell that it speaks
//! of.
//!
//! A claim about two levels of one factor has two noises, one at each level. Both are in the
//! quotient of the two controls, and each is kept beside it. Judges nothing.

use std::collections::BTreeMap;

use crate::analysis::{
    LEAST_BLOCKS, PART, Paired, absolute, cells_with, noise, not_in_force, paired, void,
};
use crate::error::Result;
use crate::experiment::{Claim, Experiment};
use crate::metric::Metric;
use crate::statistics::{Estimate, Interval, geometric_mean};
use crate::trial::{Cell, Phase, Trial};

/// What was measured of that which a claim speaks of.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// The cells with a ratio; of a claim about two levels, those at its own level.
    pub(super) cells: Vec<Cell>,
    /// How many of the planned cells were measured; both levels count.
    pub(super) measured: usize,
    /// How many planned cells the claim speaks of.
    pub(super) planned: usize,
    /// The ratio of each block, over all cells.
    pub(super) pairs: Vec<(u32, f64)>,
    /// The logarithm of the ratio over all cells, with its error.
    pub(super) estimate: Option<Estimate>,
    /// Blocks without a ratio, counted in each cell.
    pub(super) without_ratio: usize,
    /// Why a limit was not in force in some of the trials.
    pub(super) unlimited: Option<String>,
    /// What equal arms seem to differ by, over all cells. The first is formed as the claim's ratio
    /// is; of a claim about two levels the noise at each follows.
    controls: Vec<Vec<(u32, f64)>>,
}

impl Measured {
    /// # Errors
    /// When the cells of the experiment are undecided.
    pub(super) fn of(
        experiment: &Experiment,
        claim: &Claim,
        metric: &Metric,
        trials: &[&Trial],
    ) -> Result<Self> {
        let in_cell = |cell: &Cell, phase: Phase| -> Vec<&Trial> {
            trials.iter().filter(|t| t.phase == phase && t.cell == *cell).copied().collect()
        };
        let mut measured = Self::default();
        let (mut ratios, mut estimates) = (Vec::new(), Vec::new());
        let mut controls: Vec<Vec<Vec<(u32, f64)>>> = Vec::new();
        for (cell, phase) in spoken_of(claim, cells_with(experiment, metric)?) {
            let here = in_cell(&cell, phase);
            let (both, noises) = match &claim.levels_against {
                None => {
                    let both = match claim.figure {
                        Some(figure) => absolute(metric, (&here, &claim.arm), figure),
                        None => paired(metric, (&here, &claim.arm), (&here, &claim.against)),
                    };
                    measured.planned += 1;
                    measured.measured += usize::from(!both.pairs.is_empty());
                    measured.look_at(&here, &[&claim.arm, &claim.against]);
                    (both, vec![noise(experiment, metric, &here).pairs])
                }
                Some(two) => {
                    let mut base = cell.clone();
                    base.0.extend(two.changes().map(|(f, _, base)| (f.clone(), base.0.clone())));
                    let there = in_cell(&base, phase);
                    for trials in [&here, &there] {
                        let has =
                            |t: &&Trial| t.arm == claim.arm && t.metrics.contains_key(metric.name);
                        measured.planned += 1;
                        measured.measured += usize::from(trials.iter().any(has));
                        measured.look_at(trials, &[&claim.arm]);
                    }
                    let both = paired(metric, (&here, &claim.arm), (&there, &claim.arm));
                    let level = noise(experiment, metric, &here).pairs;
                    let base = noise(experiment, metric, &there).pairs;
                    (both, vec![quotient(&level, &base), level, base])
                }
            };
            estimates.extend(both.estimate());
            let Paired { pairs, without_ratio, .. } = both;
            measured.without_ratio += without_ratio.len();
            if !pairs.is_empty() {
                measured.cells.push(cell);
                ratios.push(pairs);
                controls.push(noises);
            }
        }
        measured.pairs = combined(&ratios);
        // A cell of a single block has no error that could be pooled.
        let whole = estimates.len() == ratios.len();
        measured.estimate = Estimate::pooled(&estimates).filter(|_| whole);
        let kinds = controls.first().map_or(0, Vec::len);
        let of_kind = |kind: usize| -> Vec<Vec<(u32, f64)>> {
            controls.iter().map(|noises| noises[kind].clone()).collect()
        };
        measured.controls = (0..kinds).map(|kind| combined(&of_kind(kind))).collect();
        Ok(measured)
    }

    /// The control formed as the claim's ratio is, with its 95 % interval.
    pub(super) fn control(&self) -> Option<Interval> {
        Some(estimate(self.controls.first()?)?.interval(PART))
    }

    /// Whether each control has enough blocks.
    pub(super) fn has_controls(&self) -> bool {
        let enough = |control: &Vec<(u32, f64)>| control.len() >= LEAST_BLOCKS;
        !self.controls.is_empty() && self.controls.iter().all(enough)
    }

    /// The first control that is not 1.
    pub(super) fn void(&self) -> Option<Interval> {
        self.controls.iter().find_map(|control| void(estimate(control).as_ref()))
    }

    fn look_at(&mut self, trials: &[&Trial], arms: &[&String]) {
        let mut of_arms = trials.iter().filter(|trial| arms.contains(&&trial.arm));
        if self.unlimited.is_none() {
            self.unlimited = of_arms.find_map(|trial| not_in_force(trial));
        }
    }
}

/// The planned cells that a claim speaks of, at its own level where it compares two.
fn spoken_of(claim: &Claim, mut planned: Vec<(Cell, Phase)>) -> Vec<(Cell, Phase)> {
    let mut filter: BTreeMap<String, String> =
        claim.levels.iter().map(|(name, level)| (name.clone(), level.0.clone())).collect();
    if let Some(two) = &claim.levels_against {
        filter.extend(two.changes().map(|(factor, level, _)| (factor.clone(), level.0.clone())));
    }
    planned.retain(|(cell, _)| cell.matches(&filter));
    planned
}

fn estimate(pairs: &[(u32, f64)]) -> Option<Estimate> {
    let logs: Vec<f64> = pairs.iter().map(|(_, ratio)| ratio.ln()).collect();
    Estimate::of(&logs, None)
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

/// The ratio of two ratios for each block that has both.
fn quotient(of: &[(u32, f64)], to: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let to: BTreeMap<u32, f64> = to.iter().copied().collect();
    of.iter().filter_map(|(block, of)| Some((*block, of / to.get(block)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(level: &[f64], base: &[f64]) -> Measured {
        let blocks =
            |ratios: &[f64]| -> Vec<(u32, f64)> { (0..).zip(ratios.iter().copied()).collect() };
        let (level, base) = (blocks(level), blocks(base));
        Measured { controls: vec![quotient(&level, &base), level, base], ..Measured::default() }
    }

    #[test]
    fn two_noises_are_not_less_than_one() {
        // Opposite noise: the geometric mean of both would be next to nothing.
        let level = [1.04, 0.97, 1.05, 0.96, 1.03, 0.95];
        let base = level.map(|ratio| 1.0 / ratio);
        let reach = |measured: &Measured| measured.control().unwrap().reach(1.0);
        let (both, one) = (measured(&level, &base), measured(&level, &[1.0; 6]));
        assert!(reach(&one) > 0.02 && reach(&both) > 1.8 * reach(&one), "{}", reach(&both));
    }

    #[test]
    fn servers_that_differ_at_either_level_void_it() {
        let (far, near) = ([1.2, 1.21, 1.19, 1.2, 1.22, 1.18], [1.0, 1.01, 0.99, 1.0, 1.01, 0.99]);
        assert!(measured(&near, &near).void().is_none());
        // The same at both levels leaves the quotient, and voids it all the same.
        assert!(measured(&far, &far).void().is_some() && measured(&near, &far).void().is_some());
    }

    #[test]
    fn a_level_without_a_control_has_none() {
        assert!(measured(&[1.0; 6], &[1.0; 6]).has_controls());
        assert!(!measured(&[1.0; 6], &[1.0; 4]).has_controls());
        assert!(!measured(&[1.0; 6], &[]).has_controls() && !Measured::default().has_controls());
    }
}
