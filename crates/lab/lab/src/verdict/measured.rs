//! The blocks that a claim can be judged by: those that are complete in every cell that it speaks
//! of.
//!
//! A claim about two levels of one factor has two noises, one at each level. Both are in the
//! quotient of the two controls, and each is kept beside it. Each cell keeps its own: servers that
//! differ in one cell are not made equal by those of others. Judges nothing.

use std::collections::BTreeMap;

use crate::analysis::{
    LEAST_BLOCKS, PART, Paired, absolute, because_void, cells_with, is_contradicted, noise,
    not_in_force, of_trials, paired, void,
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
    /// Whether two rows of one trial of its cells say different things.
    pub(super) contradicted: bool,
    /// What equal arms seem to differ by, in each cell. The first is formed as the claim's ratio
    /// is; of a claim about two levels the noise at each follows.
    controls: Vec<Vec<Control>>,
}

/// What equal servers seem to differ by in one cell.
#[derive(Debug)]
struct Control {
    cell: Cell,
    /// The ratio of each block.
    pairs: Vec<(u32, f64)>,
    /// Its logarithm, with its error.
    estimate: Option<Estimate>,
}

impl Control {
    fn of(cell: &Cell, noise: Paired) -> Self {
        let estimate = noise.estimate();
        Self { cell: cell.clone(), pairs: noise.pairs, estimate }
    }

    /// The noise of a quotient of two levels, block by block.
    fn quotient(level: &Self, base: &Self) -> Self {
        let pairs = quotient(&level.pairs, &base.pairs);
        Self { cell: level.cell.clone(), estimate: estimate(&pairs), pairs }
    }
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
        let mut ratios: Vec<Vec<(u32, f64)>> = Vec::new();
        // By the cell of their trials: what was measured in the same ones is not independent.
        let mut estimates: BTreeMap<Cell, Vec<Estimate>> = BTreeMap::new();
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
                    (both, vec![Control::of(&cell, noise(experiment, metric, &here))])
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
                    let level = Control::of(&cell, noise(experiment, metric, &here));
                    let base = Control::of(&base, noise(experiment, metric, &there));
                    (both, vec![Control::quotient(&level, &base), level, base])
                }
            };
            let found = both.estimate();
            measured.without_ratio += both.without_ratio.len();
            if !both.pairs.is_empty() {
                estimates.entry(of_trials(&cell)).or_default().extend(found);
                measured.cells.push(cell);
                ratios.push(both.pairs);
                measured.controls.resize_with(noises.len(), Vec::new);
                for (of_kind, noise) in measured.controls.iter_mut().zip(noises) {
                    of_kind.push(noise);
                }
            }
        }
        measured.pairs = combined(measured.cells.iter().zip(&ratios));
        // A cell of a single block has no error that could be pooled.
        let whole = estimates.values().map(Vec::len).sum::<usize>() == ratios.len();
        let trials: Vec<Estimate> =
            estimates.values().filter_map(|parts| Estimate::together(parts)).collect();
        measured.estimate = Estimate::pooled(&trials).filter(|_| whole);
        Ok(measured)
    }

    /// The control formed as the claim's ratio is, with its 95 % interval.
    pub(super) fn control(&self) -> Option<Interval> {
        Some(over_all(self.controls.first()?)?.interval(PART))
    }

    /// Whether each control has enough blocks.
    pub(super) fn has_controls(&self) -> bool {
        let enough = |cells: &Vec<Control>| blocks(cells).len() >= LEAST_BLOCKS;
        !self.controls.is_empty() && self.controls.iter().all(enough)
    }

    /// Why the first control that is not 1 voids the claim: that of a cell, with all of them in
    /// mind, or that over all cells.
    pub(super) fn void(&self) -> Option<String> {
        let of_kind = |cells: &Vec<Control>| {
            let of_cell = |control: &Control| {
                let why = because_void(&void(control.estimate.as_ref(), cells.len())?);
                let several = cells.len() > 1;
                Some(if several { format!("{why} in {}", control.cell) } else { why })
            };
            let of_all = || Some(because_void(&void(over_all(cells).as_ref(), 1)?));
            cells.iter().find_map(of_cell).or_else(of_all)
        };
        self.controls.iter().find_map(of_kind)
    }

    fn look_at(&mut self, trials: &[&Trial], arms: &[&String]) {
        self.contradicted |= trials.iter().any(|trial| is_contradicted(trial));
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

/// What equal servers seem to differ by over all cells.
fn over_all(cells: &[Control]) -> Option<Estimate> {
    match cells {
        [one] => one.estimate,
        several => estimate(&blocks(several)),
    }
}

fn blocks(cells: &[Control]) -> Vec<(u32, f64)> {
    combined(cells.iter().map(|control| (&control.cell, &control.pairs)))
}

/// One ratio for each block that all cells have: their geometric mean. Phases of the batch load,
/// which one trial measures, have the weight of one cell together.
fn combined<'a>(cells: impl Iterator<Item = (&'a Cell, &'a Vec<(u32, f64)>)>) -> Vec<(u32, f64)> {
    let mut trials: BTreeMap<Cell, Vec<&Vec<(u32, f64)>>> = BTreeMap::new();
    for (cell, pairs) in cells {
        trials.entry(of_trials(cell)).or_default().push(pairs);
    }
    let trials: Vec<Vec<(u32, f64)>> = trials.values().map(|parts| mean(parts)).collect();
    mean(&trials.iter().collect::<Vec<_>>())
}

/// The geometric mean of each block that all have.
fn mean(cells: &[&Vec<(u32, f64)>]) -> Vec<(u32, f64)> {
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (block, ratio) in cells.iter().copied().flatten() {
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
    use crate::trial::WORKLOAD;

    fn control(workload: &str, ratios: &[f64]) -> Control {
        let cell = Cell(BTreeMap::from([(WORKLOAD.into(), workload.into())]));
        let pairs: Vec<(u32, f64)> = (0..).zip(ratios.iter().copied()).collect();
        Control { cell, estimate: estimate(&pairs), pairs }
    }

    fn measured(level: &[f64], base: &[f64]) -> Measured {
        let (level, base) = (control("select", level), control("select", base));
        let all = [Control::quotient(&level, &base), level, base];
        Measured { controls: all.into_iter().map(|one| vec![one]).collect(), ..Measured::default() }
    }

    fn of_cells(cells: &[&[f64]]) -> Measured {
        let name = |at: usize| format!("load{at}");
        let all = cells.iter().enumerate().map(|(at, ratios)| control(&name(at), ratios)).collect();
        Measured { controls: vec![all], ..Measured::default() }
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
    fn a_cell_whose_servers_differ_is_not_lost_in_the_mean_of_many() {
        let near = [1.01, 0.99, 1.0, 1.01, 0.99, 1.0];
        let (more, less) = (near.map(|ratio| 1.3 * ratio), near.map(|ratio| ratio / 1.3));
        assert!(of_cells(&[&near, &near, &near]).void().is_none());
        let measured = of_cells(&[&near, &more, &less]);
        assert!(measured.control().unwrap().holds(1.0), "the mean of all is equal");
        let why = measured.void().unwrap();
        assert!(why.starts_with("void, because") && why.ends_with(" in load1"), "{why}");
    }

    #[test]
    fn one_of_a_hundred_claims_is_void_by_one_of_its_cells() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut noise = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let void = (0..2000).filter(|_| {
            let cells: Vec<Vec<f64>> =
                (0..20).map(|_| (0..10).map(|_| (0.02 * noise()).exp()).collect()).collect();
            let cells: Vec<&[f64]> = cells.iter().map(Vec::as_slice).collect();
            of_cells(&cells).void().is_some()
        });
        let part = void.count() as f64 / 2000.0;
        // One in a hundred by a cell, and one by the mean; three standard errors more.
        assert!(part < 0.03, "{part}");
    }

    #[test]
    fn phases_of_the_same_trials_have_the_weight_of_one_cell() {
        let (batch, other) = ([1.2; 6], [1.0; 6]);
        let names = ["batch/phase1", "batch/phase2", "batch/phase3"];
        let mut cells: Vec<Control> = names.iter().map(|name| control(name, &batch)).collect();
        cells.push(control("select", &other));
        for (_, ratio) in blocks(&cells) {
            assert!((ratio - 1.2_f64.sqrt()).abs() < 1e-9, "{ratio}");
        }
    }

    #[test]
    fn a_level_without_a_control_has_none() {
        assert!(measured(&[1.0; 6], &[1.0; 6]).has_controls());
        assert!(!measured(&[1.0; 6], &[1.0; 4]).has_controls());
        assert!(!measured(&[1.0; 6], &[]).has_controls() && !Measured::default().has_controls());
    }
}
