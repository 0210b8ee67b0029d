//! Which of the trials that were read count.
//!
//! ```text
//!   a block measured again later      its latest sitting counts
//!   a block that was cut              no arm of it counts: only whole blocks can be paired
//!   a percentile of few transactions  the trial counts without it
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::Work;
use crate::manifest::{Manifest, Planned};
use crate::plan::{self, Instance};
use crate::trial::{Cell, Phase, Trial, WORKLOAD};
use crate::work::billing::PHASES;

/// A block: experiment, planned cell, phase, number.
pub(crate) type Block = (String, Cell, Phase, u32);

/// Without what a later sitting measured again.
pub(super) fn of_latest_sittings(mut trials: Vec<Trial>) -> Vec<Trial> {
    let mut latest = BTreeMap::new();
    for trial in &trials {
        let sitting = latest.entry(block_of(trial)).or_insert(trial.sitting);
        *sitting = trial.sitting.max(*sitting);
    }
    trials.retain(|trial| latest.get(&block_of(trial)) == Some(&trial.sitting));
    trials
}

/// The trials of blocks that were measured in all arms, and the blocks that were not: what one arm
/// did in those would be paired with a part of the others.
pub(super) fn of_whole_blocks(
    manifest: &Manifest,
    mut trials: Vec<Trial>,
) -> (Vec<Trial>, BTreeSet<Block>) {
    let mut measured: BTreeMap<Block, BTreeSet<(String, u32, Cell)>> = BTreeMap::new();
    for trial in &trials {
        let parts = measured.entry(block_of(trial)).or_default();
        parts.insert((trial.arm.clone(), trial.instance, trial.cell.clone()));
    }
    let is_cut = |(block, parts): &(&Block, &BTreeSet<_>)| {
        let planned = manifest.experiments.iter().find(|p| p.experiment.name == block.0);
        planned.is_some_and(|planned| parts.len() < parts_of(planned, &block.1))
    };
    let cut: BTreeSet<Block> =
        measured.iter().filter(is_cut).map(|(block, _)| block.clone()).collect();
    trials.retain(|trial| !cut.contains(&block_of(trial)));
    (trials, cut)
}

/// Arms without a single trial in an experiment that has some: then no block of it is whole, and
/// `resume` alone would not say why.
pub(super) fn absent(manifest: &Manifest, trials: &[Trial]) -> Vec<String> {
    let of_one = |planned: &Planned| -> Vec<String> {
        let name = &planned.experiment.name;
        let measured: BTreeSet<&str> =
            trials.iter().filter(|t| t.experiment == *name).map(|t| t.arm.as_str()).collect();
        let servers = instances(planned).into_iter().filter(|_| !measured.is_empty());
        let arms: BTreeSet<String> = servers.map(|server| server.arm).collect();
        let lacking = arms.into_iter().filter(|arm| !measured.contains(arm.as_str()));
        lacking.map(|arm| format!("{arm} in {name}")).collect()
    };
    manifest.experiments.iter().flat_map(of_one).collect()
}

/// Trials of a whole block: one of each server and each part of the workload.
fn parts_of(planned: &Planned, cell: &Cell) -> usize {
    let parts = match planned.experiment.workload.get(cell.workload()) {
        Some(Work::Billing(_)) => PHASES.len(),
        _ => 1,
    };
    instances(planned).len() * parts
}

/// The servers that can be measured here.
pub(crate) fn instances(planned: &Planned) -> Vec<Instance> {
    let mut seen = BTreeSet::new();
    let arms = planned.arms.iter().filter(|arm| arm.missing.is_none());
    let names: Vec<String> =
        arms.map(|arm| arm.name.clone()).filter(|name| seen.insert(name.clone())).collect();
    plan::instances(&planned.experiment, &names)
}

/// Takes percentiles away that too few transactions know: where a trial of the cell has fewer than
/// [`BEYOND`] beyond one in the mean. The 95th of sixteen is little but the largest of them.
pub(super) fn drop_sparse_percentiles(trials: &mut [Trial]) {
    let mut units: BTreeMap<(String, Phase, Cell), (f64, f64)> = BTreeMap::new();
    let cell = |trial: &Trial| (trial.experiment.clone(), trial.phase, trial.cell.clone());
    for trial in trials.iter() {
        let all = units.entry(cell(trial)).or_default();
        let done = trial.metrics.get("units").copied().unwrap_or(f64::INFINITY);
        *all = (all.0 + done, all.1 + 1.0);
    }
    for trial in trials {
        let (done, count) = units.get(&cell(trial)).copied().unwrap_or_default();
        for (name, beyond) in [("latency_p95", 0.05), ("latency_p99", 0.01)] {
            if done / count * beyond < BEYOND {
                trial.metrics.remove(name);
            }
        }
    }
}

/// What is measured as a whole: all parts of a workload (`billing/phase1`) in all arms.
pub(crate) fn block_of(trial: &Trial) -> Block {
    let mut cell = trial.cell.clone();
    if let Some((work, _)) = trial.cell.workload().split_once('/') {
        cell.0.insert(WORKLOAD.into(), work.into());
    }
    (trial.experiment.clone(), cell, trial.phase, trial.block)
}

/// Transactions beyond a percentile, in each trial, without which it is not one.
const BEYOND: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, results};

    #[test]
    fn the_parts_of_a_workload_are_of_one_block() {
        let mut run = Synthetic::new(1);
        run.arm("plain", "billing/phase1", 1.0).arm("plain", "billing/phase2", 1.0);
        run.trials[1].sitting = 1;
        let left = of_latest_sittings(run.trials);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].cell.workload(), "billing/phase2");
    }

    #[test]
    fn a_block_that_was_cut_counts_in_no_arm() {
        let mut run = Synthetic::new(3);
        run.arm("plain", "w", 1.0).arm("sealed", "w", 0.9);
        let mut results = results(run, &["plain", "sealed"]);
        results.trials.retain(|trial| trial.block < 2 || trial.arm == "sealed");
        let (left, cut) = of_whole_blocks(&results.manifest, results.trials);
        assert_eq!((left.len(), cut.len()), (4, 1));
        assert!(left.iter().all(|trial| trial.block < 2));
    }

    #[test]
    fn sixteen_transactions_have_no_percentile() {
        let known = |units: f64| {
            let mut run = Synthetic::new(2);
            run.arm("plain", "w", 1.0);
            for trial in &mut run.trials {
                for name in ["latency_p50", "latency_p95", "latency_p99"] {
                    trial.metrics.insert(name.into(), 1.0);
                }
                trial.metrics.insert("units".into(), units);
            }
            drop_sparse_percentiles(&mut run.trials);
            let of = |name: &str| run.trials.iter().all(|t| t.metrics.contains_key(name));
            [of("latency_p50"), of("latency_p95"), of("latency_p99")]
        };
        assert_eq!(known(16.0), [true, false, false]);
        assert_eq!(known(100.0), [true, true, false]);
        assert_eq!(known(500.0), [true, true, true]);
    }
}
