//! Compares this module with scipy's answers, which `fixtures/statistics.py` wrote down.

use serde::Deserialize;

use super::describe::{geometric_mean, median_absolute_deviation, quantile};

#[derive(Deserialize)]
struct Answers {
    describe: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    values: Vec<f64>,
    gmean: f64,
    quantiles: Vec<(f64, f64)>,
    median_abs_deviation: f64,
}

#[test]
fn descriptions_are_scipys() {
    let text = include_str!("../../fixtures/statistics.json");
    let answers: Answers = serde_json::from_str(text).unwrap();
    assert!(answers.describe.len() > 3);
    let same = |ours: f64, scipys: f64| {
        assert!((ours - scipys).abs() <= 1e-12, "ours {ours}, scipy's {scipys}");
    };
    for case in answers.describe {
        same(geometric_mean(&case.values).unwrap(), case.gmean);
        same(median_absolute_deviation(&case.values).unwrap(), case.median_abs_deviation);
        for (level, value) in case.quantiles {
            same(quantile(&case.values, level).unwrap(), value);
        }
    }
}
