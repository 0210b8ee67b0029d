//! The lines of a gate: what each family and each cell says before all of them are tested together.

use super::asked::Basis;
use super::planned::lacks;
use super::settle::{COULD_BE_CHANCE, SIGNIFICANT, name};
use super::{Line, Options, Outcome, THROUGHPUT};
use crate::analysis::{Aspect, Comparison, Family, families, phase_of, planned_cells, uncounted};
use crate::error::Result;
use crate::experiment::Experiment;
use crate::manifest::Planned;
use crate::metric::Metric;
use crate::phrase;
use crate::results::Results;
use crate::statistics::{Estimate, Interval};
use crate::trial::{Cell, Phase};

/// A line for each family of what is judged, `all`, from what lacks no planned blocks, `whole`.
pub(super) fn of_families(
    all: &[(&Experiment, &[Comparison])],
    whole: &[(&Experiment, &[Comparison])],
    options: &Options,
) -> Vec<Line> {
    let whole = families(whole, &options.arm);
    let line = |family: &Family| {
        let same = |other: &&Family| (other.kind, other.aspect) == (family.kind, family.aspect);
        match whole.iter().find(same) {
            Some(family) => of_family(family, options),
            None => of_nothing(family),
        }
    };
    families(all, &options.arm).iter().map(line).collect()
}

/// A family whose cells all lack planned blocks, or say nothing anyhow.
fn of_nothing(family: &Family) -> Line {
    let cells = family.cells + family.left_out;
    let cells = match cells {
        1 => "its only cell is".into(),
        _ => format!("all of its {cells} cells are"),
    };
    Line {
        experiment: "all experiments".into(),
        family: Some(family.kind),
        cell: None,
        metric: Some(name(family.aspect)),
        ratio: None,
        control: None,
        outcome: Outcome::Undecided,
        why: format!("nothing can be said: {cells} left out"),
        chance: None,
        is_void: false,
    }
}

fn of_family(family: &Family, options: &Options) -> Line {
    let void = family.untold();
    let (outcome, why_not) = match &void {
        Some(_) => (Outcome::Undecided, String::new()),
        None => judged(Some(family.ratio), family.control, options.max_loss),
    };
    let differs = family.estimate.p_value() < SIGNIFICANT;
    let said = match (&void, family.aspect) {
        (Some(why), _) => phrase::untold(&family.ratio, why),
        (None, Aspect::P95) => phrase::latency(&family.ratio, differs),
        (None, Aspect::Cpu | Aspect::Throughput) => phrase::difference(&family.ratio, differs),
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
        control: family.control,
        outcome,
        why: format!("{said}{why_not} ({} cell{plural}{out})", family.cells),
        chance: void.is_none().then(|| family.estimate.p_below(1.0 - options.max_loss)),
        is_void: false,
    }
}

/// What a measurement allows to be said before it is tested whether it loses more.
pub(super) fn judged(
    ratio: Option<Interval>,
    control: Option<Interval>,
    max_loss: f64,
) -> (Outcome, String) {
    let (Some(ratio), Some(control)) = (ratio, control) else {
        return (Outcome::Undecided, "; there is no control".into());
    };
    let allowed = -(1.0 - max_loss).ln();
    if let Some(known) = Some(control.half_width()).filter(|known| *known > allowed) {
        let why = format!("; the control is known to {} % only, {WIDER}", percent(known));
        return (Outcome::Undecided, why);
    }
    if ratio.mid < 1.0 - max_loss {
        return (Outcome::Undecided, COULD_BE_CHANCE.into());
    }
    // Servers of one arm that differ from each other do not show in the control.
    let known = ratio.half_width();
    if known > allowed && ratio.low < 1.0 - max_loss {
        let why = format!("; it is known to {} % only, {WIDER}", percent(known));
        return (Outcome::Undecided, why);
    }
    (Outcome::Passed, String::new())
}

/// Half of an interval's width, as a loss in percent.
fn percent(half_width: f64) -> String {
    phrase::rounded_up(1.0 - (-half_width).exp())
}

/// The lines of one experiment.
pub(super) fn of_experiment(
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
        _ if experiment.arms.first() == Some(&options.arm) => {
            Some(format!("{} is the base of it", options.arm))
        }
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
                    lines.push(line((experiment, results), comparison, options.max_loss));
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

fn line(
    (experiment, results): (&Experiment, &Results),
    comparison: &Comparison,
    max_loss: f64,
) -> Line {
    let blocks = comparison.pairs.len();
    let lacks = lacks((experiment, results), comparison).map(|why| format!("; {why}"));
    let sound = comparison.told().is_ok() && comparison.unlimited.is_none() && lacks.is_none();
    // One that lacks blocks beside that is not void by chance.
    let is_void = comparison.is_void() && comparison.unlimited.is_none() && lacks.is_none();
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
        is_void,
    }
}

/// Of a width that does not do.
const WIDER: &str = "which is more than the limit";
