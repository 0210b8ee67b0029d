//! Statistics of the lab: estimates with intervals, robust description.
//!
//! ```text
//!   student     mean of log ratios with Student's t; steal; servers; pooling; Holm
//!   replicates  what servers of one arm differ by
//!   error       variances and their degrees of freedom  <- statrs
//!   interval    an estimate and its two ends
//!   describe    quantiles, geometric mean, outliers
//! ```
//!
//! Sources, and what is not claimed, stand in docs/lab/statistics.md; `fixtures/statistics.json`
//! has scipy's answers to the same questions. Nothing here knows of arms or trials.

mod describe;
mod error;
mod interval;
mod replicates;
mod student;

pub use describe::{geometric_mean, median, outliers, quantile};
pub use interval::Interval;
pub use replicates::contrasts;
pub use student::{Estimate, LEAST_FOR_COVARIATE, holm};

#[cfg(test)]
mod scipy;
