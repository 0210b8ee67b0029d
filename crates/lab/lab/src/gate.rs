//! Whether an arm loses more than a limit: for a build that should stop when sealing becomes dear.
//!
//! A cell is judged by CPU time for a unit of work, the lab's first figure. A cell in which no arm
//! has CPU time is judged by its throughput. Other metrics are judged only if they are named.
//!
//! Families of cells decide, each from all blocks of its cells that lack none; single cells fail it
//! where they surely lose more. These are two tests, each adjusted for its own lines (Holm). Each
//! is wrong in at most one of forty cases, so a build whose arms cost exactly the limit fails in at
//! most one of twenty. What lost no more passes, if the measurement was narrow enough to see it:
//! the control, which knows nothing of the arm, and the arm's own interval, which has what its
//! servers differ by.
//!
//! What is too wide, a loss beyond the limit that could be chance, a family whose control is not 1,
//! more void cells than chance explains, and whatever was planned and not measured, was measured
//! without its limits or contradicts itself, is undecided: so is CPU time that is not counted, and
//! a miniature.
//!
//! ```text
//!   asked      metrics that were named, and which of them a cell has
//!   lines      what each family and each cell says by itself
//!   planned    what a cell lacks of its planned blocks, and what lacks none
//!   settle     all lines together: which fail, which are open
//! ```

mod asked;
mod lines;
mod planned;
mod settle;

use std::fmt;

use serde::Serialize;

use asked::{Asked, Basis};

use crate::analysis::{Comparison, Kind, compare};
use crate::error::{Error, Result};
use crate::experiment::{Engine, Experiment, Size};
use crate::manifest::Planned;
use crate::phrase::{self, MINIATURE};
use crate::results::Results;
use crate::statistics::Interval;
use crate::trial::Cell;

/// What is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The loss that is allowed, as a part of 1.
    pub max_loss: f64,
    /// The arm; it is compared with the base of its experiment.
    pub arm: String,
    /// Names of experiments; if empty all of the run that have a server, so that `sealed` is
    /// compared with the same without encryption.
    pub experiments: Vec<String>,
    /// Names of metrics, or `throughput` for that of each cell, whatever its unit. If empty, CPU
    /// time for a unit of work, and throughput where a cell has no CPU time.
    pub metrics: Vec<String>,
}

impl Options {
    /// The arm `sealed` in all experiments, by CPU time.
    #[must_use]
    pub fn new(max_loss: f64) -> Self {
        let (experiments, metrics) = (Vec::new(), Vec::new());
        Self { max_loss, arm: "sealed".into(), experiments, metrics }
    }
}

/// Result of a gate, or of one line of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Within the limit, by a measurement that would have seen more.
    Passed,
    /// Shown to lose more.
    Failed,
    /// A cell that says nothing by itself; its family was judged.
    Open,
    /// Measured too little, or not at all.
    Undecided,
}

impl Outcome {
    /// Exit code of the command: 0, 5 or 7.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Passed | Self::Open => 0,
            Self::Failed => 5,
            Self::Undecided => 7,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Open => "open",
            Self::Undecided => "undecided",
        })
    }
}

/// Everything that was judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// The arm.
    pub arm: String,
    /// The loss that is allowed, as a part of 1.
    pub max_loss: f64,
    /// Failed if a line failed; else undecided if one is, or if there is no line; else passed.
    pub outcome: Outcome,
    /// One for each cell and metric, and one for each cell that was not measured.
    pub lines: Vec<Line>,
    /// Experiments of the run that were not judged because nobody named them.
    pub skipped: Vec<String>,
}

/// One cell by one metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the experiment.
    pub experiment: String,
    /// Kind of load, where it is a family: of all experiments.
    pub family: Option<Kind>,
    /// Cell; `None` where it is a family or the whole experiment.
    pub cell: Option<Cell>,
    /// Name of the metric; `None` where nothing of the cell was measured.
    pub metric: Option<&'static str>,
    /// Performance as a part of the base's.
    pub ratio: Option<Interval>,
    /// The control's ratio, by which the measurement was found good enough or not.
    pub control: Option<Interval>,
    /// Result.
    pub outcome: Outcome,
    /// What was measured, and why it is undecided.
    pub why: String,
    /// The error of saying that it loses more, before other lines are thought of.
    #[serde(skip)]
    chance: Option<f64>,
    /// Its control differs from plain, and nothing else is wrong with it.
    #[serde(skip)]
    is_void: bool,
}

/// Judges a run.
///
/// # Errors
/// When the options name an experiment that is not in the run, or a metric that does not exist or
/// has no better direction, or a limit that is not from 0 to 1; when nothing of an
/// experiment can be judged.
pub fn gate(results: &Results, options: &Options) -> Result<Gate> {
    let asked = Asked::of(options)?;
    if !(0.0..1.0).contains(&options.max_loss) {
        return Err(Error::Asked(format!(
            "a loss of {} % is no limit: it must be from 0 to less than 100 %",
            options.max_loss * 100.0
        )));
    }
    let planned = &results.manifest.experiments;
    let in_run = |name: &String| planned.iter().any(|p| p.experiment.name == *name);
    if let Some(name) = options.experiments.iter().find(|name| !in_run(name)) {
        return Err(Error::Asked(format!("the run has no experiment named {name}")));
    }
    let has_arm = planned.iter().any(|p| p.arms.iter().any(|arm| arm.name == options.arm));
    if !has_arm && !planned.is_empty() {
        return Err(Error::Asked(format!("no experiment of the run has an arm {}", options.arm)));
    }
    let by_default = options.experiments.is_empty();
    let judged = |planned: &&Planned| match by_default {
        true => planned.experiment.engine != Engine::None,
        false => options.experiments.contains(&planned.experiment.name),
    };
    let is_base = |planned: &Planned| planned.experiment.arms.first() == Some(&options.arm);
    if planned.iter().filter(judged).count() > 0 && planned.iter().filter(judged).all(is_base) {
        return Err(Error::Asked(format!(
            "{0} is the base, with which other arms are compared: {0} cannot lose against itself",
            options.arm
        )));
    }
    if results.manifest.size == Size::Miniature {
        return Ok(Gate::of_miniature(options));
    }
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    let mut compared: Vec<(&Experiment, Vec<Comparison>, Vec<Comparison>)> = Vec::new();
    for planned in planned {
        let experiment = &planned.experiment;
        if by_default && experiment.engine == Engine::None {
            skipped.push(experiment.name.clone());
        } else if judged(&planned) {
            let basis = Basis::new(&asked, experiment, &results.trials);
            let mut all = compare(experiment, &results.trials);
            // A family then holds only what its cells are judged by.
            all.retain(|c| basis.of(&c.cell).iter().flatten().any(|metric| *metric == c.metric));
            lines.extend(lines::of_experiment(planned, results, options, &basis, &all)?);
            let whole = planned::of_whole((experiment, results), &all);
            compared.push((experiment, all, whole));
        }
    }
    let all: Vec<(&Experiment, &[Comparison])> =
        compared.iter().map(|(experiment, all, _)| (*experiment, &**all)).collect();
    let whole: Vec<(&Experiment, &[Comparison])> =
        compared.iter().map(|(experiment, _, whole)| (*experiment, &**whole)).collect();
    let families = lines::of_families(&all, &whole, options);
    let mut lines: Vec<Line> = families.into_iter().chain(lines).collect();
    settle::settle(&mut lines, &all);
    let any = |outcome| lines.iter().any(|line| line.outcome == outcome);
    let outcome = if any(Outcome::Failed) {
        Outcome::Failed
    } else if any(Outcome::Undecided) || lines.is_empty() {
        Outcome::Undecided
    } else {
        Outcome::Passed
    };
    Ok(Gate { arm: options.arm.clone(), max_loss: options.max_loss, outcome, lines, skipped })
}

impl Gate {
    /// Of a run that measures nothing long enough to judge it.
    fn of_miniature(options: &Options) -> Self {
        let line = Line {
            experiment: "all experiments".into(),
            family: None,
            cell: None,
            metric: None,
            ratio: None,
            control: None,
            outcome: Outcome::Undecided,
            why: format!("not judged: {MINIATURE}"),
            chance: None,
            is_void: false,
        };
        let (arm, max_loss) = (options.arm.clone(), options.max_loss);
        let (outcome, lines) = (Outcome::Undecided, vec![line]);
        Self { arm, max_loss, outcome, lines, skipped: Vec::new() }
    }
}

impl fmt::Display for Line {
    /// `failed          wal-stress: commits, clients 64: cpu_per_unit: a loss of ... (10 blocks)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}: ", self.outcome, self.experiment)?;
        if let Some(kind) = self.family {
            write!(f, "{}: ", kind.title())?;
        }
        if let Some(cell) = &self.cell {
            write!(f, "{cell}: ")?;
        }
        if let Some(metric) = self.metric {
            write!(f, "{metric}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl fmt::Display for Gate {
    /// The lines, what was skipped, and the outcome as the last one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        for name in &self.skipped {
            writeln!(f, "{:<10} {name}: {NO_SERVER}; --experiment {name} judges it", "skipped")?;
        }
        let count = |outcome| self.lines.iter().filter(|line| line.outcome == outcome).count();
        write!(
            f,
            "{}: loss of {} against the base, at most {} %: {} passed, {} failed, {} open, {} \
             undecided",
            self.outcome,
            self.arm,
            phrase::part(self.max_loss),
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Open),
            count(Outcome::Undecided)
        )
    }
}

/// Why an experiment is skipped.
const NO_SERVER: &str = "it compares ciphers, not a server with and without encryption";
/// The metric that is judged if none is named: it takes the least time to measure.
const PRIMARY: &str = "cpu_per_unit";
/// Name of an aspect, and of all metrics that are one.
const THROUGHPUT: &str = "throughput";

#[cfg(test)]
mod tests;
