//! From trials to comparisons: each arm against the base, cell by cell, metric by metric.
//!
//! Only trials of one block are paired. A comparison carries what keeps it from saying something,
//! such as a control that differs from plain: `told` has the rule. Which cells differ is decided
//! for all cells of an experiment together (Holm), so that fifty cells do not find one by chance.

mod changes;
mod family;
mod paired;

use std::collections::BTreeMap;

pub use family::{Aspect, Family, Kind, families, families_beside_peer};
pub(crate) use family::{of_aspect, of_trials};
pub(crate) use paired::{Paired, absolute, noise, paired};

use crate::error::Result;
use crate::experiment::{Experiment, Work};
use crate::metric::{Better, Metric};
use crate::phrase;
use crate::plan;
use crate::statistics::{self, Estimate, Interval, holm};
use crate::trial::{Cell, Phase, Trial, WORKLOAD, WarningKind};
use crate::work::billing::PHASES;

/// One arm against the base in one cell, by one metric.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Levels of the factors.
    pub cell: Cell,
    /// What the trials were for.
    pub phase: Phase,
    /// Arm.
    pub arm: String,
    /// The arm that it is compared with.
    pub base: String,
    /// What is compared.
    pub metric: &'static Metric,
    /// Performance as a part of the base's: 1 is the same, below 1 a loss (for times: base over
    /// arm).
    pub ratio: Interval,
    /// The logarithm of the ratio with its error; `None` of a single block.
    pub estimate: Option<Estimate>,
    /// How likely equal arms are to differ so much in one of the experiment's cells.
    pub chance: f64,
    /// The ratio of each block, by block number.
    pub pairs: Vec<(u32, f64)>,
    /// Blocks whose pair lies far from the others; shown, never dropped.
    pub outliers: Vec<u32>,
    /// Blocks that both arms ran and that have no ratio: nothing was done in them, or it was not
    /// counted.
    pub without_ratio: Vec<u32>,
    /// The control against plain in the same cell: what two equal servers seem to differ by, with
    /// its 95 % interval. `None` without a control of at least [`LEAST_BLOCKS`] blocks.
    pub control: Option<Interval>,
    /// The logarithm of the control's ratio with its error, that of its servers included where
    /// plain and control have several.
    pub control_estimate: Option<Estimate>,
    /// The control's ratio where it differs from 1: then the servers, not the arms, are compared.
    pub void: Option<Interval>,
    /// Why a limit of the experiment was not in force in some of the trials.
    pub unlimited: Option<String>,
    /// Whether two rows of one trial of the cell say different things.
    pub contradicted: bool,
}

impl Comparison {
    /// Whether anything can be said of it.
    ///
    /// # Errors
    /// Why not.
    pub fn told(&self) -> Result<(), String> {
        if self.contradicted {
            return Err(CONTRADICTED.into());
        }
        told(self.pairs.len(), self.without_ratio.len(), self.control.is_some(), self.void)
    }

    /// Whether nothing is said of it because its control differs from plain, and for that alone.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.void.is_some() && Self { void: None, ..self.clone() }.told().is_ok()
    }

    /// Whether the arms differ by more than chance, with all cells of the experiment in mind.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.chance < SIGNIFICANT
    }

    /// The comparison in words: `a loss of 3.1 % [2.2, 4.0]`.
    #[must_use]
    pub fn phrase(&self) -> String {
        let said = match self.told() {
            Ok(()) if self.metric.is_latency() => phrase::latency(&self.ratio, self.differs()),
            Ok(()) => phrase::difference(&self.ratio, self.differs()),
            Err(why) => phrase::untold(&self.ratio, &why),
        };
        match &self.unlimited {
            Some(why) => format!("{said}, with a limit not in force: {why}"),
            None => said,
        }
    }
}

/// Whether something can be said of a ratio of so many blocks, or why not.
pub(crate) fn told(
    blocks: usize,
    without_ratio: usize,
    control: bool,
    void: Option<Interval>,
) -> Result<(), String> {
    if blocks < LEAST_BLOCKS {
        let none = if blocks == 1 { "one block has no interval, and " } else { "" };
        let needed = format!("at least {LEAST_BLOCKS} blocks are needed to tell a difference");
        return Err(format!("{none}{needed}"));
    }
    if without_ratio > 0 {
        // To leave out the blocks in which an arm stood still would make it look better than it is.
        let blocks = if without_ratio == 1 { "block has" } else { "blocks have" };
        return Err(format!("{without_ratio} more {blocks} no ratio"));
    }
    if !control {
        return Err(format!("no control of at least {LEAST_BLOCKS} blocks tells what is noise"));
    }
    void.map_or(Ok(()), |control| Err(because_void(&control)))
}

/// Why nothing is said where the control is not plain.
pub(crate) fn because_void(control: &Interval) -> String {
    format!("void, because two equal servers differ: the control is {control}")
}

/// The control where it is not plain: its interval excludes 1. It is one of so many that the
/// chance of a void one `among` them all is [`VOID_BY_CHANCE`].
pub(crate) fn void(control: Option<&Estimate>, among: usize) -> Option<Interval> {
    let wide = control?.interval(1.0 - VOID_BY_CHANCE / among.max(1) as f64);
    (!wide.holds(1.0)).then_some(wide)
}

/// Why `metric` of an arm and its base is not all of what they took, so that their ratio would say
/// nothing; `None` where it is. Whatever is compared with the arm that the control repeats needs
/// the control too.
pub(crate) fn uncounted(
    experiment: &Experiment,
    metric: &Metric,
    (arm, base): (&str, &str),
) -> Option<String> {
    let is_equal = paired::equal_arm(experiment) == Some(base);
    let control = is_equal && experiment.arms.iter().any(|arm| arm == CONTROL);
    let arms = [arm, base, if control { CONTROL } else { base }];
    if metric.name == CPU { experiment.uncounted(&arms) } else { None }
}

/// Every comparison that the trials of `experiment` allow: each arm but the base, each cell, each
/// metric that has a better direction. A throughput at a fixed rate is what was asked for, and is
/// none; CPU time of which the kernel's threads have a part is no whole one.
#[must_use]
pub fn compare(experiment: &Experiment, trials: &[Trial]) -> Vec<Comparison> {
    let Some((base, others)) = experiment.arms.split_first() else { return Vec::new() };
    against(experiment, trials, base, others)
}

/// The same of the sealed server against another encryption, where the experiment has both: the
/// engine's own, or the peer that the experiment is named after.
#[must_use]
pub fn beside_peer(experiment: &Experiment, trials: &[Trial]) -> Vec<Comparison> {
    let mut others = experiment.arms.iter().skip(1);
    let peer = others.clone().find(|arm| *arm == OWN || **arm == experiment.name);
    match (peer, others.any(|arm| arm == SEALED)) {
        (Some(peer), true) => against(experiment, trials, peer, &[SEALED.to_owned()]),
        _ => Vec::new(),
    }
}

fn against(
    experiment: &Experiment,
    trials: &[Trial],
    base: &String,
    arms: &[String],
) -> Vec<Comparison> {
    let mut groups: BTreeMap<(Phase, &Cell), Vec<&Trial>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.experiment == experiment.name) {
        groups.entry((trial.phase, &trial.cell)).or_default().push(trial);
    }
    let mut comparisons = Vec::new();
    for ((phase, cell), trials) in groups {
        let is_result = |metric: &&Metric| match metric.better {
            Better::Lower => true,
            Better::Higher => phase == Phase::Capacity,
            Better::Neither => false,
        };
        for metric in crate::metric::METRICS.iter().filter(is_result) {
            let noise = noise(experiment, metric, &trials);
            let equal = noise.estimate().filter(|_| noise.pairs.len() >= LEAST_BLOCKS);
            let with_servers = paired::control(experiment, metric, &trials).estimate();
            let contradicted = trials.iter().any(|trial| is_contradicted(trial));
            let counted = |arm: &&String| uncounted(experiment, metric, (arm, base)).is_none();
            for arm in arms.iter().filter(counted) {
                let found = paired(metric, (&trials, arm), (&trials, base));
                let estimate = found.estimate();
                let Some(ratio) = interval(&found.pairs, estimate.as_ref()) else { continue };
                let of_both = trials.iter().filter(|t| t.arm == *arm || t.arm == *base);
                comparisons.push(Comparison {
                    cell: cell.clone(),
                    phase,
                    arm: arm.clone(),
                    base: base.clone(),
                    metric,
                    ratio,
                    estimate,
                    chance: estimate.map_or(1.0, |estimate| estimate.p_value()),
                    outliers: outliers(&found.pairs),
                    pairs: found.pairs,
                    without_ratio: found.without_ratio,
                    control: equal.map(|equal| equal.interval(PART)),
                    control_estimate: with_servers,
                    void: void(equal.as_ref(), 1).filter(|_| arm != CONTROL),
                    unlimited: of_both.copied().find_map(not_in_force),
                    contradicted,
                });
            }
        }
    }
    adjust(&mut comparisons);
    comparisons
}

/// Makes the chances those of all cells that one arm has by one metric.
fn adjust(comparisons: &mut [Comparison]) {
    let mut tests: BTreeMap<(Phase, String, &str), Vec<usize>> = BTreeMap::new();
    for (at, c) in comparisons.iter().enumerate() {
        tests.entry((c.phase, c.arm.clone(), c.metric.name)).or_default().push(at);
    }
    for places in tests.into_values() {
        let alone: Vec<f64> = places.iter().map(|at| comparisons[*at].chance).collect();
        for (at, chance) in places.into_iter().zip(holm(&alone)) {
            comparisons[at].chance = chance;
        }
    }
}

/// Where a claim or a limit looks for `metric` in the cells of `workload`: CPU time by equal work,
/// latencies at a fixed rate, where there are such blocks; everything else at capacity. At capacity
/// a latency says what the throughput says.
pub(crate) fn phase_of(experiment: &Experiment, workload: &str, metric: &Metric) -> Phase {
    let name = workload.split('/').next().unwrap_or_default();
    let has = |phase| {
        let work = experiment.workload.get(name);
        work.is_some_and(|work| plan::blocks(experiment, work, phase) > 0)
    };
    if metric.is_latency() {
        if has(Phase::FixedRate) || !has(Phase::EqualWork) {
            return Phase::FixedRate;
        }
        return Phase::EqualWork;
    }
    let paced = metric.name == CPU && has(Phase::EqualWork);
    if paced { Phase::EqualWork } else { Phase::Capacity }
}

/// Whether the cells of `workload` were to have equal work.
pub(crate) fn is_paced(experiment: &Experiment, workload: &str) -> bool {
    let cpu = crate::metric::find(CPU);
    cpu.is_some_and(|cpu| phase_of(experiment, workload, cpu) == Phase::EqualWork)
}

/// The planned cells that have blocks of the phase in which `metric` is looked for.
///
/// # Errors
/// As [`plan::cells`].
pub(crate) fn cells_with(experiment: &Experiment, metric: &Metric) -> Result<Vec<(Cell, Phase)>> {
    let mut cells = Vec::new();
    for phase in Phase::ALL {
        for cell in planned_cells(experiment, phase)? {
            if phase_of(experiment, cell.workload(), metric) == phase {
                cells.push((cell, phase));
            }
        }
    }
    Ok(cells)
}

/// The planned cells as trials have them: each phase of the batch engine is a workload of its own
/// there, `billing/phase1`. Only those that have blocks of `phase`.
///
/// # Errors
/// As [`plan::cells`].
pub(crate) fn planned_cells(experiment: &Experiment, phase: Phase) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for cell in plan::cells(experiment)? {
        let Some(work) = experiment.workload.get(cell.workload()) else { continue };
        if plan::blocks(experiment, work, phase) == 0 {
            continue;
        }
        if !matches!(work, Work::Billing(_)) {
            cells.push(cell);
            continue;
        }
        for part in PHASES {
            let mut cell = cell.clone();
            let name = format!("{}/phase{}", cell.workload(), part.number());
            cell.0.insert(WORKLOAD.into(), name);
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Why a limit of the experiment was not in force in this trial.
pub(crate) fn not_in_force(trial: &Trial) -> Option<String> {
    let of_limits = trial.warnings.iter().find(|w| w.kind == WarningKind::Unlimited);
    of_limits.map(|warning| warning.text.clone())
}

/// Whether another row of the same trial says something else, so that nobody knows which is true.
pub(crate) fn is_contradicted(trial: &Trial) -> bool {
    trial.warnings.iter().any(|warning| warning.kind == WarningKind::Contradicted)
}

/// The ratio of all blocks; without an estimate that of a single block, which has no width. `None`
/// without any.
pub(crate) fn interval(pairs: &[(u32, f64)], estimate: Option<&Estimate>) -> Option<Interval> {
    if pairs.is_empty() {
        return None;
    }
    let single = |(_, mid): &(u32, f64)| Interval { low: *mid, mid: *mid, high: *mid };
    estimate.map(|e| e.interval(PART)).or_else(|| pairs.first().map(single))
}

/// Blocks whose ratio lies far from the others', by its logarithm.
pub(crate) fn outliers(pairs: &[(u32, f64)]) -> Vec<u32> {
    let logs: Vec<f64> = pairs.iter().map(|(_, ratio)| ratio.ln()).collect();
    statistics::outliers(&logs).into_iter().map(|index| pairs[index].0).collect()
}

/// Why nothing is said of a cell of which two rows are one trial.
pub(crate) const CONTRADICTED: &str =
    "it cannot be trusted, since two rows of one trial say different things";
/// Blocks below which nothing is concluded: too few to see that one of them was disturbed.
pub const LEAST_BLOCKS: usize = 5;
/// The part of all cases in which an interval holds the truth.
pub const PART: f64 = 0.95;
/// How often equal servers void a cell: the interval of its control holds 1 in all other cases.
pub(crate) const VOID_BY_CHANCE: f64 = 0.01;
/// Below this chance a difference is one.
const SIGNIFICANT: f64 = 1.0 - PART;
/// The metric of CPU time, by which arms are compared first.
const CPU: &str = "cpu_per_unit";
/// Name of the arm that is plain once more.
pub const CONTROL: &str = "control";
/// Name of the unmodified server.
pub const PLAIN: &str = "plain";
/// Name of the arm sealed by Tidelock.
pub const SEALED: &str = "sealed";
/// Name of the arm with the engine's own encryption.
pub const OWN: &str = "own";

#[cfg(test)]
mod tests;
