//! Numbers as people read them; `phrase` says what a ratio means.
//!
//! Three significant digits at most: no trial of the lab measures better.

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
    let decimals = if interval.high - interval.low > 0.1 { 2 } else { 3 };
    let Interval { low, mid, high } = interval;
    format!("{mid:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
}

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
    fn moments_are_in_utc() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_795_248_600), "2026-11-21 08:10 UTC");
    }
}
