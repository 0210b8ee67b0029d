//! Claims judged by trials with a known truth.

use std::collections::BTreeMap;

use super::*;
use crate::experiment::{Crypto, Expectation, LevelsAgainst, OwnArm, Param, VolumeType, Work};
use crate::synthetic::{Synthetic, billing, experiment, own_arm};
use crate::trial::{Warning, WarningKind};

const ARMS: [&str; 4] = ["plain", "control", "sealed", "own"];

fn claim(arm: &str, against: &str, expect: Expectation) -> Claim {
    Claim {
        id: "claim".into(),
        text: "claimed".into(),
        source: "a page".into(),
        metric: "transactions_per_second".into(),
        arm: arm.into(),
        against: against.into(),
        levels: BTreeMap::new(),
        levels_against: None,
        figure: None,
        expect,
        not_comparable: None,
    }
}

fn planned() -> Vec<PlannedArm> {
    let arm =
        |name: &&str| PlannedArm { name: (*name).into(), title: String::new(), missing: None };
    ARMS.iter().map(arm).collect()
}

fn verdict(claim: Claim, run: &Synthetic) -> Verdict {
    judge(&planned_with(claim), &planned(), &run.trials).remove(0)
}

/// The workloads `select` and `insert` at the scales 1 and 50.
fn planned_with(claim: Claim) -> Experiment {
    let mut experiment = experiment(&ARMS);
    experiment.factors.insert("scale".into(), vec!["1".into(), "50".into()]);
    let work = || Work::Crypto(Crypto { block: Param::from("{scale}"), seconds: Param::from("1") });
    experiment.workload = ["select", "insert"].map(|name| (name.to_owned(), work())).into();
    experiment.claims.push(claim);
    experiment
}

/// Two workloads at two scales; sealed loses 10 % in one workload and nothing in the other.
fn run(blocks: u32) -> Synthetic {
    let mut run = Synthetic::new(blocks);
    for scale in ["1", "50"] {
        let by_scale = if scale == "50" { 0.5 } else { 1.0 };
        for (workload, sealed) in [("select", 0.9), ("insert", 1.0)] {
            let levels = [(WORKLOAD, workload), ("scale", scale)];
            for (arm, speed) in [("plain", 1.0), ("control", 1.0), ("sealed", sealed), ("own", 0.8)]
            {
                run.at(arm, &levels, speed * by_scale);
            }
        }
    }
    run
}

fn at(mut claim: Claim, levels: &[(&str, &str)]) -> Claim {
    claim.levels = levels.iter().map(|(n, l)| ((*n).into(), Param::from(*l))).collect();
    claim
}

#[test]
fn a_claim_of_one_workload_is_judged_by_its_cells_alone() {
    let claim = at(claim("sealed", "plain", Expectation::Ratio(0.9)), &[(WORKLOAD, "select")]);
    let verdict = verdict(claim, &run(10));
    assert_eq!(verdict.conclusion, Conclusion::AsPublished, "{}", verdict.why);
    assert_eq!((verdict.cells.len(), verdict.pairs.len()), (2, 10));
    assert!(verdict.why.ends_with("holds the published loss of 10.0 % (2 cells, 10 blocks)"));
}

#[test]
fn all_cells_are_combined_by_the_geometric_mean() {
    let verdict = verdict(claim("sealed", "plain", Expectation::Ratio(0.9_f64.sqrt())), &run(10));
    assert_eq!((verdict.conclusion, verdict.cells.len()), (Conclusion::AsPublished, 4));
}

#[test]
fn an_arm_may_be_compared_with_one_that_is_not_the_base() {
    let claim = at(claim("sealed", "own", Expectation::Ratio(1.125)), &[(WORKLOAD, "select")]);
    let verdict = verdict(claim, &run(10));
    assert_eq!(verdict.conclusion, Conclusion::AsPublished, "{}", verdict.why);
}

#[test]
fn two_levels_of_a_factor_are_compared_within_one_arm() {
    let mut claim = claim("plain", "plain", Expectation::Ratio(0.5));
    let (level, base) = ("50".into(), "1".into());
    claim.levels_against = Some(LevelsAgainst { factor: "scale".into(), level, base, also: None });
    let verdict = verdict(claim, &run(10));
    assert_eq!(verdict.conclusion, Conclusion::AsPublished, "{}", verdict.why);
    assert_eq!(verdict.cells.len(), 2);
    let ends = "(4 cells, 10 blocks; the two levels were measured one after the other)";
    assert!(verdict.why.ends_with(ends), "{}", verdict.why);
}

#[test]
fn a_claim_about_two_levels_needs_a_control_at_both() {
    let mut claim = claim("plain", "plain", Expectation::Ratio(0.5));
    let (level, base) = ("50".into(), "1".into());
    claim.levels_against = Some(LevelsAgainst { factor: "scale".into(), level, base, also: None });
    let claim = at(claim, &[(WORKLOAD, "select")]);
    let mut without = run(10);
    without.trials.retain(|t| t.arm != "control" || t.cell.0["scale"] == "50");
    assert_eq!(verdict(claim.clone(), &without).conclusion, Conclusion::Undecided);
    let more = Claim { expect: Expectation::Ratio(0.3), ..claim };
    let verdict = verdict(more, &run(10));
    assert_eq!(verdict.conclusion, Conclusion::More, "{}", verdict.why);
    assert_eq!(verdict.conclusion.to_string(), "more than published");
}

#[test]
fn a_control_that_differs_from_plain_voids_a_claim() {
    let mut run = run(10);
    for trial in run.trials.iter_mut().filter(|trial| trial.arm == "control") {
        trial.metrics.values_mut().for_each(|value| *value *= 2.4);
    }
    let verdict = verdict(claim("sealed", "plain", Expectation::Ratio(0.9)), &run);
    assert_eq!(verdict.conclusion, Conclusion::Undecided);
    assert!(verdict.why.starts_with("void, because two equal servers differ"), "{}", verdict.why);
}

#[test]
fn a_claim_of_cells_that_were_not_all_measured_is_undecided() {
    let mut run = run(10);
    let is_last = |t: &Trial| t.cell.workload() == "select" && t.cell.0["scale"] == "50";
    run.trials.retain(|trial| !is_last(trial));
    let of_all = verdict(claim("sealed", "plain", Expectation::Ratio(0.9)), &run);
    assert_eq!(of_all.conclusion, Conclusion::Undecided);
    assert_eq!(of_all.why, "3 of 4 cells were measured");
    assert_eq!((of_all.cells.len(), of_all.ours.is_some()), (3, true));
    let of_one = at(claim("sealed", "plain", Expectation::Ratio(1.0)), &[(WORKLOAD, "insert")]);
    assert!(verdict(of_one, &run).why.ends_with("(2 cells, 10 blocks)"));
    let mut levels = at(claim("plain", "plain", Expectation::Ratio(0.5)), &[(WORKLOAD, "select")]);
    let (level, base) = ("50".into(), "1".into());
    levels.levels_against = Some(LevelsAgainst { factor: "scale".into(), level, base, also: None });
    assert_eq!(verdict(levels, &run).why, "1 of 2 cells were measured");
}

#[test]
fn cells_without_a_common_block_tell_nothing() {
    let mut run = run(10);
    run.trials.retain(|trial| (trial.cell.0["scale"] == "50") == (trial.block < 5));
    let verdict = verdict(claim("sealed", "plain", Expectation::Ratio(0.9)), &run);
    assert_eq!(verdict.conclusion, Conclusion::Undecided);
    assert_eq!(verdict.why, "no block was measured in all of its cells");
}

#[test]
fn a_claim_whose_limits_were_not_in_force_is_not_comparable() {
    let of = |workload| {
        let mut run = run(10);
        run.unlimited("select");
        let claim = claim("sealed", "plain", Expectation::Ratio(0.9));
        verdict(at(claim, &[(WORKLOAD, workload)]), &run)
    };
    let select = of("select");
    assert_eq!(select.conclusion, Conclusion::NotComparable);
    assert_eq!(select.why, "a limit of the experiment was not in force: it needs root");
    assert!(select.ours.is_some(), "ours is shown beside it");
    assert_ne!(of("insert").conclusion, Conclusion::NotComparable, "its limits were in force");
}

#[test]
fn a_block_in_which_an_arm_stood_still_keeps_a_claim_from_being_told() {
    let mut run = run(10);
    for trial in run.trials.iter_mut().filter(|t| t.arm == "sealed" && t.block == 3) {
        trial.metrics.insert("transactions_per_second".into(), 0.0);
    }
    let claim = at(claim("sealed", "plain", Expectation::Ratio(0.9)), &[(WORKLOAD, "select")]);
    let verdict = verdict(claim, &run);
    assert_eq!(verdict.conclusion, Conclusion::Undecided);
    assert!(verdict.why.starts_with("2 more blocks have no ratio"), "{}", verdict.why);
}

#[test]
fn nine_blocks_are_said_and_four_are_too_few() {
    let claim = at(claim("sealed", "plain", Expectation::Ratio(0.9)), &[(WORKLOAD, "select")]);
    let nine = verdict(claim.clone(), &run(9));
    assert_eq!(nine.conclusion, Conclusion::AsPublished);
    assert!(nine.why.ends_with("(2 cells, 9 blocks; 10 are the least for publication)"));
    let four = verdict(claim, &run(4));
    assert_eq!(four.conclusion, Conclusion::Undecided);
    assert!(four.why.starts_with("at least 5 blocks are needed"), "{}", four.why);
    assert!(four.ours.is_some());
}

#[test]
fn without_a_control_nothing_is_concluded() {
    let mut run = run(10);
    run.trials.retain(|trial| trial.arm != "control");
    let verdict = verdict(claim("own", "plain", Expectation::Ratio(0.8)), &run);
    assert_eq!(verdict.conclusion, Conclusion::Undecided);
    assert!(verdict.why.contains("no control"), "{}", verdict.why);
}

#[test]
fn a_noisy_machine_cannot_tell() {
    let mut run = Synthetic::new(10);
    run.noise = 0.2;
    for (arm, speed) in [("plain", 1.0), ("control", 1.0), ("sealed", 0.97)] {
        run.at(arm, &[(WORKLOAD, "select"), ("scale", "1")], speed);
    }
    let cell = [(WORKLOAD, "select"), ("scale", "1")];
    let verdict = verdict(at(claim("sealed", "plain", Expectation::Ratio(0.97)), &cell), &run);
    assert_eq!(verdict.conclusion, Conclusion::Undecided, "{}", verdict.why);
}

#[test]
fn what_cannot_be_compared_says_why() {
    let run = run(10);
    let expect = Expectation::Ratio(0.9);
    let why = |claim: Claim| {
        let verdict = self::verdict(claim, &run);
        assert_eq!(verdict.conclusion, Conclusion::NotComparable);
        verdict.why
    };
    let mut other_machine = claim("sealed", "plain", expect);
    other_machine.not_comparable = Some("it speaks of another cipher".into());
    assert_eq!(why(other_machine.clone()), "it speaks of another cipher");
    assert!(self::verdict(other_machine, &run).ours.is_some(), "ours is shown beside it");
    let gocryptfs = claim("gocryptfs", "plain", expect);
    assert_eq!(why(gocryptfs), "arm gocryptfs is not part of this run");
    let large = at(claim("sealed", "plain", expect), &[("scale", "5000")]);
    assert_eq!(
        why(large),
        "this size of the experiment, or what was chosen of it, has no scale 5000"
    );
    let unmeasured = at(claim("sealed", "plain", expect), &[(WORKLOAD, "update")]);
    assert_eq!(
        why(unmeasured),
        "not measured here: this size of the experiment, or what was chosen of it, has no update"
    );
}

#[test]
fn a_missing_arm_gives_its_own_reason() {
    let experiment = planned_with(claim("own", "plain", Expectation::Ratio(0.9)));
    let mut arms = planned();
    arms[3].missing = Some("mariadbd was not found".into());
    let verdicts = judge(&experiment, &arms, &run(10).trials);
    assert_eq!(verdicts[0].why, "arm own is missing: mariadbd was not found");
}

#[test]
fn an_absolute_figure_is_held_against_the_arm_s_own_value() {
    // 1000 to 1900 a second in the blocks' drift: about 1400.
    for (figure, conclusion) in [(200.0, Conclusion::More), (9000.0, Conclusion::Less)] {
        let expect = Expectation::EqualWithin(0.1);
        let claim = Claim { figure: Some(figure), ..claim("plain", "plain", expect) };
        let verdict = verdict(at(claim, &[(WORKLOAD, "select"), ("scale", "1")]), &run(10));
        assert_eq!(verdict.conclusion, conclusion, "{verdict:?}");
        let ours = verdict.ours.unwrap();
        assert!((ours.mid * figure / 1400.0 - 1.0).abs() < 0.1, "{ours}");
        assert!(verdict.why.contains("excludes the published figure"), "{}", verdict.why);
    }
}

#[test]
fn two_factors_may_change_together() {
    let level = |number: u32| Param(number.to_string());
    let also = LevelsAgainst { factor: "b".into(), level: level(20), base: level(10), also: None };
    let two = LevelsAgainst {
        factor: "a".into(),
        level: level(2),
        base: level(1),
        also: Some(also.into()),
    };
    let changes: Vec<(String, String, String)> =
        two.changes().map(|(f, l, b)| (f.clone(), l.0.clone(), b.0.clone())).collect();
    let text = |f: &str, l: &str, b: &str| (f.to_owned(), l.to_owned(), b.to_owned());
    assert_eq!(changes, [text("a", "2", "1"), text("b", "20", "10")]);
}

#[test]
fn a_claim_on_cpu_time_that_is_not_counted_is_not_comparable() {
    let of = |volume| {
        let claim = Claim {
            metric: "cpu_per_unit".into(),
            ..claim("own", "plain", Expectation::Ratio(0.8))
        };
        let mut experiment = planned_with(claim);
        experiment.own_arms = vec![OwnArm { volume: Some(volume), ..own_arm("own") }];
        judge(&experiment, &planned(), &run(10).trials).remove(0)
    };
    let luks = of(VolumeType::Luks);
    assert_eq!((luks.conclusion, luks.ours), (Conclusion::NotComparable, None));
    assert!(luks.why.starts_with("CPU time of own is not counted"), "{}", luks.why);
    assert_ne!(of(VolumeType::Ext4).conclusion, Conclusion::NotComparable);
}

#[test]
fn one_cell_whose_servers_differ_voids_a_claim_of_all_and_is_named() {
    let mut run = run(10);
    for trial in run.trials.iter_mut().filter(|trial| trial.arm == "control") {
        let factor = match (trial.cell.workload(), trial.cell.0["scale"].as_str()) {
            ("select", "1") => 1.3,
            ("select", _) => 1.0 / 1.3,
            _ => 1.0,
        };
        trial.metrics.values_mut().for_each(|value| *value *= factor);
    }
    let verdict = verdict(claim("sealed", "plain", Expectation::Ratio(0.9_f64.sqrt())), &run);
    assert!(verdict.control.unwrap().holds(1.0), "the mean of all is equal");
    assert_eq!(verdict.conclusion, Conclusion::Undecided);
    assert!(verdict.why.starts_with("void, because two equal servers differ"), "{}", verdict.why);
    assert!(verdict.why.contains(" in select, scale "), "{}", verdict.why);
}

#[test]
fn phases_of_the_same_trials_do_not_make_a_claim_more_certain() {
    let names = ["batch/phase1", "batch/phase2", "batch/phase3"];
    let arms = [("plain", 1.0), ("control", 1.0), ("sealed", 0.9)];
    let mut run = Synthetic::new(10);
    for (arm, speed) in arms {
        run.arm(arm, names[0], speed);
    }
    let first = run.trials.clone();
    for phase in &names[1..] {
        run.trials.extend(first.iter().cloned().map(|mut trial| {
            trial.cell.0.insert(WORKLOAD.into(), (*phase).into());
            trial
        }));
    }
    let mut experiment = experiment(&ARMS);
    experiment.workload = [("batch".to_owned(), Work::Billing(billing()))].into();
    let all = claim("sealed", "plain", Expectation::Ratio(0.9));
    let one = at(all.clone(), &[(WORKLOAD, names[0])]);
    experiment.claims = vec![one, all];
    let verdicts = judge(&experiment, &planned(), &run.trials);
    let [one, all] = [&verdicts[0], &verdicts[1]].map(|verdict| verdict.ours.unwrap());
    assert_eq!((verdicts[0].cells.len(), verdicts[1].cells.len()), (1, 3));
    let width = |ours: Interval| ours.high / ours.low;
    assert!((width(one) - width(all)).abs() < 1e-9, "{one} {all}");
}

#[test]
fn a_claim_on_a_cell_that_contradicts_itself_is_not_decided() {
    let mut run = run(10);
    let text = String::new();
    let warning = Warning { kind: WarningKind::Contradicted, text };
    let trial = run.trials.iter_mut().find(|t| t.cell.workload() == "select" && t.arm == "own");
    trial.unwrap().warnings.push(warning);
    let claim =
        |workload| at(claim("sealed", "plain", Expectation::Ratio(0.9)), &[(WORKLOAD, workload)]);
    let of_select = verdict(claim("select"), &run);
    assert_eq!(of_select.conclusion, Conclusion::Undecided, "{}", of_select.why);
    assert!(of_select.why.contains("it cannot be trusted"), "{}", of_select.why);
    assert_eq!(verdict(claim("insert"), &run).conclusion, Conclusion::Cheaper);
}

#[test]
fn a_miniature_is_not_judged() {
    let verdict = verdict(claim("sealed", "plain", Expectation::Ratio(0.5)), &run(10));
    assert_eq!(verdict.conclusion, Conclusion::Cheaper);
    let verdict = verdict.of_miniature();
    assert_eq!(verdict.conclusion.to_string(), "not judged: miniature");
    assert_eq!(verdict.why, "a miniature says nothing about cost");
}
