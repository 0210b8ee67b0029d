//! Numbers as people read them; `phrase` says what a ratio means.
//!
//! Three significant digits at most: no trial of the lab measures better.

use crate::analysis::{Aspect, Family};
use crate::experiment::Expectation;
use crate::phrase;
use crate::statistics::Interval;

/// Three significant digits, thousands separated.
pub(super) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "none".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor();
    let step = 10f64.powf(magnitude - 2.0);
    let rounded = (value / step).round() * step;
    // After rounding 999.6 has four digits before the point.
    let decimals = (2.0 - rounded.abs().log10().floor()).clamp(0.0, 6.0);
    separated(&format!("{rounded:.*}", DECIMALS[index(decimals)]))
}

const DECIMALS: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];

fn index(decimals: f64) -> usize {
    (0..DECIMALS.len()).rev().find(|at| decimals >= DECIMALS[*at] as f64).unwrap_or(0)
}

/// A published number as it was printed, thousands separated.
pub(super) fn printed(value: f64) -> String {
    separated(&value.to_string())
}

fn separated(number: &str) -> String {
    let (whole, rest) = match number.find('.') {
        Some(at) => number.split_at(at),
        None => (number, ""),
    };
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut text = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 && digits.len() > 4 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// `0.983 [0.975, 0.991]`; two decimals where the interval is wider than a tenth.
pub(super) fn ratio(interval: &Interval) -> String {
    if interval.has_no_width() {
        return interval.to_string();
    }
    format!("{:.*} {}", decimals(interval), interval.mid, ends(interval))
}

/// `[0.975, 0.991]`.
pub(super) fn ends(interval: &Interval) -> String {
    let (Interval { low, high, .. }, decimals) = (interval, decimals(interval));
    format!("[{low:.decimals$}, {high:.decimals$}]")
}

fn decimals(interval: &Interval) -> usize {
    if interval.high - interval.low > 0.1 { 2 } else { 3 }
}

/// A family in a few words: those of its ratio, or that its servers are not equal.
pub(super) fn of_family(found: &Family) -> String {
    match &found.void {
        Some(control) => {
            format!(
                "void, since two equal servers differ: the control is {} at 99 %",
                ratio(control)
            )
        }
        None => family(&found.ratio, found.aspect),
    }
}

/// A ratio of a kind of load in a few words: `loss of 3.1 % [2.2, 4.0]`, `no difference, under
/// 1.3 %`, `not decided [0.61, 1.58]` where noise would have hidden a tenth. Of a latency it is
/// how many times as long it took.
fn family(ratio: &Interval, aspect: Aspect) -> String {
    let latency = aspect == Aspect::P95;
    if !ratio.holds(1.0) {
        let said =
            if latency { phrase::latency(ratio, true) } else { phrase::difference(ratio, true) };
        return said.strip_prefix("a ").unwrap_or(&said).to_owned();
    }
    let ratio = if latency { phrase::times_as_long(ratio) } else { *ratio };
    if ratio.reach(1.0) > USEFUL {
        return format!("not decided [{:.2}, {:.2}]", ratio.low, ratio.high);
    }
    format!("no difference, under {} %", phrase::rounded_up(ratio.reach(1.0)))
}

/// "No difference" says something only where a difference of this part of 1 would have been seen.
pub(super) const USEFUL: f64 = 0.10;

/// What a claim's published figures come to: `0.563: loss of 43.7 %`.
pub(super) fn expectation(expect: &Expectation) -> String {
    match *expect {
        Expectation::Ratio(ratio) => format!("{ratio:.3}: {}", phrase::published(ratio)),
        Expectation::EqualWithin(part) => format!("equal within {} %", phrase::part(part)),
        Expectation::Between(low, high) => {
            let (from, to) = (phrase::published(low), phrase::published(high));
            format!("{low:.3} to {high:.3}: {from} to {to}")
        }
    }
}

/// `2026-11-21 08:10 UTC` of a Unix time.
pub(super) fn moment(unix: u64) -> String {
    let seconds = i64::try_from(unix).unwrap_or(i64::MAX);
    time::OffsetDateTime::from_unix_timestamp(seconds).map_or_else(
        |_| format!("{unix} s after 1970"),
        |at| format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_has_more_than_three_significant_digits() {
        let values = [598_004.94, 1234.5, 999.6, 57.062, 1.0, 0.031_456, 0.0, -12.34];
        let texts = values.map(figure);
        let expected = ["598,000", "1230", "1000", "57.1", "1.00", "0.0315", "0", "-12.3"];
        assert_eq!(texts, expected);
        assert_eq!(printed(652_870.65), "652,870.65");
    }

    #[test]
    fn a_kind_of_load_is_lost_equal_or_open() {
        let said = |low, mid, high| family(&Interval { low, mid, high }, Aspect::Cpu);
        assert_eq!(said(0.960, 0.969, 0.978), "loss of 3.1 % [2.2, 4.0]");
        assert_eq!(said(0.979, 0.99, 1.004), "no difference, under 2.1 %");
        assert_eq!(said(0.61, 0.98, 1.58), "not decided [0.61, 1.58]");
        let p95 = family(&Interval { low: 0.25, mid: 0.4, high: 0.5 }, Aspect::P95);
        assert_eq!(p95, "2.50 times as long [2.00, 4.00]");
    }

    #[test]
    fn one_block_has_no_interval() {
        let interval = |low, high| Interval { low, mid: 1.5, high };
        assert_eq!(ratio(&interval(1.5, 1.5)), "1.500 (no interval)");
        assert_eq!(interval(1.5, 1.5).to_string(), "1.500 (no interval)");
        assert_eq!(ratio(&interval(1.48, 1.52)), "1.500 [1.480, 1.520]");
        assert_eq!(ratio(&interval(1.2, 1.8)), "1.50 [1.20, 1.80]");
    }

    #[test]
    fn moments_are_in_utc() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_795_248_600), "2026-11-21 08:10 UTC");
    }
}
