//! Comparisons of trials with a known truth.

use super::*;
use crate::synthetic::{Synthetic, experiment};

#[test]
fn a_slower_arm_loses_whether_more_or_less_is_better() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 0.9);
    let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials, 1);
    let sealed: Vec<_> = comparisons.iter().filter(|c| c.arm == "sealed").collect();
    assert_eq!(sealed.len(), 2, "throughput and CPU");
    for comparison in sealed {
        assert!((comparison.ratio.mid - 0.9).abs() < 0.01, "{}", comparison.ratio);
        assert!(comparison.floor().unwrap() < 0.02);
        assert_eq!(comparison.pairs.len(), 10);
    }
}

#[test]
fn without_a_control_or_with_four_blocks_a_ratio_is_no_loss() {
    let loss = |blocks: u32, arms: &[&str]| {
        let mut run = Synthetic::new(blocks);
        for arm in arms {
            run.arm(arm, "select", if *arm == "sealed" { 0.5 } else { 1.0 });
        }
        let comparisons = compare(&experiment(arms), &run.trials, 1);
        comparisons.iter().find(|c| c.arm == "sealed").unwrap().phrase()
    };
    let arms = ["plain", "control", "sealed"];
    assert!(loss(5, &arms).starts_with("a loss of "), "{}", loss(5, &arms));
    let few = loss(4, &arms);
    assert!(few.starts_with("a ratio of 0.") && few.contains("at least 5 blocks"), "{few}");
    let alone = loss(10, &["plain", "sealed"]);
    assert!(alone.starts_with("a ratio of 0.") && alone.contains("no control"), "{alone}");
}

#[test]
fn a_control_of_four_blocks_is_none() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 0.5);
    run.trials.retain(|trial| trial.arm != "control" || trial.block < 4);
    let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials, 1);
    let sealed = comparisons.iter().find(|c| c.arm == "sealed").unwrap();
    assert_eq!((sealed.pairs.len(), sealed.floor()), (10, None));
}

#[test]
fn blocks_in_which_an_arm_stood_still_are_not_left_out_in_silence() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 1.0);
    for trial in run.trials.iter_mut().filter(|t| t.arm == "sealed" && t.block < 2) {
        trial.metrics.insert("transactions_per_second".into(), 0.0);
        trial.metrics.remove("cpu_per_unit");
    }
    let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials, 1);
    let sealed: Vec<_> = comparisons.iter().filter(|c| c.arm == "sealed").collect();
    assert_eq!(sealed.len(), 2, "throughput and CPU");
    for comparison in sealed {
        assert_eq!((comparison.pairs.len(), &*comparison.without_ratio), (8, &[0, 1][..]));
        let said = comparison.phrase();
        assert!(said.ends_with("; 2 more blocks have no ratio"), "{said}");
    }
}

#[test]
fn a_limit_that_was_not_in_force_is_said_with_the_loss() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 0.5);
    run.unlimited("select");
    for comparison in compare(&experiment(&["plain", "control", "sealed"]), &run.trials, 1) {
        let said = comparison.phrase();
        assert!(said.ends_with(", with a limit not in force: it needs root"), "{said}");
    }
}

#[test]
fn a_throughput_at_a_rate_that_was_asked_for_is_no_result() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
    run.trials.iter_mut().for_each(|trial| trial.phase = Phase::FixedRate);
    let comparisons = compare(&experiment(&["plain", "sealed"]), &run.trials, 1);
    let metrics: Vec<_> = comparisons.iter().map(|c| c.metric.name).collect();
    assert_eq!(metrics, ["cpu_per_unit"]);
}

#[test]
fn a_far_block_is_flagged_and_stays() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
    let of_sealed = run.trials.iter_mut().filter(|t| t.arm == "sealed" && t.block == 4);
    for trial in of_sealed {
        trial.metrics.values_mut().for_each(|value| *value *= 1.5);
    }
    for comparison in compare(&experiment(&["plain", "sealed"]), &run.trials, 1) {
        assert!(comparison.outliers.contains(&4) && comparison.outliers.len() <= 2);
        assert_eq!(comparison.pairs.len(), 10);
        assert_eq!(comparison.floor(), None, "no control was measured");
    }
}

#[test]
fn a_block_without_its_base_is_not_paired() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
    run.trials.retain(|trial| trial.arm != "plain" || trial.block < 7);
    let comparisons = compare(&experiment(&["plain", "sealed"]), &run.trials, 1);
    assert!(comparisons.iter().all(|c| c.pairs.len() == 7));
}

#[test]
fn the_control_is_compared_with_plain_though_the_base_is_another() {
    let mut run = Synthetic::new(10);
    run.arm("own", "select", 0.5).arm("plain", "select", 1.0).arm("control", "select", 1.0);
    for comparison in compare(&experiment(&["own", "plain", "control"]), &run.trials, 1) {
        assert!(comparison.floor().unwrap() < 0.02, "{:?}", comparison.control);
    }
}
