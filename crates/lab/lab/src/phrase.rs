//! Ratios in the words of the report: `a loss of 3.1 % [2.2, 4.0]`, `no difference detectable,
//! under 1.3 %`.
//!
//! Ratios are performance as a part of another's: 0.97 is a loss of 3 %, 1.04 a gain of 4 %.
//! Whether there is a difference at all is decided where the ratio comes from.

use crate::statistics::Interval;

/// What weakens a run whose precision was to end it, and that was ended before.
pub const ENDED_BY_HAND: &str = "The run did not come to the end of its plan; whoever ended it may \
                                 have looked";

/// A measured difference, if the ratio `differs` from 1 by more than chance; else how far its
/// interval reaches from 1. Where nothing can be said of it: see [`untold`].
#[must_use]
pub fn difference(ratio: &Interval, differs: bool) -> String {
    if !differs {
        return format!("no difference detectable, under {} %", rounded_up(ratio.reach(1.0)));
    }
    let Interval { low, mid, high } = *ratio;
    if mid >= MANY_TIMES {
        format!("{mid:.2} times [{low:.2}, {high:.2}]")
    } else if mid < 1.0 {
        format!("a loss of {} % [{}, {}]", part(1.0 - mid), part(1.0 - high), part(1.0 - low))
    } else {
        format!("a gain of {} % [{}, {}]", part(mid - 1.0), part(low - 1.0), part(high - 1.0))
    }
}

/// The same of a latency, whose ratio is the base's over the arm's: `1.66 times as long [1.21,
/// 2.27]`. A loss of 40 % would be no word for it.
#[must_use]
pub fn latency(ratio: &Interval, differs: bool) -> String {
    let Interval { low, mid, high } = times_as_long(ratio);
    if differs {
        format!("{mid:.2} times as long [{low:.2}, {high:.2}]")
    } else {
        difference(&times_as_long(ratio), false)
    }
}

/// The arm's time as a part of the base's, of a ratio of performance.
pub(crate) fn times_as_long(ratio: &Interval) -> Interval {
    Interval { low: 1.0 / ratio.high, mid: 1.0 / ratio.mid, high: 1.0 / ratio.low }
}

/// A ratio that is neither a loss nor a gain nor equality, because of `why`.
#[must_use]
pub fn untold(ratio: &Interval, why: &str) -> String {
    format!("a ratio of {ratio}; {why}")
}

/// A ratio that somebody published: `loss of 3.1 %`, `gain of 4.0 %`, without an article.
#[must_use]
pub fn published(ratio: f64) -> String {
    if (ratio - 1.0).abs() < f64::EPSILON {
        "equality".into()
    } else if ratio >= MANY_TIMES {
        format!("{ratio:.2} times")
    } else if ratio < 1.0 {
        format!("loss of {} %", part(1.0 - ratio))
    } else {
        format!("gain of {} %", part(ratio - 1.0))
    }
}

/// How many blocks an estimate rests on: `9 blocks; 10 are the least for publication`.
#[must_use]
pub fn blocks(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    if count < LEAST_FOR_PUBLICATION {
        format!("{count} block{plural}; {LEAST_FOR_PUBLICATION} are the least for publication")
    } else {
        format!("{count} block{plural}")
    }
}

/// A part of 1 in percent: one digit after the point, two where one would say 0.
pub(crate) fn part(part: f64) -> String {
    let percent = part * 100.0;
    if percent.abs() < 0.095 { format!("{percent:.2}") } else { format!("{percent:.1}") }
}

/// A part of 1 in percent, never less than it is.
pub(crate) fn rounded_up(part: f64) -> String {
    // The slack keeps 1.3 from becoming 1.4 by rounding in the last digit.
    format!("{:.1}", ((part * 1000.0 - 1e-6).ceil() / 10.0).max(0.1))
}

/// Why nothing of a miniature is judged.
pub const MINIATURE: &str = "a miniature says nothing about cost";
/// Blocks without which no figure should be published.
pub const LEAST_FOR_PUBLICATION: usize = 10;
/// From here on a ratio is said as such, not as a gain.
const MANY_TIMES: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(low: f64, mid: f64, high: f64, differs: bool) -> String {
        difference(&Interval { low, mid, high }, differs)
    }

    #[test]
    fn a_difference_is_a_loss_or_a_gain_with_its_interval() {
        assert_eq!(said(0.960, 0.969, 0.978, true), "a loss of 3.1 % [2.2, 4.0]");
        assert_eq!(said(1.022, 1.031, 1.040, true), "a gain of 3.1 % [2.2, 4.0]");
        assert_eq!(said(2.5, 3.0, 3.5, true), "3.00 times [2.50, 3.50]");
        assert_eq!(said(0.9990, 0.9993, 0.9996, true), "a loss of 0.07 % [0.04, 0.1]");
    }

    #[test]
    fn a_latency_is_so_many_times_as_long() {
        let ratio = Interval { low: 0.25, mid: 0.40, high: 0.5 };
        assert_eq!(latency(&ratio, true), "2.50 times as long [2.00, 4.00]");
        let ratio = Interval { low: 0.8, mid: 0.9, high: 1.02 };
        assert_eq!(latency(&ratio, false), "no difference detectable, under 25.0 %");
    }

    #[test]
    fn what_may_be_chance_is_no_difference() {
        assert_eq!(said(0.979, 0.99, 1.004, false), "no difference detectable, under 2.1 %");
        // One of many cells: its own interval does not hold 1, and that may be chance.
        assert_eq!(said(0.98, 0.99, 0.995, false), "no difference detectable, under 2.0 %");
        assert_eq!(said(1.0, 1.0, 1.0, false), "no difference detectable, under 0.1 %");
    }

    #[test]
    fn a_ratio_that_tells_nothing_is_no_loss() {
        let ratio = Interval { low: 0.4, mid: 0.5, high: 0.6 };
        assert_eq!(untold(&ratio, "no control"), "a ratio of 0.500 [0.400, 0.600]; no control");
    }

    #[test]
    fn what_is_under_is_rounded_up() {
        assert_eq!(said(0.9869, 1.0, 1.01, false), "no difference detectable, under 1.4 %");
    }

    #[test]
    fn too_few_blocks_are_said() {
        assert_eq!(blocks(9), "9 blocks; 10 are the least for publication");
        assert_eq!(blocks(10), "10 blocks");
        assert_eq!(blocks(1), "1 block; 10 are the least for publication");
    }
}
