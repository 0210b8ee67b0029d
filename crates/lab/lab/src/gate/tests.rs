//! Gates over runs with a known truth.

use super::settle::SIGNIFICANT;
use super::*;
use crate::experiment::{Crypto, OwnArm, Param, Sql, Work};
use crate::manifest::PlannedArm;
use crate::synthetic::{Synthetic, billing, own_arm, results};
use crate::trial::Trial;

mod trust;

/// A run of the workloads `select` and `insert`, in which sealed has these speeds.
fn run(select: f64, insert: f64, noise: f64) -> Results {
    let mut run = Synthetic::new(10);
    run.noise = noise;
    for (workload, speed) in [("select", select), ("insert", insert)] {
        run.arm("plain", workload, 1.0).arm("control", workload, 1.0);
        run.arm("sealed", workload, speed);
    }
    run_of(run)
}

fn run_of(run: Synthetic) -> Results {
    let mut results = results(run, &["plain", "control", "sealed"]);
    let work = || Work::Crypto(Crypto { block: Param::from("1"), seconds: Param::from("1") });
    let names = ["select", "insert"];
    let workload = names.map(|name| (name.to_owned(), work()));
    results.manifest.experiments[0].experiment.workload = workload.into();
    results
}

fn outcome(results: &Results, max_loss: f64) -> Outcome {
    let gate = gate(results, &Options::new(max_loss)).unwrap();
    println!("{gate}\n");
    gate.outcome
}

#[test]
fn a_small_loss_passes() {
    let results = run(0.99, 1.0, 0.005);
    assert_eq!(outcome(&results, 0.03), Outcome::Passed);
    assert_eq!(gate(&results, &Options::new(0.03)).unwrap().lines.len(), 2);
}

#[test]
fn one_cell_that_surely_loses_more_fails_it() {
    assert_eq!(outcome(&run(1.0, 0.9, 0.005), 0.03), Outcome::Failed);
}

#[test]
fn what_is_not_shown_to_lose_more_passes_if_it_would_have_been_seen() {
    assert_eq!(outcome(&run(0.98, 1.0, 0.01), 0.03), Outcome::Passed);
    assert_eq!(outcome(&run(0.98, 1.0, 0.1), 0.03), Outcome::Undecided);
}

#[test]
fn a_loss_beyond_the_limit_never_passes_because_it_could_be_chance() {
    let results = four_cells(0.968, 0.04);
    let gate = gate(&results, &Options::new(0.02)).unwrap();
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    let family = gate.lines.iter().find(|line| line.family.is_some()).unwrap();
    assert!(family.why.contains("more blocks would tell"), "{gate}");
}

#[test]
fn a_run_that_ended_before_its_planned_blocks_does_not_pass() {
    let mut results = run(1.0, 1.0, 0.001);
    assert_eq!(outcome(&results, 0.05), Outcome::Passed);
    results.trials.retain(|trial| trial.cell.workload() != "select" || trial.block < 6);
    let gate = gate(&results, &Options::new(0.05)).unwrap();
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    let said = gate.to_string();
    assert!(said.contains("select: cpu_per_unit: ") && said.contains("6 of 10 planned"), "{said}");
}

/// The workload `select` is pgbench's, so that it has a family.
fn with_family(mut results: Results) -> Results {
    let text = "name = 'x'\nquestion = ''\nengine = 'postgresql'\narms = ['plain']\n\
                [workload.select]\nkind = 'pgbench'\nscript = 'select-only'\nscale = 1\n\
                clients = 1\njobs = 1\nseconds = 1\n[stop]\nblocks = 1\n";
    let mut read = crate::experiment::read("x", text, crate::experiment::Size::Small).unwrap();
    let work = read.workload.remove("select").unwrap();
    let workload = &mut results.manifest.experiments[0].experiment.workload;
    let levels = ["a", "b", "c", "d"].map(Param::from);
    workload.clear();
    workload.insert("select".into(), work);
    let experiment = &mut results.manifest.experiments[0].experiment;
    experiment.factors.insert("level".into(), levels.into());
    experiment.settings.insert("x".into(), Param::from("{level}"));
    results
}

fn four_cells(sealed: f64, noise: f64) -> Results {
    four_cells_of(Synthetic::seeded(20, 1), sealed, noise)
}

fn four_cells_of(mut run: Synthetic, sealed: f64, noise: f64) -> Results {
    run.noise = noise;
    for level in ["a", "b", "c", "d"] {
        for (arm, speed) in [("plain", 1.0), ("control", 1.0), ("sealed", sealed)] {
            run.at(arm, &[("workload", "select"), ("level", level)], speed);
        }
    }
    with_family(results(run, &["plain", "control", "sealed"]))
}

#[test]
fn a_family_decides_where_its_cells_alone_cannot() {
    for (sealed, expected) in [(1.0, Outcome::Passed), (0.93, Outcome::Failed)] {
        let results = four_cells(sealed, 0.04);
        let gate = gate(&results, &Options::new(0.02)).unwrap();
        println!("{gate}");
        assert_eq!(gate.outcome, expected, "{gate}");
        let families: Vec<_> = gate.lines.iter().filter(|line| line.family.is_some()).collect();
        assert_eq!(families.len(), 2, "all and read-only, by CPU time");
        let open = gate.lines.iter().any(|line| line.outcome == Outcome::Open);
        assert!(open || expected == Outcome::Failed, "{gate}");
        assert_ne!(gate.outcome.exit_code(), 7);
    }
}

#[test]
fn an_arm_at_the_limit_is_seldom_stopped() {
    let failed = (0..60).filter(|seed| {
        let mut run = Synthetic::seeded(10, *seed);
        run.noise = 0.02;
        for workload in ["select", "insert"] {
            run.arm("plain", workload, 1.0).arm("control", workload, 1.0);
            run.arm("sealed", workload, 0.97);
        }
        let all = run_of(run);
        gate(&all, &Options::new(0.03)).unwrap().outcome == Outcome::Failed
    });
    let failed = failed.count();
    // One in twenty is 3; 9 and more have a chance of 0.3 % then.
    assert!(failed < 9, "{failed} of 60");
}

#[test]
fn families_and_cells_at_the_limit_share_one_in_twenty() {
    let failed = (0..200).filter(|seed| {
        let results = four_cells_of(Synthetic::seeded(20, *seed), 0.98, 0.02);
        gate(&results, &Options::new(0.02)).unwrap().outcome == Outcome::Failed
    });
    let failed = failed.count();
    // One in twenty is 10; 20 and more have a chance of 0.3 % then.
    println!("{failed} of 200");
    assert!(failed < 20, "{failed} of 200");
}

#[test]
fn noisy_throughput_leaves_nothing_undecided() {
    let mut results = four_cells(1.0, 0.01);
    let mut random = fastrand::Rng::with_seed(1);
    for trial in &mut results.trials {
        let throughput = trial.metrics.get_mut("transactions_per_second").unwrap();
        *throughput *= 0.5 + random.f64();
    }
    let mut options = Options::new(0.02);
    let by_default = gate(&results, &options).unwrap();
    assert_eq!(by_default.outcome, Outcome::Passed, "{by_default}");
    let of_cpu = |line: &Line| line.metric == Some("cpu_per_unit");
    assert!(by_default.lines.iter().all(of_cpu), "{by_default}");
    options.metrics = vec!["throughput".into()];
    let named = gate(&results, &options).unwrap();
    assert_eq!(named.outcome, Outcome::Undecided, "{named}");
}

#[test]
fn a_hundred_equal_cells_do_not_hide_a_family_that_surely_loses_more() {
    let mut run = Synthetic::new(10);
    let equal: Vec<String> = (0..100).map(|number| format!("select-{number}")).collect();
    for (arm, speed) in [("plain", 1.0), ("control", 1.0), ("sealed", 0.975)] {
        run.arm(arm, "insert", speed);
        equal.iter().for_each(|workload| _ = run.arm(arm, workload, 1.0));
    }
    let mut results = with_family(results(run, &["plain", "control", "sealed"]));
    let experiment = &mut results.manifest.experiments[0].experiment;
    (experiment.factors, experiment.settings) = Default::default();
    let select = experiment.workload.remove("select").unwrap();
    experiment.workload.extend(equal.into_iter().map(|name| (name, select.clone())));
    let insert = Work::Sql(Sql { setup: "".into(), sql: "".into(), rows: "1".into() });
    experiment.workload.insert("insert".into(), insert);
    let gate = gate(&results, &Options::new(0.02)).unwrap();
    println!("{gate}");
    assert_eq!(gate.outcome, Outcome::Failed);
    let failed: Vec<&Line> =
        gate.lines.iter().filter(|line| line.outcome == Outcome::Failed).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].family, Some(Kind::Bulk));
    assert!(!failed[0].why.contains("could be chance"), "{}", failed[0].why);
    // All lines together would not have shown it.
    let together = failed[0].chance.unwrap() * gate.lines.len() as f64;
    assert!(together > SIGNIFICANT, "{together}");
}

/// The same without CPU time in cells of these levels.
fn without_cpu_time(mut results: Results, levels: &[&str]) -> Results {
    for trial in &mut results.trials {
        if levels.contains(&trial.cell.0["level"].as_str()) {
            trial.metrics.remove("cpu_per_unit");
        }
    }
    results
}

/// Twenty equal cells, of which so many have a control that differs from plain.
fn void_cells(void: usize) -> Results {
    let mut run = Synthetic::new(10);
    let names: Vec<String> = (0..20).map(|number| format!("select-{number}")).collect();
    for arm in ["plain", "control", "sealed"] {
        names.iter().for_each(|workload| _ = run.arm(arm, workload, 1.0));
    }
    let is_void = |t: &&mut Trial| {
        t.arm == "control" && names.iter().take(void).any(|name| t.cell.workload() == name)
    };
    for trial in run.trials.iter_mut().filter(is_void) {
        trial.metrics.values_mut().for_each(|value| *value *= 1.5);
    }
    let mut results = with_family(results(run, &["plain", "control", "sealed"]));
    let experiment = &mut results.manifest.experiments[0].experiment;
    (experiment.factors, experiment.settings) = Default::default();
    let select = experiment.workload.remove("select").unwrap();
    experiment.workload.extend(names.iter().map(|name| (name.clone(), select.clone())));
    results
}

#[test]
fn as_many_void_cells_as_chance_explains_leave_nothing_undecided() {
    for (void, expected) in [(1, Outcome::Passed), (3, Outcome::Undecided)] {
        let gate = gate(&void_cells(void), &Options::new(0.03)).unwrap();
        assert_eq!(gate.outcome, expected, "{gate}");
    }
}

#[test]
fn a_run_without_cpu_time_is_judged_by_throughput() {
    for (sealed, expected) in [(1.0, Outcome::Passed), (0.93, Outcome::Failed)] {
        let results = without_cpu_time(four_cells(sealed, 0.02), &["a", "b", "c", "d"]);
        let gate = gate(&results, &Options::new(0.03)).unwrap();
        assert_eq!(gate.outcome, expected, "{gate}");
        let metrics = gate.lines.iter().map(|line| (line.family.is_some(), line.metric.unwrap()));
        let (families, cells): (Vec<_>, Vec<_>) = metrics.partition(|(family, _)| *family);
        assert_eq!(families, [(true, "throughput"); 2]);
        assert_eq!(cells, [(false, "transactions_per_second"); 4]);
    }
}

#[test]
fn cells_without_cpu_time_do_not_mix_with_those_that_have_it() {
    let results = without_cpu_time(four_cells(1.0, 0.02), &["c", "d"]);
    let gate = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!(gate.outcome, Outcome::Passed, "{gate}");
    let families: Vec<(Option<&str>, bool)> = gate
        .lines
        .iter()
        .filter(|line| line.family.is_some())
        .map(|line| (line.metric, line.why.ends_with("(2 cells)")))
        .collect();
    let (cpu, throughput) = ((Some("cpu_per_unit"), true), (Some("throughput"), true));
    assert_eq!(families, [cpu, throughput, cpu, throughput], "{gate}");
    assert_eq!(gate.lines.len(), 4 + 4, "{gate}");
}

#[test]
fn the_speed_of_a_cipher_is_a_throughput() {
    for (sealed, expected) in [(1.0, Outcome::Passed), (0.9, Outcome::Failed)] {
        let mut results = run(sealed, 1.0, 0.005);
        for trial in &mut results.trials {
            trial.metrics.remove("cpu_per_unit");
            let speed = trial.metrics.remove("transactions_per_second").unwrap();
            trial.metrics.insert("gigabytes_per_second".into(), speed);
        }
        assert_eq!(outcome(&results, 0.03), expected);
    }
}

#[test]
fn throughput_names_that_of_each_cell() {
    let mut results = run(1.0, 0.9, 0.005);
    for trial in results.trials.iter_mut().filter(|trial| trial.cell.workload() == "insert") {
        let rate = trial.metrics.remove("transactions_per_second").unwrap();
        trial.metrics.insert("rows_per_second".into(), rate);
    }
    let mut options = Options::new(0.03);
    options.metrics = vec!["throughput".into()];
    let gate = gate(&results, &options).unwrap();
    assert_eq!(gate.outcome, Outcome::Failed, "{gate}");
    let metrics: Vec<_> = gate.lines.iter().filter_map(|line| line.metric).collect();
    assert_eq!(metrics, ["rows_per_second", "transactions_per_second"]);
}

#[test]
fn noise_above_the_limit_is_undecided_unless_the_loss_is_above_the_noise() {
    assert_eq!(outcome(&run(1.0, 1.0, 0.05), 0.01), Outcome::Undecided);
    assert_eq!(outcome(&run(0.5, 1.0, 0.05), 0.01), Outcome::Failed);
}

#[test]
fn what_was_not_measured_is_undecided() {
    let mut results = run(1.0, 1.0, 0.005);
    results.trials.retain(|trial| trial.cell.workload() == "select");
    let gate = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!(gate.outcome, Outcome::Undecided);
    assert_eq!(gate.lines[0].to_string(), "undecided  synthetic: insert: not measured");
    results.trials.clear();
    assert_eq!(outcome(&results, 0.03), Outcome::Undecided);
    results.manifest.experiments.clear();
    assert_eq!(outcome(&results, 0.03), Outcome::Undecided);
}

#[test]
fn equal_work_that_was_planned_and_never_ran_is_undecided() {
    let mut results = four_cells(1.0, 0.04);
    assert_eq!(outcome(&results, 0.02), Outcome::Passed);
    results.manifest.experiments[0].experiment.stop.equal_work_blocks = 10;
    let gate = gate(&results, &Options::new(0.02)).unwrap();
    assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
    let cpu = |line: &&Line| line.metric == Some("cpu_per_unit");
    assert!(gate.lines.iter().filter(cpu).all(|line| line.why == "not measured"), "{gate}");
    assert_eq!(gate.lines.iter().filter(cpu).count(), 4, "{gate}");
}

#[test]
fn factors_that_a_workload_does_not_use_and_phases_of_the_batch_engine_are_no_gaps() {
    let mut results = run(1.0, 1.0, 0.005);
    let experiment = &mut results.manifest.experiments[0].experiment;
    experiment.factors.insert("scale".into(), vec!["1".into(), "50".into()]);
    assert_eq!(outcome(&results, 0.03), Outcome::Passed);
    let experiment = &mut results.manifest.experiments[0].experiment;
    experiment.workload = [("month".to_owned(), Work::Billing(billing()))].into();
    let mut phases = Synthetic::new(10);
    for phase in ["month/phase1", "month/phase2", "month/phase3"] {
        phases.arm("plain", phase, 1.0).arm("control", phase, 1.0).arm("sealed", phase, 1.0);
    }
    results.trials = phases.trials;
    assert_eq!(outcome(&results, 0.03), Outcome::Passed);
    results.trials.retain(|trial| trial.cell.workload() != "month/phase3");
    let gate = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!(gate.outcome, Outcome::Undecided);
    let last = gate.lines.last().unwrap().to_string();
    assert_eq!(last, "undecided  synthetic: month/phase3: not measured");
}

#[test]
fn a_metric_that_the_arm_alone_lacks_is_a_gap() {
    let mut results = run(1.0, 1.0, 0.005);
    for trial in results.trials.iter_mut().filter(|trial| trial.arm == "sealed") {
        trial.metrics.remove("cpu_per_unit");
    }
    let gate = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!(gate.outcome, Outcome::Undecided);
    let gaps: Vec<String> = gate.lines.iter().map(ToString::to_string).collect();
    let gap = "undecided  synthetic: select: cpu_per_unit: not measured";
    assert!(gaps.iter().any(|line| line == gap), "{gaps:?}");
}

#[test]
fn a_loss_without_the_limits_of_the_experiment_is_undecided() {
    for sealed in [1.0, 0.5] {
        let mut run = Synthetic::new(10);
        run.arm("plain", "select", 1.0).arm("control", "select", 1.0);
        run.arm("sealed", "select", sealed).unlimited("select");
        let mut results = results(run, &["plain", "control", "sealed"]);
        let work = Work::Crypto(Crypto { block: Param::from("1"), seconds: Param::from("1") });
        let experiment = &mut results.manifest.experiments[0].experiment;
        experiment.workload.insert("select".into(), work);
        let gate = gate(&results, &Options::new(0.03)).unwrap();
        assert_eq!(gate.outcome, Outcome::Undecided, "{gate}");
        let why = &gate.lines[0].why;
        assert!(why.contains("with a limit not in force: it needs root"), "{why}");
    }
}

#[test]
fn an_experiment_without_a_server_is_judged_only_by_its_name() {
    let mut results = run(1.0, 1.0, 0.005);
    let mut ciphers = results.manifest.experiments[0].clone();
    ciphers.experiment.name = "ciphers".into();
    ciphers.experiment.engine = Engine::None;
    results.manifest.experiments.push(ciphers);
    let whole = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!((whole.outcome, whole.lines.len()), (Outcome::Passed, 2));
    assert_eq!(whole.skipped, ["ciphers"]);
    assert!(whole.to_string().contains("--experiment ciphers judges it"), "{whole}");
    let mut options = Options::new(0.03);
    options.experiments = vec!["ciphers".into()];
    let named = gate(&results, &options).unwrap();
    assert_eq!(named.outcome, Outcome::Undecided);
    assert_eq!(named.lines[0].to_string(), "undecided  ciphers: insert: not measured");
    assert!(named.skipped.is_empty());
    results.manifest.experiments.remove(0);
    let alone = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!((alone.outcome, alone.skipped.len()), (Outcome::Undecided, 1));
}

#[test]
fn four_blocks_or_no_control_is_undecided() {
    let mut few = run(0.5, 0.5, 0.005);
    few.trials.retain(|trial| trial.block < 4);
    assert_eq!(outcome(&few, 0.03), Outcome::Undecided);
    let mut alone = run(0.5, 0.5, 0.005);
    alone.trials.retain(|trial| trial.arm != "control");
    assert_eq!(outcome(&alone, 0.03), Outcome::Undecided);
}

#[test]
fn a_missing_arm_gives_its_reason() {
    let mut results = run(1.0, 1.0, 0.005);
    results.manifest.experiments[0].arms[2] = PlannedArm {
        name: "sealed".into(),
        title: String::new(),
        missing: Some("there is no profile yet".into()),
    };
    let gate = gate(&results, &Options::new(0.03)).unwrap();
    assert_eq!(gate.outcome.exit_code(), 7);
    assert_eq!(gate.lines[0].why, "arm sealed is missing: there is no profile yet");
}

#[test]
fn options_choose_and_unknown_ones_are_refused() {
    let results = run(1.0, 0.9, 0.005);
    let mut options = Options::new(0.03);
    options.metrics = vec!["cpu_per_unit".into(), "throughput".into()];
    assert_eq!(gate(&results, &options).unwrap().lines.len(), 4);
    options.metrics = vec!["checkpoints".into()];
    assert!(gate(&results, &options).is_err());
    let mut options = Options::new(0.03);
    options.arm = "nosuch".into();
    let why = gate(&results, &options).unwrap_err().to_string();
    assert!(why.contains("no experiment of the run has an arm nosuch"), "{why}");
    let mut options = Options::new(0.03);
    options.experiments = vec!["other".into()];
    assert!(gate(&results, &options).is_err());
    assert!(gate(&results, &Options::new(2.0)).is_err());
    let mut options = Options::new(0.03);
    options.arm = "control".into();
    assert_eq!(gate(&results, &options).unwrap().outcome, Outcome::Passed);
}

#[test]
fn cpu_time_that_is_not_counted_is_undecided_and_throughput_is_judged() {
    let mut results = run(1.0, 1.0, 0.005);
    let on = Some("/mnt/zfs".into());
    results.manifest.experiments[0].experiment.own_arms = vec![OwnArm { on, ..own_arm("sealed") }];
    let mut options = Options::new(0.03);
    let by_default = gate(&results, &options).unwrap();
    assert_eq!(by_default.outcome, Outcome::Undecided, "{by_default}");
    for line in &by_default.lines {
        let why = "CPU time of sealed is not counted: threads of the kernel have a part of it; use \
                   --metric throughput";
        assert_eq!((line.metric, &*line.why, line.ratio), (Some("cpu_per_unit"), why, None));
    }
    assert_eq!(by_default.lines.len(), 2);
    options.metrics = vec!["throughput".into()];
    assert_eq!(gate(&results, &options).unwrap().outcome, Outcome::Passed);
}
