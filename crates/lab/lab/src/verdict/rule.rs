//! How a measured ratio is judged by what was published. Pure: an interval, a sentence.
//!
//! The verdict on a published ratio is "as published" where ours holds it and is precise enough to
//! have told it from no difference. Where ours excludes it, the arm here is cheaper or dearer than
//! published. On a published range it is "as published" where ours lies in it. A difference that
//! cannot be detected is never "as published" of a ratio.

use super::Conclusion::{self, AsPublished, Cheaper, Dearer, Undecided};
use crate::experiment::Expectation;
use crate::phrase::{difference, part, published};
use crate::statistics::Interval;

/// The conclusion and its reason.
pub(super) fn apply(expect: &Expectation, ours: &Interval) -> (Conclusion, String) {
    match *expect {
        Expectation::Ratio(theirs) => ratio(theirs, ours),
        Expectation::EqualWithin(part_of_one) => {
            let what = format!("the published equality within {} %", part(part_of_one));
            range((1.0 - part_of_one, 1.0 + part_of_one), &what, ours)
        }
        Expectation::Between(low, high) => {
            let ends = (published(low), published(high));
            let what = format!("the published range from a {} to a {}", ends.0, ends.1);
            range((low, high), &what.replace("a equality", "equality"), ours)
        }
    }
}

fn ratio(theirs: f64, ours: &Interval) -> (Conclusion, String) {
    let (said, what) = (words(ours), format!("the published {}", published(theirs)));
    if !ours.holds(theirs) {
        return excluded((theirs, theirs), &what, ours);
    }
    if ours.holds(1.0) {
        return (Undecided, format!("{said}, which may be {what} or none"));
    }
    // Were it around the published ratio, so wide an interval would hold 1 as well.
    let half_width = (ours.high / ours.low).ln() / 2.0;
    if half_width < theirs.ln().abs() {
        (AsPublished, format!("{said}, which holds {what}"))
    } else {
        (Undecided, format!("{said}, too wide to tell {what} from none"))
    }
}

fn range(ends: (f64, f64), what: &str, ours: &Interval) -> (Conclusion, String) {
    let said = words(ours);
    let (low, high) = ends;
    if ours.high < low || high < ours.low {
        excluded(ends, what, ours)
    } else if ours.within(low, high) {
        (AsPublished, format!("{said}, within {what}"))
    } else {
        (Undecided, format!("{said}, partly in {what} and partly outside"))
    }
}

/// For an interval that lies wholly beside what was published.
fn excluded(ends: (f64, f64), what: &str, ours: &Interval) -> (Conclusion, String) {
    let conclusion = if ours.low > ends.1 { Cheaper } else { Dearer };
    (conclusion, format!("{}, which excludes {what}", words(ours)))
}

fn words(ours: &Interval) -> String {
    difference(ours, !ours.holds(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Expectation::{Between, EqualWithin, Ratio};

    #[track_caller]
    fn check(expect: Expectation, ours: (f64, f64, f64), as_: (Conclusion, &str)) {
        let (low, mid, high) = ours;
        let (conclusion, why) = apply(&expect, &Interval { low, mid, high });
        assert_eq!((conclusion, why.as_str()), as_);
    }

    #[test]
    fn a_ratio_is_as_published_where_the_interval_holds_it_and_not_one() {
        let why = "a loss of 8.8 % [8.0, 10.0], which holds the published loss of 9.0 %";
        check(Ratio(0.91), (0.90, 0.912, 0.92), (AsPublished, why));
    }

    #[test]
    fn a_ratio_that_the_interval_excludes_is_cheaper_or_dearer() {
        let why = "a loss of 2.0 % [1.0, 3.0], which excludes the published loss of 31.0 %";
        check(Ratio(0.69), (0.97, 0.98, 0.99), (Cheaper, why));
        let why = "no difference detectable, under 1.0 %, which excludes the published loss of \
                   31.0 %";
        check(Ratio(0.69), (0.99, 1.0, 1.01), (Cheaper, why));
        let why = "a loss of 2.0 % [1.0, 3.0], which excludes the published equality";
        check(Ratio(1.0), (0.97, 0.98, 0.99), (Dearer, why));
    }

    #[test]
    fn a_ratio_is_not_decided_where_the_interval_holds_it_and_one() {
        let why = "no difference detectable, under 5.0 %, which may be the published loss of 3.0 \
                   % or none";
        check(Ratio(0.97), (0.95, 0.985, 1.01), (Undecided, why));
    }

    #[test]
    fn a_wide_interval_that_holds_the_ratio_tells_nothing() {
        let why = "a loss of 8.0 % [1.0, 15.0], too wide to tell the published loss of 3.0 % from \
                   none";
        check(Ratio(0.97), (0.85, 0.92, 0.99), (Undecided, why));
    }

    #[test]
    fn a_range_is_as_published_only_by_the_whole_interval() {
        let equal = EqualWithin(0.02);
        let why = "no difference detectable, under 1.5 %, within the published equality within \
                   2.0 %";
        check(equal, (0.985, 0.995, 1.01), (AsPublished, why));
        let why = "no difference detectable, under 3.0 %, partly in the published equality within \
                   2.0 % and partly outside";
        check(equal, (0.97, 0.995, 1.01), (Undecided, why));
        let why = "a loss of 9.0 % [8.0, 10.0], which excludes the published equality within 2.0 %";
        check(equal, (0.90, 0.91, 0.92), (Dearer, why));
        let why = "a loss of 5.0 % [3.0, 7.0], within the published range from a loss of 10.0 % \
                   to equality";
        check(Between(0.9, 1.0), (0.93, 0.95, 0.97), (AsPublished, why));
    }
}
