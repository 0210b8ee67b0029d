//! Statistics of the lab: intervals, robust description.
//!
//! ```text
//!   bootstrap   mean and ratio with a BCa 95 % interval   <- normal (statrs)
//!   describe    quantiles, geometric mean, outliers
//! ```
//!
//! Sources, and what is not claimed, stand in docs/lab/statistics.md; `fixtures/statistics.json`
//! has scipy's answers to the same questions. Nothing here knows of arms or trials.

mod bootstrap;
mod describe;

pub use bootstrap::{Interval, ratio};
pub use describe::{geometric_mean, median, outliers, quantile};

#[cfg(test)]
mod scipy;
