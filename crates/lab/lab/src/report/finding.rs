//! What may be said of one comparison: a loss, a gain, no difference, or nothing.
//!
//! Which comparison says nothing is decided where it is made (`Comparison::told`). Such a one is
//! still shown, and marked, as is one whose limits were not in force.

use crate::analysis::Comparison;

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// Slower, by more than chance.
    Loss,
    /// Faster, by more than chance.
    Gain,
    /// No difference that could be told from chance; it is under this part of 1.
    Same(f64),
    /// Too little was measured.
    Untold,
    /// A limit of the experiment was not in force, so it is another experiment.
    Unlimited,
}

impl Finding {
    pub(super) fn of(comparison: &Comparison) -> Self {
        if comparison.unlimited.is_some() {
            return Self::Unlimited;
        }
        if comparison.told().is_err() {
            return Self::Untold;
        }
        let ratio = &comparison.ratio;
        if !comparison.differs() {
            Self::Same(ratio.reach(1.0))
        } else if ratio.mid < 1.0 {
            Self::Loss
        } else {
            Self::Gain
        }
    }

    /// Under what a difference that was not detected is, as a part of 1.
    pub(super) const fn under(self) -> Option<f64> {
        if let Self::Same(under) = self { Some(under) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis;
    use crate::synthetic::{Synthetic, experiment};

    fn found(run: &Synthetic, arms: &[&str]) -> Finding {
        let all = analysis::compare(&experiment(arms), &run.trials);
        Finding::of(all.iter().find(|c| c.arm == "sealed").unwrap())
    }

    #[test]
    fn without_a_control_no_loss_is_found() {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("sealed", "select", 0.5);
        assert_eq!(found(&run, &["plain", "sealed"]), Finding::Untold);
    }

    #[test]
    fn four_blocks_of_any_arm_tell_nothing_and_five_do() {
        for few in ["control", "sealed"] {
            for (kept, finding) in [(4, Finding::Untold), (5, Finding::Loss)] {
                let mut run = Synthetic::new(10);
                run.arm("plain", "select", 1.0).arm("control", "select", 1.0);
                run.arm("sealed", "select", 0.5);
                run.trials.retain(|trial| trial.arm != few || trial.block < kept);
                let found = found(&run, &["plain", "control", "sealed"]);
                assert_eq!(found, finding, "{kept} blocks of {few}");
            }
        }
    }

    #[test]
    fn a_loss_without_the_limits_of_the_experiment_is_none_of_it() {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("control", "select", 1.0);
        run.arm("sealed", "select", 0.5).unlimited("select");
        assert_eq!(found(&run, &["plain", "control", "sealed"]), Finding::Unlimited);
    }

    #[test]
    fn equal_arms_are_under_what_the_interval_reaches() {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 1.0);
        let all = analysis::compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
        for sealed in all.iter().filter(|c| c.arm == "sealed") {
            let under = Finding::of(sealed).under().unwrap();
            assert!(under >= sealed.ratio.reach(1.0));
        }
    }

    #[test]
    fn equal_arms_seldom_seem_to_differ() {
        let arms = ["plain", "control", "sealed"];
        let mut run = Synthetic::new(10);
        run.noise = 0.1;
        for cell in 0..500 {
            for arm in arms {
                run.arm(arm, &cell.to_string(), 1.0);
            }
        }
        let all = analysis::compare(&experiment(&arms), &run.trials);
        let sealed: Vec<Finding> =
            all.iter().filter(|c| c.arm == "sealed").map(Finding::of).collect();
        assert_eq!(sealed.len(), 1000, "throughput and CPU of each cell");
        let is = |wanted: Finding| sealed.iter().filter(|found| **found == wanted).count();
        let (wrong, void) = (is(Finding::Loss) + is(Finding::Gain), is(Finding::Untold));
        // One test of 500 cells for each metric: a single wrong one in five of a hundred runs.
        assert!(wrong <= 2, "{wrong} of 1000 equal arms seem to differ");
        // A control excludes 1 in one of a hundred cells; four standard errors more.
        assert!(void < 23, "{void} of 1000 are void");
    }
}
