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
    /// Nowhere within their intervals are they farther apart than 5 %, and neither run's noise is
    /// more.
    Same,
    /// The intervals share nothing, and the estimates are farther apart than the noise of both
    /// runs.
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

/// How `a` and `b` are related.
pub(super) fn relation(a: &Side, b: &Side) -> Relation {
    let (Some(floor_a), Some(floor_b)) = (told(a), told(b)) else { return Relation::Undecided };
    // Ratios are compared by their logarithms. A floor of 2 % is how far below 1 an equal arm may
    // seem.
    let noise = -(1.0 - floor_a).ln() - (1.0 - floor_b).ln();
    let apart = (a.ratio.mid / b.ratio.mid).ln().abs();
    let farthest = (a.ratio.high / b.ratio.low).max(b.ratio.high / a.ratio.low);
    if !a.ratio.overlaps(&b.ratio) && apart > noise {
        Relation::Differs
    } else if farthest <= 1.0 + SAME && floor_a.max(floor_b) <= SAME {
        Relation::Same
    } else {
        Relation::Undecided
    }
}

/// The noise floor, where the side tells anything.
fn told(side: &Side) -> Option<f64> {
    side.floor.filter(|floor| side.untold.is_none() && *floor < 1.0)
}

/// What differs by no more is called the same.
const SAME: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Interval;

    fn side(low: f64, mid: f64, high: f64, floor: f64) -> Side {
        let ratio = Interval { low, mid, high };
        Side { ratio, floor: Some(floor), blocks: 10, untold: None, unlimited: None }
    }

    #[test]
    fn a_difference_is_one_only_beyond_the_noise_of_both_runs() {
        let a = side(0.94, 0.95, 0.96, 0.01);
        assert_eq!(relation(&a, &side(0.84, 0.85, 0.86, 0.01)), Relation::Differs);
        assert_eq!(relation(&a, &side(0.84, 0.85, 0.86, 0.11)), Relation::Undecided);
        // 0.95 and 0.92 share nothing: 3.2 % apart, 1.5 and 2 % of noise.
        let (near, noisy) = (side(0.915, 0.92, 0.925, 0.02), side(0.94, 0.95, 0.96, 0.015));
        assert_eq!(relation(&noisy, &near), Relation::Same);
        assert_eq!(relation(&a, &side(0.915, 0.92, 0.925, 0.01)), Relation::Differs);
        assert_eq!(relation(&a, &side(0.84, 0.85, 0.86, 1.2)), Relation::Undecided);
    }

    #[test]
    fn intervals_that_overlap_are_the_same_only_if_they_are_narrow() {
        let narrow = side(0.94, 0.95, 0.96, 0.01);
        assert_eq!(relation(&narrow, &narrow), Relation::Same);
        assert_eq!(relation(&narrow, &side(0.8, 0.95, 1.1, 0.01)), Relation::Undecided);
        assert_eq!(relation(&narrow, &side(0.94, 0.95, 0.96, 0.08)), Relation::Undecided);
    }

    #[test]
    fn what_tells_nothing_in_one_run_is_undecided_of_both() {
        let a = side(0.94, 0.95, 0.96, 0.01);
        let few = Side { untold: Some("few blocks".into()), ..side(0.5, 0.5, 0.5, 0.01) };
        let alone = Side { floor: None, ..side(0.5, 0.5, 0.5, 0.01) };
        assert_eq!(relation(&a, &few), Relation::Undecided);
        assert_eq!(relation(&alone, &a), Relation::Undecided);
    }
}
