//! What a cell lacks of that which was planned for it.
//!
//! A precision ends blocks by a rule that knows nothing of the arm, so how many there are is no
//! lack. But whoever leaves some of them out may have looked: then there is a gap in their numbers,
//! or a line that is no trial, or too few for the rule to have ended them.

use std::collections::BTreeSet;

use crate::analysis::{Comparison, of_trials};
use crate::experiment::Experiment;
use crate::phrase::LEAST_FOR_PUBLICATION;
use crate::plan;
use crate::results::{Block, Results};
use crate::trial::Phase;

/// What a comparison lacks of its planned blocks, in words.
pub(super) fn lacks(
    (experiment, results): (&Experiment, &Results),
    comparison: &Comparison,
) -> Option<String> {
    let work = experiment.workload.get(comparison.cell.workload().split('/').next()?)?;
    if comparison.phase == Phase::EqualWork && experiment.stop.control_precision.is_some() {
        return lacks_of_precision(experiment, results, comparison);
    }
    let planned = plan::blocks(experiment, work, comparison.phase) as usize;
    let measured = measured(comparison).len();
    (measured < planned).then(|| format!("{measured} of {planned} planned blocks were measured"))
}

/// The comparisons, of which those that lack planned blocks have no estimate: no family counts
/// what has no chance as a cell.
pub(super) fn of_whole(
    of_run: (&Experiment, &Results),
    comparisons: &[Comparison],
) -> Vec<Comparison> {
    let mut whole = comparisons.to_vec();
    for comparison in &mut whole {
        if lacks(of_run, comparison).is_some() {
            comparison.estimate = None;
        }
    }
    whole
}

fn lacks_of_precision(
    experiment: &Experiment,
    results: &Results,
    comparison: &Comparison,
) -> Option<String> {
    if !results.finished {
        return Some("the run did not come to the end of its plan".into());
    }
    let here = (&*experiment.name, &comparison.cell, comparison.phase);
    let damaged = results.broken.iter().filter(|line| line.may_be_of(here)).count();
    if damaged > 0 {
        let lines = if damaged == 1 { "line of it is" } else { "lines of it are" };
        return Some(format!("{damaged} {lines} no trial, so blocks may be missing"));
    }
    // Where the last one was cut, the numbers of the others have no gap.
    let is_here = |block: &&Block| {
        let (name, cell, phase, _) = block;
        (name.as_str(), cell, *phase) == (here.0, &of_trials(here.1), here.2)
    };
    if let Some((.., number)) = results.cut_blocks.iter().find(is_here) {
        return Some(format!("block {number} is not whole"));
    }
    let measured = measured(comparison);
    let all = measured.last().map_or(0, |last| *last as usize + 1);
    if measured.len() < all {
        let lost = all - measured.len();
        let are = if lost == 1 { "is" } else { "are" };
        return Some(format!("{lost} of its {all} blocks {are} missing"));
    }
    (all < LEAST_FOR_PUBLICATION)
        .then(|| format!("a precision needs {LEAST_FOR_PUBLICATION} blocks at least"))
}

/// The numbers of the blocks that both arms ran.
fn measured(comparison: &Comparison) -> BTreeSet<u32> {
    let with_ratio = comparison.pairs.iter().map(|(block, _)| *block);
    with_ratio.chain(comparison.without_ratio.iter().copied()).collect()
}
