//! Ratio of two arms measured in interleaved rounds, with a bootstrap 95 % interval.
//!
//! The estimate is the geometric mean of the rounds' ratios: each round pairs blocks that ran next to
//! each other, so drift of the machine cancels. The interval is the percentile bootstrap over rounds
//! (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). With fewer than about
//! ten rounds such intervals are somewhat too narrow: the callers print the number of rounds.
//!
//! No crate: `statrs` has distributions but no resampling, and criterion keeps its own private. What is
//! needed is below, and its coverage is tested.

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Estimate.
    pub mid: f64,
    /// Upper end.
    pub high: f64,
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} [{:.3}, {:.3}]", self.mid, self.low, self.high)
    }
}

impl Interval {
    /// Whether the interval holds `value`.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Ratio `of[i] / to[i]` over the rounds `i`, `None` without rounds or with a value that is not positive.
#[must_use]
pub fn ratio(of: &[f64], to: &[f64], seed: u64) -> Option<Interval> {
    let positive = of.iter().chain(to).all(|v| v.is_finite() && *v > 0.0);
    if of.is_empty() || of.len() != to.len() || !positive {
        return None;
    }
    let logs: Vec<f64> = of.iter().zip(to).map(|(a, b)| (a / b).ln()).collect();
    let logs = mean_with_interval(&logs, seed)?;
    Some(Interval { low: logs.low.exp(), mid: logs.mid.exp(), high: logs.high.exp() })
}

/// Mean of `values` with the bootstrap interval of the mean; `None` without values.
#[must_use]
pub fn mean_with_interval(values: &[f64], seed: u64) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw = || values[random.usize(..values.len())];
            std::iter::repeat_with(draw).take(values.len()).sum::<f64>() / values.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let mid = values.iter().sum::<f64>() / values.len() as f64;
    let cut = RESAMPLES / 40;
    Some(Interval { low: means[cut], mid, high: means[RESAMPLES - 1 - cut] })
}

/// Draws with replacement; 2.5 % are cut off at each end.
const RESAMPLES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_arms_have_ratio_one_and_no_width() {
        let interval = ratio(&[2.0; 8], &[2.0; 8], 1).unwrap();
        assert_eq!((interval.low, interval.mid, interval.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn a_ratio_without_rounds_or_with_a_zero_is_none() {
        assert_eq!(ratio(&[], &[], 1), None);
        assert_eq!(ratio(&[1.0], &[0.0], 1), None);
        assert_eq!(ratio(&[1.0], &[1.0, 2.0], 1), None);
    }

    #[test]
    fn drift_common_to_both_arms_cancels() {
        let drift: Vec<f64> = (1..=12).map(f64::from).collect();
        let slower: Vec<f64> = drift.iter().map(|v| v * 1.02).collect();
        let interval = ratio(&slower, &drift, 1).unwrap();
        assert!((interval.mid - 1.02).abs() < 1e-9 && interval.high - interval.low < 1e-9);
    }

    #[test]
    fn the_interval_holds_the_truth_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(3);
        // Sum of twelve uniform draws: close to a normal distribution with variance 1.
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let trials = 200;
        let held = (0..trials)
            .filter(|trial| {
                let values: Vec<f64> = (0..20).map(|_| 5.0 + normal()).collect();
                mean_with_interval(&values, *trial).unwrap().holds(5.0)
            })
            .count();
        assert!((176..=198).contains(&held), "held in {held} of {trials}");
    }
}
