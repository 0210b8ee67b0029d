//! The trials of an experiment by phase, cell and arm, and what they come to.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::analysis;
use crate::experiment::Experiment;
use crate::manifest::Planned;
use crate::trial::{Cell, Phase, Trial, WORKLOAD};

/// The values of one metric over the blocks of one arm in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Every value, in order of blocks.
    pub(super) all: Vec<f64>,
    /// Smallest.
    pub(super) low: f64,
    /// Median.
    pub(super) mid: f64,
    /// Largest.
    pub(super) high: f64,
}

/// The trials of one experiment.
pub(super) struct Cells<'a> {
    groups: BTreeMap<(Phase, Cell), Vec<&'a Trial>>,
}

impl<'a> Cells<'a> {
    pub(super) fn of(experiment: &Experiment, trials: &'a [Trial]) -> Self {
        let mut groups: BTreeMap<(Phase, Cell), Vec<&Trial>> = BTreeMap::new();
        for trial in trials.iter().filter(|trial| trial.experiment == experiment.name) {
            groups.entry((trial.phase, trial.cell.clone())).or_default().push(trial);
        }
        for trials in groups.values_mut() {
            trials.sort_by_key(|trial| trial.block);
        }
        Self { groups }
    }

    /// Cells that have trials of `phase`, sizes and counts in numeric order.
    pub(super) fn cells(&self, phase: Phase) -> Vec<&Cell> {
        let of_phase = self.groups.keys().filter(|(p, _)| *p == phase);
        let mut cells: Vec<&Cell> = of_phase.map(|(_, cell)| cell).collect();
        cells.sort_by_cached_key(|cell| sort_key(cell));
        cells
    }

    /// The cells at capacity that were measured, and those that were to be.
    pub(super) fn with_planned(&self, experiment: &Experiment) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.cells(Phase::Capacity).into_iter().cloned().collect();
        cells.extend(planned(experiment));
        cells.sort_by_cached_key(sort_key);
        cells.dedup();
        cells
    }

    /// Whether every arm that can be measured here has a trial of `cell` at capacity.
    pub(super) fn is_whole(&self, planned: &Planned, cell: &Cell) -> bool {
        let trials = self.trials(Phase::Capacity, cell);
        let mut arms = planned.arms.iter().filter(|arm| arm.missing.is_none());
        !trials.is_empty() && arms.all(|arm| trials.iter().any(|trial| trial.arm == arm.name))
    }

    pub(super) fn trials(&self, phase: Phase, cell: &Cell) -> &[&'a Trial] {
        self.groups.get(&(phase, cell.clone())).map_or(&[], Vec::as_slice)
    }

    /// What `arm` measured of `metric` in `cell`; `None` if nothing.
    pub(super) fn summary(
        &self,
        phase: Phase,
        cell: &Cell,
        arm: &str,
        metric: &str,
    ) -> Option<Summary> {
        let of_arm = self.trials(phase, cell).iter().filter(|trial| trial.arm == arm);
        let all: Vec<f64> = of_arm.filter_map(|t| t.metrics.get(metric).copied()).collect();
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let mid = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Summary { all, low, mid, high })
    }

    /// The factors, the workload apart, that differ between cells of this experiment.
    pub(super) fn varying(&self) -> BTreeSet<String> {
        self.factors(|levels| levels > 1)
    }

    /// Factors with one level, and it: `connections 8`.
    pub(super) fn throughout(&self) -> String {
        let fixed = self.factors(|levels| levels == 1);
        self.groups.keys().next().map_or_else(String::new, |(_, cell)| label(cell, &fixed))
    }

    fn factors(&self, fits: impl Fn(usize) -> bool) -> BTreeSet<String> {
        let mut levels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, cell) in self.groups.keys() {
            for (factor, level) in cell.0.iter().filter(|(factor, _)| *factor != WORKLOAD) {
                levels.entry(factor).or_default().insert(level);
            }
        }
        let fitting = levels.into_iter().filter(|(_, levels)| fits(levels.len()));
        fitting.map(|(factor, _)| factor.to_owned()).collect()
    }
}

/// The cells that were to be measured at capacity, named as in trials. None if the experiment
/// contradicts itself, as one that was read from a run might.
pub(super) fn planned(experiment: &Experiment) -> Vec<Cell> {
    analysis::planned_cells(experiment, Phase::Capacity).unwrap_or_default()
}

/// The levels of `factors` in `cell`: `12 connections` reads as `connections 12`.
pub(super) fn label<'f>(cell: &Cell, factors: impl IntoIterator<Item = &'f String>) -> String {
    let level = |factor: &String| Some(format!("{} {}", spaced(factor), cell.0.get(factor)?));
    factors.into_iter().filter_map(level).collect::<Vec<_>>().join(", ")
}

/// A name of the files, as words.
pub(super) fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// A level as a number, sizes in MB: `64MB`, `1GB`, `12`, `0.5`.
pub(super) fn number(level: &str) -> Option<f64> {
    let units = [("kB", 1.0 / 1024.0), ("MB", 1.0), ("GB", 1024.0), ("TB", 1024.0 * 1024.0)];
    let unit = units.iter().find_map(|(unit, mb)| Some((level.strip_suffix(unit)?, *mb)));
    let (digits, factor) = unit.unwrap_or((level, 1.0));
    Some(digits.trim().parse::<f64>().ok().filter(|n| n.is_finite())? * factor)
}

/// Numbers in their order, before other levels in theirs.
fn sort_key(cell: &Cell) -> Vec<(String, u64, String)> {
    let mut key = vec![(String::new(), 0, cell.workload().to_owned())];
    for (factor, level) in cell.0.iter().filter(|(factor, _)| *factor != WORKLOAD) {
        // The bits of a positive float sort as the float does.
        let rank = number(level).filter(|n| *n >= 0.0).map_or(u64::MAX, f64::to_bits);
        key.push((factor.clone(), rank, level.clone()));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_sort_as_the_numbers_that_they_are() {
        assert_eq!(number("1GB"), Some(1024.0));
        assert_eq!(number("512kB"), Some(0.5));
        assert_eq!(number("0.5"), Some(0.5));
        assert_eq!(number("on"), None);
        let cell = |level: &str| Cell(BTreeMap::from([("b".to_owned(), level.to_owned())]));
        assert!(sort_key(&cell("8MB")) < sort_key(&cell("64MB")));
        assert!(sort_key(&cell("64MB")) < sort_key(&cell("1GB")));
        assert!(sort_key(&cell("1GB")) < sort_key(&cell("off")));
    }
}
