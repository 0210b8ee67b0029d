//! What a gate was asked to judge by: metrics, and which of them a cell has.

use std::collections::BTreeSet;

use super::{Options, PRIMARY, THROUGHPUT};
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::metric::{Better, METRICS, Metric};
use crate::trial::{Cell, Trial};

/// What was asked for. A cell is judged by all of its choices.
pub(super) struct Asked {
    /// Choices for a cell in which some arm has CPU time.
    timed: Vec<Choice>,
    /// Choices for any other cell.
    untimed: Vec<Choice>,
}

/// Metrics that stand for one another: a cell is judged by those of them that it has.
pub(super) type Choice = Vec<&'static Metric>;

impl Asked {
    pub(super) fn of(options: &Options) -> Result<Self> {
        if options.metrics.is_empty() {
            return Ok(Self { timed: vec![choice(PRIMARY)?], untimed: vec![choice(THROUGHPUT)?] });
        }
        let mut named: Vec<Choice> = Vec::new();
        for name in &options.metrics {
            let choice = choice(name)?;
            // Named twice it is still one test.
            if !named.contains(&choice) {
                named.push(choice);
            }
        }
        Ok(Self { timed: named.clone(), untimed: named })
    }
}

/// The metrics that a name stands for.
fn choice(name: &str) -> Result<Choice> {
    let is_meant = |metric: &&Metric| match name {
        THROUGHPUT => metric.better == Better::Higher,
        _ => metric.name == name && metric.better != Better::Neither,
    };
    let found: Choice = METRICS.iter().filter(is_meant).collect();
    if found.is_empty() {
        return Err(Error::Asked(format!(
            "there is no metric named {name} that could be better or worse"
        )));
    }
    Ok(found)
}

/// What the cells of one experiment are judged by.
pub(super) struct Basis<'r> {
    asked: &'r Asked,
    timed: BTreeSet<&'r Cell>,
}

impl<'r> Basis<'r> {
    /// For the cells of one experiment.
    pub(super) fn new(asked: &'r Asked, experiment: &Experiment, trials: &'r [Trial]) -> Self {
        Self { asked, timed: timed(experiment, trials) }
    }

    pub(super) fn of(&self, cell: &Cell) -> &[Choice] {
        if self.timed.contains(cell) { &self.asked.timed } else { &self.asked.untimed }
    }
}

/// The cells in which some arm has CPU time.
fn timed<'r>(experiment: &Experiment, trials: &'r [Trial]) -> BTreeSet<&'r Cell> {
    let has = |t: &&Trial| t.experiment == experiment.name && t.metrics.contains_key(PRIMARY);
    trials.iter().filter(has).map(|trial| &trial.cell).collect()
}
