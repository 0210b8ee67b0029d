//! A published claim and how it is judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Param;

/// One sentence that somebody published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Short name, unique in the experiment.
    pub id: String,
    /// The claim with its numbers.
    pub text: String,
    /// File of `published/` that has the numbers, or where else they are from.
    pub source: String,
    /// Name of the metric that it speaks of.
    pub metric: String,
    /// Arm that it speaks of.
    pub arm: String,
    /// Arm that it is compared with.
    pub against: String,
    /// Levels of the cells that it speaks of, `workload` included; all cells if empty.
    #[serde(default, rename = "where")]
    pub levels: BTreeMap<String, Param>,
    /// Compares two levels of a factor instead of two arms: `{ factor, level, base }`.
    #[serde(default)]
    pub levels_against: Option<LevelsAgainst>,
    /// An absolute figure in the metric's unit: what is judged is the arm's own value as a part of
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<f64>,
    /// What the published figures say.
    pub expect: Expectation,
    /// Why this cannot be compared, wherever it is measured.
    #[serde(default)]
    pub not_comparable: Option<String>,
}

/// Two levels of one factor to compare within `arm`: provisioned I/O on against off, say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelsAgainst {
    /// The factor.
    pub factor: String,
    /// The level that the claim speaks of.
    pub level: Param,
    /// The level that it is compared with.
    pub base: Param,
    /// A second factor that changes with it: a larger instance with provisioned I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Box<LevelsAgainst>>,
}

impl LevelsAgainst {
    /// Every factor that changes, with its level and the one that it is compared with.
    pub fn changes(&self) -> impl Iterator<Item = (&String, &Param, &Param)> {
        let all = std::iter::successors(Some(self), |two| two.also.as_deref());
        all.map(|two| (&two.factor, &two.level, &two.base))
    }
}

/// What published figures say of the performance of one arm, as a part of the other's: 1 is the
/// same, below 1 a loss. For times this is base over arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expectation {
    /// Exactly this ratio: reproduced if the interval holds it.
    Ratio(f64),
    /// No difference of more than this part of 1.
    EqualWithin(f64),
    /// A ratio in this range, ends included.
    Between(f64, f64),
}
