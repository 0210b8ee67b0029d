//! Compares this module with scipy's answers, which `fixtures/statistics.py` wrote down.
//!
//! What is deterministic must agree to rounding. Two bootstraps draw differently, so their
//! intervals agree to the error of resampling.

use serde::Deserialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::bootstrap::{acceleration, interval_of_mean, mean_with_interval};
use super::describe::{geometric_mean, median_absolute_deviation, quantile, quantile_of_sorted};

#[derive(Deserialize)]
struct Answers {
    bootstrap: Vec<Bootstrap>,
    describe: Vec<Described>,
    norm_ppf: Vec<(f64, f64)>,
    norm_cdf: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Bootstrap {
    name: String,
    values: Vec<f64>,
    mean: f64,
    standard_error: f64,
    acceleration: f64,
    bca: (f64, f64),
    resampled_means: Vec<f64>,
    bca_of_resampled_means: (f64, f64),
    percentile_of_resampled_means: (f64, f64),
}

#[derive(Deserialize)]
struct Described {
    values: Vec<f64>,
    gmean: f64,
    quantiles: Vec<(f64, f64)>,
    median_abs_deviation: f64,
}

fn answers() -> Answers {
    serde_json::from_str(include_str!("../../fixtures/statistics.json")).unwrap()
}

#[track_caller]
fn same(ours: f64, scipys: f64, tolerance: f64) {
    assert!((ours - scipys).abs() <= tolerance, "ours {ours}, scipy's {scipys}, +- {tolerance}");
}

#[test]
fn the_bca_interval_of_the_same_resamples_is_scipys() {
    for case in answers().bootstrap {
        let ours = interval_of_mean(&case.values, &case.resampled_means);
        println!("{}", case.name);
        same(ours.mid, case.mean, 1e-12);
        same(ours.low, case.bca_of_resampled_means.0, 1e-9);
        same(ours.high, case.bca_of_resampled_means.1, 1e-9);
        same(acceleration(&case.values), case.acceleration, 1e-12);
        let (low, high) = case.percentile_of_resampled_means;
        same(quantile_of_sorted(&case.resampled_means, 0.025), low, 1e-12);
        same(quantile_of_sorted(&case.resampled_means, 0.975), high, 1e-12);
    }
}

/// With 10,000 resamples the quantile at 0.025 of a normal distribution has a standard error of
/// 0.027 standard errors of the mean, and the bias correction adds 0.025: together 0.037, at skewed
/// levels near 0.005 some 0.055. The tolerance is four times the latter; scipy's million adds next
/// to nothing.
#[test]
fn the_bca_interval_is_scipys_up_to_the_error_of_resampling() {
    for case in answers().bootstrap {
        for seed in 0..5 {
            let ours = mean_with_interval(&case.values, seed).unwrap();
            println!("{} {seed}", case.name);
            same(ours.low, case.bca.0, 0.22 * case.standard_error);
            same(ours.high, case.bca.1, 0.22 * case.standard_error);
        }
    }
}

#[test]
fn descriptions_are_scipys() {
    for case in answers().describe {
        same(geometric_mean(&case.values).unwrap(), case.gmean, 1e-12);
        same(median_absolute_deviation(&case.values).unwrap(), case.median_abs_deviation, 1e-12);
        for (level, value) in case.quantiles {
            same(quantile(&case.values, level).unwrap(), value, 1e-12);
        }
    }
}

#[test]
fn the_normal_distribution_is_scipys() {
    let normal = Normal::standard();
    for (probability, value) in answers().norm_ppf {
        same(normal.inverse_cdf(probability), value, 1e-8);
    }
    for (value, probability) in answers().norm_cdf {
        same(normal.cdf(value), probability, 1e-10);
    }
}
