//! Statistics of the lab: estimates with intervals, robust description.
//!
//! ```text
//!   student     mean of log ratios with Student's t; steal; servers; pooling; Holm  <- statrs
//!   interval    an estimate and its two ends
//!   describe    quantiles, geometric mean, outliers
//! ```
//!
//! Sources, and what is not claimed, stand in docs/lab/statistics.md; `fixtures/statistics.json`
//! has scipy's answers to the same questions. Nothing here knows of arms or trials.

mod describe;
mod interval;
mod student;

pub use describe::{geometric_mean, median, outliers, quantile};
pub use interval::Interval;
pub use student::{Estimate, LEAST_FOR_COVARIATE, holm};

#[cfg(test)]
mod scipy;
