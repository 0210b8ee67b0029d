//! Quantiles, geometric mean, and outliers by the median absolute deviation.
//!
//! An outlier is flagged, never dropped: what it is worth is for the reader to say.

/// Quantile `level` (0 to 1) of `values` by linear interpolation: type 7 of Hyndman and Fan (Sample
/// Quantiles in Statistical Packages, 1996), as numpy, R and Excel have it. `None` without values,
/// or with one that is not a number.
#[must_use]
pub fn quantile(values: &[f64], level: f64) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(quantile_of_sorted(&sorted, level))
}

/// The same of values that are sorted and not empty; a level beyond 0 or 1 is the nearest end.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place between 0 and the last index, rounded down on purpose"
)]
pub(super) fn quantile_of_sorted(sorted: &[f64], level: f64) -> f64 {
    let place = level.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = sorted[place as usize];
    let above = sorted[(place as usize + 1).min(sorted.len() - 1)];
    below + (above - below) * place.fract()
}

/// Middle value, or the mean of the two middle ones. `None` as for [`quantile`].
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Geometric mean; `None` without values, or with one that is not positive.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let positive = values.iter().all(|value| value.is_finite() && *value > 0.0);
    if values.is_empty() || !positive {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Median distance from the median, not scaled. `None` as for [`quantile`].
pub(super) fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// Modified z-scores: distance from the median over the scaled median absolute deviation (Iglewicz
/// and Hoaglin, How to Detect and Handle Outliers, 1993). Where more than half of the values are
/// equal, so that this deviation is 0, the scaled mean absolute deviation takes its place; all 0 if
/// that is 0 too.
fn modified_z_scores(values: &[f64]) -> Vec<f64> {
    let (Some(middle), Some(deviation)) = (median(values), median_absolute_deviation(values))
    else {
        return vec![0.0; values.len()];
    };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let scale = if deviation > 0.0 {
        MEDIAN_DEVIATION_TO_SIGMA * deviation
    } else {
        MEAN_DEVIATION_TO_SIGMA * mean(&distances)
    };
    let score = |value: &f64| if scale > 0.0 { (value - middle) / scale } else { 0.0 };
    values.iter().map(score).collect()
}

/// Indices of the values whose modified z-score is beyond 3.5, the limit that Iglewicz and Hoaglin
/// give. Fewer than ten values have none: of five that are normally distributed one is flagged in
/// every fifth case, of ten in every eighth.
#[must_use]
pub fn outliers(values: &[f64]) -> Vec<usize> {
    if values.len() < LEAST_FOR_OUTLIERS {
        return Vec::new();
    }
    let scores = modified_z_scores(values).into_iter().enumerate();
    scores.filter(|(_, score)| score.abs() > OUTLIER).map(|(index, _)| index).collect()
}

/// Arithmetic mean of values that are not empty.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation of a normal distribution over its median absolute deviation: 1 / 0.6745.
const MEDIAN_DEVIATION_TO_SIGMA: f64 = 1.482_602_218_505_602;
/// Standard deviation of a normal distribution over its mean absolute deviation: sqrt(pi / 2).
const MEAN_DEVIATION_TO_SIGMA: f64 = 1.253_314_137_315_5;
/// Values without which none is called an outlier.
const LEAST_FOR_OUTLIERS: usize = 10;
/// Modified z-score beyond which a value is an outlier.
const OUTLIER: f64 = 3.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_value_is_flagged_and_a_spread_is_not() {
        let ten = [1.0, 1.1, 0.9, 1.05, 0.95, 3.0, 1.02, 0.98, 1.07, 0.93];
        assert_eq!(outliers(&ten), [5]);
        assert!(outliers(&ten[..9]).is_empty(), "nine are too few");
        assert!(outliers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]).is_empty());
        assert!(outliers(&[1.0; 10]).is_empty());
    }

    #[test]
    fn one_value_among_equal_ones_is_flagged() {
        let mut values = [1.0; 10];
        values[3] = 1.5;
        assert_eq!(outliers(&values), [3]);
    }

    #[test]
    fn nothing_has_no_quantile_and_one_value_is_each_of_them() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[f64::NAN], 0.5), None);
        for level in [0.0, 0.3, 1.0] {
            assert_eq!(quantile(&[4.0], level), Some(4.0));
        }
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[]), None);
    }
}
