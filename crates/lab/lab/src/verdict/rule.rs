//! How a measured ratio is judged by what was published. Pure: an interval, a noise floor, a
//! sentence.
//!
//! A published ratio is reproduced where ours holds it and is precise enough to have told it from
//! no difference, and not reproduced where ours excludes it by more than the noise floor. A
//! published range is reproduced where ours lies in it, and not where ours lies outside by more
//! than the floor. That no difference is detectable reproduces none: what lies below the floor may
//! as well not be there.

use super::Conclusion::{self, NotReproduced, Reproduced, Undecided};
use crate::experiment::Expectation;
use crate::phrase::{difference, is_detectable, part, published};
use crate::statistics::Interval;

/// The conclusion and its reason.
pub(super) fn apply(expect: &Expectation, ours: &Interval, floor: f64) -> (Conclusion, String) {
    match *expect {
        Expectation::Ratio(theirs) => ratio(theirs, ours, floor),
        Expectation::EqualWithin(part_of_one) => {
            let what = format!("the published equality within {} %", part(part_of_one));
            range((1.0 - part_of_one, 1.0 + part_of_one), &what, ours, floor)
        }
        Expectation::Between(low, high) => {
            let ends = (published(low), published(high));
            let what = format!("the published range from a {} to a {}", ends.0, ends.1);
            range((low, high), &what.replace("a equality", "equality"), ours, floor)
        }
    }
}

fn ratio(theirs: f64, ours: &Interval, floor: f64) -> (Conclusion, String) {
    let (said, what) = (difference(ours, floor), format!("the published {}", published(theirs)));
    if !ours.holds(theirs) {
        return excluded((theirs, theirs), &what, ours, floor);
    }
    if !is_detectable(ours, floor) {
        return (Undecided, format!("{said}, which may be {what} or none"));
    }
    // Were it around the published ratio, so wide an interval would hold 1 as well; and what is
    // published must itself lie beyond what equal arms seem to differ by.
    let half_width = (ours.high / ours.low).ln() / 2.0;
    if half_width < theirs.ln().abs() && (theirs - 1.0).abs() > floor {
        (Reproduced, format!("{said}, which holds {what}"))
    } else {
        (Undecided, format!("{said}, too wide to tell {what} from none"))
    }
}

fn range(ends: (f64, f64), what: &str, ours: &Interval, floor: f64) -> (Conclusion, String) {
    let said = difference(ours, floor);
    let (low, high) = ends;
    if ours.high < low || high < ours.low {
        return excluded(ends, what, ours, floor);
    }
    if !ours.within(low, high) {
        return (Undecided, format!("{said}, partly in {what} and partly outside"));
    }
    // Where 1 is in the range, noise that is narrower than the range on both sides does not hide
    // its ends.
    let told_by_noise = floor <= (1.0 - low).min(high - 1.0);
    if is_detectable(ours, floor) || told_by_noise {
        (Reproduced, format!("{said}, within {what}"))
    } else {
        (Undecided, format!("{said}: noise of {} % hides {what}", part(floor)))
    }
}

/// For an interval that lies wholly beside what was published.
fn excluded(ends: (f64, f64), what: &str, ours: &Interval, floor: f64) -> (Conclusion, String) {
    let said = difference(ours, floor);
    let gap = (ends.0 - ours.high).max(ours.low - ends.1);
    if gap > floor {
        (NotReproduced, format!("{said}, which excludes {what}"))
    } else {
        let near = format!("{said}, beside {what} by less than the noise of {} %", part(floor));
        (Undecided, near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Expectation::{Between, EqualWithin, Ratio};

    #[track_caller]
    fn check(expect: Expectation, ours: (f64, f64, f64), floor: f64, as_: (Conclusion, &str)) {
        let (low, mid, high) = ours;
        let (conclusion, why) = apply(&expect, &Interval { low, mid, high }, floor);
        assert_eq!((conclusion, why.as_str()), as_);
    }

    #[test]
    fn a_ratio_is_reproduced_where_the_interval_holds_it_and_not_one() {
        check(
            Ratio(0.91),
            (0.90, 0.912, 0.92),
            0.01,
            (Reproduced, "a loss of 8.8 % [8.0, 10.0], which holds the published loss of 9.0 %"),
        );
    }

    #[test]
    fn a_ratio_is_not_reproduced_where_the_interval_excludes_it() {
        check(
            Ratio(0.69),
            (0.97, 0.98, 0.99),
            0.01,
            (
                NotReproduced,
                "a loss of 2.0 % [1.0, 3.0], which excludes the published loss of 31.0 %",
            ),
        );
        check(
            Ratio(0.69),
            (0.99, 1.0, 1.01),
            0.012,
            (
                NotReproduced,
                "no difference detectable, under 1.2 %, which excludes the published loss of \
                 31.0 %",
            ),
        );
    }

    #[test]
    fn a_ratio_cannot_be_told_where_the_interval_holds_it_and_one() {
        check(
            Ratio(0.97),
            (0.95, 0.985, 1.01),
            0.01,
            (
                Undecided,
                "no difference detectable, under 5.0 %, which may be the published loss of 3.0 % \
                 or none",
            ),
        );
    }

    #[test]
    fn a_wide_interval_that_holds_the_ratio_tells_nothing() {
        check(
            Ratio(0.7),
            (0.4, 0.65, 0.95),
            0.01,
            (
                Undecided,
                "a loss of 35.0 % [5.0, 60.0], too wide to tell the published loss of 30.0 % \
                 from none",
            ),
        );
    }

    #[test]
    fn a_published_difference_below_the_floor_is_undecided() {
        check(
            Ratio(0.99),
            (0.98, 0.995, 1.01),
            0.015,
            (
                Undecided,
                "no difference detectable, under 2.0 %, which may be the published loss of 1.0 % \
                 or none",
            ),
        );
        check(
            Ratio(0.99),
            (0.975, 0.982, 0.991),
            0.015,
            (
                Undecided,
                "a loss of 1.8 % [0.9, 2.5], too wide to tell the published loss of 1.0 % from \
                 none",
            ),
        );
        check(
            Ratio(0.99),
            (0.98, 0.995, 1.01),
            0.20,
            (
                Undecided,
                "no difference detectable, under 20.0 %, which may be the published loss of 1.0 \
                 % or none",
            ),
        );
    }

    #[test]
    fn a_ratio_beside_the_interval_by_less_than_the_noise_is_undecided() {
        check(
            Ratio(0.95),
            (0.92, 0.93, 0.94),
            0.02,
            (
                Undecided,
                "a loss of 7.0 % [6.0, 8.0], beside the published loss of 5.0 % by less than the \
                 noise of 2.0 %",
            ),
        );
    }

    #[test]
    fn equality_is_reproduced_only_by_the_whole_interval() {
        let equal = EqualWithin(0.02);
        check(
            equal,
            (0.985, 0.995, 1.01),
            0.01,
            (
                Reproduced,
                "no difference detectable, under 1.5 %, within the published equality within 2.0 %",
            ),
        );
        check(
            equal,
            (0.97, 0.995, 1.01),
            0.01,
            (
                Undecided,
                "no difference detectable, under 3.0 %, partly in the published equality within \
                 2.0 % and partly outside",
            ),
        );
        check(
            equal,
            (0.90, 0.91, 0.92),
            0.01,
            (
                NotReproduced,
                "a loss of 9.0 % [8.0, 10.0], which excludes the published equality within 2.0 %",
            ),
        );
        check(
            equal,
            (0.985, 0.995, 1.01),
            0.03,
            (
                Undecided,
                "no difference detectable, under 3.0 %: noise of 3.0 % hides the published \
                 equality within 2.0 %",
            ),
        );
    }

    #[test]
    fn a_range_needs_a_difference_where_it_claims_one() {
        check(
            Between(0.6, 0.8),
            (0.7, 0.72, 0.74),
            0.02,
            (
                Reproduced,
                "a loss of 28.0 % [26.0, 30.0], within the published range from a loss of 40.0 % \
                 to a loss of 20.0 %",
            ),
        );
        check(
            Between(0.9, 1.0),
            (0.93, 0.95, 0.97),
            0.02,
            (
                Reproduced,
                "a loss of 5.0 % [3.0, 7.0], within the published range from a loss of 10.0 % to \
                 equality",
            ),
        );
        check(
            Between(0.9, 1.0),
            (0.97, 0.98, 0.99),
            0.03,
            (
                Undecided,
                "no difference detectable, under 3.0 %: noise of 3.0 % hides the published range \
                 from a loss of 10.0 % to equality",
            ),
        );
        check(
            Between(0.9, 0.99),
            (0.93, 0.95, 0.97),
            0.06,
            (
                Undecided,
                "no difference detectable, under 7.0 %: noise of 6.0 % hides the published range \
                 from a loss of 10.0 % to a loss of 1.0 %",
            ),
        );
    }
}
