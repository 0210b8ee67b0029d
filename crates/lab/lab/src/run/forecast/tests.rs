use super::*;
use crate::experiment::{Size, read};
use crate::manifest::PlannedArm;

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
    let arm =
        |name: &String| PlannedArm { name: name.clone(), title: String::new(), missing: None };
    let arms = experiment.arms.iter().map(arm).collect();
    vec![Planned { experiment, arms, limits: Vec::new() }]
}

/// Blocks whose logarithms have about this standard deviation.
fn spread(sd: f64) -> Result<Spread, String> {
    let logs: Vec<f64> = (0..8).map(|n| if n % 2 == 0 { sd } else { -sd }).collect();
    Ok(Spread { estimate: Estimate::of(&logs, None).unwrap(), measured: 8, seconds: 3.0 })
}

fn said(planned: &[Planned], spreads: &Spreads, minutes: Option<u64>) -> Vec<String> {
    let left = minutes.map(|minutes| Duration::from_secs(minutes * 60));
    Forecast::of(planned, spreads, 0.02, left).unwrap().families()
}

fn paced(kind: Kind) -> Load {
    Load { kind, phase: Phase::EqualWork, experiment: None }
}

fn whole(kind: Kind, experiment: &str) -> Load {
    Load { kind, phase: Phase::Capacity, experiment: Some(experiment.into()) }
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
    // Ten blocks of one cell reach 2.5 %, and those of two 1.7 %.
    let one = planned(|text| text.replace("[2, 4]", "[2]"));
    let decided = |planned: &[Planned]| {
        let said = said(planned, &spreads(0.033, 0.001), None);
        said.iter().any(|line| line.contains("will be known to 2.0 %: read only"))
    };
    assert!(!decided(&one) && decided(&planned(str::to_owned)));
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
fn make_lab_tries_each_kind_of_load() {
    let names = [
        "crypto",
        "cpu-paths",
        "rds-encryption",
        "wal-stress",
        "aurora-mysqlslap",
        "provisioned-iops",
    ];
    let planned: Vec<Planned> = names
        .iter()
        .map(|name| {
            let experiment = crate::catalogue::find(name, Size::Small).unwrap();
            let arm = |name: &String| PlannedArm {
                name: name.clone(),
                title: String::new(),
                missing: None,
            };
            let arms = experiment.arms.iter().map(arm).collect();
            Planned { experiment, arms, limits: Vec::new() }
        })
        .collect();
    let loads: Vec<Load> = to_try(&planned).unwrap().into_keys().collect();
    let expected = [
        paced(Kind::ReadOnly),
        paced(Kind::TpcB),
        whole(Kind::Bulk, "rds-encryption"),
        paced(Kind::Wal),
        whole(Kind::Batch, "aurora-mysqlslap"),
        whole(Kind::Batch, "provisioned-iops"),
    ];
    assert_eq!(loads, expected);
}
