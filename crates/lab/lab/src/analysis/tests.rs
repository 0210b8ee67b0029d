//! Comparisons of trials with a known truth.

use super::*;
use crate::experiment::{OwnArm, VolumeType};
use crate::synthetic::{Synthetic, experiment, own_arm};

#[test]
fn a_slower_arm_loses_whether_more_or_less_is_better() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 0.9);
    let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
    let sealed: Vec<_> = comparisons.iter().filter(|c| c.arm == "sealed").collect();
    assert_eq!(sealed.len(), 2, "throughput and CPU");
    for comparison in sealed {
        assert!((comparison.ratio.mid - 0.9).abs() < 0.01, "{}", comparison.ratio);
        assert!(comparison.differs() && comparison.void.is_none());
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
        let comparisons = compare(&experiment(arms), &run.trials);
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
    let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
    let sealed = comparisons.iter().find(|c| c.arm == "sealed").unwrap();
    assert_eq!((sealed.pairs.len(), sealed.control), (10, None));
    assert!(sealed.told().unwrap_err().contains("no control"));
}

#[test]
fn blocks_in_which_an_arm_stood_still_are_not_left_out_in_silence() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 1.0);
    for trial in run.trials.iter_mut().filter(|t| t.arm == "sealed" && t.block < 2) {
        trial.metrics.insert("transactions_per_second".into(), 0.0);
        trial.metrics.remove("cpu_per_unit");
    }
    let comparisons = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
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
    for comparison in compare(&experiment(&["plain", "control", "sealed"]), &run.trials) {
        let said = comparison.phrase();
        assert!(said.ends_with(", with a limit not in force: it needs root"), "{said}");
    }
}

#[test]
fn a_throughput_at_a_rate_that_was_asked_for_is_no_result() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
    run.trials.iter_mut().for_each(|trial| trial.phase = Phase::FixedRate);
    let comparisons = compare(&experiment(&["plain", "sealed"]), &run.trials);
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
    for comparison in compare(&experiment(&["plain", "sealed"]), &run.trials) {
        assert!(comparison.outliers.contains(&4) && comparison.outliers.len() <= 2);
        assert_eq!(comparison.pairs.len(), 10);
        assert_eq!(comparison.control, None, "no control was measured");
    }
}

#[test]
fn a_block_without_its_base_is_not_paired() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("sealed", "select", 1.0);
    run.trials.retain(|trial| trial.arm != "plain" || trial.block < 7);
    let comparisons = compare(&experiment(&["plain", "sealed"]), &run.trials);
    assert!(comparisons.iter().all(|c| c.pairs.len() == 7));
}

#[test]
fn the_control_is_compared_with_plain_though_the_base_is_another() {
    let mut run = Synthetic::new(10);
    run.arm("own", "select", 0.5).arm("plain", "select", 1.0).arm("control", "select", 1.0);
    for comparison in compare(&experiment(&["own", "plain", "control"]), &run.trials) {
        assert!(comparison.control.unwrap().reach(1.0) < 0.02, "{:?}", comparison.control);
    }
}

#[test]
fn sealed_is_set_against_own_where_both_are_measured() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0);
    run.arm("own", "select", 0.8).arm("sealed", "select", 0.96);
    let all = ["plain", "control", "own", "sealed"];
    let found = beside_peer(&experiment(&all), &run.trials);
    assert_eq!(found.len(), 2, "throughput and CPU");
    for c in &found {
        assert!((c.ratio.mid - 1.2).abs() < 0.02 && c.differs(), "{}", c.ratio);
        assert!(c.arm == SEALED && c.base == OWN && c.told().is_ok());
    }
    bulk_family_is_a_fifth_more(&all, &found);
    for arms in [&all[..3], &["plain", "control", "sealed"], &["own", "plain", "sealed"]] {
        let found = beside_peer(&crate::synthetic::experiment(arms), &run.trials);
        assert!(found.is_empty(), "{arms:?}");
    }
}

#[test]
fn sealed_is_set_against_the_peer_that_the_experiment_is_named_after() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0).arm("sealed", "select", 0.96);
    run.arm("synthetic", "select", 0.8).arm("other", "select", 0.5);
    let all = ["plain", "control", "other", "synthetic", "sealed"];
    let found = beside_peer(&experiment(&all), &run.trials);
    assert_eq!(found.len(), 2, "throughput and CPU");
    for c in &found {
        assert!(c.base == "synthetic" && (c.ratio.mid - 1.2).abs() < 0.02, "{}", c.ratio);
    }
    bulk_family_is_a_fifth_more(&all, &found);
}

#[track_caller]
fn bulk_family_is_a_fifth_more(arms: &[&str], beside: &[Comparison]) {
    let mut experiment = experiment(arms);
    let sql = crate::experiment::Sql { setup: "".into(), sql: "".into(), rows: "1".into() };
    experiment.workload.insert("select".into(), Work::Sql(sql));
    let families = families_beside_peer(&[(&experiment, beside)]);
    assert!(families.iter().any(|f| f.kind == Kind::Bulk && f.aspect == Aspect::Cpu));
    assert!(families.iter().all(|f| (f.ratio.mid - 1.2).abs() < 0.02), "{families:?}");
}

#[test]
fn a_control_that_differs_from_plain_voids_its_cell_and_no_other() {
    let mut run = Synthetic::new(10);
    for workload in ["cold", "warm"] {
        run.arm("plain", workload, 1.0).arm("control", workload, 1.0).arm("sealed", workload, 9.98);
    }
    let cold = |trial: &&mut Trial| trial.cell.workload() == "cold" && trial.arm == "control";
    for trial in run.trials.iter_mut().filter(cold) {
        trial.metrics.values_mut().for_each(|value| *value *= 2.44);
    }
    for c in compare(&experiment(&["plain", "control", "sealed"]), &run.trials) {
        let void = c.cell.workload() == "cold" && c.arm == "sealed";
        assert_eq!(c.told().is_err(), void, "{}", c.phrase());
        assert_eq!(c.phrase().contains("void, because two equal servers differ"), void);
    }
}

#[test]
fn arms_are_compared_with_plain_and_control_together() {
    let mut run = Synthetic::new(10);
    run.noise = 0.0;
    run.arm("plain", "w", 1.0).arm("control", "w", 1.0).arm("sealed", "w", 0.9);
    for trial in run.trials.iter_mut().filter(|t| t.arm == "control") {
        let part = if trial.block % 2 == 0 { 1.1 } else { 1.0 / 1.1 };
        trial.metrics.insert("cpu_per_unit".into(), trial.metrics["cpu_per_unit"] * part);
    }
    let all = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
    let pairs = |arm: &str| {
        let cpu = |c: &&Comparison| c.arm == arm && c.metric.name == "cpu_per_unit";
        all.iter().find(cpu).unwrap().pairs.clone()
    };
    for (block, ratio) in pairs("sealed") {
        let part = if block % 2 == 0 { 1.1_f64 } else { 1.0 / 1.1 };
        assert!((ratio - 0.9 * part.sqrt()).abs() < 1e-9, "{block}: {ratio}");
    }
    assert!((pairs("control")[0].1 - 1.0 / 1.1).abs() < 1e-9, "less CPU time is better");
}

#[test]
fn two_servers_of_an_arm_that_differ_make_its_interval_wider() {
    let reach = |second: f64| {
        let mut run = Synthetic::new(10);
        run.arm("plain", "w", 1.0).arm("control", "w", 1.0).arm("sealed", "w", 0.9);
        let before = run.trials.len();
        run.arm("sealed", "w", 0.9 * second);
        for trial in &mut run.trials[before..] {
            trial.instance = 1;
        }
        let all = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
        let c = all.iter().find(|c| c.arm == "sealed").unwrap();
        assert_eq!(c.pairs.len(), 10);
        c.ratio.high / c.ratio.low
    };
    assert!(reach(1.1) > 1.1 && reach(1.0) < 1.06, "{} {}", reach(1.1), reach(1.0));
}

#[test]
fn steal_that_one_arm_met_is_not_taken_for_its_cost() {
    let mut run = Synthetic::new(12);
    run.arm("plain", "w", 1.0).arm("control", "w", 1.0).arm("sealed", "w", 0.98);
    for (at, trial) in run.trials.iter_mut().enumerate() {
        let steal = f64::from(u32::try_from(at * 7 % 13).unwrap());
        let met = if trial.arm == "sealed" { 2.0 * steal } else { steal };
        trial.metrics.insert("steal_percent".into(), met);
        let speed = trial.metrics["transactions_per_second"] * (-0.01 * met).exp();
        trial.metrics.insert("transactions_per_second".into(), speed);
    }
    let all = compare(&experiment(&["plain", "control", "sealed"]), &run.trials);
    let throughput = |c: &&Comparison| c.arm == "sealed" && c.metric.better == Better::Higher;
    let c = all.iter().find(throughput).unwrap();
    assert!(c.ratio.holds(0.98) && c.ratio.reach(0.98) < 0.03, "{}", c.ratio);
}

#[test]
fn cpu_time_of_which_the_kernel_s_threads_have_a_part_is_not_compared() {
    let mut run = Synthetic::new(10);
    run.arm("plain", "select", 1.0).arm("control", "select", 1.0);
    run.arm("peer", "select", 0.9).arm("sealed", "select", 0.9);
    let names = ["plain", "control", "peer", "sealed"];
    let by_cpu_time = |own_arms: Vec<OwnArm>| -> Vec<String> {
        let mut experiment = experiment(&names);
        experiment.own_arms = own_arms;
        let all = compare(&experiment, &run.trials);
        let throughput = all.iter().filter(|c| c.metric.better == Better::Higher);
        assert_eq!(throughput.count(), 3, "of each arm");
        all.into_iter().filter(|c| c.metric.name == CPU).map(|c| c.arm).collect()
    };
    let volume = |name: &str, kind| OwnArm { volume: Some(kind), ..own_arm(name) };
    let on = |name: &str, dir: &str| OwnArm { on: Some(dir.into()), ..own_arm(name) };
    let plain = || volume("plain", VolumeType::Ext4);
    assert_eq!(by_cpu_time(vec![plain()]), ["control", "peer", "sealed"]);
    for kind in [VolumeType::Luks, VolumeType::Fscrypt] {
        assert_eq!(by_cpu_time(vec![plain(), volume("peer", kind)]), ["control", "sealed"]);
        assert!(by_cpu_time(vec![volume("plain", kind), volume("peer", kind)]).is_empty());
    }
    assert_eq!(by_cpu_time(vec![on("peer", "/zfs")]), ["control", "sealed"]);
    let base = ["plain", "control"].map(|name| on(name, "/zfs"));
    assert_eq!(by_cpu_time(base.to_vec()), ["control"]);
    assert_eq!(by_cpu_time([&base[..], &[on("sealed", "/zfs")]].concat()), ["control", "sealed"]);
    assert_eq!(by_cpu_time([&base[..], &[on("sealed", "/other")]].concat()), ["control"]);
    // Whatever is compared with plain is compared with the control too.
    assert!(by_cpu_time(vec![on("plain", "/zfs"), on("peer", "/zfs")]).is_empty());
}
