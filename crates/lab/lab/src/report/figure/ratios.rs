//! Ratio plots: one chart for each workload and metric, one row for each cell and arm.

use std::collections::BTreeSet;

use super::{Chart, Figure, Row};
use crate::analysis::Comparison;
use crate::metric::{Better, Metric};
use crate::report::cells::{Cells, label, spaced};
use crate::report::words;
use crate::trial::Phase;

pub(in crate::report) fn ratios(
    experiment: &str,
    cells: &Cells<'_>,
    compared: &[Comparison],
) -> Vec<Figure> {
    let factors = cells.varying();
    let mut figures = Vec::new();
    for phase in Phase::ALL {
        let order = cells.cells(phase);
        let mut workloads: Vec<&str> = order.iter().map(|cell| cell.workload()).collect();
        workloads.dedup();
        for workload in workloads {
            for metric in metrics(compared, phase, workload) {
                let mut rows = Vec::new();
                for cell in order.iter().filter(|cell| cell.workload() == workload) {
                    let of_cell = compared.iter().filter(|c| {
                        c.phase == phase && c.metric.name == metric.name && c.cell == **cell
                    });
                    rows.extend(of_cell.map(|c| row(c, &factors)));
                }
                let base = compared.first().map_or("", |c| c.base.as_str());
                figures.push(Figure {
                    id: format!("{experiment}-{}-{workload}-{}-ratio", phase.name(), metric.name),
                    title: format!("{}: {}", spaced(workload), title(metric, phase)),
                    caption: String::new(),
                    alt: format!(
                        "{} ratios to {base}; the table below has every number.",
                        rows.len()
                    ),
                    wide: true,
                    chart: Chart::Ratios { rows },
                });
            }
        }
    }
    figures
}

/// Metrics worth a chart: a time beside a throughput says the same twice, and so does a throughput
/// at a fixed rate.
fn metrics(compared: &[Comparison], phase: Phase, workload: &str) -> Vec<&'static Metric> {
    let here = compared.iter().filter(|c| c.phase == phase && c.cell.workload() == workload);
    let names: BTreeSet<&str> = here.map(|c| c.metric.name).collect();
    let all = || crate::metric::METRICS.iter().filter(|m| names.contains(m.name));
    let throughput = all().any(|m| m.better == Better::Higher);
    let latency = |m: &Metric| m.name.starts_with("latency");
    all()
        .filter(|m| match phase {
            Phase::Capacity => !(latency(m) || throughput && m.name == "elapsed"),
            Phase::EqualWork => latency(m) || m.name == "cpu_per_unit",
            Phase::FixedRate => latency(m),
        })
        .collect()
}

fn title(metric: &Metric, phase: Phase) -> String {
    format!("{} {}", metric.title, phase.words()).trim_end().to_owned()
}

fn row(c: &Comparison, factors: &BTreeSet<String>) -> Row {
    let mut text = format!("{}, {} blocks", words::ratio(&c.ratio), c.pairs.len());
    if let Err(why) = c.told() {
        text = format!("{text}; {why}");
    }
    if let Some(why) = &c.unlimited {
        text = format!("{text}; a limit was not in force: {why}");
    }
    Row {
        label: label(&c.cell, factors),
        arm: c.arm.clone(),
        low: c.ratio.low,
        mid: c.ratio.mid,
        high: c.ratio.high,
        pairs: c.pairs.clone(),
        outliers: c.outliers.clone(),
        control: c.control.map(|control| (control.low, control.high)),
        untold: c.told().is_err() || c.unlimited.is_some(),
        text,
    }
}
