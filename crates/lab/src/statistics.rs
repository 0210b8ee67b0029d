//! Statistics of the lab: intervals, robust description.
//!
//! ```text
//!   bootstrap   mean and ratio with a BCa 95 % interval   <- normal (statrs)
//!   describe    quantiles, geometric mean, outliers
//! ```
//!
//! Sources, and what is not claimed, stand in docs/lab/statistics.md; `fixtures/statistics.json` has
//! scipy's answers to the same questions. Nothing here knows of arms or trials.

mod bootstrap;
mod describe;

pub use bootstrap::{Interval, mean_with_interval, ratio};
pub use describe::{
    geometric_mean, median, median_absolute_deviation, modified_z_scores, outliers, quantile,
};

#[cfg(test)]
mod scipy;
