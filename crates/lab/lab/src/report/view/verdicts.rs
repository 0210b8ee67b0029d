//! The claims of an experiment and what came of each, as rows.

use serde::Serialize;

use crate::experiment::{Claim, Size};
use crate::manifest::Planned;
use crate::metric;
use crate::report::{published, words};
use crate::results::Results;
use crate::verdict::{self, Conclusion, Verdict};

/// A claim and what came of it.
#[derive(Debug, Serialize)]
pub(in crate::report) struct VerdictRow {
    id: String,
    claim: String,
    source: String,
    published: String,
    ours: Option<String>,
    /// Ends and middle of ours.
    interval: Option<(f64, f64, f64)>,
    pub(super) conclusion: Conclusion,
    words: String,
    why: String,
}

/// Every claim of the experiment, judged.
pub(super) fn of(planned: &Planned, results: &Results) -> Vec<VerdictRow> {
    let judged = verdict::judge(&planned.experiment, &planned.arms, &results.trials);
    let is_miniature = results.manifest.size == Size::Miniature;
    let judged = judged.into_iter().map(|one| if is_miniature { one.of_miniature() } else { one });
    let row = |verdict: Verdict| VerdictRow {
        published: published_of(&verdict.claim),
        id: verdict.claim.id,
        claim: verdict.claim.text,
        source: source(&verdict.claim.source),
        ours: verdict.ours.as_ref().map(words::ratio),
        interval: verdict.ours.map(|ours| (ours.low, ours.mid, ours.high)),
        conclusion: verdict.conclusion,
        words: verdict.conclusion.to_string(),
        why: verdict.why,
    };
    judged.map(row).collect()
}

/// What was published, in words: a ratio, or a figure with its unit.
fn published_of(claim: &Claim) -> String {
    let unit = metric::find(&claim.metric).map_or("", |metric| metric.unit);
    match claim.figure {
        Some(figure) => format!("{} {unit}", words::printed(figure)),
        None => words::expectation(&claim.expect),
    }
}

/// Title of the file of `published/`, or whatever else the claim names.
fn source(name: &str) -> String {
    published::find(name).map_or_else(|| name.to_owned(), |published| published.title)
}
