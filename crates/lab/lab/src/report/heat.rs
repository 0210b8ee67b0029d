//! The heat map: each cell of the run as a tile, by CPU time, throughput and latency.
//!
//! A tile says what its comparison says: a loss or a gain only where the cell differs by more than
//! chance with all cells of its experiment in mind, else under what a difference is.

use serde::Serialize;

use super::cells::{self, Cells, label, spaced};
use super::finding::Finding;
use super::words::USEFUL;
use crate::analysis::{Aspect, Comparison, PLAIN, of_aspect};
use crate::experiment::{Engine, Experiment};
use crate::manifest::Planned;
use crate::phrase;
use crate::results::Results;
use crate::trial::Cell;

/// The cells of one experiment.
#[derive(Debug, Serialize)]
pub(super) struct Heat {
    experiment: String,
    /// What has a column: the aspects by which a cell was measured.
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Column {
    aspect: Aspect,
    title: &'static str,
}

#[derive(Debug, Serialize)]
struct Row {
    workload: String,
    levels: String,
    /// One for each column.
    tiles: Vec<Tile>,
}

#[derive(Debug, Serialize)]
struct Tile {
    aspect: Aspect,
    /// `loss`, `gain`, `same`, `wide`, `untold` or `absent`.
    state: &'static str,
    text: String,
    /// The whole sentence.
    title: String,
    /// How strong its colour is, in percent; 0 without a difference.
    strength: f64,
}

/// A map for each experiment in which `arm` is compared with plain.
pub(super) fn maps(results: &Results, compared: &[Vec<Comparison>], arm: &str) -> Vec<Heat> {
    let experiments = results.manifest.experiments.iter().zip(compared);
    experiments.filter_map(|(planned, all)| map(planned, results, all, arm)).collect()
}

fn map(planned: &Planned, results: &Results, all: &[Comparison], arm: &str) -> Option<Heat> {
    let experiment = &planned.experiment;
    let against = experiment.arms.first().is_some_and(|base| base == PLAIN);
    let here = planned.arms.iter().any(|a| a.name == arm && a.missing.is_none());
    if experiment.engine == Engine::None || !against || !here {
        return None;
    }
    let of_run = Cells::of(experiment, &results.trials);
    let planned_cells = cells::planned(experiment);
    let differ = |name: &String| {
        let mut levels: Vec<_> = planned_cells.iter().filter_map(|cell| cell.0.get(name)).collect();
        levels.sort_unstable();
        levels.dedup();
        levels.len() > 1
    };
    let mut factors = of_run.varying();
    factors.extend(experiment.factors.keys().filter(|name| differ(name)).cloned());
    let row = |cell: Cell| Row {
        workload: spaced(cell.workload()),
        levels: label(&cell, &factors),
        tiles: tiles(experiment, all, &cell, arm),
    };
    let mut rows: Vec<Row> = of_run.with_planned(experiment).into_iter().map(row).collect();
    let measured = |aspect: &Aspect| {
        let of = |tile: &Tile| tile.aspect == *aspect && tile.state != ABSENT;
        *aspect == Aspect::Throughput || rows.iter().flat_map(|row| &row.tiles).any(of)
    };
    let shown: Vec<Aspect> = Aspect::ORDER.into_iter().filter(measured).collect();
    for row in &mut rows {
        row.tiles.retain(|tile| shown.contains(&tile.aspect));
    }
    let column = |aspect: Aspect| Column { aspect, title: short(aspect) };
    let columns = shown.into_iter().map(column).collect();
    Some(Heat { experiment: experiment.name.clone(), columns, rows })
}

const fn short(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Cpu => "CPU",
        Aspect::Throughput => "thr.",
        Aspect::P95 => "p95",
    }
}

fn tiles(experiment: &Experiment, all: &[Comparison], cell: &Cell, arm: &str) -> Vec<Tile> {
    let here = |c: &&Comparison| c.cell == *cell && c.arm == arm && c.base == PLAIN;
    let here: Vec<&Comparison> = all.iter().filter(here).collect();
    let of = |aspect: Aspect| {
        let found = of_aspect(experiment, cell, &here, aspect);
        found.first().map_or_else(|| absent(aspect), |c| tile(aspect, c))
    };
    Aspect::ORDER.into_iter().map(of).collect()
}

fn absent(aspect: Aspect) -> Tile {
    let title = "not measured".into();
    Tile { aspect, state: ABSENT, text: String::new(), title, strength: 0.0 }
}

fn tile(aspect: Aspect, c: &Comparison) -> Tile {
    let title = format!("{}; {}", c.phrase(), phrase::blocks(c.pairs.len()));
    let change = |sign: char| {
        if c.metric.is_latency() {
            return format!("x{:.1}", 1.0 / c.ratio.mid);
        }
        let percent = (c.ratio.mid - 1.0).abs() * 100.0;
        // From ten on, a digit after the point says nothing.
        if percent < 9.95 { format!("{sign}{percent:.1}") } else { format!("{sign}{percent:.0}") }
    };
    let far = c.ratio.mid.ln().abs();
    let strength = (STEPS * (far / FULL).sqrt().min(1.0)).ceil() * 100.0 / STEPS;
    let (state, text, strength) = match Finding::of(c) {
        Finding::Loss => ("loss", change('-'), strength),
        Finding::Gain => ("gain", change('+'), strength),
        Finding::Same(under) if under <= USEFUL => {
            ("same", format!("<{}", phrase::rounded_up(under)), 0.0)
        }
        Finding::Same(under) if under < 1.0 => {
            ("wide", format!("<{:.0}", (under * 100.0).ceil()), 0.0)
        }
        Finding::Same(_) => ("wide", "~".into(), 0.0),
        Finding::Untold | Finding::Unlimited => ("untold", "?".into(), 0.0),
    };
    Tile { aspect, state, text, title, strength }
}

/// The state of a tile without trials.
const ABSENT: &str = "absent";
/// A logarithm of the ratio that has the full colour: a loss of half.
const FULL: f64 = std::f64::consts::LN_2;
/// Shades of a colour.
const STEPS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare;
    use crate::synthetic::{Synthetic, results};

    fn states(run: Synthetic) -> Vec<(String, &'static str, String)> {
        let results = results(run, &["plain", "control", "sealed"]);
        let compared = vec![compare(&results.manifest.experiments[0].experiment, &results.trials)];
        let map = maps(&results, &compared, "sealed").remove(0);
        let tile = |row: Row| (row.workload, row.tiles[1].state, row.tiles[1].text.clone());
        map.rows.into_iter().map(tile).collect()
    }

    #[test]
    fn a_tile_is_coloured_only_where_the_cell_differs() {
        let mut run = Synthetic::new(10);
        for (name, speed) in [("a_slow", 0.8), ("b_same", 1.0), ("c_fast", 1.3)] {
            run.arm("plain", name, 1.0).arm("control", name, 1.0).arm("sealed", name, speed);
        }
        run.noise = 0.4;
        run.arm("plain", "d_wide", 1.0).arm("control", "d_wide", 1.0).arm("sealed", "d_wide", 1.0);
        run.arm("plain", "e_alone", 1.0).arm("sealed", "e_alone", 0.5);
        let tiles = states(run);
        let state: Vec<&str> = tiles.iter().map(|tile| tile.1).collect();
        assert_eq!(state, ["loss", "same", "gain", "wide", "untold"], "{tiles:?}");
        assert!(tiles[0].2.starts_with('-') && tiles[2].2.starts_with('+'), "{tiles:?}");
        assert!(tiles[1].2.starts_with('<') && tiles[4].2 == "?", "{tiles:?}");
    }

    #[test]
    fn without_the_arm_there_is_no_map() {
        let mut run = Synthetic::new(5);
        run.arm("plain", "select", 1.0).arm("control", "select", 1.0);
        let results = results(run, &["plain", "control"]);
        assert!(maps(&results, &[Vec::new()], "sealed").is_empty());
    }
}
