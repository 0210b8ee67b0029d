//! The tables as published, and ours in the same layout beside them.

use std::collections::BTreeSet;

use serde::Serialize;

use super::cells::{Cells, number, spaced};
use super::published::{self, PublishedTable};
use super::words;
use crate::catalogue;
use crate::experiment::{Experiment, Size, Work};
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
    /// One table with both where their rows are the same, else the published one and ours.
    grids: Vec<Grid>,
    /// Whether something of it was measured.
    measured: bool,
}

/// A table.
#[derive(Debug, Serialize)]
struct Grid {
    /// What is above its columns, and over how many.
    heads: Vec<(String, usize)>,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Column {
    title: String,
    /// Whether it holds numbers that were measured, and so is aligned to the right.
    value: bool,
}

/// What was measured of a published table: the factors that differ, the arms, a row for each cell.
struct Ours {
    unit: &'static str,
    factors: Vec<String>,
    cells: Vec<(Cell, Vec<String>)>,
}

/// A pair for each table of the files that the experiment answers.
pub(super) fn pairs(planned: &Planned, cells: &Cells<'_>) -> Vec<Pair> {
    let files = planned.experiment.published.iter().filter_map(|name| published::find(name));
    let mut pairs = Vec::new();
    for file in files {
        // What another experiment of the lab answers is shown there.
        for table in file.tables.iter().filter(|table| !elsewhere(&planned.experiment, table)) {
            let levels =
                table.levels.iter().map(|(name, level)| format!(", {} {level}", spaced(name)));
            let ours = ours(planned, cells, table);
            pairs.push(Pair {
                source: file.title.clone(),
                platform: file.platform.clone(),
                title: format!("{}{}", spaced(&table.workload), levels.collect::<String>()),
                note: table.note.clone(),
                measured: ours.is_some(),
                grids: grids(&planned.experiment, table, ours),
            });
        }
    }
    pairs
}

fn grids(experiment: &Experiment, table: &PublishedTable, ours: Option<Ours>) -> Vec<Grid> {
    let unit = if table.unit == "gain" { GAIN } else { &table.unit };
    let theirs = || Grid {
        heads: vec![(format!("published, {unit}"), table.columns.len())],
        columns: columns_of(table),
        rows: table.rows.clone(),
    };
    let Some(ours) = ours else { return vec![theirs()] };
    if let Some(grid) = together(experiment, table, unit, &ours) {
        return vec![grid];
    }
    let rows = ours.cells.iter().map(|(cell, values)| {
        ours.factors.iter().map(|name| level(cell, name)).chain(values.clone()).collect()
    });
    let columns: Vec<Column> = left(&ours).chain(right(experiment)).collect();
    let heads = vec![(format!("here, median, {}", ours.unit), columns.len())];
    vec![theirs(), Grid { heads, rows: rows.collect(), columns }]
}

/// Both in one table: a row has the levels of the published table, by those that ours stand for.
/// `None` where the rows are not the same kind of thing.
fn together(
    experiment: &Experiment,
    table: &PublishedTable,
    unit: &str,
    ours: &Ours,
) -> Option<Grid> {
    let stands = |column: &str| ours.factors.iter().find(|f| experiment.stands_for(f) == column);
    let published = columns_of(table);
    let keys: Vec<(usize, &String)> =
        table.columns.iter().enumerate().filter_map(|(at, c)| Some((at, stands(c)?))).collect();
    let single = table.rows.len() == 1 && ours.cells.len() == 1;
    if keys.is_empty() && !single {
        return None;
    }
    let is_key = |at: usize| keys.iter().any(|(key, _)| *key == at);
    let others: Vec<usize> = (0..table.columns.len()).filter(|at| !is_key(*at)).collect();
    let more: Vec<&String> =
        ours.factors.iter().filter(|f| !keys.iter().any(|(_, key)| key == f)).collect();
    let same = |row: &Vec<String>, cell: &Cell| {
        keys.iter().all(|(at, f)| experiment.published_level(f, &level(cell, f)) == row[*at])
    };
    let key_of = |row: &Vec<String>| keys.iter().map(|(at, _)| row[*at].clone()).collect();
    let here = |(cell, values): &(Cell, Vec<String>)| -> Vec<String> {
        // Where one of ours stands for a published level, it says which it is.
        let by = keys.iter().map(|(_, factor)| *factor).filter(|f| experiment.stands_in(f));
        by.chain(more.iter().copied()).map(|f| level(cell, f)).chain(values.clone()).collect()
    };
    let blank = |columns: usize| vec![String::new(); columns];
    let stand_ins: Vec<&String> =
        keys.iter().map(|(_, f)| *f).filter(|f| experiment.stands_in(f)).collect();
    let width = stand_ins.len() + more.len() + experiment.arms.len();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in &table.rows {
        let theirs: Vec<String> = others.iter().map(|at| row[*at].clone()).collect();
        let key: Vec<String> = key_of(row);
        let mut first = true;
        for of_ours in ours.cells.iter().filter(|(cell, _)| same(row, cell)) {
            let theirs = if first { theirs.clone() } else { blank(others.len()) };
            rows.push([key.clone(), theirs, here(of_ours)].concat());
            first = false;
        }
        if first {
            rows.push([key, theirs, blank(width)].concat());
        }
    }
    // What nobody published has its row too.
    let alone = |(cell, _): &&(Cell, Vec<String>)| !table.rows.iter().any(|row| same(row, cell));
    for of_ours in ours.cells.iter().filter(alone) {
        let key = keys.iter().map(|(_, f)| match experiment.stands_in(f) {
            true => String::new(),
            false => level(&of_ours.0, f),
        });
        rows.push([key.collect(), blank(others.len()), here(of_ours)].concat());
    }
    let of_published =
        |at: usize| Column { title: published[at].title.clone(), value: published[at].value };
    let factor = |f: &String| Column { title: spaced(f), value: true };
    let columns = keys
        .iter()
        .map(|(at, _)| of_published(*at))
        .chain(others.iter().map(|at| of_published(*at)))
        .chain(stand_ins.iter().copied().chain(more.iter().copied()).map(factor))
        .chain(right(experiment));
    let heads = [
        (String::new(), keys.len()),
        (format!("published, {unit}"), others.len()),
        (format!("here, median, {}", ours.unit), width),
    ];
    let heads = heads.into_iter().filter(|(_, columns)| *columns > 0).collect();
    Some(Grid { heads, columns: columns.collect(), rows })
}

fn level(cell: &Cell, factor: &str) -> String {
    cell.0.get(factor).cloned().unwrap_or_default()
}

fn left(ours: &Ours) -> impl Iterator<Item = Column> {
    let numeric = |name: &String| {
        ours.cells.iter().all(|(cell, _)| cell.0.get(name).is_some_and(|l| number(l).is_some()))
    };
    ours.factors.iter().map(move |name| Column { title: spaced(name), value: numeric(name) })
}

fn right(experiment: &Experiment) -> impl Iterator<Item = Column> {
    experiment.arms.iter().map(|arm| Column { title: arm.clone(), value: true })
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

/// Medians of the trials with the table's workload, and with its levels where ours has them or
/// stand-ins for them. What was planned and not measured has its place, and says so.
fn ours(planned: &Planned, cells: &Cells<'_>, table: &PublishedTable) -> Option<Ours> {
    let experiment = &planned.experiment;
    let mut here = cells.with_planned(experiment);
    here.retain(|cell| {
        let workload = experiment.published_level(WORKLOAD, cell.workload());
        workload == table.workload || workload.ends_with(&format!("/{}", table.workload))
    });
    // A level that this size lacks is no reason to show nothing: all of ours are shown then.
    let mut fixed = Vec::new();
    for (name, published) in &table.levels {
        let stands = |factor: &&String| experiment.stands_for(factor) == *name;
        let Some(factor) = experiment.factors.keys().find(stands) else { continue };
        let same =
            |cell: &Cell| experiment.published_level(factor, &level(cell, factor)) == *published;
        if here.iter().any(same) {
            here.retain(same);
            fixed.push(factor);
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
    let known = |name: &String| name != WORKLOAD && !fixed.contains(&name);
    let mut factors: Vec<String> = names.into_iter().filter(known).collect();
    // In the order of the published columns.
    let place = |name: &String| {
        let column = experiment.stands_for(name);
        table.columns.iter().position(|c| c == column).unwrap_or(usize::MAX)
    };
    factors.sort_by_key(place);
    let values = |cell: &Cell| {
        let value = |arm: &String| {
            let summary = cells.summary(Phase::Capacity, cell, arm, metric.name);
            summary.map_or_else(|| NOT_MEASURED.into(), |summary| words::figure(summary.mid))
        };
        experiment.arms.iter().map(value).collect()
    };
    let cells: Vec<(Cell, Vec<String>)> =
        here.iter().map(|cell| (cell.clone(), values(cell))).collect();
    (!cells.is_empty()).then_some(Ours { unit: metric.unit, factors, cells })
}

/// Whether the experiment has no such workload, and another one of the lab has.
fn elsewhere(experiment: &Experiment, table: &PublishedTable) -> bool {
    let answers = |experiment: &Experiment| {
        let phases = |name: &String| {
            name == &table.workload
                || experiment.published_level(WORKLOAD, name) == table.workload
                || matches!(experiment.workload[name], Work::Billing(_))
        };
        experiment.workload.keys().any(phases)
    };
    let others = catalogue::names().filter_map(|name| catalogue::find(name, Size::Small).ok());
    !answers(experiment) && others.into_iter().any(|other| answers_by_name(&other, table))
}

/// Whether a workload of the experiment says that it is the table's.
fn answers_by_name(experiment: &Experiment, table: &PublishedTable) -> bool {
    let named = experiment.stands_for.get(WORKLOAD).into_iter().flat_map(|s| s.levels.values());
    named.into_iter().any(|name| name.0 == table.workload)
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
        assert!(!pairs[0].measured, "nothing of read_only was planned");
        assert!(pairs[3].measured);
        let [_, ours] = &pairs[3].grids[..] else { panic!("{:?}", pairs[3]) };
        assert_eq!(ours.heads, [("here, median, transactions/s".to_owned(), 3)]);
        let titles: Vec<&str> = ours.columns.iter().map(|column| column.title.as_str()).collect();
        assert_eq!(titles, ["scale", "plain", "sealed"]);
        let none = NOT_MEASURED;
        assert_eq!(ours.rows, [["5", "1000", none], ["70", none, none]]);
    }

    /// The experiment that comes with the lab, with one measured cell.
    fn matrix(levels: &[(&str, &str)]) -> Vec<Pair> {
        let mut experiment = crate::catalogue::find("cybertec-matrix", Size::Small).unwrap();
        experiment.name = "synthetic".into();
        let mut run = Synthetic::new(1);
        run.noise = 0.0;
        run.at("plain", levels, 1.0).at("sealed", levels, 0.5);
        let cells = Cells::of(&experiment, &run.trials);
        pairs(&Planned { experiment, arms: Vec::new(), limits: Vec::new() }, &cells)
    }

    #[test]
    fn ours_stand_in_the_rows_and_columns_of_the_publication() {
        let pairs = matrix(&[("workload", "tpcb_like"), ("scale", "50"), ("connections", "2")]);
        // Scale 50 is above memory here, as scale 5000 was there.
        let of = |title: &str| pairs.iter().find(|pair| pair.title == title).unwrap();
        let [grid] = &of("tpcb like, scale 5000").grids[..] else { panic!("{pairs:?}") };
        let titles: Vec<&str> = grid.columns.iter().map(|column| column.title.as_str()).collect();
        let published = ["connections", "stock", "TDE-4", "TDE-4-e", "TDE-9", "TDE-9-e"];
        assert_eq!(titles[..6], published);
        assert_eq!(titles[6..], ["connections", "plain", "control", "sealed"]);
        let heads: Vec<usize> = grid.heads.iter().map(|(_, columns)| *columns).collect();
        assert_eq!(heads, [1, 5, 4]);
        assert_eq!(grid.rows.len(), 10);
        let row = grid.rows.iter().find(|row| row[0] == "12").unwrap();
        assert_eq!(row[1..6], ["4232.58", "4350.82", "2176.31", "2183.95", "2167.18"]);
        assert_eq!(row[6..], ["2", "1000", NOT_MEASURED, "500"]);
        // Scale 7 stands for scale 50, and was not measured.
        assert!(!of("tpcb like, scale 50").measured);
    }
}
