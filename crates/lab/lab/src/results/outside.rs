//! Rows that are trials and do not count: those of what was not planned, and a second one of the
//! same trial.
//!
//! No lab writes them; files that were edited, or put together from two runs, have them. Each kind
//! is said with its number.

use std::collections::{BTreeMap, BTreeSet};

use super::counted::{block_of, instances};
use crate::experiment::Experiment;
use crate::manifest::{Manifest, Planned};
use crate::plan::{self, Instance};
use crate::run::MOST_BLOCKS;
use crate::trial::{Cell, Phase, Trial, WORKLOAD, Warning, WarningKind};

/// Without rows of what was not planned; and of what these are, in sentences.
pub(super) fn of_plan(manifest: &Manifest, trials: Vec<Trial>) -> (Vec<Trial>, Vec<String>) {
    let plans: Vec<Plan<'_>> = manifest.experiments.iter().map(Plan::of).collect();
    let mut found: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
    let counts = |trial: &Trial| {
        let plan = plans.iter().find(|plan| plan.experiment.name == trial.experiment);
        let Some(kind) = plan.map_or(Some("an experiment"), |plan| plan.lacks(trial)) else {
            return true;
        };
        found.entry(kind).or_insert_with(|| (0, place(trial))).0 += 1;
        false
    };
    let trials = trials.into_iter().filter(counts).collect();
    let said = found.into_iter().map(|(kind, (count, first))| {
        let rows = rows(count);
        format!(
            "{rows} of {kind} that the plan does not have, and not counted (the first: {first})"
        )
    });
    (trials, said.collect())
}

/// Each trial by its first row. Where another row of it differs, the trial is marked: nobody knows
/// which of them is true.
pub(super) fn each_once(trials: Vec<Trial>, said: &mut Vec<String>) -> Vec<Trial> {
    let mut kept: Vec<Trial> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    let (mut same, mut differ) = (0, BTreeSet::new());
    for trial in trials {
        match places.get(&key(&trial)).and_then(|at| kept.get(*at)) {
            None => {
                places.insert(key(&trial), kept.len());
                kept.push(trial);
            }
            Some(first) if *first == trial => same += 1,
            Some(_) => _ = differ.insert(key(&trial)),
        }
    }
    if same > 0 {
        let rows = if same == 1 { "1 row is" } else { &*format!("{same} rows are") };
        said.push(format!("{rows} there twice, and counted once"));
    }
    let of = differ.iter().filter_map(|key| places.get(key)).copied();
    for at in of.collect::<Vec<_>>() {
        if let Some(trial) = kept.get_mut(at) {
            let text = format!("{} has two rows that differ", place(trial));
            trial.warnings.push(Warning { kind: WarningKind::Contradicted, text });
        }
    }
    if let Some(first) = differ.iter().find_map(|key| kept.get(*places.get(key)?)) {
        let trials = if differ.len() == 1 {
            "1 trial has"
        } else {
            &*format!("{} trials have", differ.len())
        };
        let first = place(first);
        said.push(format!(
            "{trials} two rows that differ, so their cells cannot be trusted (the first: {first})"
        ));
    }
    kept
}

/// What makes two rows one trial.
type Key = (String, Cell, Phase, u32, String, u32);

fn key(trial: &Trial) -> Key {
    let Trial { experiment, cell, phase, block, arm, instance, .. } = trial;
    (experiment.clone(), cell.clone(), *phase, *block, arm.clone(), *instance)
}

/// What one experiment was to have.
struct Plan<'p> {
    experiment: &'p Experiment,
    servers: Vec<Instance>,
    /// None for an experiment that today's rules would refuse.
    cells: Option<Vec<Cell>>,
}

impl<'p> Plan<'p> {
    fn of(planned: &'p Planned) -> Self {
        let cells = plan::cells(&planned.experiment).ok();
        Self { experiment: &planned.experiment, servers: instances(planned), cells }
    }

    /// What of a trial was not planned.
    fn lacks(&self, trial: &Trial) -> Option<&'static str> {
        let (_, whole, phase, block) = block_of(trial);
        // A name may have the slash that divides a workload from its part.
        let is_whole = self.experiment.workload.contains_key(trial.cell.workload());
        let cell = if is_whole { trial.cell.clone() } else { whole };
        let work = self.experiment.workload.get(cell.workload());
        let is_level = |(factor, level): (&String, &String)| {
            let levels = self.experiment.factors.get(factor);
            factor == WORKLOAD || levels.is_some_and(|all| all.iter().any(|one| one.0 == *level))
        };
        let is_planned = || match &self.cells {
            Some(cells) => cells.contains(&cell),
            None => cell.0.iter().all(is_level),
        };
        let blocks = work.map_or(0, |work| plan::blocks(self.experiment, work, phase));
        let by_rule = phase == Phase::EqualWork && self.experiment.stop.control_precision.is_some();
        let most = if by_rule { blocks.max(MOST_BLOCKS) } else { blocks };
        let of_arm = || self.servers.iter().filter(|server| server.arm == trial.arm);
        if of_arm().next().is_none() {
            Some("an arm")
        } else if of_arm().all(|server| server.number != trial.instance) {
            Some("a server")
        } else if work.is_none() || !is_planned() {
            Some("a cell")
        } else if block >= most {
            Some("a block")
        } else {
            None
        }
    }
}

fn rows(count: usize) -> String {
    if count == 1 { "1 row is".into() } else { format!("{count} rows are") }
}

/// `quick: read, clients 4: block 3 of sealed`.
fn place(trial: &Trial) -> String {
    let Trial { experiment, cell, block, arm, instance, .. } = trial;
    let server = if *instance == 0 { String::new() } else { format!(", server {instance}") };
    format!("{experiment}: {cell}: block {block} of {arm}{server}")
}
