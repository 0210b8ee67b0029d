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

impl Claim {
    /// Whether its figures are figures: finite, positive, and a range from its lower end to its
    /// upper one. The lower end may be 0: "ruins performance" has no number.
    ///
    /// # Errors
    /// What is wrong, with the name of the claim.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |what: String| Err(format!("claim `{}`: {what}", self.id));
        let positive = |number: f64| number.is_finite() && number > 0.0;
        if let Some(figure) = self.figure.filter(|figure| !positive(*figure)) {
            return wrong(format!("figure is {figure}; it is a number above 0"));
        }
        match self.expect {
            Expectation::Ratio(ratio) if !positive(ratio) => {
                wrong(format!("ratio is {ratio}; it is a number above 0"))
            }
            Expectation::EqualWithin(part) if !(positive(part) && part < 1.0) => {
                wrong(format!("equal_within is {part}; it is a part of 1, above 0 and below 1"))
            }
            Expectation::Between(low, high) if !(low >= 0.0 && low < high && positive(high)) => {
                wrong(format!(
                    "between is {low} to {high}; it is two ratios, the lower one first, from 0 on"
                ))
            }
            _ => Ok(()),
        }
    }
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
    /// Exactly this ratio: as published if the interval holds it.
    Ratio(f64),
    /// No difference of more than this part of 1.
    EqualWithin(f64),
    /// A ratio in this range, ends included.
    Between(f64, f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_no_measurement_could_meet_are_refused_by_the_name_of_the_claim() {
        use Expectation::{Between, EqualWithin, Ratio};
        let claim = |expect, figure| Claim {
            id: "c".into(),
            text: String::new(),
            source: String::new(),
            metric: String::new(),
            arm: String::new(),
            against: String::new(),
            levels: BTreeMap::new(),
            levels_against: None,
            figure,
            expect,
            not_comparable: None,
        };
        for expect in [Ratio(0.9), EqualWithin(0.02), Between(0.0, 0.75), Between(0.9, 1.1)] {
            assert_eq!(claim(expect, None).check(), Ok(()));
            assert_eq!(claim(expect, Some(3.0)).check(), Ok(()));
        }
        for (expect, what) in [
            (Ratio(0.0), "ratio is 0"),
            (Ratio(f64::NAN), "ratio is NaN"),
            (EqualWithin(-0.5), "equal_within is -0.5"),
            (EqualWithin(1.0), "equal_within is 1"),
            (Between(1.5, 0.5), "between is 1.5 to 0.5"),
            (Between(-3.0, 2.0), "between is -3 to 2"),
            (Between(0.5, f64::INFINITY), "between is 0.5 to inf"),
        ] {
            let why = claim(expect, None).check().unwrap_err();
            assert!(why.starts_with("claim `c`: ") && why.contains(what), "{why}");
        }
        let why = claim(Ratio(0.9), Some(-1.0)).check().unwrap_err();
        assert!(why.contains("figure is -1"), "{why}");
    }
}
