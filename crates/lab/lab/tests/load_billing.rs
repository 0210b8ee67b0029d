//! The batch engine on a private PostgreSQL: everything once, whatever stops it.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the functions between tests for something else"
)]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidelock_lab::load::billing::{
    BadLine, Error, Generated, Market, Phase, Progress, Settings, Summary, generate, run,
};
use tidelock_servers::{Arm, Cluster, Workspace};

const RECORDS: u64 = 8_000;
const HEADER: &str = "operator,meter,date,interval,tariff,kwh,charge\n";

fn market(dir: &Path, records: u64) -> Generated {
    let market = Market { records, files: 7, seed: 11, bad_lines: 0.01, ..Market::default() };
    generate(dir, &market).unwrap()
}

fn settings(cluster: &Cluster<'_>, database: &str, dir: &Path) -> Settings {
    let connection =
        format!("host={} user=postgres dbname={database}", cluster.socket_dir().display());
    let tell_every = Duration::from_millis(20);
    Settings { workers: 2, batch: 200, tell_every, ..Settings::new(connection, dir) }
}

fn run_through(settings: &Settings) -> Summary {
    let summary = run(settings, &mut |_| (), &AtomicBool::new(false)).unwrap();
    assert!(!summary.stopped, "{summary}");
    assert_eq!(summary.phases.len(), settings.phases.len());
    summary
}

/// One line for each table: how many rows and what they are.
fn tables(cluster: &Cluster<'_>, database: &str) -> String {
    let digest = |table: &str| {
        let sql = format!(
            "SELECT '{table}', count(*), md5(string_agg(t::text, ' ' ORDER BY t::text)) \
             FROM billing.{table} t"
        );
        cluster.sql_in(database, &sql).unwrap()
    };
    ["record", "rejected", "finding", "charge"].map(digest).join("\n")
}

/// The same month by other means: split at commas, sums in memory.
#[derive(Debug, Default, PartialEq)]
struct Reckoning {
    records: u64,
    rejected: u64,
    /// Records, Wh and hundredths of a cent by meter, of those that are in the master data.
    meters: BTreeMap<String, (u64, i64, i64)>,
}

fn reckon(dir: &Path) -> Reckoning {
    let master = fs::read_to_string(dir.join("master/meters.csv")).unwrap();
    let known: HashSet<&str> = master.lines().filter_map(|line| line.split(',').next()).collect();
    let mut reckoning = Reckoning::default();
    let mut keys = HashSet::new();
    for file in market_files(dir) {
        for line in fs::read(&file).unwrap().split(|byte| *byte == b'\n').skip(1) {
            if line.is_empty() {
                continue;
            }
            let text = String::from_utf8(line.to_vec()).unwrap_or_default();
            let fields: Vec<String> = text.split(',').map(str::to_owned).collect();
            let number = |n: usize| fields[n].replace('.', "").parse::<i64>().ok();
            let good = fields.len() == 7
                && text.len() <= 1024
                && fields[2].starts_with("2013-06-")
                && number(6).is_some()
                && keys.insert(fields[1..4].to_vec());
            if !good {
                reckoning.rejected += 1;
                continue;
            }
            reckoning.records += 1;
            if known.contains(fields[1].as_str()) {
                let sum = reckoning.meters.entry(fields[1].clone()).or_default();
                let (quantity, charge) = (number(5).unwrap(), number(6).unwrap());
                *sum = (sum.0 + 1, sum.1 + quantity, sum.2 + charge);
            }
        }
    }
    reckoning
}

fn market_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "csv")).collect();
    files.sort();
    files
}

fn charged(cluster: &Cluster<'_>, database: &str) -> Reckoning {
    let number = |sql: &str| cluster.sql_in(database, sql).unwrap().parse().unwrap();
    let sql = "SELECT meter, records, quantity, charge FROM billing.charge";
    let rows = cluster.sql_in(database, sql).unwrap();
    let meters = rows.lines().map(|row| {
        let fields: Vec<&str> = row.split('|').collect();
        let number = |n: usize| fields[n].parse::<i64>().unwrap();
        (fields[0].to_owned(), (number(1).unsigned_abs(), number(2), number(3)))
    });
    Reckoning {
        records: number("SELECT count(*) FROM billing.record"),
        rejected: number("SELECT count(*) FROM billing.rejected"),
        meters: meters.collect(),
    }
}

#[test]
fn the_month_is_the_same_for_any_workers_and_batches_and_for_another_reckoning() {
    let place = Workspace::new().unwrap();
    let cluster = Cluster::started(&place, "pg", Arm::Plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let generated = market(dir.path(), RECORDS);
    assert_eq!(generated.bad.len(), BadLine::ALL.len(), "{generated:?}");
    let bad: u64 = generated.bad.values().sum();
    cluster.sql("CREATE DATABASE one").unwrap();
    cluster.sql("CREATE DATABASE three").unwrap();

    let one = Settings { workers: 1, batch: 1000, ..settings(&cluster, "one", dir.path()) };
    let summary = run_through(&one);
    println!("{summary}");
    let load = summary.phase(Phase::Load).unwrap();
    assert_eq!((load.records, load.rejected, load.before), (RECORDS, bad, 0));
    assert_eq!(summary.phase(Phase::Validate).unwrap().records, RECORDS);
    assert!(summary.phase(Phase::Validate).unwrap().inserted > 50);
    let json = summary.to_json();
    assert_eq!(json["phases"][0]["records"], RECORDS);
    assert!(json["phases"][2]["records_per_second"].as_f64().unwrap() > 0.0);

    let three = Settings { workers: 3, batch: 137, ..settings(&cluster, "three", dir.path()) };
    println!("{}", run_through(&three));
    assert_eq!(tables(&cluster, "one"), tables(&cluster, "three"));
    assert_eq!(charged(&cluster, "three"), reckon(dir.path()));

    let other = tempfile::tempdir().unwrap();
    generate(other.path(), &Market { records: 8_000, seed: 5, ..generated.market }).unwrap();
    let other = Settings { dir: other.path().into(), ..one };
    let error = run(&other, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.ends_with("it has the meters of another market"), "{error}");

    let again = run_through(&three);
    for phase in &again.phases {
        assert_eq!((phase.records, phase.rejected, phase.inserted), (0, 0, 0), "{again}");
    }
    assert_eq!(again.phase(Phase::Load).unwrap().before, RECORDS);
    assert_eq!(tables(&cluster, "one"), tables(&cluster, "three"));

    // What phase 2 calculates, calculated by the server.
    cluster.expect_in(
        "one",
        "SELECT count(*) FROM (SELECT file, line, ((quantity * price + 500) / 1000) \
             FROM billing.record r JOIN billing.meter m USING (meter) \
             JOIN billing.tariff t ON t.tariff = m.tariff \
             WHERE (quantity * price + 500) / 1000 <> charge \
             EXCEPT SELECT file, line, expected FROM billing.finding WHERE kind = 'charge') x",
        "0",
    );
    cluster.expect_in(
        "one",
        "SELECT (SELECT count(*) FROM billing.finding WHERE kind = 'meter') \
         = (SELECT count(*) FROM billing.record LEFT JOIN billing.meter m USING (meter) \
         WHERE m.meter IS NULL)",
        "t",
    );
}

trait ExpectIn {
    fn expect_in(&self, database: &str, query: &str, answer: &str);
}

impl ExpectIn for Cluster<'_> {
    fn expect_in(&self, database: &str, query: &str, answer: &str) {
        assert_eq!(self.sql_in(database, query).unwrap(), answer, "{query}");
    }
}

#[test]
fn each_bad_line_is_rejected_with_number_and_reason_and_the_rest_is_loaded() {
    let place = Workspace::new().unwrap();
    let cluster = Cluster::started(&place, "pg", Arm::Plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    market(dir.path(), 10);
    for file in market_files(dir.path()) {
        fs::remove_file(file).unwrap();
    }
    let file = dir.path().join("a.csv");
    let long = "7".repeat(3000);
    let mut bytes = HEADER.as_bytes().to_vec();
    let lines: [&[u8]; 11] = [
        b"OP1,M0000000,2013-06-01,1,DOMESTIC,0.412,0.1001",
        b"OP1,M0000000,2013-06-01,2,DOMESTIC,0.412",
        b"OP1,M0000000,2013-06-01,2,DOMESTIC,0.4l2,0.1001",
        b"OP1,M0000000,2013-06-31,2,DOMESTIC,0.412,0.1001",
        b"OP1,M\xff000000,2013-06-01,2,DOMESTIC,0.412,0.1001",
        long.as_bytes(),
        b"OP1,M0000000,2013-06-01,1,DOMESTIC,0.999,0.1001",
        b"",
        b"OP1,M\0,2013-06-01,2,DOMESTIC,0.412,0.1001",
        b"OP1,M0000000,2013-06-01,2,DOMESTIC,0.412,0.1001\r",
        b"OP1,M0000000,2013-06-01,3,DOMESTIC,0.412,0.10",
    ];
    bytes.extend(lines.join(&b'\n'));
    fs::write(&file, bytes).unwrap();
    fs::write(dir.path().join("empty.csv"), HEADER).unwrap();

    let settings = settings(&cluster, "postgres", dir.path());
    let load = run_through(&settings).phase(Phase::Load).unwrap().clone();
    assert_eq!((load.records, load.rejected), (2, 9));
    let rejected = fs::read(dir.path().join("a.csv.rejected")).unwrap();
    let got: Vec<&[u8]> = rejected.split(|byte| *byte == b'\n').collect();
    let expected = [
        "3\tfields: 6 instead of 7\tOP1,M0000000,2013-06-01,2,DOMESTIC,0.412",
        "4\tnumber: kwh \"0.4l2\"\tOP1",
        "5\tdate: \"2013-06-31\"\tOP1",
        "6\tencoding: not UTF-8 at byte 6\tOP1,M",
        "7\toverlong: 3000 bytes, 1024 are allowed (the line below is cut)\t777",
        "8\tduplicate: this meter, date and interval are loaded already\tOP1,M0000000,2013-06-01,1",
        "9\tfields: 0 instead of 7\t",
        "10\tname: meter \"M\\0\"",
        "12\tcut: the last line of the file has no end\tOP1",
        "",
    ];
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        let got = String::from_utf8_lossy(got);
        assert!(got.starts_with(expected), "{got}\nis not\n{expected}");
    }

    // The file is what the database says, whoever changed it.
    fs::write(dir.path().join("a.csv.rejected"), "nonsense").unwrap();
    run_through(&settings);
    assert_eq!(fs::read(dir.path().join("a.csv.rejected")).unwrap(), rejected);

    fs::write(dir.path().join("b.csv"), "not,a,market\n").unwrap();
    let error = run(&settings, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("b.csv, line 1: \"not,a,market\" instead of"), "{error}");
    fs::write(dir.path().join("b.csv"), HEADER).unwrap();
    let error = run(&settings, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert_eq!(error, "phase 2 (validate) has begun, so b.csv cannot be loaded any more");
    fs::remove_file(dir.path().join("b.csv")).unwrap();
    fs::write(&file, HEADER).unwrap();
    let error = run(&settings, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("when its loading began"), "{error}");
}

#[test]
fn a_killed_server_ends_each_phase_with_its_place_and_the_next_run_goes_on() {
    let place = Workspace::new().unwrap();
    let cluster = Cluster::started(&place, "pg", Arm::Plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    market(dir.path(), 4_000);
    let all = settings(&cluster, "postgres", dir.path());
    let mut lost_in = Vec::new();
    for phase in [Phase::Load, Phase::Validate] {
        let mut killed = false;
        let mut kill = |progress: Progress| {
            if !killed && progress.phase == phase && progress.records > 0 {
                killed = true;
                cluster.kill_nine().unwrap();
            }
        };
        let error = run(&all, &mut kill, &AtomicBool::new(false)).unwrap_err();
        let text = error.to_string();
        let Error::Lost { phase: lost, place, .. } = error else { panic!("{text}") };
        assert_eq!(lost, phase, "{text}");
        let (file, line) = place.split_once(", line ").unwrap();
        assert!(file.starts_with("market-000") && line.parse::<u32>().is_ok(), "{text}");
        assert!(text.contains("the connection to the database is lost"), "{text}");
        lost_in.push(text);
        cluster.start().unwrap();
    }
    println!("{}", lost_in.join("\n"));
    let last = run_through(&all);
    assert!(last.phase(Phase::Validate).unwrap().before > 0, "{last}");
    assert_eq!(charged(&cluster, "postgres"), reckon(dir.path()));
    cluster.sql("CREATE DATABASE whole").unwrap();
    run_through(&settings(&cluster, "whole", dir.path()));
    assert_eq!(tables(&cluster, "postgres"), tables(&cluster, "whole"));
}

const CHILD: &str = "TIDELOCK_LAB_BILLING_CHILD";

/// The engine as a process of its own, for the test below; does nothing by itself.
#[test]
fn the_engine_in_a_child() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let (connection, dir) = text.split_once('\n').unwrap();
    let settings = Settings { workers: 2, batch: 50, ..Settings::new(connection, dir) };
    run(&settings, &mut |_| (), &AtomicBool::new(false)).unwrap();
}

#[test]
fn a_killed_engine_loads_nothing_twice() {
    let place = Workspace::new().unwrap();
    let cluster = Cluster::started(&place, "pg", Arm::Plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    market(dir.path(), 4_000);
    let all = settings(&cluster, "postgres", dir.path());
    let steps = || {
        let sql = "SELECT to_regclass('billing.step') IS NOT NULL";
        if cluster.sql(sql).unwrap() == "f" {
            return 0;
        }
        cluster.sql("SELECT count(*) FROM billing.step").unwrap().parse::<u32>().unwrap()
    };
    let mut killed = 0;
    // 4,000 records and their bad lines are at least 80 steps of phase 1 and as many of phase 2.
    for at in [5, 40, 70, 95, 130] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_engine_in_a_child", "--nocapture"])
            .env(CHILD, format!("{}\n{}", all.connection, all.dir.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while steps() < at && child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "no {at} steps in a minute");
        }
        killed += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(killed > 0, "none of 5 was killed at work");
    run_through(&all);
    assert_eq!(charged(&cluster, "postgres"), reckon(dir.path()));
    let rejected: usize = market_files(dir.path())
        .iter()
        .filter_map(|file| fs::read(format!("{}.rejected", file.display())).ok())
        .map(|text| text.iter().filter(|byte| **byte == b'\n').count())
        .sum();
    assert_eq!(rejected as u64, reckon(dir.path()).rejected);
    cluster.sql("CREATE DATABASE whole").unwrap();
    run_through(&settings(&cluster, "whole", dir.path()));
    assert_eq!(tables(&cluster, "postgres"), tables(&cluster, "whole"));
}

#[test]
fn a_stop_ends_between_transactions_and_a_second_engine_is_refused() {
    let place = Workspace::new().unwrap();
    let cluster = Cluster::started(&place, "pg", Arm::Plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let records = 6_000;
    market(dir.path(), records);
    let small = Settings { batch: 20, ..settings(&cluster, "postgres", dir.path()) };
    let stop = AtomicBool::new(false);
    let mut refused = None;
    let mut told = Vec::new();
    let mut meet = |progress: Progress| {
        told.push(progress);
        if refused.is_none() && progress.records > 0 {
            // Holds the first one's lock, not its workers: they end by the flag in a moment.
            stop.store(true, Ordering::Relaxed);
            refused = Some(run(&small, &mut |_| (), &AtomicBool::new(false)));
        }
    };
    let summary = run(&small, &mut meet, &stop).unwrap();
    assert!(summary.stopped, "{summary}");
    assert!(matches!(refused, Some(Err(Error::Busy))), "{refused:?}");
    let load = summary.phase(Phase::Load).unwrap();
    assert!(load.records > 0 && load.records < records, "{summary}");
    assert_eq!((told[0].records, told.last().unwrap().records), (0, load.records));
    let loaded = load.records.to_string();
    cluster.expect("SELECT count(*) FROM billing.record", &loaded).unwrap();

    let early = Settings { phases: vec![Phase::Charge], ..small.clone() };
    let error = run(&early, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert_eq!(error, "phase 3 needs phase 2, which is not finished");
    let summary = run_through(&small);
    let rest = summary.phase(Phase::Load).unwrap();
    assert_eq!((rest.before, rest.before + rest.records), (load.records, records));
    assert_eq!(charged(&cluster, "postgres"), reckon(dir.path()));
}

#[test]
fn phase_3_charges_the_meters_that_a_crash_left_out() {
    let place = Workspace::new().unwrap();
    let cluster = Cluster::started(&place, "pg", Arm::Plain).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("master")).unwrap();
    let write = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
    write("master/tariffs.csv", "tariff,price\nT,2000\n".into());
    let meters: String = (0..45).map(|n| format!("M{n:02},OP1,T\n")).collect();
    write("master/meters.csv", format!("meter,operator,tariff\n{meters}"));
    // 0.500 kWh at 20 cents; meter 7 is charged a cent too much.
    let record = |n: u32| {
        let charge = if n == 7 { "0.1100" } else { "0.1000" };
        format!("OP1,M{n:02},2013-06-01,1,T,0.500,{charge}\n")
    };
    write("a.csv", format!("{HEADER}{}", (0..45).map(record).collect::<String>()));
    let settings = settings(&cluster, "postgres", dir.path());
    let charge = run_through(&settings).phase(Phase::Charge).unwrap().clone();
    assert_eq!((charge.records, charge.inserted), (45, 45));
    // 30 days at 82.5 cents and 10 cents, with 10 % tax, in hundredths of a cent.
    let of = |meter: &str| {
        let columns = "charge, disputed, fee, tax, total";
        let sql = format!("SELECT {columns} FROM billing.charge WHERE meter = '{meter}'");
        cluster.sql(&sql).unwrap()
    };
    assert_eq!(of("M06"), "1000|0|247500|24850|273350");
    assert_eq!(of("M07"), "1100|100|247500|24850|273350");

    let whole = tables(&cluster, "postgres");
    cluster.sql("DELETE FROM billing.charge WHERE meter BETWEEN 'M10' AND 'M19'").unwrap();
    cluster.sql("DELETE FROM billing.step WHERE phase = 3 AND first = 10").unwrap();
    let charge = run_through(&settings).phase(Phase::Charge).unwrap().clone();
    assert_eq!((charge.records, charge.before, charge.inserted), (10, 35, 10));
    assert_eq!(tables(&cluster, "postgres"), whole);
}

#[test]
fn a_database_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    market(dir.path(), 10);
    let settings = Settings::new("host=/nowhere user=me dbname=x", dir.path());
    let error = run(&settings, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.starts_with("the database cannot be used: "), "{error}");
    let settings = Settings::new("host=/nowhere port=none", dir.path());
    assert!(run(&settings, &mut |_| (), &AtomicBool::new(false)).is_err());
    let empty = tempfile::tempdir().unwrap();
    let settings = Settings::new("host=/nowhere user=me dbname=x", empty.path());
    let error = run(&settings, &mut |_| (), &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("master/tariffs.csv"), "{error}");
}
