//! An estimate with its interval.

use serde::{Deserialize, Serialize};

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
        if self.has_no_width() {
            return write!(f, "{:.3} (no interval)", self.mid);
        }
        write!(f, "{:.3} [{:.3}, {:.3}]", self.mid, self.low, self.high)
    }
}

impl Interval {
    /// Whether it is a value alone, such as the ratio of one block, of which nothing tells the
    /// error.
    #[must_use]
    pub fn has_no_width(&self) -> bool {
        self.low >= self.high
    }

    /// Half of its width, by its logarithm.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high / self.low).ln() / 2.0
    }

    /// Whether the interval holds `value`.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether every value of the interval is in the range from `low` to `high`, ends included.
    #[must_use]
    pub fn within(&self, low: f64, high: f64) -> bool {
        low <= self.low && self.high <= high
    }

    /// Whether some value is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// How far its farther end is from `value`.
    #[must_use]
    pub fn reach(&self, value: f64) -> f64 {
        (value - self.low).max(self.high - value)
    }
}
