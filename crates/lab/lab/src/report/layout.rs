//! The tables as published, and ours in the same layout beside them.

use std::collections::BTreeSet;

use serde::Serialize;

use super::cells::{Cells, number, spaced};
use super::published::{self, PublishedTable};
use super::words;
use crate::manifest::Planned;
use crate::metric::{Better, METRICS, Metric};
use crate::trial::{Cell, Phase, WORKLOAD};

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
                    unit: if table.unit == "gain" { GAIN.into() } else { table.unit.clone() },
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
/// factors that differ, then the arms. What was planned and not measured has its place, and says
/// so.
fn ours(planned: &Planned, cells: &Cells<'_>, table: &PublishedTable) -> Option<Grid> {
    let mut here = cells.with_planned(&planned.experiment);
    here.retain(|cell| {
        let workload = cell.workload();
        workload == table.workload || workload.ends_with(&format!("/{}", table.workload))
    });
    // A level that this size lacks is no reason to show nothing: all of ours are shown then.
    let mut fixed = Vec::new();
    for (name, level) in &table.levels {
        let same = |cell: &Cell| cell.0.get(name) == Some(level);
        if here.iter().any(same) {
            here.retain(same);
            fixed.push(name);
        }
    }
    let metric = metric_for(&table.unit, cells, &here)?;
    // Also those that only what was not measured differs in.
    let differ = |name: &String| {
        let levels: BTreeSet<_> = here.iter().map(|cell| cell.0.get(name)).collect();
        levels.len() > 1
    };
    let mut names = cells.varying();
    names.extend(here.iter().flat_map(|cell| cell.0.keys()).filter(|n| differ(n)).cloned());
    let mut factors: Vec<String> =
        names.into_iter().filter(|name| name != WORKLOAD && !fixed.contains(&name)).collect();
    // In the order of the published columns.
    let place = |name: &String| table.columns.iter().position(|c| c == name).unwrap_or(usize::MAX);
    factors.sort_by_key(place);
    let arms = &planned.experiment.arms;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for cell in &here {
        let levels = factors.iter().map(|name| cell.0.get(name).cloned().unwrap_or_default());
        let values = arms.iter().map(|arm| {
            let summary = cells.summary(Phase::Capacity, cell, arm, metric.name);
            summary.map_or_else(|| NOT_MEASURED.into(), |summary| words::figure(summary.mid))
        });
        rows.push(levels.chain(values).collect());
    }
    let numeric =
        |name: &String| here.iter().all(|c| c.0.get(name).is_some_and(|l| number(l).is_some()));
    let left = factors.iter().map(|name| Column { title: spaced(name), value: numeric(name) });
    let right = arms.iter().map(|arm| Column { title: arm.clone(), value: true });
    let columns = left.chain(right).collect();
    (!rows.is_empty()).then(|| Grid { unit: metric.unit.into(), columns, rows })
}

/// The metric of the published unit, or the throughput that was measured instead.
fn metric_for(unit: &str, cells: &Cells<'_>, here: &[Cell]) -> Option<&'static Metric> {
    let measured = |metric: &&Metric| {
        let mut trials = here.iter().flat_map(|cell| cells.trials(Phase::Capacity, cell));
        trials.any(|trial| trial.metrics.contains_key(metric.name))
    };
    let directed = || METRICS.iter().filter(|m| m.better != Better::Neither).filter(measured);
    directed().find(|metric| metric.unit == unit).or_else(|| directed().next())
}

/// What a published gain is, beside units that need no words.
const GAIN: &str = "gain as a part of 1";
/// What a cell says that has no trial.
const NOT_MEASURED: &str = "not measured";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{self, Size};
    use crate::synthetic::Synthetic;

    #[test]
    fn a_cell_and_an_arm_that_were_not_measured_say_so() {
        let text = "name = 'synthetic'\nquestion = ''\nengine = 'postgresql'\n\
                    published = ['cybertec_tde']\narms = ['plain', 'sealed']\n[factors]\n\
                    scale = [5, 70]\n[workload.tpcb_like]\nkind = 'pgbench'\n\
                    script = 'tpcb-like'\nscale = '{scale}'\nclients = 1\njobs = 1\n\
                    seconds = 1\n[stop]\nblocks = 10\n";
        let experiment = experiment::read("synthetic", text, Size::Small).unwrap();
        let mut run = Synthetic::new(1);
        run.noise = 0.0;
        run.at("plain", &[("workload", "tpcb_like"), ("scale", "5")], 1.0);
        let cells = Cells::of(&experiment, &run.trials);
        let planned = Planned { experiment, arms: Vec::new(), limits: Vec::new() };
        let pairs = pairs(&planned, &cells);
        assert_eq!(pairs.len(), 6);
        assert!(pairs[0].ours.is_none(), "nothing of read_only was planned");
        let ours = pairs[3].ours.as_ref().unwrap();
        assert_eq!(ours.unit, "transactions/s");
        let titles: Vec<&str> = ours.columns.iter().map(|column| column.title.as_str()).collect();
        assert_eq!(titles, ["scale", "plain", "sealed"]);
        let none = NOT_MEASURED;
        assert_eq!(ours.rows, [["5", "1000", none], ["70", none, none]]);
    }
}
