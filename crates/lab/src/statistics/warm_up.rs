//! Where a series has settled: the warm-up to leave out, by the rule MSER-5.
//!
//! MSER (White, An Effective Truncation Heuristic for Bias Reduction in Simulation Output, Simulation 69,
//! 1997) leaves out as many values at the start as make the rest's squared standard error of the mean
//! least; MSER-5 does so on means of five values (White, Cobb and Spratt, A Comparison of Five
//! Steady-State Truncation Heuristics for Simulation, 2000). If that would be more than half of the
//! series, it was too short to settle and nothing is said.

use super::describe::mean;

/// What a series says of its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// So many values at the start are warm-up; may be 0.
    Settled(usize),
    /// It had not settled in the first half.
    NotSettled,
    /// Fewer than ten values.
    TooShort,
}

/// Finds the warm-up in values at equal distances of time: throughput of each second, say. Fewer than 50
/// values are taken one by one, as MSER first was; more in fives.
#[must_use]
pub fn warm_up(values: &[f64]) -> WarmUp {
    if values.len() < LEAST {
        return WarmUp::TooShort;
    }
    let size = if values.len() < LEAST * BATCH { 1 } else { BATCH };
    let batches: Vec<f64> = values.chunks_exact(size).map(mean).collect();
    // The last few values always lie close together: a rest of fewer than five is no candidate.
    let candidates = (0..=batches.len() - 5).map(|cut| (cut, squared_error(&batches[cut..])));
    match candidates.min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((cut, _)) if cut <= batches.len() / 2 => WarmUp::Settled(cut * size),
        _ => WarmUp::NotSettled,
    }
}

/// Squared standard error of the mean.
fn squared_error(values: &[f64]) -> f64 {
    let mid = mean(values);
    let n = values.len() as f64;
    values.iter().map(|value| (value - mid).powi(2)).sum::<f64>() / (n * n)
}

/// Values of one batch.
const BATCH: usize = 5;
/// Batches without which nothing is said.
const LEAST: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    #[test]
    fn a_rise_at_the_start_is_left_out() {
        let mut random = fastrand::Rng::with_seed(1);
        let rise = |i: usize| if i < 20 { 50.0 + 2.5 * i as f64 } else { 100.0 };
        let values: Vec<f64> = (0..200).map(|i| rise(i) + noise(&mut random)).collect();
        let WarmUp::Settled(cut) = warm_up(&values) else { panic!("{:?}", warm_up(&values)) };
        assert!((15..=25).contains(&cut), "{cut}");
        let WarmUp::Settled(cut) = warm_up(&values[..45]) else { panic!("not settled") };
        assert!((15..=22).contains(&cut), "{cut}");
    }

    #[test]
    fn a_level_series_loses_nothing_or_little() {
        assert_eq!(warm_up(&[7.0; 60]), WarmUp::Settled(0));
    }

    #[test]
    fn a_series_that_keeps_rising_has_not_settled() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i * i)).collect();
        assert_eq!(warm_up(&values), WarmUp::NotSettled);
    }

    #[test]
    fn nine_values_are_too_few() {
        assert_eq!(warm_up(&[1.0; 9]), WarmUp::TooShort);
        assert_eq!(warm_up(&[1.0; 10]), WarmUp::Settled(0));
    }
}
