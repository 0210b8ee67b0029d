//! Throughput over the levels of each numeric factor, and latency over percentiles.

use std::collections::{BTreeMap, BTreeSet};

use super::{Axis, Chart, Figure, Line, Point};
use crate::metric::{Better, METRICS, Metric};
use crate::report::cells::{Cells, Summary, label, number, spaced};
use crate::report::words;
use crate::trial::{Cell, Phase};

/// One chart for each numeric factor, each throughput and each combination of the other levels.
pub(in crate::report) fn over_factors(
    experiment: &str,
    cells: &Cells<'_>,
    arms: &[String],
) -> Vec<Figure> {
    let varying = cells.varying();
    let all = cells.cells(Phase::Capacity);
    let mut figures = Vec::new();
    for factor in &varying {
        let mut others: Vec<Cell> = all.iter().map(|cell| without(cell, factor)).collect();
        others.dedup();
        let mut seen = BTreeSet::new();
        others.retain(|cell| seen.insert(cell.clone()));
        for other in others {
            let mut along: Vec<(f64, &Cell)> = all
                .iter()
                .filter(|cell| without(cell, factor) == other)
                .filter_map(|cell| Some((number(cell.0.get(factor)?)?, *cell)))
                .collect();
            along.sort_by(|a, b| a.0.total_cmp(&b.0));
            if along.len() < 2 {
                continue;
            }
            for metric in throughputs(cells, &along) {
                let lines: Vec<Line> =
                    arms.iter().filter_map(|arm| line(cells, &along, arm, metric)).collect();
                let rest: Vec<&String> = varying.iter().filter(|name| *name != factor).collect();
                let number = figures.len();
                figures.push(Figure {
                    id: format!("{experiment}-{factor}-{number}"),
                    title: format!("{} over {}", spaced(other.workload()), spaced(factor)),
                    caption: label(&other, rest),
                    alt: format!(
                        "{} over {}; the table below has every number.",
                        metric.title,
                        spaced(factor)
                    ),
                    wide: false,
                    chart: Chart::Lines { x: axis(factor, &along), y: metric.unit.into(), lines },
                });
            }
        }
    }
    figures
}

/// One chart for each cell with trials at a fixed rate.
pub(in crate::report) fn latencies(
    experiment: &str,
    cells: &Cells<'_>,
    arms: &[String],
) -> Vec<Figure> {
    let varying = cells.varying();
    let percentiles: Vec<&Metric> =
        METRICS.iter().filter(|m| m.name.starts_with("latency")).collect();
    let mut figures = Vec::new();
    for cell in cells.cells(Phase::FixedRate) {
        let mut lines = Vec::new();
        for arm in arms {
            let mut points = Vec::new();
            for (x, metric) in (0_u8..).zip(&percentiles) {
                let summary = cells.summary(Phase::FixedRate, cell, arm, metric.name);
                points.extend(summary.map(|summary| point(f64::from(x), summary, metric)));
            }
            if !points.is_empty() {
                lines.push(Line { arm: arm.clone(), points });
            }
        }
        if lines.is_empty() {
            continue;
        }
        let rate = arms.iter().find_map(|arm| cells.summary(Phase::FixedRate, cell, arm, "rate"));
        let rate = rate.map(|r| format!("at {} transactions/s", words::figure(r.mid)));
        let levels = label(cell, &varying);
        let caption: Vec<String> =
            [Some(levels).filter(|l| !l.is_empty()), rate].into_iter().flatten().collect();
        figures.push(Figure {
            id: format!("{experiment}-latency-{}", figures.len()),
            title: format!("{}: latency", spaced(cell.workload())),
            caption: caption.join(", "),
            alt: "Latency at the 50th, 95th and 99th percentile; the table below has every number."
                .into(),
            wide: false,
            chart: Chart::Lines {
                x: Axis {
                    title: "percentile".into(),
                    logarithmic: false,
                    ticks: [(0.0, "p50"), (1.0, "p95"), (2.0, "p99")]
                        .map(|(x, t)| (x, t.into()))
                        .into(),
                },
                y: "ms".into(),
                lines,
            },
        });
    }
    figures
}

fn without(cell: &Cell, factor: &str) -> Cell {
    let rest = cell.0.iter().filter(|(name, _)| *name != factor);
    Cell(rest.map(|(name, level)| (name.clone(), level.clone())).collect::<BTreeMap<_, _>>())
}

/// Throughputs that were measured in these cells; times only where there is no throughput.
fn throughputs(cells: &Cells<'_>, along: &[(f64, &Cell)]) -> Vec<&'static Metric> {
    let measured = |metric: &&Metric| {
        let mut trials = along.iter().flat_map(|(_, cell)| cells.trials(Phase::Capacity, cell));
        trials.any(|trial| trial.metrics.contains_key(metric.name))
    };
    let higher: Vec<&Metric> =
        METRICS.iter().filter(|m| m.better == Better::Higher).filter(measured).collect();
    if higher.is_empty() {
        return METRICS.iter().filter(|m| m.name == "elapsed").filter(measured).collect();
    }
    higher
}

fn line(cells: &Cells<'_>, along: &[(f64, &Cell)], arm: &str, metric: &Metric) -> Option<Line> {
    let points: Vec<Point> = along
        .iter()
        .filter_map(|(x, cell)| {
            Some(point(*x, cells.summary(Phase::Capacity, cell, arm, metric.name)?, metric))
        })
        .collect();
    (!points.is_empty()).then(|| Line { arm: arm.into(), points })
}

fn point(x: f64, summary: Summary, metric: &Metric) -> Point {
    let Summary { all, low, mid, high } = summary;
    let text = format!(
        "{} {} ({} to {}), {} trials",
        words::figure(mid),
        metric.unit,
        words::figure(low),
        words::figure(high),
        all.len()
    );
    Point { x, low, mid, high, all, text }
}

/// Logarithmic where the largest level is at least twenty times the smallest.
fn axis(factor: &str, along: &[(f64, &Cell)]) -> Axis {
    let ticks: Vec<(f64, String)> =
        along.iter().filter_map(|(x, cell)| Some((*x, cell.0.get(factor)?.clone()))).collect();
    let smallest = along.first().map_or(0.0, |(x, _)| *x);
    let largest = along.last().map_or(0.0, |(x, _)| *x);
    let logarithmic = smallest > 0.0 && largest / smallest >= 20.0;
    Axis { title: spaced(factor), logarithmic, ticks }
}
