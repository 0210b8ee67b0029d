//! The cost in a few sentences, with which the report begins: what sealed lost against plain.
//!
//! Counts cells by their throughput and names the largest loss; it says no more than intervals
//! allow, and lists what weakens it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{Cells, label, planned, spaced};
use super::finding::Finding;
use super::words::{self, USEFUL};
use crate::analysis::{Aspect, Comparison, Family, Kind, PLAIN, SEALED, families};
use crate::experiment::{Engine, Experiment, Size};
use crate::manifest::Planned;
use crate::metric::Better;
use crate::phrase::{self, ENDED_BY_HAND, LEAST_FOR_PUBLICATION};
use crate::results::Results;
use crate::trial::{Cell, Phase, Warning, WarningKind};
use crate::verdict::Conclusion;

/// What the run says of the cost.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Costs {
    /// What sealed lost over all loads.
    families: Vec<FamilyRow>,
    /// What sealed lost, in one sentence if the run says something of all loads.
    pub(super) said: String,
    /// The same by cells, in whole sentences; empty where `said` has them.
    pub(super) by_cells: String,
    /// What the claims came to, in one; empty if the run has none.
    pub(super) claims: String,
    /// What weakens both, each without a full stop.
    pub(super) caveats: Vec<String>,
    /// Cells of servers that have a comparison of sealed with plain by throughput.
    cells: usize,
    /// Of these, those with a loss, with a gain, and without a difference that could be detected.
    losses: usize,
    gains: usize,
    same: usize,
    /// Those with too few blocks, or without a control.
    untold: usize,
    /// The largest loss and the largest gain.
    largest_loss: Option<Largest>,
    largest_gain: Option<Largest>,
    /// Where no difference was detected, it is under this part of 1 in each cell.
    same_under: Option<f64>,
    /// Cells in which noise would have hidden a difference of [`USEFUL`], and the widest of it.
    hidden: usize,
    hidden_under: Option<f64>,
}

/// One kind of load by one aspect: sealed against plain.
#[derive(Debug, PartialEq, Serialize)]
struct FamilyRow {
    kind: Kind,
    aspect: Aspect,
    title: &'static str,
    by: &'static str,
    /// Performance as a part of plain's, and its 95 % interval.
    ratio: f64,
    interval: (f64, f64),
    shown: String,
    words: String,
    cells: usize,
    left_out: usize,
    /// Ends of the control's 95 % interval in the same cells.
    control: Option<(f64, f64)>,
    /// Whether its 99 % interval excludes 1.
    void: bool,
}

impl FamilyRow {
    fn of(family: &Family) -> Self {
        let Family { kind, aspect, ratio, cells, left_out, .. } = *family;
        Self {
            kind,
            aspect,
            title: kind.title(),
            by: aspect.title(),
            ratio: ratio.mid,
            interval: (ratio.low, ratio.high),
            shown: words::ratio(&ratio),
            words: words::of_family(family),
            cells,
            left_out,
            control: family.control.map(|control| (control.low, control.high)),
            void: family.void.is_some(),
        }
    }
}

/// The comparison that is farthest from 1 in one direction.
#[derive(Debug, PartialEq, Serialize)]
struct Largest {
    experiment: String,
    cell: BTreeMap<String, String>,
    metric: &'static str,
    /// Performance as a part of plain's, and its 95 % interval.
    ratio: f64,
    interval: (f64, f64),
    blocks: usize,
    #[serde(skip)]
    words: String,
    #[serde(skip)]
    place: String,
}

/// One cell in which sealed is compared with plain.
struct Counted<'a> {
    experiment: &'a Experiment,
    comparison: &'a Comparison,
    finding: Finding,
    place: String,
}

impl Costs {
    /// `compared` has the comparisons of each experiment of the run, in its order.
    pub(super) fn of(
        results: &Results,
        compared: &[Vec<Comparison>],
        conclusions: &[(Conclusion, String, usize)],
    ) -> Self {
        let all: Vec<(&Experiment, &[Comparison])> = results
            .manifest
            .experiments
            .iter()
            .zip(compared)
            .map(|(planned, all)| (&planned.experiment, &**all))
            .collect();
        let experiments = || results.manifest.experiments.iter().zip(compared);
        let counted: Vec<Counted<'_>> =
            experiments().flat_map(|(planned, all)| counted(planned, all, results)).collect();
        let number =
            |fits: fn(&Finding) -> bool| counted.iter().filter(|c| fits(&c.finding)).count();
        let under = || counted.iter().filter_map(|c| c.finding.under());
        let mut costs = Self {
            families: families(&all, SEALED).iter().map(FamilyRow::of).collect(),
            cells: counted.len(),
            losses: number(|finding| *finding == Finding::Loss),
            gains: number(|finding| *finding == Finding::Gain),
            same: number(|finding| finding.under().is_some_and(|under| under <= USEFUL)),
            hidden: number(|finding| finding.under().is_some_and(|under| under > USEFUL)),
            untold: number(|finding| *finding == Finding::Untold),
            largest_loss: largest(&counted, Finding::Loss),
            largest_gain: largest(&counted, Finding::Gain),
            same_under: under().filter(|under| *under <= USEFUL).reduce(f64::max),
            hidden_under: under().filter(|under| *under > USEFUL).reduce(f64::max),
            claims: claims(conclusions),
            ..Self::default()
        };
        (costs.said, costs.by_cells) = match costs.over_all() {
            Some(first) => (first, costs.sentences()),
            None => (costs.sentences(), String::new()),
        };
        if results.manifest.size == Size::Miniature {
            costs.said = "This run is a miniature: it shows that everything works, and says \
                          nothing about cost."
                .into();
            costs.by_cells = String::new();
        }
        costs.caveats = costs.caveats(results, &counted);
        costs
    }

    /// All loads by each aspect: from every block, so no chance of the largest of many.
    fn over_all(&self) -> Option<String> {
        let all = self.families.iter().filter(|family| family.kind == Kind::All);
        let parts: Vec<String> =
            all.map(|family| format!("{}, {}", family.by, family.words)).collect();
        let said = parts.join("; ");
        (!parts.is_empty()).then(|| format!("Sealed against unencrypted, over all loads: {said}."))
    }

    fn sentences(&self) -> String {
        let told = self.losses + self.gains + self.same;
        let unlimited = self.cells - told - self.untold - self.hidden;
        let without_limits = (unlimited > 0)
            .then(|| format!("in {} a limit of the experiment was not in force", cells(unlimited)));
        if self.cells == 0 {
            return "This run says nothing of the cost of sealing: no cell has both a sealed server \
                    and a plain one."
                .into();
        }
        if told == 0 && (self.hidden > 0 || unlimited > 0) {
            // With both, what noise hides is among the caveats.
            let why = without_limits.or_else(|| self.noise()).unwrap_or_default();
            return format!("Of throughput as fast as it goes this run says nothing: {why}.");
        }
        if told == 0 {
            return format!(
                "Of throughput as fast as it goes this run says nothing: {} too little was \
                 measured to tell a cost from noise.",
                in_each(self.cells)
            );
        }
        let mut said = vec![match &self.largest_loss {
            None if told == 1 => {
                "Sealed by Tidelock, the server showed no loss of throughput in the one \
                                  measured cell that can tell."
                    .into()
            }
            None => format!(
                "Sealed by Tidelock, the server had less throughput than unencrypted in none of \
                 {}.",
                cells(told)
            ),
            Some(Largest { words, place, .. }) => format!(
                "Sealed by Tidelock, the server had less throughput than unencrypted in {} of \
                 {}; the \
                 most was {words}, in {place}.",
                self.losses,
                cells(told),
            ),
        }];
        if let Some(under) = self.same_under.map(phrase::rounded_up) {
            said.push(if told == 1 {
                format!("No difference was detectable there, under {under} %.")
            } else {
                let each = if self.same == 1 { "" } else { " in each" };
                format!("In {} no difference was detectable, under {under} %{each}.", self.same)
            });
        }
        if let Some(Largest { words, place, .. }) = &self.largest_gain {
            let most = if self.gains == 1 { "" } else { "the most was " };
            said.push(format!("In {} it had more: {most}{words}, in {place}.", self.gains));
        }
        said.extend(without_limits.map(|text| format!("Not counted: {text}.")));
        said.join(" ")
    }

    /// `in 7 measured cells noise would have hidden a difference of 10 %; ...`
    fn noise(&self) -> Option<String> {
        let under = phrase::rounded_up(self.hidden_under?);
        Some(format!(
            "in {} noise would have hidden a difference of {} %, and the widest would have \
             hidden one of {under} %",
            cells(self.hidden),
            phrase::part(USEFUL)
        ))
    }

    fn caveats(&self, results: &Results, counted: &[Counted<'_>]) -> Vec<String> {
        let mut caveats = Vec::new();
        caveats.extend(not_measured(results));
        caveats.extend(results.ended_by_hand().then(|| ENDED_BY_HAND.into()));
        caveats.extend(results.manifest.experiments.iter().filter_map(not_compared));
        if self.hidden < self.cells - self.untold {
            let noise = self.noise().map(|noise| format!("Not counted: {noise}"));
            caveats.extend(noise);
        }
        if self.untold > 0 && self.untold < self.cells {
            caveats.push(format!(
                "{} {} not counted: too little was measured to tell a cost from noise",
                cells(self.untold),
                be(self.untold)
            ));
        }
        let told = counted.iter().filter(|c| c.finding != Finding::Untold);
        let blocks: Vec<usize> = told.map(|c| c.comparison.pairs.len()).collect();
        let few = blocks.iter().filter(|blocks| **blocks < LEAST_FOR_PUBLICATION).count();
        if let Some(least) = blocks.iter().min().filter(|_| few > 0) {
            caveats.push(format!(
                "Fewer than {LEAST_FOR_PUBLICATION} blocks were measured in {few} of {}, the \
                 least {least}",
                cells(blocks.len())
            ));
        }
        // A rate that was lowered is a choice of the lab.
        let disturbs = |warning: &Warning| warning.kind != WarningKind::LoweredRate;
        let warned = results.trials.iter().filter(|t| t.warnings.iter().any(disturbs)).count();
        if warned > 0 {
            let all = results.trials.len();
            caveats.push(format!(
                "Something may have disturbed {warned} of {all} trials; all are kept"
            ));
        }
        if results.cut > 0 {
            let blocks = if results.cut == 1 { "block was" } else { "blocks were" };
            caveats.push(format!(
                "{} {blocks} cut before all arms were measured, and not used",
                results.cut
            ));
        }
        let broken = results.broken.len();
        if broken > 0 {
            let lines =
                if broken == 1 { "line of the results is" } else { "lines of the results are" };
            caveats.push(format!("{broken} {lines} broken, and not used"));
        }
        caveats.extend(results.outside.iter().cloned());
        caveats
    }
}

/// The cells of an experiment in which sealed and plain servers are compared, each by one metric.
fn counted<'a>(
    planned: &'a Planned,
    all: &'a [Comparison],
    results: &'a Results,
) -> Vec<Counted<'a>> {
    let experiment = &planned.experiment;
    if experiment.engine == Engine::None {
        return Vec::new();
    }
    let of_run = Cells::of(experiment, &results.trials);
    let factors = of_run.varying();
    let one = |cell: &Cell| {
        let comparison = throughput(all, cell)?;
        let levels = label(cell, &factors);
        let workload = spaced(cell.workload());
        let place = if levels.is_empty() { workload } else { format!("{workload}, {levels}") };
        Some(Counted {
            experiment,
            comparison,
            finding: Finding::of(comparison),
            place: format!("{} ({place})", experiment.name),
        })
    };
    of_run.cells(Phase::Capacity).into_iter().filter_map(one).collect()
}

/// Sealed against plain in `cell` by throughput, or by time where none was measured.
fn throughput<'a>(all: &'a [Comparison], cell: &Cell) -> Option<&'a Comparison> {
    let here = || {
        all.iter().filter(|c| {
            c.phase == Phase::Capacity && c.cell == *cell && c.arm == SEALED && c.base == PLAIN
        })
    };
    let throughput = here().find(|c| c.metric.better == Better::Higher);
    throughput.or_else(|| here().find(|c| c.metric.name == "elapsed"))
}

fn largest(counted: &[Counted<'_>], direction: Finding) -> Option<Largest> {
    let such = counted.iter().filter(|c| c.finding == direction);
    let far = |c: &&Counted<'_>| c.comparison.ratio.mid.ln().abs();
    let found = such.max_by(|a, b| far(a).total_cmp(&far(b)))?;
    let c = found.comparison;
    Some(Largest {
        experiment: found.experiment.name.clone(),
        cell: c.cell.0.clone(),
        metric: c.metric.name,
        ratio: c.ratio.mid,
        interval: (c.ratio.low, c.ratio.high),
        blocks: c.pairs.len(),
        words: c.phrase(),
        place: found.place.clone(),
    })
}

/// What was planned and has no trial in some arm that can be measured here, by experiment: cells,
/// or blocks where no cell is missing.
fn not_measured(results: &Results) -> Option<String> {
    let (mut all, mut missing, mut of) = (0, 0, Vec::new());
    for of_plan in &results.manifest.experiments {
        let experiment = &of_plan.experiment;
        let of_run = Cells::of(experiment, &results.trials);
        let here = planned(experiment);
        let absent = here.iter().filter(|cell| !of_run.is_whole(of_plan, cell)).count();
        all += here.len();
        missing += absent;
        if absent > 0 {
            of.push(format!("{absent} of {} in {}", here.len(), experiment.name));
        }
    }
    if missing > 0 {
        return Some(format!(
            "The run is not whole: {missing} of {all} planned cells were not measured in all arms \
             ({})",
            of.join(", ")
        ));
    }
    let (all, missing) = results.blocks();
    (missing > 0).then(|| {
        format!("The run is not whole: {missing} of {all} planned blocks were not measured")
    })
}

/// Why an experiment with a sealed arm is not in the sentences.
fn not_compared(planned: &Planned) -> Option<String> {
    let name = &planned.experiment.name;
    let sealed = planned.arms.iter().find(|arm| arm.name == SEALED)?;
    if let Some(why) = &sealed.missing {
        Some(format!("In {name} nothing was sealed: {why}"))
    } else if planned.experiment.engine == Engine::None {
        Some(format!("{name} has no server, and is not counted"))
    } else {
        let base = planned.experiment.arms.first()?;
        (base != PLAIN).then(|| format!("{name} compares with {base}, and is not counted"))
    }
}

/// `25 published claims: 1 as published, 24 not decided.`
fn claims(conclusions: &[(Conclusion, String, usize)]) -> String {
    let all: usize = conclusions.iter().map(|(.., count)| count).sum();
    let parts: Vec<String> =
        conclusions.iter().map(|(_, words, count)| format!("{count} {words}")).collect();
    match all {
        0 => String::new(),
        1 => format!("1 published claim: {}.", parts.join(", ")),
        _ => format!("{all} published claims: {}.", parts.join(", ")),
    }
}

fn cells(count: usize) -> String {
    format!("{count} measured cell{}", if count == 1 { "" } else { "s" })
}

fn in_each(count: usize) -> String {
    if count == 1 { "in its only cell".into() } else { format!("in each of its {count} cells") }
}

const fn be(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests;
