//! Two runs side by side: the same experiments, cells, arms and metrics, each with its interval.
//!
//! A ratio is performance as a part of the base of its own run, so it may be set beside that of
//! another machine; a ratio of two such ratios is not made. Two ratios differ only beyond the noise
//! of both runs, and where the machines, sizes or experiments are not the same, that is said with
//! it. What differs between the runs, and what only one of them has, is named.

mod differences;
mod relation;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use differences::Differences;
pub use relation::{Condition, Relation};

use crate::analysis::{self, CONTROL};
use crate::phrase::ENDED_BY_HAND;
use crate::results::Results;
use crate::statistics::{Estimate, Interval, holm};
use crate::trial::{Cell, Phase};

/// Two runs, called A and B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideBySide {
    /// Directories of A and B.
    pub names: [String; 2],
    /// What differs before anything was measured: seed, machine, versions, the experiments
    /// themselves; and limits that were not in force.
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
    /// What the two come to.
    pub relation: Relation,
    /// What is not the same in A and B, so that a difference may be due to it.
    pub conditions: Vec<Condition>,
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Performance as a part of the base's.
    pub ratio: Interval,
    /// Its logarithm with its error.
    #[serde(skip)]
    pub estimate: Option<Estimate>,
    /// Blocks that it rests on.
    pub blocks: usize,
    /// Why nothing can be told of it; `None` if something can.
    pub untold: Option<String>,
    /// Why a limit of the experiment was not in force.
    pub unlimited: Option<String>,
}

/// Sets two runs side by side.
#[must_use]
pub fn compare(a: &Results, b: &Results) -> SideBySide {
    let sides = [sides(a), sides(b)];
    let Differences { mut lines, conditions, experiments } =
        Differences::between(&a.manifest, &b.manifest);
    let both: Vec<(&Key, &Side, &Side)> =
        sides[0].iter().filter_map(|(key, a)| Some((key, a, sides[1].get(key)?))).collect();
    let alone: Vec<f64> = both.iter().map(|(_, a, b)| relation::chance(a, b)).collect();
    let row = |((key, a, b), chance): (&(&Key, &Side, &Side), f64)| {
        let (key, a, b) = (*key, *a, *b);
        let mut conditions = conditions.clone();
        if experiments.contains(&key.experiment) {
            conditions.insert(Condition::Experiment);
        }
        if a.unlimited.is_some() != b.unlimited.is_some() {
            conditions.insert(Condition::Limits);
        }
        let conditions = conditions.into_iter().collect();
        let relation = relation::relation(a, b, chance);
        Row { key: key.clone(), sides: [a.clone(), b.clone()], relation, conditions }
    };
    lines.extend(limits(&sides));
    let ended =
        |(run, of): (&str, &Results)| of.ended_by_hand().then(|| format!("{run}: {ENDED_BY_HAND}"));
    lines.extend([("A", a), ("B", b)].into_iter().filter_map(ended));
    SideBySide {
        names: [a, b].map(|run| run.dir.display().to_string()),
        differences: lines,
        rows: both.iter().zip(holm(&alone)).map(row).collect(),
        only: [only(&sides[0], &sides[1]), only(&sides[1], &sides[0])],
    }
}

/// Everything that was compared in a run, but for the control.
fn sides(run: &Results) -> BTreeMap<Key, Side> {
    let mut sides = BTreeMap::new();
    for planned in &run.manifest.experiments {
        let experiment = &planned.experiment;
        let comparisons = analysis::compare(experiment, &run.trials);
        for comparison in comparisons.into_iter().filter(|c| c.arm != CONTROL) {
            let side = Side {
                ratio: comparison.ratio,
                estimate: comparison.estimate,
                blocks: comparison.pairs.len(),
                untold: comparison.told().err(),
                unlimited: comparison.unlimited,
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

/// The limits that were not in force, by experiment and run.
fn limits(sides: &[BTreeMap<Key, Side>; 2]) -> BTreeSet<String> {
    let of_run = |(run, sides): (&str, &BTreeMap<Key, Side>)| -> Vec<String> {
        let why = |(key, side): (&Key, &Side)| {
            let why = side.unlimited.as_ref()?;
            Some(format!("{}: a limit was not in force in {run}: {why}", key.experiment))
        };
        sides.iter().filter_map(why).collect()
    };
    ["A", "B"].into_iter().zip(sides).flat_map(of_run).collect()
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
        Phase::EqualWork => ", by equal work",
        Phase::FixedRate => ", at 70 % of capacity",
    }
}

impl fmt::Display for SideBySide {
    /// The names, what differs, a table for each experiment, what only one has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A  {}\nB  {}", self.names[0], self.names[1])?;
        section(f, "They differ:", &self.differences)?;
        if self.rows.iter().any(|row| !row.conditions.is_empty()) {
            writeln!(
                f,
                "\nWhere something else is not the same, a difference may be due to that."
            )?;
        }
        let columns = |row: &Row| {
            let Key { cell, phase, arm, metric, .. } = &row.key;
            let side = |side: &Side| format!("{} ({})", side.ratio, side.blocks);
            let cell = format!("{cell}{}", at(*phase));
            let others: Vec<String> = row.conditions.iter().map(ToString::to_string).collect();
            let relation = match others.as_slice() {
                [] => row.relation.to_string(),
                others => format!("{}; another {}", row.relation, others.join(", ")),
            };
            let [a, b] = row.sides.each_ref().map(side);
            [cell, arm.clone(), (*metric).into(), a, b, relation]
        };
        let mut tables: BTreeMap<(&str, &str), Vec<[String; 6]>> = BTreeMap::new();
        for row in &self.rows {
            let table = tables.entry((&row.key.experiment, &row.key.base)).or_default();
            table.push(columns(row));
        }
        for ((experiment, base), rows) in tables {
            writeln!(f, "\n{experiment}: performance as a part of {base}'s (blocks)")?;
            let heads = ["cell", "arm", "metric", "A", "B", "A and B"].map(String::from);
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
