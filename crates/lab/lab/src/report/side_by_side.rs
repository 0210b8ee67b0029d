//! Two runs side by side as one page: kinds of load of both on one axis, then every comparison that
//! both have.

use serde::Serialize;

use super::forest::Forest;
use super::{page, words};
use crate::analysis::{self, Comparison, Family, SEALED, families};
use crate::compare::{Condition, Relation, Row, SideBySide, compare};
use crate::error::Result;
use crate::experiment::Experiment;
use crate::metric;
use crate::results::Results;

/// What the page says.
#[derive(Debug, Serialize)]
pub(super) struct View {
    names: [String; 2],
    started: [String; 2],
    /// What the comparison comes to, in one sentence.
    said: String,
    forest: Forest,
    differences: Vec<String>,
    tables: Vec<Table>,
    only: [Vec<String>; 2],
}

/// The rows of one experiment.
#[derive(Debug, Serialize)]
struct Table {
    experiment: String,
    base: String,
    rows: Vec<RowView>,
}

#[derive(Debug, Serialize)]
struct RowView {
    cell: String,
    arm: String,
    metric: String,
    sides: [String; 2],
    relation: Relation,
    words: String,
}

/// The page.
///
/// # Errors
/// When the template fails.
pub(super) fn html(a: &Results, b: &Results) -> Result<String> {
    page::side_by_side(&View::of(a, b))
}

impl View {
    fn of(a: &Results, b: &Results) -> Self {
        let SideBySide { names, differences, rows, only } = compare(a, b);
        let runs = [a, b].map(families_of);
        // What only one of them has is not compared.
        let both = |family: &Family, other: &[Family]| {
            other.iter().any(|o| (o.kind, o.aspect) == (family.kind, family.aspect))
        };
        let [one, other] = &runs;
        let shared = [(one, other), (other, one)]
            .map(|(run, other)| run.iter().filter(|f| both(f, other)).cloned().collect());
        Self {
            names,
            started: [a, b].map(|run| words::moment(run.manifest.created)),
            said: said(&rows),
            forest: Forest::of(&shared, &[]),
            differences,
            tables: tables(&rows),
            only,
        }
    }
}

fn families_of(run: &Results) -> Vec<Family> {
    let experiments = || run.manifest.experiments.iter().map(|planned| &planned.experiment);
    let compared: Vec<Vec<Comparison>> =
        experiments().map(|experiment| analysis::compare(experiment, &run.trials)).collect();
    let all: Vec<(&Experiment, &[Comparison])> =
        experiments().zip(compared.iter().map(Vec::as_slice)).collect();
    families(&all, SEALED)
}

fn said(rows: &[Row]) -> String {
    let count = |relation| rows.iter().filter(|row| row.relation == relation).count();
    let [differ, same, open] = [Relation::Differs, Relation::Same, Relation::Undecided].map(count);
    match rows.len() {
        0 => "The two runs have nothing in common.".into(),
        1 => format!("The only comparison that both runs have: {}.", rows[0].relation),
        all => {
            let differ = verb(differ, "differs", "differ");
            let same = verb(same, "is", "are");
            let open = verb(open, "is", "are");
            format!(
                "Of {all} comparisons that both runs have, {differ}, {same} the same, and {open} \
                 undecided."
            )
        }
    }
}

/// So many, and what they do.
fn verb(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn tables(rows: &[Row]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for row in rows {
        let key = &row.key;
        let known =
            tables.iter().position(|t| t.experiment == key.experiment && t.base == key.base);
        let at = known.unwrap_or_else(|| {
            let (experiment, base) = (key.experiment.clone(), key.base.clone());
            tables.push(Table { experiment, base, rows: Vec::new() });
            tables.len() - 1
        });
        tables[at].rows.push(RowView::of(row));
    }
    tables
}

impl RowView {
    fn of(row: &Row) -> Self {
        let title = metric::find(row.key.metric).map_or(row.key.metric, |metric| metric.title);
        let others: Vec<String> = row.conditions.iter().map(Condition::to_string).collect();
        let words = match others.as_slice() {
            [] => row.relation.to_string(),
            others => format!("{}; another {}", row.relation, others.join(", ")),
        };
        Self {
            cell: row.key.cell.to_string(),
            arm: row.key.arm.clone(),
            metric: format!("{title} {}", row.key.phase.words()).trim_end().to_owned(),
            sides: row.sides.each_ref().map(|side| words::ratio(&side.ratio)),
            relation: row.relation,
            words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, results};

    fn run(speed: f64) -> Results {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0)
            .arm("control", "select", 1.0)
            .arm("sealed", "select", speed);
        results(run, &["plain", "control", "sealed"])
    }

    #[test]
    fn the_page_says_how_many_comparisons_differ_and_shows_each() {
        let view = View::of(&run(0.9), &run(0.7));
        assert_eq!(
            view.said,
            "Of 2 comparisons that both runs have, 2 differ, 0 are the same, and 0 are undecided."
        );
        assert_eq!(view.tables.len(), 1);
        assert!(view.tables[0].rows.iter().all(|row| row.relation == Relation::Differs));
        let page = html(&run(0.9), &run(0.7)).unwrap();
        for said in [view.said.as_str(), "Content-Security-Policy", "class=\"badge differs\""] {
            assert!(page.contains(said), "{said}");
        }
    }

    #[test]
    fn one_of_several_comparisons_has_a_verb_of_its_own() {
        let compared = compare(&run(0.9), &run(0.7));
        let [mut same, differs] = <[Row; 2]>::try_from(compared.rows).unwrap();
        same.relation = Relation::Same;
        let told = "Of 2 comparisons that both runs have, 1 differs, 1 is the same, and 0 are \
                    undecided.";
        assert_eq!(said(&[same, differs]), told);
    }

    #[test]
    fn what_only_one_run_has_is_named_and_not_drawn() {
        let mut other = run(0.9);
        other.manifest.experiments[0].experiment.name = "other".into();
        other.trials.iter_mut().for_each(|trial| trial.experiment = "other".into());
        let view = View::of(&run(0.9), &other);
        assert_eq!(view.said, "The two runs have nothing in common.");
        assert_eq!(
            view.only,
            [["experiment synthetic"], ["experiment other"]].map(|n| n.map(String::from).to_vec())
        );
    }
}
