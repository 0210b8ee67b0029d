//! What an estimate may be wrong by: variances that are known with few degrees of freedom.

use statrs::distribution::{ChiSquared, ContinuousCDF as _, StudentsT};

/// A variance and its degrees of freedom; [`NONE`] is none.
pub(super) type Variance = (f64, f64);

/// Independent parts of an error.
///
/// Their reaches, each by its own t, add up as their squares do. Welch's degrees of freedom would
/// be too many where a part has few: it is too uncertain to say how much it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Error(pub(super) [Variance; 3]);

impl Error {
    /// What the error stays below in this `part` of all cases, at least a half.
    pub(super) fn reach(&self, part: f64) -> f64 {
        let of = |(variance, df): (f64, f64)| match student(df) {
            Some(t) if variance > 0.0 => variance * t.inverse_cdf(part).powi(2),
            _ => 0.0,
        };
        self.0.into_iter().map(of).sum::<f64>().sqrt()
    }

    /// In which part of all cases it is below this.
    pub(super) fn below(&self, away: f64) -> f64 {
        let known: Vec<(f64, f64)> = self.0.into_iter().filter(|part| part.0 > 0.0).collect();
        match known[..] {
            [(variance, df)] => student(df).map_or(0.5, |t| t.cdf(away / variance.sqrt())),
            [] if away == 0.0 => 0.5,
            [] => f64::from(away > 0.0),
            _ => {
                let (mut low, mut high) = (0.5, 1.0);
                for _ in 0..HALVINGS {
                    let part = f64::midpoint(low, high);
                    if self.reach(part) < away.abs() { low = part } else { high = part }
                }
                if away < 0.0 { 1.0 - low } else { low }
            }
        }
    }
}

fn student(df: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, df.max(1.0)).ok()
}

/// What the true variance stays below in this `part` of all cases, where values are normally
/// distributed.
pub(super) fn at_most((variance, df): Variance, part: f64) -> f64 {
    let Ok(chi_squared) = ChiSquared::new(df) else { return variance };
    variance * df / chi_squared.inverse_cdf(1.0 - part)
}

/// The sum of two independent errors of which both are known well.
pub(super) fn sum(a: Variance, b: Variance) -> Variance {
    (a.0 + b.0, welch([a, b].into_iter()))
}

/// Degrees of freedom of a sum of variances (Welch, Biometrika 34, 1947).
pub(super) fn welch(parts: impl Iterator<Item = Variance>) -> f64 {
    let (mut sum, mut squares, mut most) = (0.0, 0.0, 0.0_f64);
    for (variance, df) in parts {
        most = most.max(df);
        if variance > 0.0 && df > 0.0 {
            sum += variance;
            squares += variance.powi(2) / df;
        }
    }
    if squares > 0.0 { sum.powi(2) / squares } else { most }
}

/// No part of an error.
pub(super) const NONE: Variance = (0.0, 0.0);
/// Halvings after which a chance is known as well as it can be written.
const HALVINGS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_of_an_error_of_several_parts_belongs_to_its_interval() {
        let error = Error([(0.0004, 2.0), (0.0009, 9.0), (0.0001, 6.0)]);
        for part in [0.8, 0.95, 0.999] {
            let reach = error.reach(part);
            assert!((error.below(reach) - part).abs() < 1e-9, "{part}");
            assert!((error.below(-reach) - (1.0 - part)).abs() < 1e-9, "{part}");
        }
        // Tables of chi-square have 1.005 for 3 degrees of freedom at 0.2, and 6.251 at 0.9.
        assert!((at_most((1.0, 3.0), 0.8) - 3.0 / 1.005).abs() < 0.002);
        assert!((at_most((2.0, 3.0), 0.1) - 6.0 / 6.251).abs() < 0.002);
        let alone = Error([(0.0004, 2.0), NONE, NONE]);
        assert!((alone.reach(0.975) - 0.02 * 4.302_653).abs() < 1e-7, "{}", alone.reach(0.975));
        assert!((alone.below(alone.reach(0.975)) - 0.975).abs() < 1e-9);
    }
}
