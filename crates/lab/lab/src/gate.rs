//! Whether an arm loses more than a limit: for a build that should stop when sealing becomes dear.
//!
//! A cell is judged by CPU time for a unit of work, the lab's first figure. A cell in which no arm
//! has CPU time is judged by its throughput. Other metrics are judged only if they are named.
//!
//! Families of cells decide, each from all of its blocks; single cells fail it where they surely
//! lose more. These are two tests, each adjusted for its own lines (Holm). Each is wrong in at most
//! one of forty cases, so a build whose arms cost exactly the limit fails in at most one of twenty.
//! What lost no more passes, if the control was narrow enough to see it: whether it was is read
//! from the control alone, before anything is known of the arm.
//!
//! A control that is too wide, a loss beyond the limit that could be chance, more void cells than
//! chance explains, and whatever was planned and not measured or was measured without its limits,
//! is undecided: the time that was given ran out. So is CPU time that is not counted.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _};

use crate::analysis::{
    Aspect, CONTROL, Comparison, Family, Kind, VOID_BY_CHANCE, compare, families, is_paced,
    phase_of, planned_cells, uncounted,
};
use crate::error::{Error, Result};
use crate::experiment::{Engine, Experiment};
use crate::manifest::Planned;
use crate::metric::{Better, METRICS, Metric, find};
use crate::phrase;
use crate::plan;
use crate::results::Results;
use crate::statistics::{Estimate, Interval, holm};
use crate::trial::{Cell, Phase, Trial};

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
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    let mut compared: Vec<(&Experiment, Vec<Comparison>)> = Vec::new();
    for planned in planned {
        let experiment = &planned.experiment;
        if by_default && experiment.engine == Engine::None {
            skipped.push(experiment.name.clone());
        } else if by_default || options.experiments.contains(&experiment.name) {
            let basis = Basis { asked: &asked, timed: timed(experiment, &results.trials) };
            let mut all = compare(experiment, &results.trials);
            // A family then holds only what its cells are judged by.
            all.retain(|c| basis.of(&c.cell).iter().flatten().any(|metric| *metric == c.metric));
            lines.extend(lines_of(planned, results, options, &basis, &all)?);
            compared.push((experiment, all));
        }
    }
    let all: Vec<(&Experiment, &[Comparison])> =
        compared.iter().map(|(experiment, all)| (*experiment, &**all)).collect();
    let mut lines: Vec<Line> = family_lines(&all, options).into_iter().chain(lines).collect();
    settle(&mut lines, &all);
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

/// What was asked for. A cell is judged by all of its choices.
struct Asked {
    /// Choices for a cell in which some arm has CPU time.
    timed: Vec<Choice>,
    /// Choices for any other cell.
    untimed: Vec<Choice>,
}

/// Metrics that stand for one another: a cell is judged by those of them that it has.
type Choice = Vec<&'static Metric>;

impl Asked {
    fn of(options: &Options) -> Result<Self> {
        if options.metrics.is_empty() {
            return Ok(Self { timed: vec![choice(PRIMARY)?], untimed: vec![choice(THROUGHPUT)?] });
        }
        let named: Vec<Choice> =
            options.metrics.iter().map(|name| choice(name)).collect::<Result<_>>()?;
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
struct Basis<'r> {
    asked: &'r Asked,
    timed: BTreeSet<&'r Cell>,
}

impl Basis<'_> {
    fn of(&self, cell: &Cell) -> &[Choice] {
        if self.timed.contains(cell) { &self.asked.timed } else { &self.asked.untimed }
    }
}

/// The cells in which some arm has CPU time.
fn timed<'r>(experiment: &Experiment, trials: &'r [Trial]) -> BTreeSet<&'r Cell> {
    let has = |t: &&Trial| t.experiment == experiment.name && t.metrics.contains_key(PRIMARY);
    trials.iter().filter(has).map(|trial| &trial.cell).collect()
}

/// A line for each family of what is judged.
fn family_lines(compared: &[(&Experiment, &[Comparison])], options: &Options) -> Vec<Line> {
    let controls = families(compared, CONTROL);
    let line = |family: Family| {
        let same = |c: &&Family| c.kind == family.kind && c.aspect == family.aspect;
        let control = controls.iter().find(same).map(|control| control.ratio);
        let (outcome, why_not) = judged(Some(family.ratio), control, options.max_loss);
        let differs = family.estimate.p_value() < 0.05;
        let said = match family.aspect {
            Aspect::P95 => phrase::latency(&family.ratio, differs),
            Aspect::Cpu | Aspect::Throughput => phrase::difference(&family.ratio, differs),
        };
        let plural = if family.cells == 1 { "" } else { "s" };
        let out = match family.left_out {
            0 => String::new(),
            out => format!(", {out} left out"),
        };
        Line {
            experiment: "all experiments".into(),
            family: Some(family.kind),
            cell: None,
            metric: Some(name(family.aspect)),
            ratio: Some(family.ratio),
            control,
            outcome,
            why: format!("{said}{why_not} ({} cell{plural}{out})", family.cells),
            chance: Some(family.estimate.p_below(1.0 - options.max_loss)),
            is_void: false,
        }
    };
    families(compared, &options.arm).into_iter().map(line).collect()
}

/// Fails the lines that lose more: families and cells are two tests, each with its own lines in
/// mind. Cells that say nothing by themselves are open where their family says something.
fn settle(lines: &mut [Line], compared: &[(&Experiment, &[Comparison])]) {
    let (families, cells): (Vec<usize>, Vec<usize>) = (0..lines.len())
        .filter(|at| lines[*at].chance.is_some())
        .partition(|at| lines[*at].family.is_some());
    let tests = [families, cells].map(|test| holm_of(lines, &test));
    let share = SIGNIFICANT / tests.iter().filter(|test| !test.is_empty()).count() as f64;
    for (at, chance) in tests.into_iter().flatten() {
        if chance < share {
            lines[at].outcome = Outcome::Failed;
            lines[at].why = lines[at].why.replacen(COULD_BE_CHANCE, "", 1);
        }
    }
    let decided: Vec<(Option<Kind>, &str)> = lines
        .iter()
        .filter(|line| line.family.is_some() && line.outcome != Outcome::Undecided)
        .filter_map(|line| Some((line.family, line.metric?)))
        .collect();
    let void = lines.iter().filter(|line| line.is_void).count();
    let sound = lines.iter().filter(|line| line.cell.is_some() && line.chance.is_some()).count();
    let stops = compared.iter().any(|(experiment, _)| experiment.stop.control_precision.is_some());
    let each = if stops { VOID_WHERE_IT_STOPS } else { VOID_BY_CHANCE };
    let void_by_chance = chance_of_void(void, void + sound, each) > SIGNIFICANT;
    let open = |line: &Line| {
        let cell = line.cell.as_ref()?;
        if line.chance.is_none() && !(line.is_void && void_by_chance) {
            return None;
        }
        let (experiment, _) = compared.iter().find(|(e, _)| e.name == line.experiment)?;
        let work = experiment.workload.get(cell.workload().split('/').next()?)?;
        let metric = find(line.metric?)?;
        let aspect = aspect(metric)?;
        // The latencies of a family are those of equal work, where it has any.
        let paced = phase_of(experiment, cell.workload(), metric) == Phase::EqualWork;
        let same = aspect != Aspect::P95 || paced == is_paced(experiment, cell.workload());
        (same && decided.contains(&(Kind::of(work), name(aspect)))).then_some(())
    };
    let opened: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].outcome == Outcome::Undecided && open(&lines[*at]).is_some())
        .collect();
    for at in opened {
        lines[at].outcome = Outcome::Open;
    }
}

/// How likely so many or more of these cells are void where all servers are equal, and `each` is so
/// with this chance.
fn chance_of_void(void: usize, cells: usize, each: f64) -> f64 {
    let all = Binomial::new(each, cells as u64).expect("a chance from 0 to 1");
    void.checked_sub(1).map_or(1.0, |less| all.sf(less as u64))
}

/// The chances of these lines, each adjusted for all of them.
fn holm_of(lines: &[Line], test: &[usize]) -> Vec<(usize, f64)> {
    let alone: Vec<f64> = test.iter().filter_map(|at| lines[*at].chance).collect();
    test.iter().copied().zip(holm(&alone)).collect()
}

/// Which aspect of a family a metric is.
fn aspect(metric: &Metric) -> Option<Aspect> {
    match (metric.name, metric.better) {
        (PRIMARY, _) => Some(Aspect::Cpu),
        ("latency_p95", _) => Some(Aspect::P95),
        ("elapsed", _) | (_, Better::Higher) => Some(Aspect::Throughput),
        _ => None,
    }
}

/// The name of an aspect beside those of metrics.
const fn name(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Cpu => PRIMARY,
        Aspect::Throughput => THROUGHPUT,
        Aspect::P95 => "latency_p95",
    }
}

/// What a measurement allows to be said before it is tested whether it loses more.
fn judged(ratio: Option<Interval>, control: Option<Interval>, max_loss: f64) -> (Outcome, String) {
    let (Some(ratio), Some(control)) = (ratio, control) else {
        return (Outcome::Undecided, "; there is no control".into());
    };
    let reach = (control.high / control.low).ln() / 2.0;
    if reach > -(1.0 - max_loss).ln() {
        let why = format!(
            "; the control is known to {} % only, which is more than the limit",
            phrase::rounded_up(1.0 - (-reach).exp())
        );
        return (Outcome::Undecided, why);
    }
    if ratio.mid < 1.0 - max_loss {
        return (Outcome::Undecided, COULD_BE_CHANCE.into());
    }
    (Outcome::Passed, String::new())
}

/// The lines of one experiment.
fn lines_of(
    planned: &Planned,
    results: &Results,
    options: &Options,
    basis: &Basis<'_>,
    compared: &[Comparison],
) -> Result<Vec<Line>> {
    let experiment = &planned.experiment;
    let not_told = |cell, metric, why: &str| Line {
        experiment: experiment.name.clone(),
        family: None,
        cell,
        metric,
        ratio: None,
        control: None,
        outcome: Outcome::Undecided,
        why: why.into(),
        chance: None,
        is_void: false,
    };
    let arm = planned.arms.iter().find(|arm| arm.name == options.arm);
    let missing = match arm {
        None => Some(format!("arm {} is not part of it", options.arm)),
        Some(arm) => arm.missing.as_ref().map(|why| format!("arm {} is missing: {why}", arm.name)),
    };
    if let Some(why) = missing {
        return Ok(vec![not_told(None, None, &why)]);
    }
    let phase = |cell: &Cell, metric: &Metric| phase_of(experiment, cell.workload(), metric);
    let comparisons: Vec<&Comparison> = compared
        .iter()
        .filter(|c| c.arm == options.arm && c.phase == phase(&c.cell, c.metric))
        .collect();
    let some_arm_has = |cell: &Cell, metric: &Metric| {
        results.trials.iter().any(|t| {
            t.experiment == experiment.name
                && t.cell == *cell
                && t.phase == phase(cell, metric)
                && t.metrics.contains_key(metric.name)
        })
    };
    let uncounted = |metric: &Metric| {
        let base = experiment.arms.first()?;
        uncounted(experiment, metric, (&options.arm, base))
    };
    let mut lines = Vec::new();
    for cell in planned_cells(experiment, Phase::Capacity)? {
        for choice in basis.of(&cell) {
            let before = lines.len();
            for metric in choice {
                let found = comparisons.iter().find(|c| c.cell == cell && c.metric == *metric);
                if let Some(why) = uncounted(metric) {
                    let why = format!("{why}; use --metric {THROUGHPUT}");
                    lines.push(not_told(Some(cell.clone()), Some(metric.name), &why));
                } else if let Some(comparison) = found {
                    lines.push(line((experiment, results.finished), comparison, options.max_loss));
                } else if some_arm_has(&cell, metric) {
                    lines.push(not_told(Some(cell.clone()), Some(metric.name), "not measured"));
                }
            }
            if lines.len() == before {
                let metric = match choice[..] {
                    [metric] => Some(metric.name),
                    // Any of them would have done.
                    _ => None,
                };
                lines.push(not_told(Some(cell.clone()), metric, "not measured"));
            }
        }
    }
    Ok(lines)
}

/// `finished` says whether the run came to the end of its plan.
fn line(
    (experiment, finished): (&Experiment, bool),
    comparison: &Comparison,
    max_loss: f64,
) -> Line {
    let blocks = comparison.pairs.len();
    let lacks = lacks((experiment, finished), comparison);
    let sound = comparison.told().is_ok() && comparison.unlimited.is_none() && lacks.is_none();
    let (outcome, why_not) = match sound {
        true => judged(comparison.estimate.map(|_| comparison.ratio), comparison.control, max_loss),
        // The phrase says why.
        false => (Outcome::Undecided, lacks.unwrap_or_default()),
    };
    let below = |estimate: Estimate| estimate.p_below(1.0 - max_loss);
    Line {
        experiment: experiment.name.clone(),
        family: None,
        cell: Some(comparison.cell.clone()),
        metric: Some(comparison.metric.name),
        ratio: Some(comparison.ratio),
        control: comparison.control,
        outcome,
        why: format!("{}{why_not} ({})", comparison.phrase(), phrase::blocks(blocks)),
        chance: comparison.estimate.filter(|_| sound).map(below),
        is_void: comparison.is_void() && comparison.unlimited.is_none(),
    }
}

/// What a comparison lacks of its planned blocks. A precision ends them by a rule that knows
/// nothing of the arm, and does so only in a run that came to its end: whoever ends one by hand may
/// have looked.
fn lacks((experiment, finished): (&Experiment, bool), comparison: &Comparison) -> Option<String> {
    let work = experiment.workload.get(comparison.cell.workload().split('/').next()?)?;
    if comparison.phase == Phase::EqualWork && experiment.stop.control_precision.is_some() {
        return (!finished).then(|| "; the run did not come to the end of its plan".into());
    }
    let planned = plan::blocks(experiment, work, comparison.phase) as usize;
    let measured = comparison.pairs.len() + comparison.without_ratio.len();
    (measured < planned).then(|| format!("; {measured} of {planned} planned blocks were measured"))
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

/// The chance that a cell is void where the control's width ended its blocks: it is a little too
/// sure then, by the simulation in `statistics`.
const VOID_WHERE_IT_STOPS: f64 = 0.02;
/// The chance of failing a build whose arms cost exactly the limit. Families and cells share it.
const SIGNIFICANT: f64 = 0.05;
/// Why a loss beyond the limit is undecided.
const COULD_BE_CHANCE: &str =
    "; that is more than the limit, but could be chance: more blocks would tell";
/// Why an experiment is skipped.
const NO_SERVER: &str = "it compares ciphers, not a server with and without encryption";
/// The metric that is judged if none is named: it takes the least time to measure.
const PRIMARY: &str = "cpu_per_unit";
/// Name of an aspect, and of all metrics that are one.
const THROUGHPUT: &str = "throughput";

#[cfg(test)]
mod tests;
