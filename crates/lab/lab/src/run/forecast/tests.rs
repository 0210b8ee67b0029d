use std::path::Path;

use super::*;
use crate::experiment::{Size, read};
use crate::manifest::PlannedArm;
use crate::results::Results;
use crate::run::base_cell;
use crate::run::precision::widest;
use crate::trial::Trial;

/// Two experiments: two kinds of load with equal work, two cells each, and bulk without.
fn planned(change: impl Fn(&str) -> String) -> Vec<Planned> {
    let text = r#"
        name = "t"
        question = "?"
        engine = "postgresql"
        arms = ["plain", "control", "sealed"]
        [factors]
        clients = [2, 4]
        [workload.read]
        kind = "pgbench"
        script = "select-only"
        scale = 1
        clients = "{clients}"
        jobs = 1
        seconds = 1
        [workload.write]
        kind = "pgbench"
        script = "tpcb-like"
        scale = 1
        clients = "{clients}"
        jobs = 1
        seconds = 1
        [workload.insert]
        kind = "sql"
        setup = ""
        sql = "SELECT 1"
        rows = 10
        [stop]
        blocks = 10
        equal_work_blocks = 10
    "#;
    let experiment = read("t", &change(text), Size::Small).unwrap();
    vec![with_all_arms(experiment)]
}

/// Blocks whose logarithms have about this standard deviation.
fn spread(sd: f64) -> Result<Spread, String> {
    let logs: Vec<f64> = (0..8).map(|n| if n % 2 == 0 { sd } else { -sd }).collect();
    Ok(Spread { estimate: Estimate::of(&logs, None).unwrap(), measured: 8, seconds: 1.5 })
}

fn said(planned: &[Planned], spreads: &Spreads, minutes: Option<u64>) -> Vec<String> {
    let left = minutes.map(|minutes| Duration::from_secs(minutes * 60));
    Forecast::of(planned, spreads, 0.02, left).unwrap().families()
}

fn paced(kind: Kind) -> Load {
    Load { kind, phase: Phase::EqualWork, own: None }
}

fn whole(kind: Kind, experiment: &str) -> Load {
    Load { kind, phase: Phase::Capacity, own: Some(experiment.into()) }
}

fn spreads(read: f64, write: f64) -> Spreads {
    Spreads::from([(paced(Kind::ReadOnly), spread(read)), (paced(Kind::TpcB), spread(write))])
}

#[test]
fn a_family_that_will_be_too_wide_is_named_before() {
    let said = said(&planned(str::to_owned), &spreads(0.01, 0.08), None);
    let [open, unknown, decided] = &said[..] else { panic!("{said:?}") };
    assert!(
        open.starts_with(
            "CPU time of two equal servers will not be known to 2.0 %: TPC-B-like (the"
        ),
        "{open}"
    );
    assert!(open.contains("the blocks of its 2 cells give ") && !open.contains("read"), "{open}");
    let why = "bulk (its cell has work that could not be tried)";
    assert!(unknown.contains(why) && unknown.contains("all loads (1 of its 5 cells"), "{unknown}");
    assert_eq!(decided, "CPU time of two equal servers will be known to 2.0 %: read only");
}

#[test]
fn a_family_without_equal_work_is_reckoned_by_whole_trials() {
    let bulk = |sd: f64, blocks: u32| {
        let mut planned = planned(str::to_owned);
        planned[0].experiment.stop.blocks = blocks;
        let mut spreads = spreads(0.01, 0.01);
        spreads.insert(whole(Kind::Bulk, "t"), spread(sd));
        said(&planned, &spreads, None)
    };
    let narrow = "CPU time of two equal servers will be known to 2.0 %: all loads; read only; TPC-B-like; bulk";
    assert_eq!(bulk(0.01, 10), [narrow]);
    let wide = bulk(0.05, 10);
    assert!(
        wide[0].contains("not be known to 2.0 %: bulk (the blocks of its cell give "),
        "{wide:?}"
    );
    assert!(bulk(0.01, 4)[0].contains("bulk (its cell has fewer than 5 blocks)"));
    // Minutes end equal work alone.
    let mut planned = planned(str::to_owned);
    planned[0].experiment.stop.control_precision = Some(0.02);
    let mut spreads = spreads(0.08, 0.08);
    spreads.insert(whole(Kind::Bulk, "t"), spread(0.01));
    assert!(said(&planned, &spreads, Some(1)).last().unwrap().ends_with("2.0 %: bulk"));
}

#[test]
fn a_family_is_known_better_than_each_of_its_cells() {
    // Ten blocks of one cell reach 2.7 % at most, and those of two 1.8 %.
    let one = planned(|text| text.replace("[2, 4]", "[2]"));
    let decided = |planned: &[Planned]| {
        let said = said(planned, &spreads(0.026, 0.001), None);
        said.iter().any(|line| line.contains("will be known to 2.0 %: read only"))
    };
    assert!(!decided(&one) && decided(&planned(str::to_owned)));
}

#[test]
fn a_family_that_few_blocks_may_have_flattered_is_not_promised() {
    // Two cells: 1.5 % by a standard deviation that eight blocks may have found too small.
    let said = said(&planned(str::to_owned), &spreads(0.03, 0.001), None);
    let all = said.iter().find(|line| line.contains("may not be known to 2.0 %: ")).unwrap();
    assert!(
        all.contains("read only (the blocks of its 2 cells give 1.5 %, 2.1 % at most)"),
        "{all}"
    );
    assert!(said.last().unwrap().ends_with("will be known to 2.0 %: TPC-B-like"), "{said:?}");
}

#[test]
fn scripts_of_one_kind_are_tried_one_by_one() {
    let script = |name: &str| {
        format!(
            "[workload.{name}]\nkind = \"pgbench\"\nscript = \"custom\"\ncustom = \"INSERT INTO {name} \
             VALUES (1)\"\nscale = 0\nclients = 1\njobs = 1\nseconds = 1\n[stop]"
        )
    };
    let one = planned(|text| text.replace("[stop]", &script("one")));
    let two =
        planned(|text| text.replace("[stop]", &script("one")).replace("[stop]", &script("two")));
    assert_eq!(to_try(&two).unwrap().len(), to_try(&one).unwrap().len() + 1);
}

#[test]
fn with_a_precision_the_minutes_decide() {
    let mut planned = planned(str::to_owned);
    planned[0].experiment.stop.control_precision = Some(0.02);
    planned[0].experiment.stop.equal_work_blocks = MOST_BLOCKS;
    let wide = spreads(0.08, 0.08);
    let all = said(&planned, &wide, None);
    assert!(all.iter().any(|l| l.ends_with("2.0 %: read only; TPC-B-like")), "{all:?}");
    let cut = said(&planned, &wide, Some(3));
    assert!(cut[0].contains("no time left of the minutes given"), "{cut:?}");
}

#[test]
fn minutes_that_end_only_where_blocks_differ_by_the_most_leave_a_doubt() {
    let mut planned = planned(str::to_owned);
    planned[0].experiment.stop.control_precision = Some(0.02);
    planned[0].experiment.stop.equal_work_blocks = MOST_BLOCKS;
    let spreads = spreads(0.06, 0.06);
    let (fewer, more) = match &spreads[&paced(Kind::ReadOnly)] {
        Ok(spread) => {
            let reach = 1.02_f64.ln();
            (spread.blocks_for(reach), spread.at_most().blocks_for(reach))
        }
        Err(why) => panic!("{why}"),
    };
    // Four cells of three servers, a second and a half each; the rest takes about five minutes.
    let minutes = |blocks: usize| (blocks as u64 * 4 * 3 * 3 / 2).div_ceil(60);
    assert!(minutes(more) > minutes(fewer) + 8, "{fewer} {more}");
    let lines = said(&planned, &spreads, Some(minutes(fewer) + 6));
    assert!(!lines.iter().any(|line| line.contains("will not be known")), "{lines:?}");
    let doubtful = lines.iter().find(|line| line.contains("may not be known")).unwrap();
    let why = "TPC-B-like (the blocks of its 2 cells give";
    assert!(doubtful.contains(why), "{lines:?}");
    let late = "; for 1 of them no time may be left of the minutes given)";
    assert!(doubtful.contains(late), "{lines:?}");
    let short = said(&planned, &spreads, Some(4));
    assert!(short[0].contains("will not") && short[0].contains("no time left"), "{short:?}");
}

#[test]
fn what_could_not_be_tried_and_what_has_no_control_says_so() {
    let mut planned = planned(str::to_owned);
    let failed = Spreads::from([
        (paced(Kind::ReadOnly), Err("the disk is full".into())),
        (paced(Kind::TpcB), spread(0.01)),
    ]);
    let untried = said(&planned, &failed, None);
    assert!(untried[0].contains("read only (its 2 cells have work that"), "{untried:?}");
    assert!(untried[0].contains("could not be tried: the disk is full"), "{untried:?}");
    planned[0].arms[1].missing = Some("gone".into());
    assert!(to_try(&planned).unwrap().is_empty());
    let without = said(&planned, &Spreads::new(), None);
    assert_eq!(without.len(), 1, "{without:?}");
    assert!(
        without[0].contains("will not") && without[0].contains("bulk (its cell has no control)")
    );
}

#[test]
fn the_time_names_the_blocks_of_each_kind_where_they_differ() {
    let planned = planned(str::to_owned);
    let time = |read, write| {
        Forecast::of(&planned, &spreads(read, write), 0.02, None).unwrap().time(true).unwrap()
    };
    let same = time(0.001, 0.001);
    assert!(same.ends_with(" min here: 10 blocks of equal work in each cell"), "{same}");
    let differ = time(0.001, 0.4);
    assert!(differ.contains("10 blocks of equal work in each cell of read only; "), "{differ}");
    assert!(differ.ends_with(", more than the 500 that are measured at most"), "{differ}");
}

#[test]
fn a_run_that_is_too_short_to_decide_says_so() {
    let said = instead("2.0 % needs about 50 min here", 50.0, 9.0);
    let begin = "2.0 % needs about 50 min here; this run takes 9 min, too few to decide that";
    assert!(said.starts_with(begin), "{said}");
    let said = instead("2.0 % needs about 5 min here", 5.0, 9.0);
    assert_eq!(said, "2.0 % needs about 5 min here; this run takes 9 min");
}

#[test]
fn slices_that_waited_for_slow_transactions_are_in_the_time_of_the_run() {
    let planned = planned(str::to_owned);
    let minutes = |seconds: f64| {
        let mut spreads = spreads(0.001, 0.001);
        let Some(Ok(read)) = spreads.get_mut(&paced(Kind::ReadOnly)) else { panic!("no reads") };
        read.seconds = seconds;
        Forecast::of(&planned, &spreads, 0.02, None).unwrap().as_planned
    };
    let plan = (crate::run::seconds(&planned).unwrap() / 60.0).ceil();
    assert!((minutes(0.1) - plan).abs() < 1.5, "{} {plan}", minutes(0.1));
    // Two cells of three servers and ten blocks.
    let longer = minutes(61.4) - minutes(1.4);
    assert!((longer - 60.0).abs() < 1.5, "{longer}");
}

/// What `make lab` runs, with every arm.
fn of_make_lab() -> Vec<Planned> {
    let makefile = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Makefile"));
    let (_, names) = makefile.split_once("\nEXPERIMENTS := ").unwrap();
    let (names, _) = names.split_once("\n\n").unwrap();
    let experiments = names.split_whitespace().filter(|name| *name != "\\");
    experiments
        .map(|name| with_all_arms(crate::catalogue::find(name, Size::Small).unwrap()))
        .collect()
}

fn with_all_arms(experiment: Experiment) -> Planned {
    let arm =
        |name: &String| PlannedArm { name: name.clone(), title: String::new(), missing: None };
    let arms = experiment.arms.iter().map(arm).collect();
    Planned { experiment, arms, limits: Vec::new() }
}

#[test]
fn make_lab_tries_each_kind_of_load() {
    let planned = of_make_lab();
    assert_eq!(planned.len(), 8);
    let loads: Vec<Load> = to_try(&planned).unwrap().into_keys().collect();
    let script = |name| {
        let mut all = planned.iter().filter_map(|p| p.experiment.workload.get(name));
        let Some(Work::Pgbench(work)) = all.next() else { panic!("{name}") };
        Load { own: work.custom.clone(), ..paced(Kind::Wal) }
    };
    let expected = [
        paced(Kind::ReadOnly),
        paced(Kind::TpcB),
        whole(Kind::Bulk, "rds-encryption"),
        script("large_wal"),
        script("small_commits"),
        whole(Kind::Batch, "aurora-mysqlslap"),
        whole(Kind::Batch, "provisioned-iops"),
    ];
    assert_eq!(loads, expected);
}

#[test]
fn make_lab_takes_less_than_75_minutes_with_its_pre_flight() {
    let planned = of_make_lab();
    let pre_flight = crate::run::pre_flight_seconds(&planned, Size::Small).unwrap();
    let whole = crate::run::seconds(&planned).unwrap() + pre_flight;
    assert!(pre_flight > 120.0, "{pre_flight}");
    assert!(
        whole < 75.0 * 60.0,
        "{} min, {} of them of the pre-flight",
        whole / 60.0,
        pre_flight / 60.0
    );
}

#[test]
fn a_pre_flight_of_long_blocks_is_planned_as_it_measures() {
    let seconds = |servers: u32, rounds: u32| {
        let mut planned = planned(str::to_owned);
        let stop = &mut planned[0].experiment.stop;
        stop.control_precision = Some(0.02);
        (stop.servers, stop.equal_work_rounds) = (servers, rounds);
        crate::run::pre_flight_seconds(&planned, Size::Miniature).unwrap()
    };
    // Two kinds of load, and four blocks of each; a slice takes 0.35 s.
    let slices = 2.0 * 4.0 * 40.0 * 0.35;
    assert!(seconds(2, 40) > 2.0 * slices, "{}", seconds(2, 40));
    // Of four servers plain and control have two each.
    assert!(seconds(4, 40) > 4.0 * slices, "{}", seconds(4, 40));
    assert!(seconds(2, 4) < 2.0 * slices, "{}", seconds(2, 4));
    let unasked = crate::run::pre_flight_seconds(&of_make_lab(), Size::Miniature).unwrap();
    assert!(unasked.abs() < f64::EPSILON, "{unasked}");
}

#[test]
fn the_kept_forecast_of_27_november_would_not_promise_the_log_again() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../lab/runs/2026-11-27-intel-xeon-2cpu");
    let run = Results::read(Path::new(dir)).unwrap();
    let promised = run.forecast.iter().find(|line| line.contains("will be known")).unwrap();
    assert!(promised.ends_with("all loads; read only; TPC-B-like; bulk; write-ahead log"));
    // Blocks of the pre-flight are not kept: the first ones of each load stand for them.
    let experiments = &run.manifest.experiments;
    let mut spreads = Spreads::new();
    for (load, (planned, cell)) in to_try(experiments).unwrap() {
        let blocks = if load.phase == Phase::EqualWork { 7 } else { 4 };
        let of_load = |trial: &&Trial| {
            trial.experiment == planned.experiment.name
                && (trial.phase, base_cell(&planned.experiment, trial))
                    == (load.phase, cell.clone())
                && [PLAIN, CONTROL].contains(&trial.arm.as_str())
                && trial.block < blocks
        };
        let trials: Vec<Trial> = run.trials.iter().filter(of_load).cloned().collect();
        let (estimate, measured) = widest(&planned.experiment, &trials).unwrap();
        spreads.insert(load, Ok(Spread { estimate, measured, seconds: 1.5 }));
    }
    let said = Forecast::of(experiments, &spreads, 0.02, None).unwrap().families();
    let promised = said.iter().find(|line| line.contains("will be known")).unwrap();
    // The control's intervals reached 4.1 and 3.3 % in the end. TPC-B was known to 2.5 because
    // autovacuum worked in single trials of one cell; no block of another cell shows that.
    for kind in [Kind::Wal, Kind::Batch] {
        assert!(!promised.contains(kind.title()), "{}: {said:?}", kind.title());
    }
    assert!(promised.contains("read only"), "{said:?}");
}
