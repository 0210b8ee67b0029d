//! Two runs with a known truth, side by side.

use super::*;
use crate::experiment::Param;
use crate::synthetic::{Synthetic, results};
use crate::trial::{Warning, WarningKind};

const ARMS: [&str; 3] = ["plain", "control", "sealed"];

fn run(sealed: f64, workloads: &[&str]) -> Results {
    let mut run = Synthetic::new(10);
    for workload in workloads {
        run.arm("plain", workload, 1.0).arm("control", workload, 1.0);
        run.arm("sealed", workload, sealed);
    }
    results(run, &ARMS)
}

#[test]
fn a_run_is_no_different_from_itself() {
    let run = run(0.95, &["select"]);
    let both = compare(&run, &run);
    assert_eq!(both.differences, Vec::<String>::new());
    assert_eq!((both.rows.len(), both.only.clone()), (2, [Vec::new(), Vec::new()]));
    for row in &both.rows {
        assert_eq!((row.relation, &*row.conditions), (Relation::Same, &[][..]), "{row:?}");
        assert_eq!(row.sides[0], row.sides[1]);
    }
}

#[test]
fn losses_that_share_nothing_differ_beyond_the_noise_of_both_runs() {
    let (a, mut b) = (run(0.95, &["select"]), run(0.8, &["select"]));
    let both = compare(&a, &b);
    assert!(both.rows.iter().all(|row| row.relation == Relation::Differs));
    let text = both.to_string();
    assert!(text.contains("  differs\n") && !text.contains("another"), "{text}");
    for trial in b.trials.iter_mut().filter(|trial| trial.arm == "control") {
        let part = if trial.block % 2 == 0 { 4.0 } else { 0.25 };
        trial.metrics.values_mut().for_each(|value| *value *= part);
    }
    let both = compare(&a, &b);
    assert!(both.rows.iter().all(|row| row.relation == Relation::Undecided), "{both}");
}

#[test]
fn a_run_without_a_control_or_with_four_blocks_differs_from_none() {
    let (a, b) = (run(0.95, &["select"]), run(0.5, &["select"]));
    let (mut alone, mut few) = (b.clone(), b);
    alone.trials.retain(|trial| trial.arm != "control");
    few.trials.retain(|trial| trial.block < 4);
    for b in [alone, few] {
        let both = compare(&a, &b);
        assert_eq!(both.rows.len(), 2);
        assert!(both.rows.iter().all(|row| row.relation == Relation::Undecided), "{both}");
    }
}

#[test]
fn a_difference_on_another_machine_size_or_experiment_is_told_as_such() {
    use Condition::{Experiment, Limits, Machine, Size, Versions};
    let (a, mut b) = (run(0.95, &["select"]), run(0.8, &["select"]));
    b.manifest.tidelock = "0.2.0".into();
    b.manifest.seed = 2;
    let conditions = |b: &Results| {
        let both = compare(&a, b);
        assert!(both.rows.iter().all(|row| row.relation == Relation::Differs), "{both}");
        both.rows[0].conditions.clone()
    };
    assert_eq!(conditions(&b), [], "a version of Tidelock is what is compared");
    b.manifest.size = crate::experiment::Size::Published;
    b.manifest.machine.memory_mib = 1;
    b.manifest.machine.versions.insert("postgresql".into(), "17".into());
    let experiment = &mut b.manifest.experiments[0].experiment;
    experiment.settings.insert("shared_buffers".into(), Param::from("1GB"));
    assert_eq!(conditions(&b), [Machine, Versions, Size, Experiment]);
    for trial in &mut b.trials {
        let (kind, text) = (WarningKind::Unlimited, "it needs root".into());
        trial.warnings.push(Warning { kind, text });
    }
    assert_eq!(conditions(&b), [Machine, Versions, Size, Experiment, Limits]);
    let text = compare(&a, &b).to_string();
    let told = "differs; another machine, versions, size, experiment, limits\n";
    assert!(text.contains(told), "{text}");
    assert!(text.contains("a limit was not in force in B: it needs root"), "{text}");
}

#[test]
fn what_only_one_has_and_what_differs_is_named() {
    let a = run(0.95, &["select", "insert"]);
    let mut b = run(0.95, &["select"]);
    b.manifest.seed = 2;
    b.manifest.commit = "0123456789ab".into();
    b.manifest.machine.cpus = 64;
    b.manifest.machine.versions.insert("postgres".into(), "15.8".into());
    let experiment = &mut b.manifest.experiments[0].experiment;
    experiment.settings.insert("shared_buffers".into(), Param::from("1GB"));
    experiment.question = "another text".into();
    let both = compare(&a, &b);
    assert_eq!(both.only, [vec!["synthetic: insert".to_owned()], Vec::new()]);
    assert_eq!(
        both.differences,
        [
            "commit: none and 0123456789ab",
            "seed: 1 and 2",
            "processors: 0 and 64",
            "version of postgres: none and 15.8",
            "synthetic: differs in settings"
        ]
    );
    println!("{both}");
}

#[test]
fn runs_without_a_common_experiment_have_nothing_in_common() {
    let a = run(0.95, &["select"]);
    let mut b = run(0.95, &["select"]);
    b.manifest.experiments[0].experiment.name = "other".into();
    b.trials.iter_mut().for_each(|trial| trial.experiment = "other".into());
    let both = compare(&a, &b);
    assert!(both.rows.is_empty() && both.to_string().contains("nothing in common"));
    assert_eq!(both.only, [vec!["experiment synthetic"], vec!["experiment other"]]);
}

#[test]
fn a_precise_run_that_was_ended_by_hand_is_told() {
    let a = run(0.95, &["select"]);
    let mut b = a.clone();
    b.manifest.experiments[0].experiment.stop.control_precision = Some(0.02);
    let told = |b: &Results| {
        let text = compare(&a, b).to_string();
        text.contains(&format!("  B: {}\n", crate::phrase::ENDED_BY_HAND))
    };
    assert!(!told(&b));
    b.finished = false;
    assert!(told(&b));
}
