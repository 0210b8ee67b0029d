//! Two runs side by side: the same experiments, cells, arms and metrics, each with its interval.
//!
//! A ratio is performance as a part of the base of its own run, so it may be set beside that of another
//! machine; a ratio of two such ratios is not made. What differs between the runs, and what only one of
//! them has, is named.

mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::analysis::{self, CONTROL};
use crate::results::Results;
use crate::statistics::Interval;
use crate::trial::{Cell, Phase};

/// Two runs, called A and B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideBySide {
    /// Directories of A and B.
    pub names: [String; 2],
    /// What differs before anything was measured: seed, machine, versions, the experiments themselves.
    pub differences: Vec<String>,
    /// What both have.
    pub rows: Vec<Row>,
    /// What only A has, and what only B has.
    pub only: [Vec<String>; 2],
}

/// One comparison that both runs have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is compared.
    pub key: Key,
    /// In A and in B.
    pub sides: [Side; 2],
    /// Whether the intervals have a value in common. That they do does not show that A and B are equal.
    pub overlap: bool,
}

/// What is compared: an arm with the base of its experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// Name of the experiment.
    pub experiment: String,
    /// What the trials were for.
    pub phase: Phase,
    /// Levels of the factors.
    pub cell: Cell,
    /// Arm.
    pub arm: String,
    /// The arm that it is compared with.
    pub base: String,
    /// Name of the metric.
    pub metric: &'static str,
}

/// One run's part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Performance as a part of the base's.
    pub ratio: Interval,
    /// Noise floor, as a part of 1.
    pub floor: Option<f64>,
    /// Blocks that it rests on.
    pub blocks: usize,
}

/// Sets two runs side by side; the seed of each interval is that of its run.
#[must_use]
pub fn compare(a: &Results, b: &Results) -> SideBySide {
    let sides = [sides(a), sides(b)];
    let row = |(key, a): (&Key, &Side)| {
        let b = sides[1].get(key)?;
        Some(Row { key: key.clone(), sides: [*a, *b], overlap: a.ratio.overlaps(&b.ratio) })
    };
    SideBySide {
        names: [a, b].map(|run| run.dir.display().to_string()),
        differences: differences::between(&a.manifest, &b.manifest),
        rows: sides[0].iter().filter_map(row).collect(),
        only: [only(&sides[0], &sides[1]), only(&sides[1], &sides[0])],
    }
}

/// Everything that was compared in a run, but for the control, which is the floor of the others.
fn sides(run: &Results) -> BTreeMap<Key, Side> {
    let mut sides = BTreeMap::new();
    for planned in &run.manifest.experiments {
        let experiment = &planned.experiment;
        let comparisons = analysis::compare(experiment, &run.trials, run.manifest.seed);
        for comparison in comparisons.into_iter().filter(|c| c.arm != CONTROL) {
            let side = Side {
                ratio: comparison.ratio,
                floor: comparison.floor(),
                blocks: comparison.pairs.len(),
            };
            let key = Key {
                experiment: experiment.name.clone(),
                phase: comparison.phase,
                cell: comparison.cell,
                arm: comparison.arm,
                base: comparison.base,
                metric: comparison.metric.name,
            };
            sides.insert(key, side);
        }
    }
    sides
}

/// What `one` has and `other` lacks, by the largest thing that is wholly absent.
fn only(one: &BTreeMap<Key, Side>, other: &BTreeMap<Key, Side>) -> Vec<String> {
    let mut names = BTreeSet::new();
    for key in one.keys().filter(|key| !other.contains_key(key)) {
        let has = |same: &dyn Fn(&Key) -> bool| {
            other.keys().any(|k| k.experiment == key.experiment && same(k))
        };
        let Key { experiment, cell, arm, base, metric, phase } = key;
        names.insert(if !has(&|_| true) {
            format!("experiment {experiment}")
        } else if !has(&|k| k.arm == *arm && k.base == *base) {
            format!("{experiment}: arm {arm} against {base}")
        } else if !has(&|k| k.cell == *cell && k.phase == *phase) {
            format!("{experiment}: {cell}{}", at(*phase))
        } else {
            format!("{experiment}: {cell}{}: {arm}: {metric}", at(*phase))
        });
    }
    names.into_iter().collect()
}

const fn at(phase: Phase) -> &'static str {
    match phase {
        Phase::Capacity => "",
        Phase::FixedRate => ", at a fixed rate",
    }
}

impl fmt::Display for SideBySide {
    /// The names, what differs, a table for each experiment, what only one has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A  {}\nB  {}", self.names[0], self.names[1])?;
        section(f, "They differ:", &self.differences)?;
        let columns = |row: &Row| {
            let Key { cell, phase, arm, metric, .. } = &row.key;
            let side = |side: &Side| format!("{} ({})", side.ratio, side.blocks);
            let cell = format!("{cell}{}", at(*phase));
            let apart = if row.overlap { "overlap" } else { "apart" };
            let [a, b] = row.sides.each_ref().map(side);
            [cell, arm.clone(), (*metric).into(), a, b, apart.into()]
        };
        let mut tables: BTreeMap<(&str, &str), Vec<[String; 6]>> = BTreeMap::new();
        for row in &self.rows {
            let table = tables.entry((&row.key.experiment, &row.key.base)).or_default();
            table.push(columns(row));
        }
        for ((experiment, base), rows) in tables {
            writeln!(f, "\n{experiment}: performance as a part of {base}'s (blocks)")?;
            let heads = ["cell", "arm", "metric", "A", "B", "intervals"].map(String::from);
            table(f, &heads, &rows)?;
        }
        if self.rows.is_empty() {
            writeln!(f, "\nThey have nothing in common.")?;
        }
        section(f, "Only A has:", &self.only[0])?;
        section(f, "Only B has:", &self.only[1])
    }
}

fn section(f: &mut fmt::Formatter<'_>, head: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{head}")?;
    lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
}

/// Columns as wide as their widest entry.
fn table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    heads: &[String; N],
    rows: &[[String; N]],
) -> fmt::Result {
    let lines = || std::iter::once(heads).chain(rows);
    let width = |column: usize| lines().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for line in lines() {
        let cells = line.iter().zip(widths).map(|(text, width)| format!("{text:<width$}"));
        writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
