//! What the page says: everything of a run as words, tables and charts, ready for a template.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

use super::cells::{Cells, Summary, label, spaced};
use super::figure::{self, Figure};
use super::layout::{self, Pair};
use super::{published, words};
use crate::analysis::{self, Comparison};
use crate::experiment::Size;
use crate::manifest::Planned;
use crate::metric::{Better, METRICS};
use crate::phrase::{self, LEAST_FOR_PUBLICATION};
use crate::results::{MANIFEST, RESULTS, Results};
use crate::trial::{Phase, Trial, WarningKind};
use crate::verdict::{self, Conclusion, Verdict};

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) title: String,
    pub(super) started: String,
    pub(super) size: &'static str,
    /// Name and value, for the table of the environment.
    pub(super) environment: Vec<(String, String)>,
    pub(super) seed: u64,
    pub(super) trials: usize,
    /// How many claims came to which conclusion.
    pub(super) conclusions: Vec<(Conclusion, String, usize)>,
    pub(super) sections: Vec<Section>,
    /// Lines of the results that are no trials.
    pub(super) broken: Vec<(usize, String)>,
    /// `run.json` and `results.jsonl` as they are.
    pub(super) raw: Vec<(&'static str, String)>,
}

/// One experiment.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) question: String,
    pub(super) notes: Vec<String>,
    /// Levels that are the same in all cells.
    pub(super) throughout: String,
    pub(super) arms: Vec<ArmView>,
    pub(super) limits: Vec<String>,
    pub(super) warnings: Vec<WarningView>,
    pub(super) verdicts: Vec<VerdictRow>,
    pub(super) ratios: Vec<RatioRow>,
    pub(super) values: ValueTable,
    pub(super) latencies: ValueTable,
    pub(super) ratio_figures: Vec<Figure>,
    pub(super) factor_figures: Vec<Figure>,
    pub(super) latency_figures: Vec<Figure>,
    pub(super) time_figures: Vec<Figure>,
    pub(super) published: Vec<Pair>,
    pub(super) trials: usize,
    pub(super) blocks: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct ArmView {
    name: String,
    title: String,
    missing: Option<String>,
    trials: usize,
}

/// Disturbances of one kind.
#[derive(Debug, Serialize)]
pub(super) struct WarningView {
    kind: &'static str,
    trials: usize,
    of: usize,
    /// The first of them.
    example: String,
}

/// A claim and what came of it.
#[derive(Debug, Serialize)]
pub(super) struct VerdictRow {
    id: String,
    claim: String,
    source: String,
    published: String,
    ours: Option<String>,
    /// Ends and middle of ours.
    interval: Option<(f64, f64, f64)>,
    conclusion: Conclusion,
    words: String,
    why: String,
}

/// A comparison as a row of a table.
#[derive(Debug, Serialize)]
pub(super) struct RatioRow {
    workload: String,
    levels: String,
    phase: &'static str,
    arm: String,
    metric: String,
    unit: &'static str,
    base_value: String,
    value: String,
    ratio: String,
    words: String,
    floor: String,
    blocks: usize,
    outliers: usize,
}

/// Medians: one row for each cell and metric, one column for each arm.
#[derive(Debug, Serialize)]
pub(super) struct ValueTable {
    arms: Vec<String>,
    rows: Vec<ValueRow>,
}

#[derive(Debug, Serialize)]
struct ValueRow {
    workload: String,
    levels: String,
    metric: &'static str,
    unit: &'static str,
    /// Median, smallest and largest; `None` if the arm measured nothing.
    values: Vec<Option<(String, String, String)>>,
}

impl View {
    /// `compared` has the comparisons of each experiment of the run, in its order.
    pub(super) fn of(results: &Results, compared: &[Vec<Comparison>]) -> Self {
        let manifest = &results.manifest;
        let experiments = manifest.experiments.iter().zip(compared);
        let sections: Vec<Section> =
            experiments.map(|(planned, compared)| section(planned, results, compared)).collect();
        let mut counts: BTreeMap<Conclusion, usize> = BTreeMap::new();
        for verdict in sections.iter().flat_map(|section| &section.verdicts) {
            *counts.entry(verdict.conclusion).or_default() += 1;
        }
        // What is not there is empty: a run may have been interrupted before its first trial.
        let raw = |name: &'static str| {
            let bytes = fs::read(results.dir.join(name)).unwrap_or_default();
            (name, String::from_utf8_lossy(&bytes).into_owned())
        };
        Self {
            title: format!("The cost of encryption on {}", manifest.machine.name),
            started: words::moment(manifest.created),
            size: match manifest.size {
                Size::Miniature => "miniature: shows that everything works, says nothing of cost",
                Size::Small => "small: fits two cores",
                Size::Published => "as published",
            },
            environment: environment(results),
            seed: manifest.seed,
            trials: results.trials.len(),
            conclusions: counts.into_iter().map(|(c, count)| (c, c.to_string(), count)).collect(),
            sections,
            broken: results.broken.clone(),
            raw: [MANIFEST, RESULTS].map(raw).into(),
        }
    }
}

fn environment(results: &Results) -> Vec<(String, String)> {
    let machine = &results.manifest.machine;
    let gib = |mib: u64| format!("{} GiB", words::figure(mib as f64 / 1024.0));
    let root = if machine.root { "yes" } else { "no" };
    let mut rows: Vec<(String, String)> = [
        ("processor", machine.cpu.clone()),
        ("processors used", machine.cpus.to_string()),
        ("AES instructions", machine.cpu_features.join(", ")),
        ("memory", gib(machine.memory_mib)),
        ("kernel", machine.kernel.clone()),
        ("system", machine.system.clone()),
        ("file system", machine.file_system.clone()),
        ("limits by the kernel could be set", root.into()),
        ("Tidelock", results.manifest.tidelock.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    rows.extend(machine.versions.clone());
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

fn section(planned: &Planned, results: &Results, compared: &[Comparison]) -> Section {
    let experiment = &planned.experiment;
    let cells = Cells::of(experiment, &results.trials);
    let trials: Vec<&Trial> =
        results.trials.iter().filter(|t| t.experiment == experiment.name).collect();
    let arms = planned.arms.iter().map(|arm| ArmView {
        name: arm.name.clone(),
        title: arm.title.clone(),
        missing: arm.missing.clone(),
        trials: trials.iter().filter(|trial| trial.arm == arm.name).count(),
    });
    let blocks = compared.iter().map(|c| c.pairs.len()).min().unwrap_or(0);
    Section {
        name: experiment.name.clone(),
        question: experiment.question.clone(),
        notes: experiment.notes.clone(),
        throughout: cells.throughout(),
        arms: arms.collect(),
        limits: limits(planned, &trials, blocks),
        warnings: warnings(&trials),
        verdicts: verdicts(planned, results),
        ratios: ratio_rows(&cells, compared),
        values: value_table(&cells, &experiment.arms, Phase::Capacity),
        latencies: value_table(&cells, &experiment.arms, Phase::FixedRate),
        ratio_figures: figure::ratios(&experiment.name, &cells, compared),
        factor_figures: figure::over_factors(&experiment.name, &cells, &experiment.arms),
        latency_figures: figure::latencies(&experiment.name, &cells, &experiment.arms),
        time_figures: figure::over_time(experiment, &cells, &experiment.arms),
        published: layout::pairs(planned, &cells),
        trials: trials.len(),
        blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
    }
}

/// The limits that the plan knew of, and those that show only afterwards.
fn limits(planned: &Planned, trials: &[&Trial], blocks: usize) -> Vec<String> {
    let mut limits = planned.limits.clone();
    if trials.is_empty() {
        limits.push("Nothing of it was measured in this run.".into());
    } else if blocks < LEAST_FOR_PUBLICATION {
        limits.push(format!("A comparison rests on only {}.", phrase::blocks(blocks)));
    }
    if !planned.experiment.arms.iter().any(|arm| arm == analysis::CONTROL) {
        limits.push("There is no control arm, so the noise floor is not known.".into());
    }
    limits
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
            WarningKind::OtherLoad => "other load on the machine",
            WarningKind::Unlimited => "limits that could not be set",
        },
        trials: count,
        of: trials.len(),
        example: example.to_owned(),
    };
    kinds.into_iter().map(view).collect()
}

fn ratio_rows(cells: &Cells<'_>, compared: &[Comparison]) -> Vec<RatioRow> {
    let factors = cells.varying();
    let mut rows = Vec::new();
    for phase in [Phase::Capacity, Phase::FixedRate] {
        for cell in cells.cells(phase) {
            for c in compared.iter().filter(|c| c.phase == phase && c.cell == *cell) {
                let value = |arm: &str| cells.summary(phase, cell, arm, c.metric.name);
                let figure = |summary: Option<Summary>| {
                    summary.map_or_else(String::new, |summary| words::figure(summary.mid))
                };
                let floor = c.floor();
                rows.push(RatioRow {
                    workload: spaced(cell.workload()),
                    levels: label(cell, &factors),
                    phase: if phase == Phase::Capacity { "" } else { "at a fixed rate" },
                    arm: c.arm.clone(),
                    metric: c.metric.title.into(),
                    unit: c.metric.unit,
                    base_value: figure(value(&c.base)),
                    value: figure(value(&c.arm)),
                    ratio: words::ratio(&c.ratio),
                    words: if c.arm == analysis::CONTROL {
                        floor.map_or_else(String::new, |f| {
                            format!("the noise floor: {} %", phrase::part(f))
                        })
                    } else {
                        c.phrase()
                    },
                    floor: floor
                        .map_or_else(|| "unknown".into(), |f| format!("{} %", phrase::part(f))),
                    blocks: c.pairs.len(),
                    outliers: c.outliers.len(),
                });
            }
        }
    }
    rows
}

fn value_table(cells: &Cells<'_>, arms: &[String], phase: Phase) -> ValueTable {
    let factors = cells.varying();
    let latency = |name: &str| name.starts_with("latency");
    // At a fixed rate only latencies are news; they are news only there.
    let metrics = || {
        METRICS
            .iter()
            .filter(|m| m.better != Better::Neither)
            .filter(|m| if phase == Phase::Capacity { !latency(m.name) } else { latency(m.name) })
    };
    let measured = |arm: &&String| {
        cells
            .cells(phase)
            .iter()
            .any(|cell| cells.trials(phase, cell).iter().any(|t| t.arm == **arm))
    };
    let arms: Vec<String> = arms.iter().filter(measured).cloned().collect();
    let mut rows = Vec::new();
    for cell in cells.cells(phase) {
        for metric in metrics() {
            let value = |arm: &String| {
                let Summary { low, mid, high, .. } =
                    cells.summary(phase, cell, arm, metric.name)?;
                Some((words::figure(mid), words::figure(low), words::figure(high)))
            };
            let values: Vec<_> = arms.iter().map(value).collect();
            if values.iter().any(Option::is_some) {
                let (workload, levels) = (spaced(cell.workload()), label(cell, &factors));
                let (metric, unit) = (metric.title, metric.unit);
                rows.push(ValueRow { workload, levels, metric, unit, values });
            }
        }
    }
    ValueTable { arms, rows }
}

fn verdicts(planned: &Planned, results: &Results) -> Vec<VerdictRow> {
    let seed = results.manifest.seed;
    let judged = verdict::judge(&planned.experiment, &planned.arms, &results.trials, seed);
    let row = |verdict: Verdict| VerdictRow {
        id: verdict.claim.id,
        claim: verdict.claim.text,
        source: source(&verdict.claim.source),
        published: words::expectation(&verdict.claim.expect),
        ours: verdict.ours.as_ref().map(words::ratio),
        interval: verdict.ours.map(|ours| (ours.low, ours.mid, ours.high)),
        conclusion: verdict.conclusion,
        words: verdict.conclusion.to_string(),
        why: verdict.why,
    };
    judged.into_iter().map(row).collect()
}

/// Title of the file of `published/`, or whatever else the claim names.
fn source(name: &str) -> String {
    published::find(name).map_or_else(|| name.to_owned(), |published| published.title)
}
