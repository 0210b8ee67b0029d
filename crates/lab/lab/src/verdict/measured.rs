//! The blocks that a claim can be judged by: those that are complete in every cell that it speaks
//! of.
//!
//! A claim about two levels of one factor has two noises, one at each level. Both are in the
//! quotient of the two controls, and each is kept beside it. Judges nothing.

use std::collections::BTreeMap;

use crate::analysis::{
    LEAST_BLOCKS, Paired, interval, noise, not_in_force, paired, phase_of, planned_cells,
};
use crate::error::Result;
use crate::experiment::{Claim, Experiment};
use crate::metric::Metric;
use crate::statistics::{Interval, geometric_mean};
use crate::trial::{Cell, Trial};

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
        let phase = phase_of(metric);
        let in_cell = |cell: &Cell| -> Vec<&Trial> {
            trials.iter().filter(|t| t.phase == phase && t.cell == *cell).copied().collect()
        };
        let mut measured = Self::default();
        let mut ratios = Vec::new();
        let mut controls: Vec<Vec<Vec<(u32, f64)>>> = Vec::new();
        for cell in spoken_of(claim, planned_cells(experiment, phase)?) {
            let here = in_cell(&cell);
            let (Paired { pairs, without_ratio }, noises) = match &claim.levels_against {
                None => {
                    let both = paired(metric, (&here, &claim.arm), (&here, &claim.against));
                    measured.planned += 1;
                    measured.measured += usize::from(!both.pairs.is_empty());
                    measured.look_at(&here, &[&claim.arm, &claim.against]);
                    (both, vec![noise(experiment, metric, &here)])
                }
                Some(two) => {
                    let mut base = cell.clone();
                    base.0.insert(two.factor.clone(), two.base.0.clone());
                    let there = in_cell(&base);
                    for trials in [&here, &there] {
                        let has =
                            |t: &&Trial| t.arm == claim.arm && t.metrics.contains_key(metric.name);
                        measured.planned += 1;
                        measured.measured += usize::from(trials.iter().any(has));
                        measured.look_at(trials, &[&claim.arm]);
                    }
                    let both = paired(metric, (&here, &claim.arm), (&there, &claim.arm));
                    let level = noise(experiment, metric, &here);
                    let base = noise(experiment, metric, &there);
                    (both, vec![quotient(&level, &base), level, base])
                }
            };
            measured.without_ratio += without_ratio.len();
            if !pairs.is_empty() {
                measured.cells.push(cell);
                ratios.push(pairs);
                controls.push(noises);
            }
        }
        measured.pairs = combined(&ratios);
        let kinds = controls.first().map_or(0, Vec::len);
        let of_kind = |kind: usize| -> Vec<Vec<(u32, f64)>> {
            controls.iter().map(|noises| noises[kind].clone()).collect()
        };
        measured.controls = (0..kinds).map(|kind| combined(&of_kind(kind))).collect();
        Ok(measured)
    }

    /// The control formed as the claim's ratio is.
    pub(super) fn control(&self, seed: u64) -> Option<Interval> {
        interval(self.controls.first()?, seed)
    }

    /// How far the controls reach from 1: the farthest of them. `None` where one has too few
    /// blocks.
    pub(super) fn floor(&self, seed: u64) -> Option<f64> {
        let reach = |control: &Vec<(u32, f64)>| {
            let known = interval(control, seed).filter(|_| control.len() >= LEAST_BLOCKS)?;
            Some(known.reach(1.0))
        };
        let reaches: Option<Vec<f64>> = self.controls.iter().map(reach).collect();
        reaches?.into_iter().reduce(f64::max)
    }

    fn look_at(&mut self, trials: &[&Trial], arms: &[&String]) {
        let mut of_arms = trials.iter().filter(|trial| arms.contains(&&trial.arm));
        if self.unlimited.is_none() {
            self.unlimited = of_arms.find_map(|trial| not_in_force(trial));
        }
    }
}

/// The planned cells that a claim speaks of, at its own level where it compares two.
fn spoken_of(claim: &Claim, mut planned: Vec<Cell>) -> Vec<Cell> {
    let mut filter: BTreeMap<String, String> =
        claim.levels.iter().map(|(name, level)| (name.clone(), level.0.clone())).collect();
    if let Some(two) = &claim.levels_against {
        filter.insert(two.factor.clone(), two.level.0.clone());
    }
    planned.retain(|cell| cell.matches(&filter));
    planned
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
        let both = measured(&level, &base);
        let one = measured(&level, &[1.0; 6]).floor(1).unwrap();
        assert!(one > 0.02 && both.floor(1).unwrap() > 1.8 * one, "{:?}", both.floor(1));
        // The same noise at both levels leaves the quotient, and stays all the same.
        let alike = measured(&level, &level);
        assert!((alike.control(1).unwrap().reach(1.0)) < 1e-9);
        assert!((alike.floor(1).unwrap() - one).abs() < 1e-12, "{:?}", alike.floor(1));
    }

    #[test]
    fn a_level_without_a_control_has_no_floor() {
        assert_eq!(measured(&[1.0; 6], &[1.0; 4]).floor(1), None);
        assert_eq!(measured(&[1.0; 6], &[]).floor(1), None);
        assert_eq!(Measured::default().floor(1), None);
    }
}
