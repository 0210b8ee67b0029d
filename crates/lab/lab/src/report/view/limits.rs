//! What limits an experiment: what the plan knew of, what showed afterwards, what disturbed its
//! trials.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::{self, Comparison};
use crate::manifest::Planned;
use crate::phrase::{self, LEAST_FOR_PUBLICATION};
use crate::report::cells::{self, Cells};
use crate::trial::{Trial, WarningKind};

/// Disturbances of one kind.
#[derive(Debug, Serialize)]
pub(in crate::report) struct WarningView {
    kind: &'static str,
    trials: usize,
    of: usize,
    /// The first of them.
    example: String,
}

/// The limits of an experiment.
pub(super) struct Limits {
    /// Each in a sentence.
    pub(super) limits: Vec<String>,
    pub(super) warnings: Vec<WarningView>,
}

/// The limits that the plan knew of, and those that show only afterwards.
pub(super) fn of(
    planned: &Planned,
    cells: &Cells<'_>,
    trials: &[&Trial],
    compared: &[Comparison],
) -> Limits {
    let mut limits = planned.limits.clone();
    let all = cells::planned(&planned.experiment);
    let absent = all.iter().filter(|cell| !cells.is_whole(planned, cell));
    let absent: Vec<String> = absent.map(ToString::to_string).collect();
    if trials.is_empty() {
        limits.push("Nothing of it was measured in this run.".into());
    } else if !absent.is_empty() {
        let (few, of) = (absent.len(), all.len());
        let names = absent.join("; ");
        limits.push(format!("Not measured in all arms: {few} of {of} planned cells ({names})."));
    }
    limits.extend(few_blocks(compared));
    if !planned.experiment.arms.iter().any(|arm| arm == analysis::CONTROL) {
        limits.push("There is no control arm, so nothing tells what is noise.".into());
    }
    Limits { limits, warnings: warnings(trials) }
}

fn few_blocks(compared: &[Comparison]) -> Option<String> {
    let blocks = || compared.iter().map(|comparison| comparison.pairs.len());
    let few = blocks().filter(|blocks| *blocks < LEAST_FOR_PUBLICATION).count();
    let least = blocks().min().filter(|_| few > 0)?;
    let (all, least) = (compared.len(), phrase::blocks(least));
    Some(format!(
        "Few blocks: {few} of {all} comparisons have less than they should, down to {least}."
    ))
}

fn warnings(trials: &[&Trial]) -> Vec<WarningView> {
    let mut kinds: BTreeMap<WarningKind, (usize, &str)> = BTreeMap::new();
    for trial in trials {
        let mut seen = Vec::new();
        for warning in &trial.warnings {
            // A trial counts once for each kind.
            if !seen.contains(&warning.kind) {
                seen.push(warning.kind);
                kinds.entry(warning.kind).or_insert((0, &warning.text)).0 += 1;
            }
        }
    }
    let view = |(kind, (count, example)): (WarningKind, (usize, &str))| WarningView {
        kind: match kind {
            WarningKind::Steal => "CPU time taken by the hypervisor",
            WarningKind::Throttling => "CPU time throttled by the kernel",
            WarningKind::Checkpoint => "an unasked checkpoint within the trial",
            WarningKind::PageImages => "full-page images in a warm trial",
            WarningKind::OtherLoad => "other load on the machine",
            WarningKind::Unlimited => "limits that could not be set",
            WarningKind::CoarseClock => "CPU time in ticks of the clock",
            WarningKind::ColdCache => "files not read into the page cache before the block",
            WarningKind::Queue => "a queue where the load should be light",
            WarningKind::LoweredRate => "a rate of equal work below the one that was asked for",
            WarningKind::Contradicted => "two rows of one trial that differ",
        },
        trials: count,
        of: trials.len(),
        example: example.to_owned(),
    };
    kinds.into_iter().map(view).collect()
}
