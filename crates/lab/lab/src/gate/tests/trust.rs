//! What a gate must not pass: blocks that were left out, servers that are not equal, an arm that is
//! known less well than its control, rows that contradict each other, a miniature.

use super::*;
use crate::results::Damaged;
use crate::run::MOST_BLOCKS;
use crate::synthetic::set_controls;
use crate::trial::{Phase, Warning, WarningKind};

fn line_of<'g>(gate: &'g Gate, workload: &str) -> &'g Line {
    let is_it = |line: &&Line| line.cell.as_ref().is_some_and(|c| c.workload() == workload);
    gate.lines.iter().find(is_it).unwrap()
}

fn judge(results: &Results, max_loss: f64) -> Gate {
    gate(results, &Options::new(max_loss)).unwrap()
}

/// Twelve blocks of equal work that a precision ended.
fn precise() -> Results {
    let mut run = Synthetic::new(12);
    run.noise = 0.005;
    for arm in ["plain", "control", "sealed"] {
        run.arm(arm, "select", 1.0);
    }
    let mut paced: Vec<Trial> = run.trials.clone();
    paced.iter_mut().for_each(|trial| trial.phase = Phase::EqualWork);
    run.trials.append(&mut paced);
    let mut results = with_family(results(run, &["plain", "control", "sealed"]));
    let experiment = &mut results.manifest.experiments[0].experiment;
    (experiment.factors, experiment.settings) = Default::default();
    experiment.stop.equal_work_blocks = MOST_BLOCKS;
    experiment.stop.control_precision = Some(0.02);
    results
}

#[test]
fn blocks_that_are_left_out_of_a_precise_run_do_not_pass() {
    type Kept = fn(u32) -> bool;
    let whole = judge(&precise(), 0.02);
    assert_eq!(whole.outcome, Outcome::Passed, "{whole}");
    let cases: [(Kept, &str); 4] = [
        (|block| block != 0, "1 of its 12 blocks is missing"),
        (|block| block != 3 && block != 7, "2 of its 12 blocks are missing"),
        (|block| block < 9, "a precision needs 10 blocks at least"),
        (|block| block < 5, "a precision needs 10 blocks at least"),
    ];
    for (kept, why) in cases {
        let mut results = precise();
        results.trials.retain(|t| t.phase == Phase::Capacity || kept(t.block));
        let gate = judge(&results, 0.02);
        assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
        assert!(line_of(&gate, "select").why.contains(why), "{gate}");
    }
}

/// What has no chance as a cell is not shown to lose more by its family either.
#[test]
fn cells_that_lack_planned_blocks_do_not_fail_their_family() {
    let mut results = four_cells(0.90, 0.005);
    assert_eq!(judge(&results, 0.02).outcome, Outcome::Failed);
    results.trials.retain(|trial| trial.block < 6);
    let gate = judge(&results, 0.02);
    assert_eq!((gate.outcome, gate.outcome.exit_code()), (Outcome::Undecided, 7), "{gate}");
    let families: Vec<&Line> = gate.lines.iter().filter(|line| line.family.is_some()).collect();
    assert_eq!(families.len(), 2, "{gate}");
    for family in families {
        assert_eq!((family.outcome, family.ratio), (Outcome::Undecided, None), "{gate}");
        assert_eq!(family.why, "nothing can be said: all of its 4 cells are left out", "{gate}");
    }
    // One that has all of its blocks is enough for its family.
    let mut results = four_cells(0.90, 0.005);
    results.trials.retain(|trial| trial.block < 6 || trial.cell.0["level"] == "a");
    let gate = judge(&results, 0.02);
    assert_eq!(gate.outcome, Outcome::Failed, "{gate}");
    let family = gate.lines.iter().find(|line| line.family.is_some()).unwrap();
    assert!(family.why.ends_with("(1 cell, 3 left out)"), "{gate}");
}

#[test]
fn a_precise_run_that_was_ended_by_hand_does_not_fail_its_family() {
    let mut results = precise();
    for trial in results.trials.iter_mut().filter(|trial| trial.arm == "sealed") {
        *trial.metrics.get_mut("cpu_per_unit").unwrap() *= 1.1;
    }
    assert_eq!(judge(&results, 0.02).outcome, Outcome::Failed);
    results.finished = false;
    let gate = judge(&results, 0.02);
    assert_eq!((gate.outcome, gate.outcome.exit_code()), (Outcome::Undecided, 7), "{gate}");
    let why = "the run did not come to the end of its plan";
    assert!(line_of(&gate, "select").why.contains(why), "{gate}");
}

#[test]
fn a_last_block_that_was_cut_does_not_pass_as_one_that_never_was() {
    let mut results = precise();
    let cell = results.trials[0].cell.clone();
    results.trials.retain(|t| t.phase == Phase::Capacity || t.block != 11);
    assert_eq!(judge(&results, 0.02).outcome, Outcome::Passed);
    results.cut_blocks = [("synthetic".to_owned(), cell, Phase::EqualWork, 11)].into();
    let gate = judge(&results, 0.02);
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    assert!(line_of(&gate, "select").why.contains("; block 11 is not whole"), "{gate}");
}

#[test]
fn a_damaged_line_of_a_precise_run_does_not_pass() {
    let mut results = precise();
    results.broken.push(Damaged::at(7));
    let gate = judge(&results, 0.02);
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    let why = "1 line of it is no trial, so blocks may be missing";
    assert!(line_of(&gate, "select").why.contains(why), "{gate}");
}

#[test]
fn a_void_cell_that_lacks_blocks_is_not_void_by_chance() {
    let mut results = void_cells(1);
    let gate = judge(&results, 0.03);
    assert_eq!(line_of(&gate, "select-0").outcome, Outcome::Open, "{gate}");
    results.trials.retain(|trial| trial.cell.workload() != "select-0" || trial.block != 4);
    let gate = judge(&results, 0.03);
    assert_eq!(line_of(&gate, "select-0").outcome, Outcome::Undecided, "{gate}");
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
}

/// A control that is a little off in each cell: none of them shows it, all together do.
#[test]
fn a_family_whose_control_is_not_one_is_void() {
    let mut results = four_cells(1.0, 0.02);
    set_controls(&mut results, 1.01);
    let gate = judge(&results, 0.03);
    assert!(!gate.lines.iter().any(|line| line.is_void), "no cell is void: {gate}");
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    for family in gate.lines.iter().filter(|line| line.family.is_some()) {
        assert!(family.outcome == Outcome::Undecided && family.chance.is_none(), "{gate}");
        assert!(family.why.contains("void, because two equal servers differ"), "{gate}");
    }
    // It does not fail a build either, however much it seems to lose.
    let mut dear = results;
    for trial in dear.trials.iter_mut().filter(|trial| trial.arm == "sealed") {
        trial.metrics.values_mut().for_each(|value| *value *= 1.05);
    }
    let gate = judge(&dear, 0.03);
    let failed = gate.lines.iter().filter(|line| line.outcome == Outcome::Failed);
    assert!(failed.into_iter().all(|line| line.family.is_none()), "{gate}");
}

#[test]
fn equal_servers_seldom_void_a_family() {
    let void = (0..400).filter(|seed| {
        let results = four_cells_of(Synthetic::seeded(20, *seed), 1.0, 0.02);
        let gate = judge(&results, 0.03);
        gate.lines.iter().any(|line| line.family == Some(Kind::ReadOnly) && line.chance.is_none())
    });
    let void = void.count();
    // One in a hundred is 4; 11 and more have a chance of 0.3 % then.
    println!("{void} of 400");
    assert!(void < 11, "{void} of 400");
}

/// Servers of the arm differ from each other, which the control cannot show.
#[test]
fn an_arm_that_is_known_less_well_than_its_control_does_not_pass() {
    let of = |apart: f64| {
        let mut run = Synthetic::new(20);
        run.noise = 0.005;
        for level in ["a", "b", "c", "d"] {
            for (arm, number, speed) in [
                ("plain", 0, 1.0),
                ("control", 0, 1.0),
                ("sealed", 0, 1.0 + apart),
                ("sealed", 1, 1.0 - apart),
            ] {
                let before = run.trials.len();
                run.at(arm, &[("workload", "select"), ("level", level)], speed);
                run.trials.iter_mut().skip(before).for_each(|trial| trial.instance = number);
            }
        }
        let mut results = with_family(results(run, &["plain", "control", "sealed"]));
        results.manifest.experiments[0].experiment.stop.servers = 2;
        judge(&results, 0.05)
    };
    assert_eq!(of(0.0).outcome, Outcome::Passed, "{}", of(0.0));
    let gate = of(0.04);
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    let family = gate.lines.iter().find(|line| line.family.is_some()).unwrap();
    assert!(family.why.contains("; it is known to ") && family.why.contains("% only"), "{gate}");
    let control = family.control.unwrap();
    assert!(control.low > 0.95 && control.high < 1.05, "the control is narrow: {gate}");
}

#[test]
fn a_gain_whose_interval_stays_within_the_limit_passes_however_wide() {
    let interval = |low, mid, high| Some(Interval { low, mid, high });
    let control = interval(0.995, 1.0, 1.005);
    for (ratio, outcome) in [
        (interval(1.02, 1.1, 1.2), Outcome::Passed),
        (interval(0.985, 1.08, 1.2), Outcome::Passed),
        (interval(0.97, 1.08, 1.2), Outcome::Undecided),
        (interval(0.97, 0.985, 1.0), Outcome::Passed),
    ] {
        assert_eq!(lines::judged(ratio, control, 0.02).0, outcome, "{ratio:?}");
    }
}

#[test]
fn rows_that_contradict_each_other_leave_their_cell_undecided() {
    let mut results = run(1.0, 1.0, 0.005);
    let mut of_select = results.trials.iter_mut().filter(|t| t.cell.workload() == "select");
    let text = String::new();
    let warning = Warning { kind: WarningKind::Contradicted, text };
    of_select.next().unwrap().warnings.push(warning);
    let gate = judge(&results, 0.03);
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    assert!(line_of(&gate, "select").why.contains("cannot be trusted"), "{gate}");
    assert_eq!(line_of(&gate, "insert").outcome, Outcome::Passed, "{gate}");
}

#[test]
fn a_miniature_is_not_judged() {
    for sealed in [1.0, 0.5] {
        let mut results = run(sealed, 1.0, 0.005);
        results.manifest.size = Size::Miniature;
        let gate = judge(&results, 0.03);
        assert_eq!(gate.outcome.exit_code(), 7);
        let said = gate.to_string();
        let begin = "undecided  all experiments: not judged: a miniature says nothing about cost\n";
        assert!(said.starts_with(begin), "{said}");
    }
}

#[test]
fn one_block_has_no_interval() {
    let mut results = run(0.9, 1.0, 0.005);
    results.trials.retain(|trial| trial.block < 1);
    let gate = judge(&results, 0.03);
    let why = &line_of(&gate, "select").why;
    let none = " (no interval); one block has no interval, and at least 5 blocks are needed";
    assert!(why.contains(none) && !why.contains('['), "{why}");
}

#[test]
fn the_base_is_no_arm_to_judge_and_a_metric_named_twice_is_one_test() {
    let results = run(1.0, 1.0, 0.005);
    let mut options = Options::new(0.03);
    options.arm = "plain".into();
    let why = gate(&results, &options).unwrap_err();
    assert!(why.to_string().starts_with("plain is the base") && why.exit_code() == 2, "{why}");
    let mut options = Options::new(0.03);
    options.metrics = ["cpu_per_unit", "throughput", "cpu_per_unit"].map(String::from).into();
    assert_eq!(gate(&results, &options).unwrap().lines.len(), 4);
}
