//! What one ratio in two runs comes to: the same, different, or neither can be told.
//!
//! Says nothing of why: what else is not the same in the two runs are the [`Condition`]s beside it.

use std::fmt;

use serde::Serialize;

use super::Side;

/// How the ratios of two runs are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Nowhere within their intervals are they farther apart than 5 %.
    Same,
    /// They are farther apart than chance explains, with all rows in mind.
    Differs,
    /// Neither.
    Undecided,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Undecided => "undecided",
        })
    }
}

/// What is not the same in both runs, so that a difference may be due to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// The machine: its processors, memory, kernel, file system.
    Machine,
    /// Servers and tools.
    Versions,
    /// Size of the experiments.
    Size,
    /// The experiment: its settings, workloads, arms, blocks.
    Experiment,
    /// A limit was in force in one of them only.
    Limits,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "machine",
            Self::Versions => "versions",
            Self::Size => "size",
            Self::Experiment => "experiment",
            Self::Limits => "limits",
        })
    }
}

/// How likely two equal ratios are to be so far apart; 1 where one of them says nothing.
pub(super) fn chance(a: &Side, b: &Side) -> f64 {
    let told = |side: &Side| side.estimate.filter(|_| side.untold.is_none());
    told(a).zip(told(b)).map_or(1.0, |(a, b)| a.less(&b).p_value())
}

/// How `a` and `b` are related, if this is the chance that they are equal.
pub(super) fn relation(a: &Side, b: &Side, chance: f64) -> Relation {
    let farthest = (a.ratio.high / b.ratio.low).max(b.ratio.high / a.ratio.low);
    if a.untold.is_some() || b.untold.is_some() {
        Relation::Undecided
    } else if chance < SIGNIFICANT {
        Relation::Differs
    } else if farthest <= 1.0 + SAME {
        Relation::Same
    } else {
        Relation::Undecided
    }
}

/// Below this chance two ratios differ.
const SIGNIFICANT: f64 = 0.05;
/// What differs by no more is called the same.
const SAME: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Estimate;

    /// Ten blocks about a ratio, this far from it in turn.
    fn side(mid: f64, spread: f64) -> Side {
        let log = |block: i32| mid.ln() + if block % 2 == 0 { spread } else { -spread };
        let logs: Vec<f64> = (0..10).map(log).collect();
        let estimate = Estimate::of(&logs, None).unwrap();
        let ratio = estimate.interval(0.95);
        Side { ratio, estimate: Some(estimate), blocks: 10, untold: None, unlimited: None }
    }

    fn related(a: &Side, b: &Side) -> Relation {
        relation(a, b, chance(a, b))
    }

    #[test]
    fn a_difference_is_one_only_beyond_the_noise_of_both_runs() {
        let a = side(0.95, 0.01);
        assert_eq!(related(&a, &side(0.85, 0.01)), Relation::Differs);
        assert_eq!(related(&a, &side(0.85, 0.3)), Relation::Undecided);
        // The same in each of a thousand rows is chance in some.
        assert_eq!(relation(&a, &side(0.85, 0.01), 0.2), Relation::Undecided);
    }

    #[test]
    fn ratios_are_the_same_only_if_their_intervals_are_narrow() {
        let narrow = side(0.95, 0.01);
        assert_eq!(related(&narrow, &narrow), Relation::Same);
        assert_eq!(related(&narrow, &side(0.95, 0.2)), Relation::Undecided);
    }

    #[test]
    fn what_tells_nothing_in_one_run_is_undecided_of_both() {
        let a = side(0.95, 0.01);
        let few = Side { untold: Some("few blocks".into()), ..side(0.5, 0.01) };
        assert_eq!(related(&a, &few), Relation::Undecided);
        assert_eq!(related(&few, &a), Relation::Undecided);
    }
}
