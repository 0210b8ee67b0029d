//! The report for programs: versioned JSON of what was concluded, CSV of what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::costs::Costs;
use super::finding::Finding;
use super::view::{VerdictRow, View};
use crate::analysis::Comparison;
use crate::error::{Error, Result};
use crate::manifest::{Machine, PlannedArm};
use crate::metric;
use crate::results::Results;
use crate::trial::{Phase, WORKLOAD};

/// Version of `report.json`.
const FORMAT: u32 = 2;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    tidelock: &'a str,
    created: u64,
    seed: u64,
    machine: &'a Machine,
    /// What the report begins with.
    costs: &'a Costs,
    experiments: Vec<Part<'a>>,
    /// Lines of the results that are no trials.
    broken_lines: Vec<(usize, &'a str)>,
}

#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    arms: &'a [PlannedArm],
    limits: &'a [String],
    trials: usize,
    comparisons: Vec<Compared>,
    verdicts: &'a [VerdictRow],
}

#[derive(Serialize)]
struct Compared {
    cell: BTreeMap<String, String>,
    phase: Phase,
    arm: String,
    base: String,
    metric: &'static str,
    /// Estimate of the performance as a part of the base's.
    ratio: f64,
    /// Ends of its 95 % interval.
    interval: (f64, f64),
    blocks: usize,
    outliers: Vec<u32>,
    /// Ends of the control's interval.
    control: Option<(f64, f64)>,
    /// How likely equal arms are to differ so much in one of the experiment's cells.
    chance: f64,
    /// Why a limit of the experiment was not in force in some of the trials.
    unlimited: Option<String>,
    /// `loss`, `gain`, `same`, `untold` where too little was measured to say any of these, or
    /// `unlimited` where a limit of the experiment was not in force.
    finding: &'static str,
}

/// `report.json`: what `view` says, in numbers.
pub(super) fn json(
    results: &Results,
    view: &View,
    compared: Vec<Vec<Comparison>>,
) -> Result<String> {
    let manifest = &results.manifest;
    let planned = manifest.experiments.iter().zip(&view.sections).zip(compared);
    let experiments = planned.map(|((planned, section), compared)| Part {
        name: &section.name,
        arms: &planned.arms,
        limits: &section.limits,
        trials: section.trials,
        comparisons: compared.into_iter().map(Compared::from).collect(),
        verdicts: &section.verdicts,
    });
    let document = Document {
        format: FORMAT,
        tidelock: &manifest.tidelock,
        created: manifest.created,
        seed: manifest.seed,
        machine: &manifest.machine,
        costs: &view.costs,
        experiments: experiments.collect(),
        broken_lines: results.broken.iter().map(|one| (one.line, one.why.as_str())).collect(),
    };
    serde_json::to_string_pretty(&document)
        .map_err(|e| Error::Other(format!("report.json cannot be written: {e}")))
}

impl From<Comparison> for Compared {
    fn from(c: Comparison) -> Self {
        let finding = match Finding::of(&c) {
            Finding::Loss => "loss",
            Finding::Gain => "gain",
            Finding::Same(_) => "same",
            Finding::Untold => "untold",
            Finding::Unlimited => "unlimited",
        };
        Self {
            cell: c.cell.0,
            phase: c.phase,
            arm: c.arm,
            base: c.base,
            metric: c.metric.name,
            ratio: c.ratio.mid,
            interval: (c.ratio.low, c.ratio.high),
            blocks: c.pairs.len(),
            outliers: c.outliers,
            control: c.control.map(|control| (control.low, control.high)),
            chance: c.chance,
            unlimited: c.unlimited,
            finding,
        }
    }
}

/// `report.csv` (RFC 4180): one row for each trial and metric, one column for each factor of the
/// run.
pub(super) fn csv(results: &Results) -> String {
    let names = results.trials.iter().flat_map(|trial| trial.cell.0.keys());
    let factors: BTreeSet<&String> = names.filter(|name| *name != WORKLOAD).collect();
    let mut head = vec!["experiment", "workload"];
    head.extend(factors.iter().map(|name| name.as_str()));
    head.extend([
        "phase", "block", "order", "arm", "instance", "started", "seconds", "metric", "unit",
        "value",
    ]);
    let mut text = head.iter().map(|name| field(name)).collect::<Vec<_>>().join(",") + "\r\n";
    for trial in &results.trials {
        let mut fixed = vec![field(&trial.experiment), field(trial.cell.workload())];
        fixed.extend(factors.iter().map(|name| field(trial.cell.0.get(*name).map_or("", |l| l))));
        fixed.extend([trial.phase.name().into(), trial.block.to_string(), trial.order.to_string()]);
        fixed.extend([field(&trial.arm), trial.instance.to_string()]);
        fixed.extend([trial.started.to_string(), trial.seconds.to_string()]);
        let fixed = fixed.join(",");
        for (name, value) in &trial.metrics {
            let unit = metric::find(name).map_or("", |metric| metric.unit);
            // Writing to a String cannot fail.
            let _ = write!(text, "{fixed},{},{},{value}\r\n", field(name), field(unit));
        }
    }
    text
}

/// A field of text. Spreadsheets compute what begins with one of these signs (OWASP, "CSV
/// Injection"): an apostrophe before it keeps it text. Numbers keep their sign.
fn field(text: &str) -> String {
    let number = text.parse::<f64>().is_ok_and(f64::is_finite);
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && !number;
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\r', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Compared, field};
    use crate::analysis::compare;
    use crate::synthetic::{Synthetic, experiment};

    #[test]
    fn what_was_measured_without_its_limits_says_so_and_no_loss() {
        let mut run = Synthetic::new(10);
        for workload in ["select", "insert"] {
            run.arm("plain", workload, 1.0).arm("control", workload, 1.0);
            run.arm("sealed", workload, 0.5);
        }
        run.unlimited("select");
        let all = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
        for compared in all.into_iter().filter(|c| c.arm == "sealed").map(Compared::from) {
            let said = serde_json::to_value(&compared).unwrap();
            let (unlimited, finding) = match said["cell"]["workload"].as_str() {
                Some("select") => (Some("it needs root"), "unlimited"),
                _ => (None, "loss"),
            };
            assert_eq!(said["unlimited"].as_str(), unlimited, "{said}");
            assert_eq!(said["finding"].as_str(), Some(finding), "{said}");
        }
    }

    #[test]
    fn a_field_with_a_comma_or_a_quote_stays_one_field() {
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("plain"), "plain");
    }

    #[test]
    fn no_name_is_a_formula_and_a_negative_level_stays_a_number() {
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("=HYPERLINK(\"x\",1)"), "\"'=HYPERLINK(\"\"x\"\",1)\"");
        for sign in ["+", "-", "@", "\t"] {
            assert_eq!(field(&format!("{sign}SUM(A1)")), format!("'{sign}SUM(A1)"));
        }
        assert_eq!(field("-inf"), "'-inf");
        assert_eq!(
            (field("-1"), field("+0.5"), field("")),
            ("-1".into(), "+0.5".into(), String::new())
        );
    }
}
