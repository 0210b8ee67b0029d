//! Two runs with a known truth, side by side.

use super::*;
use crate::experiment::Param;
use crate::synthetic::{Synthetic, results};

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
    assert!(both.rows.iter().all(|row| row.overlap && row.sides[0] == row.sides[1]));
}

#[test]
fn intervals_that_share_nothing_are_apart() {
    let both = compare(&run(0.95, &["select"]), &run(0.8, &["select"]));
    assert!(both.rows.iter().all(|row| !row.overlap));
    let text = both.to_string();
    assert!(text.contains("apart") && !text.contains("overlap\n"), "{text}");
}

#[test]
fn what_only_one_has_and_what_differs_is_named() {
    let a = run(0.95, &["select", "insert"]);
    let mut b = run(0.95, &["select"]);
    b.manifest.seed = 2;
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
