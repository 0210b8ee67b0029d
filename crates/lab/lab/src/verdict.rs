//! Judges published claims by what was measured: cheaper than published, as published, dearer, not
//! decided, not comparable.
//!
//! A claim speaks of one or more cells. Each block gives one ratio, the geometric mean over these
//! cells, and the interval is over blocks: see `measured`. How the ratio is judged stands in
//! `rule`; nothing is claimed without a control, with one that differs from plain, from fewer than
//! five blocks, where a cell was not measured, or where a limit was not in force. A control of one
//! cell alone is enough to void a claim of many.

mod measured;
mod rule;

use measured::Measured;
use serde::{Deserialize, Serialize};

use crate::analysis::{CONTRADICTED, interval, told, uncounted};
use crate::experiment::{Claim, Experiment, LevelsAgainst, Param};
use crate::manifest::PlannedArm;
use crate::phrase::{self, MINIATURE};
use crate::statistics::Interval;
use crate::trial::{Cell, Trial, WORKLOAD};

/// A claim and what we say of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was published.
    pub claim: Claim,
    /// Our ratio; `None` where nothing was measured.
    pub ours: Option<Interval>,
    /// The control's ratio in the same cells, formed as ours is.
    pub control: Option<Interval>,
    /// Our ratio of each block, over all cells.
    pub pairs: Vec<(u32, f64)>,
    /// The cells that it was measured in; of a claim about two levels, those at its own level.
    pub cells: Vec<Cell>,
    /// The verdict.
    pub conclusion: Conclusion,
    /// Why, in one sentence without a full stop.
    pub why: String,
}

/// What a reader may conclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Ours agrees with what was published, and could have disagreed.
    AsPublished,
    /// Ours excludes what was published, and is better: less was lost.
    Cheaper,
    /// Ours excludes what was published, and is worse.
    Dearer,
    /// As [`Self::Cheaper`], of a claim about two levels of one arm, where nothing is dear.
    More,
    /// As [`Self::Dearer`], of such a claim.
    Less,
    /// Ours is not precise enough.
    Undecided,
    /// Nothing was measured that the claim could be compared with.
    NotComparable,
    /// Nothing that was measured says anything of a cost: a miniature.
    NotJudged,
}

impl std::fmt::Display for Conclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AsPublished => "as published",
            Self::Cheaper => "cheaper than published",
            Self::Dearer => "dearer than published",
            Self::More => "more than published",
            Self::Less => "less than published",
            Self::Undecided => "not decided",
            Self::NotComparable => "not comparable",
            Self::NotJudged => "not judged: miniature",
        })
    }
}

impl Verdict {
    /// The same of a run that measures nothing long enough to be judged.
    #[must_use]
    pub fn of_miniature(self) -> Self {
        Self { conclusion: Conclusion::NotJudged, why: MINIATURE.into(), ..self }
    }
}

/// Judges every claim of `experiment`. `arms` are those of the manifest: one that is missing says
/// why.
#[must_use]
pub fn judge(experiment: &Experiment, arms: &[PlannedArm], trials: &[Trial]) -> Vec<Verdict> {
    let of_experiment: Vec<&Trial> =
        trials.iter().filter(|trial| trial.experiment == experiment.name).collect();
    let one = |claim: &Claim| judge_one(experiment, claim, arms, &of_experiment);
    experiment.claims.iter().map(one).collect()
}

fn judge_one(
    experiment: &Experiment,
    claim: &Claim,
    arms: &[PlannedArm],
    trials: &[&Trial],
) -> Verdict {
    let mut verdict = Verdict {
        claim: claim.clone(),
        ours: None,
        control: None,
        pairs: Vec::new(),
        cells: Vec::new(),
        conclusion: Conclusion::NotComparable,
        why: String::new(),
    };
    let Some(metric) = crate::metric::find(&claim.metric) else {
        verdict.why = format!("there is no metric {}", claim.metric);
        return verdict;
    };
    let alone = claim.levels_against.is_some() || claim.figure.is_some();
    let against = if alone { &claim.arm } else { &claim.against };
    if let Some(why) = uncounted(experiment, metric, (&claim.arm, against)) {
        verdict.why = not_comparable(experiment, claim, arms).unwrap_or(why);
        return verdict;
    }
    let measured = match Measured::of(experiment, claim, metric, trials) {
        Ok(measured) => measured,
        Err(why) => {
            verdict.why = why.to_string();
            return verdict;
        }
    };
    verdict.pairs.clone_from(&measured.pairs);
    verdict.cells.clone_from(&measured.cells);
    verdict.ours = interval(&verdict.pairs, measured.estimate.as_ref());
    verdict.control = measured.control();
    if let Some(why) = not_comparable(experiment, claim, arms) {
        verdict.why = why;
        return verdict;
    }
    if measured.measured == 0 {
        verdict.why = "it was not measured".into();
        return verdict;
    }
    if let Some(why) = &measured.unlimited {
        verdict.why = format!("a limit of the experiment was not in force: {why}");
        return verdict;
    }
    (verdict.conclusion, verdict.why) = conclude(claim, &verdict, &measured);
    verdict
}

/// The conclusion from what was measured, and why.
fn conclude(claim: &Claim, verdict: &Verdict, measured: &Measured) -> (Conclusion, String) {
    let Measured { measured: some, planned, without_ratio, .. } = measured;
    if some < planned {
        // A part of the cells may cost more or less than all of them.
        let why = format!("{some} of {planned} cells were measured");
        return (Conclusion::Undecided, why);
    }
    let Some(ours) = verdict.ours else {
        let why = "no block was measured in all of its cells";
        return (Conclusion::Undecided, why.into());
    };
    let count = verdict.pairs.len();
    let told = told(count, *without_ratio, measured.has_controls(), None)
        .and_then(|()| if measured.contradicted { Err(CONTRADICTED.into()) } else { Ok(()) })
        .and_then(|()| measured.void().map_or(Ok(()), Err));
    let of_cost = claim.levels_against.is_none() && claim.figure.is_none();
    let (conclusion, why) = match (told, !of_cost) {
        (Ok(()), two) => match (rule::apply(&claim.expect, &ours), two) {
            ((Conclusion::Cheaper, why), true) => (Conclusion::More, why),
            ((Conclusion::Dearer, why), true) => (Conclusion::Less, why),
            (judged, _) => judged,
        },
        (Err(why), _) => (Conclusion::Undecided, why),
    };
    let cells = match planned {
        1 => String::new(),
        cells => format!("{cells} cells, "),
    };
    let blocks = phrase::blocks(count);
    let one_by_one = match claim.levels_against {
        Some(_) => "; the two levels were measured one after the other",
        None => "",
    };
    let why = match claim.figure {
        Some(_) => why.replace("the published equality", "the published figure"),
        None => why,
    };
    (conclusion, format!("{why} ({cells}{blocks}{one_by_one})"))
}

/// Why nothing that is measured here could be compared with the claim; `None` if something could.
fn not_comparable(experiment: &Experiment, claim: &Claim, arms: &[PlannedArm]) -> Option<String> {
    if let Some(why) = &claim.not_comparable {
        return Some(why.clone());
    }
    let named =
        claim.levels.get(WORKLOAD).map(|Param(name)| name.split('/').next().unwrap_or(name));
    if let Some(name) = named.filter(|name| !experiment.workload.contains_key(*name)) {
        return Some(format!("not measured here: {LACKS} {}", name.replace('_', " ")));
    }
    let missing = |name: &String| {
        let arm = arms.iter().find(|arm| arm.name == *name);
        match arm {
            Some(arm) => arm.missing.as_ref().map(|why| format!("arm {name} is missing: {why}")),
            None => Some(format!("arm {name} is not part of this run")),
        }
    };
    let against = claim.levels_against.is_none().then_some(&claim.against);
    if let Some(why) = [Some(&claim.arm), against].into_iter().flatten().find_map(missing) {
        return Some(why);
    }
    let levels = claim
        .levels_against
        .iter()
        .flat_map(LevelsAgainst::changes)
        .flat_map(|(factor, level, base)| [(factor, level), (factor, base)]);
    let unknown = claim.levels.iter().chain(levels).find(|(factor, level)| {
        let known = experiment.factors.get(*factor);
        *factor != WORKLOAD && !known.is_some_and(|known| known.contains(level))
    });
    unknown.map(|(factor, level)| format!("{LACKS} {} {}", factor.replace('_', " "), level.0))
}

/// Why a workload or a level is not there: by the size, or because the run was narrowed.
const LACKS: &str = "this size of the experiment, or what was chosen of it, has no";

#[cfg(test)]
mod tests;
