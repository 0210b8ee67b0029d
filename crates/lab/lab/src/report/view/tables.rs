//! The tables of an experiment: ratios with their words, and medians of what was measured.

use serde::Serialize;

use crate::analysis::Comparison;
use crate::metric::{Better, METRICS};
use crate::report::cells::{Cells, Summary, label, spaced};
use crate::report::finding::Finding;
use crate::report::words;
use crate::trial::Phase;

/// A comparison as a row of a table.
#[derive(Debug, Serialize)]
pub(in crate::report) struct RatioRow {
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
    control: String,
    /// Whether too little was measured to say anything of it.
    untold: bool,
    blocks: usize,
    outliers: usize,
}

/// Medians: one row for each cell and metric, one column for each arm.
#[derive(Debug, Serialize)]
pub(in crate::report) struct ValueTable {
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

/// Every comparison, cell by cell.
pub(super) fn ratios(cells: &Cells<'_>, compared: &[Comparison]) -> Vec<RatioRow> {
    let factors = cells.varying();
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        for cell in cells.cells(phase) {
            for c in compared.iter().filter(|c| c.phase == phase && c.cell == *cell) {
                let value = |arm: &str| cells.summary(phase, cell, arm, c.metric.name);
                let figure = |summary: Option<Summary>| {
                    summary.map_or_else(String::new, |summary| words::figure(summary.mid))
                };
                rows.push(RatioRow {
                    workload: spaced(cell.workload()),
                    levels: label(cell, &factors),
                    phase: phase.words(),
                    arm: c.arm.clone(),
                    metric: c.metric.title.into(),
                    unit: c.metric.unit,
                    base_value: figure(value(&c.base)),
                    value: figure(value(&c.arm)),
                    ratio: words::ratio(&c.ratio),
                    words: c.phrase(),
                    untold: matches!(Finding::of(c), Finding::Untold | Finding::Unlimited),
                    control: c.control.as_ref().map_or_else(|| "none".into(), words::ratio),
                    blocks: c.pairs.len(),
                    outliers: c.outliers.len(),
                });
            }
        }
    }
    rows
}

/// What each arm measured; of the fixed rate the latencies alone.
pub(super) fn values(cells: &Cells<'_>, arms: &[String], phase: Phase) -> ValueTable {
    let factors = cells.varying();
    let latency = |name: &str| name.starts_with("latency");
    // At a fixed rate only latencies are news; they are news only there.
    let metrics = || {
        METRICS.iter().filter(|m| m.better != Better::Neither).filter(|m| match phase {
            Phase::Capacity => !latency(m.name),
            Phase::EqualWork => true,
            Phase::FixedRate => latency(m.name),
        })
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
