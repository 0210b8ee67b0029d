//! Whether an arm loses more than a limit: for a build that should stop when sealing becomes dear.
//!
//! It fails only where even the better end of an interval loses more than the limit, and more than
//! the noise floor. It passes only where the worse end loses no more. Everything else, and whatever
//! was planned and not measured, or was measured without its limits, is undecided. Where an arm
//! costs exactly the limit, an interval of ten blocks lies wholly beyond it by chance in about one
//! of twenty cases: with many cells leave a margin.

use std::fmt;

use serde::Serialize;

use crate::analysis::{Comparison, compare, phase_of, planned_cells};
use crate::error::{Error, Result};
use crate::experiment::Engine;
use crate::manifest::Planned;
use crate::metric::{Better, METRICS, Metric, find};
use crate::phrase;
use crate::results::Results;
use crate::statistics::Interval;
use crate::trial::{Cell, Phase};

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
    /// Names of metrics; throughput and CPU time per unit of work if empty.
    pub metrics: Vec<String>,
}

impl Options {
    /// The arm `sealed` in all experiments, by throughput and CPU time.
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
    /// The whole interval is inside the limit.
    Passed,
    /// The whole interval is beyond it.
    Failed,
    /// Neither, or nothing was measured.
    Undecided,
}

impl Outcome {
    /// Exit code of the command: 0, 5 or 7.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
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
    /// Failed if a line failed; else not to be told if one is, or if there is none; else passed.
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
    /// Cell; `None` where it is the whole experiment.
    pub cell: Option<Cell>,
    /// Name of the metric; `None` where nothing of the cell was measured.
    pub metric: Option<&'static str>,
    /// Performance as a part of the base's.
    pub ratio: Option<Interval>,
    /// Noise floor, as a part of 1.
    pub floor: Option<f64>,
    /// Result.
    pub outcome: Outcome,
    /// What was measured, and why it is undecided.
    pub why: String,
}

/// Judges a run.
///
/// # Errors
/// When the options name an experiment that is not in the run, or a metric that does not exist or
/// has no better direction, or a limit that is not from 0 to 1; when nothing of an
/// experiment can be judged.
pub fn gate(results: &Results, options: &Options) -> Result<Gate> {
    let metrics = metrics(options)?;
    if !(0.0..1.0).contains(&options.max_loss) {
        return Err(Error::Other(format!(
            "a loss of {} % is no limit: it must be from 0 to less than 100 %",
            options.max_loss * 100.0
        )));
    }
    let planned = &results.manifest.experiments;
    let in_run = |name: &String| planned.iter().any(|p| p.experiment.name == *name);
    if let Some(name) = options.experiments.iter().find(|name| !in_run(name)) {
        return Err(Error::Other(format!("the run has no experiment named {name}")));
    }
    let by_default = options.experiments.is_empty();
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    for planned in planned {
        let experiment = &planned.experiment;
        if by_default && experiment.engine == Engine::None {
            skipped.push(experiment.name.clone());
        } else if by_default || options.experiments.contains(&experiment.name) {
            lines.extend(lines_of(planned, results, options, &metrics)?);
        }
    }
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

fn metrics(options: &Options) -> Result<Vec<&'static Metric>> {
    if options.metrics.is_empty() {
        return Ok(METRICS.iter().filter(|metric| BY_DEFAULT.contains(&metric.name)).collect());
    }
    let known = |name: &String| {
        find(name).filter(|metric| metric.better != Better::Neither).ok_or_else(|| {
            Error::Other(format!("there is no metric named {name} that could be better or worse"))
        })
    };
    options.metrics.iter().map(known).collect()
}

/// The lines of one experiment.
fn lines_of(
    planned: &Planned,
    results: &Results,
    options: &Options,
    metrics: &[&'static Metric],
) -> Result<Vec<Line>> {
    let experiment = &planned.experiment;
    let not_told = |cell, metric, why: &str| Line {
        experiment: experiment.name.clone(),
        cell,
        metric,
        ratio: None,
        floor: None,
        outcome: Outcome::Undecided,
        why: why.into(),
    };
    let arm = planned.arms.iter().find(|arm| arm.name == options.arm);
    let missing = match arm {
        None => Some(format!("arm {} is not part of it", options.arm)),
        Some(arm) => arm.missing.as_ref().map(|why| format!("arm {} is missing: {why}", arm.name)),
    };
    if let Some(why) = missing {
        return Ok(vec![not_told(None, None, &why)]);
    }
    let mut comparisons = compare(experiment, &results.trials, results.manifest.seed);
    comparisons.retain(|c| c.arm == options.arm && c.phase == phase_of(c.metric));
    let some_arm_has = |cell: &Cell, metric: &Metric| {
        results.trials.iter().any(|t| {
            t.experiment == experiment.name
                && t.cell == *cell
                && t.phase == phase_of(metric)
                && t.metrics.contains_key(metric.name)
        })
    };
    let mut lines = Vec::new();
    for cell in planned_cells(experiment, Phase::Capacity)? {
        let before = lines.len();
        for metric in metrics {
            let found = comparisons.iter().find(|c| c.cell == cell && c.metric == *metric);
            // Of the metrics that nobody named, most mean nothing in a cell.
            if let Some(comparison) = found {
                lines.push(line(&experiment.name, comparison, options.max_loss));
            } else if !options.metrics.is_empty() || some_arm_has(&cell, metric) {
                lines.push(not_told(Some(cell.clone()), Some(metric.name), "not measured"));
            }
        }
        if lines.len() == before {
            lines.push(not_told(Some(cell), None, "not measured"));
        }
    }
    Ok(lines)
}

fn line(experiment: &str, comparison: &Comparison, max_loss: f64) -> Line {
    let (ratio, blocks) = (comparison.ratio, comparison.pairs.len());
    let least = 1.0 - max_loss;
    let (outcome, why_not) = match comparison.told() {
        // The phrase says why, as it does of a limit that was not in force.
        Err(_) => (Outcome::Undecided, String::new()),
        Ok(_) if comparison.unlimited.is_some() => (Outcome::Undecided, String::new()),
        Ok(floor) if ratio.high < least.min(1.0 - floor) => (Outcome::Failed, String::new()),
        Ok(floor) if floor > max_loss => {
            let why = format!("; noise of {} % is above the limit", phrase::part(floor));
            (Outcome::Undecided, why)
        }
        Ok(_) if ratio.low >= least => (Outcome::Passed, String::new()),
        Ok(_) => {
            let beyond = phrase::part(1.0 - ratio.low);
            let why = format!("; it may be a loss of {beyond} % or one within the limit");
            (Outcome::Undecided, why)
        }
    };
    Line {
        experiment: experiment.into(),
        cell: Some(comparison.cell.clone()),
        metric: Some(comparison.metric.name),
        ratio: Some(ratio),
        floor: comparison.floor(),
        outcome,
        why: format!("{}{why_not} ({})", comparison.phrase(), phrase::blocks(blocks)),
    }
}

impl fmt::Display for Line {
    /// `failed          wal-stress: commits, clients 64: cpu_per_unit: a loss of ... (10 blocks)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}: ", self.outcome, self.experiment)?;
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
            "{}: loss of {} against the base, at most {} %: {} passed, {} failed, {} cannot be \
             told",
            self.outcome,
            self.arm,
            phrase::part(self.max_loss),
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Undecided)
        )
    }
}

/// Why an experiment is skipped.
const NO_SERVER: &str = "it compares ciphers, not a server with and without encryption";
/// Metrics that are judged if none is named.
const BY_DEFAULT: [&str; 5] = [
    "transactions_per_second",
    "rows_per_second",
    "records_per_second",
    "gigabytes_per_second",
    "cpu_per_unit",
];

#[cfg(test)]
mod tests;
