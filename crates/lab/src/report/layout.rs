//! The tables as published, and ours in the same layout beside them.

use serde::Serialize;

use super::cells::{Cells, number, spaced};
use super::published::{self, PublishedTable};
use super::words;
use crate::manifest::Planned;
use crate::metric::{Better, METRICS, Metric};
use crate::trial::{Cell, Phase};

/// A published table and ours.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    /// Title of the source.
    source: String,
    /// What the published figures ran on.
    platform: String,
    /// The workload and the levels that hold for the whole table.
    title: String,
    /// What the source adds.
    note: String,
    published: Grid,
    /// `None` if nothing of it was measured.
    ours: Option<Grid>,
}

/// A table.
#[derive(Debug, Serialize)]
struct Grid {
    unit: String,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Column {
    title: String,
    /// Whether it holds numbers that were measured, and so is aligned to the right.
    value: bool,
}

/// A pair for each table of the files that the experiment answers.
pub(super) fn pairs(planned: &Planned, cells: &Cells<'_>) -> Vec<Pair> {
    let files = planned.experiment.published.iter().filter_map(|name| published::find(name));
    let mut pairs = Vec::new();
    for file in files {
        for table in &file.tables {
            let levels =
                table.levels.iter().map(|(name, level)| format!(", {} {level}", spaced(name)));
            pairs.push(Pair {
                source: file.title.clone(),
                platform: file.platform.clone(),
                title: format!("{}{}", spaced(&table.workload), levels.collect::<String>()),
                note: table.note.clone(),
                published: Grid {
                    unit: table.unit.clone(),
                    columns: columns_of(table),
                    rows: table.rows.clone(),
                },
                ours: ours(planned, cells, table),
            });
        }
    }
    pairs
}

fn columns_of(table: &PublishedTable) -> Vec<Column> {
    let numbers = |at: usize| {
        table.rows.iter().all(|row| {
            row.get(at)
                .is_some_and(|cell| cell.is_empty() || cell.replace(',', "").parse::<f64>().is_ok())
        })
    };
    let column =
        |(at, title): (usize, &String)| Column { title: spaced(title), value: numbers(at) };
    table.columns.iter().enumerate().map(column).collect()
}

/// Medians of the trials with the table's workload, and with its levels where ours has them: the
/// factors that differ, then the arms.
fn ours(planned: &Planned, cells: &Cells<'_>, table: &PublishedTable) -> Option<Grid> {
    let mut here = cells.cells(Phase::Capacity);
    here.retain(|cell| {
        let workload = cell.workload();
        workload == table.workload || workload.ends_with(&format!("/{}", table.workload))
    });
    // A level that this size lacks is no reason to show nothing: all of ours are shown then.
    let mut fixed = Vec::new();
    for (name, level) in &table.levels {
        let same = |cell: &&Cell| cell.0.get(name) == Some(level);
        if here.iter().any(same) {
            here.retain(same);
            fixed.push(name);
        }
    }
    let metric = metric_for(&table.unit, cells, &here)?;
    let mut factors: Vec<String> =
        cells.varying().into_iter().filter(|name| !fixed.contains(&name)).collect();
    // In the order of the published columns.
    let place = |name: &String| table.columns.iter().position(|c| c == name).unwrap_or(usize::MAX);
    factors.sort_by_key(place);
    let measured = |arm: &&String| {
        here.iter().any(|cell| cells.summary(Phase::Capacity, cell, arm, metric.name).is_some())
    };
    let arms: Vec<&String> = planned.experiment.arms.iter().filter(measured).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for cell in &here {
        let levels = factors.iter().map(|name| cell.0.get(name).cloned().unwrap_or_default());
        let values = arms.iter().map(|arm| {
            let summary = cells.summary(Phase::Capacity, cell, arm, metric.name);
            summary.map_or_else(String::new, |summary| words::figure(summary.mid))
        });
        rows.push(levels.chain(values).collect());
    }
    let numeric =
        |name: &String| here.iter().all(|c| c.0.get(name).is_some_and(|l| number(l).is_some()));
    let left = factors.iter().map(|name| Column { title: spaced(name), value: numeric(name) });
    let right = arms.iter().map(|arm| Column { title: (*arm).clone(), value: true });
    let columns = left.chain(right).collect();
    (!rows.is_empty()).then(|| Grid { unit: metric.unit.into(), columns, rows })
}

/// The metric of the published unit, or the throughput that was measured instead.
fn metric_for(unit: &str, cells: &Cells<'_>, here: &[&Cell]) -> Option<&'static Metric> {
    let measured = |metric: &&Metric| {
        let mut trials = here.iter().flat_map(|cell| cells.trials(Phase::Capacity, cell));
        trials.any(|trial| trial.metrics.contains_key(metric.name))
    };
    let directed = || METRICS.iter().filter(|m| m.better != Better::Neither).filter(measured);
    directed().find(|metric| metric.unit == unit).or_else(|| directed().next())
}
