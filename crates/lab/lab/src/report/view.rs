//! What the page says: everything of a run as words, tables and charts, ready for a template.

mod environment;
mod images;
mod limits;
mod tables;
mod verdicts;

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

use super::cells::Cells;
use super::costs::Costs;
use super::figure::{self, Figure};
use super::forest::{self, Forest};
use super::heat::{self, Heat};
use super::layout::{self, Pair};
use super::words;
use crate::analysis::{self, Comparison, SEALED, families, families_beside_peer};
use crate::experiment::{Experiment, Size};
use crate::manifest::Planned;
use crate::results::{MANIFEST, RESULTS, Results};
use crate::trial::{Phase, Trial};
use crate::verdict::Conclusion;

use limits::{Limits, WarningView};
use tables::{RatioRow, ValueTable};
pub(super) use verdicts::VerdictRow;

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) title: String,
    /// What the reader came for; above everything else.
    pub(super) costs: Costs,
    /// Kinds of load beside what others published.
    pub(super) forest: Forest,
    /// The same beside another encryption; empty without that arm.
    pub(super) beside_peer: Forest,
    /// Every cell.
    pub(super) heat: Vec<Heat>,
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
    /// Loads that write full-page images.
    pub(super) images: Vec<String>,
    /// Levels that are the same in all cells.
    pub(super) throughout: String,
    pub(super) arms: Vec<ArmView>,
    pub(super) limits: Vec<String>,
    pub(super) warnings: Vec<WarningView>,
    pub(super) verdicts: Vec<VerdictRow>,
    pub(super) ratios: Vec<RatioRow>,
    pub(super) values: ValueTable,
    pub(super) latencies: ValueTable,
    pub(super) equal_work: ValueTable,
    pub(super) ratio_figures: Vec<Figure>,
    /// Sealed against another encryption.
    pub(super) beside_peer: Vec<RatioRow>,
    pub(super) beside_peer_figures: Vec<Figure>,
    pub(super) factor_figures: Vec<Figure>,
    pub(super) latency_figures: Vec<Figure>,
    pub(super) time_figures: Vec<Figure>,
    pub(super) published: Vec<Pair>,
    pub(super) trials: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct ArmView {
    name: String,
    title: String,
    missing: Option<String>,
    trials: usize,
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
        let conclusions: Vec<(Conclusion, String, usize)> =
            counts.into_iter().map(|(c, count)| (c, c.to_string(), count)).collect();
        // What is not there is empty: a run may have been interrupted before its first trial.
        let raw = |name: &'static str| {
            let bytes = fs::read(results.dir.join(name)).unwrap_or_default();
            (name, String::from_utf8_lossy(&bytes).into_owned())
        };
        let experiments = || manifest.experiments.iter().map(|planned| &planned.experiment);
        let all: Vec<(&Experiment, &[Comparison])> =
            experiments().zip(compared.iter().map(Vec::as_slice)).collect();
        // A picture of costs would say what a miniature does not.
        let (forest, beside_peer) = match manifest.size {
            Size::Miniature => Default::default(),
            Size::Small | Size::Published => {
                let elsewhere = forest::elsewhere(experiments());
                (Forest::of(&[families(&all, SEALED)], &elsewhere), beside_peer(results))
            }
        };
        Self {
            title: format!("The cost of encryption on {}", manifest.machine.name),
            forest,
            beside_peer,
            heat: heat::maps(results, compared, SEALED),
            started: words::moment(manifest.created),
            size: match manifest.size {
                Size::Miniature => "miniature: shows that everything works, says nothing of cost",
                Size::Small => "small: fits two cores",
                Size::Published => "as published",
            },
            environment: environment::of(results),
            seed: manifest.seed,
            trials: results.trials.len(),
            costs: Costs::of(results, compared, &conclusions),
            conclusions,
            sections,
            broken: results.broken.iter().map(|one| (one.line, one.why.clone())).collect(),
            raw: [MANIFEST, RESULTS].map(raw).into(),
        }
    }
}

fn beside_peer(results: &Results) -> Forest {
    let experiments = || results.manifest.experiments.iter().map(|planned| &planned.experiment);
    let compared: Vec<Vec<Comparison>> =
        experiments().map(|one| analysis::beside_peer(one, &results.trials)).collect();
    let all: Vec<(&Experiment, &[Comparison])> =
        experiments().zip(compared.iter().map(Vec::as_slice)).collect();
    Forest::of(&[families_beside_peer(&all)], &[])
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
    let peer = analysis::beside_peer(experiment, &results.trials);
    let Limits { limits, warnings } = limits::of(planned, &cells, &trials, compared);
    Section {
        name: experiment.name.clone(),
        question: experiment.question.clone(),
        notes: experiment.notes.clone(),
        images: images::of(experiment, &cells),
        throughout: cells.throughout(),
        arms: arms.collect(),
        limits,
        warnings,
        verdicts: verdicts::of(planned, results),
        ratios: tables::ratios(&cells, compared),
        values: tables::values(&cells, &experiment.arms, Phase::Capacity),
        latencies: tables::values(&cells, &experiment.arms, Phase::FixedRate),
        equal_work: tables::values(&cells, &experiment.arms, Phase::EqualWork),
        ratio_figures: figure::ratios(&experiment.name, &cells, compared),
        beside_peer_figures: figure::ratios(&format!("{}-peer", experiment.name), &cells, &peer),
        beside_peer: tables::ratios(&cells, &peer),
        factor_figures: figure::over_factors(&experiment.name, &cells, &experiment.arms),
        latency_figures: figure::latencies(&experiment.name, &cells, &experiment.arms),
        time_figures: figure::over_time(experiment, &cells, &experiment.arms),
        published: layout::pairs(planned, &cells),
        trials: trials.len(),
    }
}
