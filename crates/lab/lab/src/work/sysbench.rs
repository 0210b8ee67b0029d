//! sysbench with its own scripts: for a time as fast as it goes, or with transactions that begin
//! when the lab says so (`paced`).
//!
//! `oltp_*` count transactions a second, as sysbench prints them. `bulk_insert` counts rows, and
//! its time is that of the whole command: sysbench's own ends before the last packets are sent.

mod paced;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tidelock_servers::Tool;
use tidelock_servers::mysqld::Mysqld;

use super::{Done, run};
use crate::error::{Error, Result};
use crate::experiment::Sysbench;

pub(crate) use paced::Paced;

/// What a run draws from: the same in all arms, and another in each run. An update that finds what
/// it writes there already writes nothing.
pub(crate) fn seed(of: impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    // An `int` of sysbench, for which 0 means the time of day.
    u32::try_from(hasher.finish() >> 33).unwrap_or(1).max(1)
}

/// Makes the tables of `oltp_*`, so many with so many rows each.
///
/// # Errors
/// When sysbench fails, or the lab is interrupted.
pub(crate) fn fill(
    mysqld: &Mysqld<'_>,
    (tables, rows): (u32, u32),
    stop: &AtomicBool,
) -> Result<()> {
    mysqld.sql(&format!("CREATE DATABASE {DATABASE}"))?;
    let (tables, rows) = (tables.to_string(), rows.to_string());
    let tool = sysbench(mysqld, "oltp_read_write", DATABASE, 1, (&tables, &rows), 1);
    run(tool.arg("prepare").limit(FILL_LIMIT).log(mysqld.log()), stop)?;
    mysqld.write_out().map_err(Error::from)
}

/// What runs before a trial: no binary log of earlier ones, empty tables for `bulk_insert`.
///
/// # Errors
/// When a statement or sysbench fails.
pub(crate) fn prepare(
    mysqld: &Mysqld<'_>,
    work: &Sysbench,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<()> {
    if !work.script.is_oltp() {
        mysqld.sql(&format!("DROP DATABASE IF EXISTS {BULK}; CREATE DATABASE {BULK}"))?;
        let threads = work.threads.number(levels)?;
        let tool = sysbench(mysqld, work.script.name(), BULK, threads, ("1", "1"), 1);
        run(tool.arg("prepare").limit(FILL_LIMIT).log(mysqld.log()), stop)?;
    }
    mysqld.empty_binary_log()?;
    mysqld.write_out().map_err(Error::from)
}

/// One run, of `seconds` if given, which draws from `seed`; its units are transactions or rows.
///
/// # Errors
/// When sysbench or one of its statements fails, or the lab is interrupted.
pub(crate) fn measure(
    mysqld: &Mysqld<'_>,
    work: &Sysbench,
    levels: &BTreeMap<String, String>,
    seconds: Option<u32>,
    seed: u32,
    stop: &AtomicBool,
) -> Result<Done> {
    let seconds = match seconds {
        Some(seconds) => seconds,
        None => work.seconds.number(levels)?,
    };
    let tool = of(mysqld, work, levels, work.script.name(), seed)?;
    if work.script.is_oltp() {
        let length = [format!("--time={seconds}"), "--report-interval=1".to_owned()];
        let limit = u64::from(seconds) * 3 + 120;
        let output = run(tool.args(length).arg("run").limit(limit).log(mysqld.log()), stop)?;
        let told = Told::parse(&output.stdout)?;
        let rate = told.events / told.seconds;
        return Ok(Done {
            units: told.events,
            seconds: told.seconds,
            metrics: BTreeMap::from([("transactions_per_second".to_owned(), rate)]),
            series: BTreeMap::from([("transactions_per_second".to_owned(), rates(&output.stdout))]),
        });
    }
    let rows: u64 = work.rows.number(levels)?;
    let start = Instant::now();
    let events = ["--time=0".to_owned(), format!("--events={rows}")];
    let output = run(tool.args(events).arg("run").limit(3600).log(mysqld.log()), stop)?;
    let elapsed = start.elapsed().as_secs_f64();
    let units = Told::parse(&output.stdout)?.events;
    if (units - rows as f64).abs() > 0.5 {
        return Err(Error::Other(format!("sysbench inserted {units} rows, not {rows}")));
    }
    let metrics = [("elapsed", elapsed), ("rows_per_second", units / elapsed)];
    Ok(Done {
        units,
        seconds: elapsed,
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Done::default()
    })
}

/// The command line of a workload, but for how long it runs. `script` is its own, or one around it.
fn of<'p>(
    mysqld: &Mysqld<'p>,
    work: &Sysbench,
    levels: &BTreeMap<String, String>,
    script: &str,
    seed: u32,
) -> Result<Tool<'p>> {
    let database = if work.script.is_oltp() { DATABASE } else { BULK };
    let (tables, rows) = (work.tables.text(levels)?, work.rows.text(levels)?);
    let threads = work.threads.number(levels)?;
    let args: Vec<String> = work.args.iter().map(|arg| arg.text(levels)).collect::<Result<_>>()?;
    Ok(sysbench(mysqld, script, database, threads, (&tables, &rows), seed).args(args))
}

fn sysbench<'p>(
    mysqld: &Mysqld<'p>,
    script: &str,
    database: &str,
    threads: u32,
    (tables, rows): (&str, &str),
    seed: u32,
) -> Tool<'p> {
    let socket = mysqld.socket();
    let tool = mysqld.workspace().tool("sysbench").arg(script).arg("--db-driver=mysql");
    tool.arg(format!("--mysql-socket={}", socket.display()))
        .args(["--mysql-user=root", &format!("--mysql-db={database}")])
        .args([format!("--threads={threads}"), format!("--tables={tables}")])
        .args([format!("--table-size={rows}"), format!("--rand-seed={seed}")])
}

/// What sysbench says at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    seconds: f64,
    events: f64,
}

impl Told {
    fn parse(stdout: &str) -> Result<Self> {
        let number = |label: &str| {
            let line = stdout.lines().find_map(|line| line.trim().strip_prefix(label));
            line.and_then(|rest| rest.trim().trim_end_matches('s').parse::<f64>().ok())
                .ok_or_else(|| Error::Other(format!("sysbench printed no `{label}`: {stdout}")))
        };
        let told =
            Self { seconds: number("total time:")?, events: number("total number of events:")? };
        match told.events > 0.0 && told.seconds > 0.0 {
            true => Ok(told),
            false => Err(Error::Other(format!("sysbench did nothing: {stdout}"))),
        }
    }
}

/// `[ 1s ] thds: 4 tps: 123.45 qps: ...` as seconds and transactions a second.
fn rates(stdout: &str) -> Vec<(f64, f64)> {
    let point = |line: &str| {
        let (at, rest) = line.strip_prefix("[ ")?.split_once("s ]")?;
        let tps = rest.split_once(" tps: ")?.1.split(' ').next()?;
        Some((at.parse().ok()?, tps.parse().ok()?))
    };
    stdout.lines().filter_map(point).collect()
}

/// The database of the tables that stay.
const DATABASE: &str = "sbtest";
/// That of `bulk_insert`, made before each trial.
const BULK: &str = "sbbulk";
/// Seconds for filling the tables at most.
const FILL_LIMIT: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Param, SysbenchScript};
    use tidelock_servers::{Arm, Workspace};

    const TEXT: &str = "[ 1s ] thds: 2 tps: 512.50 qps: 8200.0 (r/w/o: 1/2/3) lat (ms,95%): 4.1\n\
        [ 2s ] thds: 2 tps: 600.00 qps: 9600.0 (r/w/o: 1/2/3) lat (ms,95%): 4.0\n\
        SQL statistics:\n    transactions:                        1113   (556.1 per sec.)\n\
        General statistics:\n    total time:                          2.0013s\n    \
        total number of events:              1113\n";

    #[test]
    fn what_sysbench_prints_becomes_numbers() {
        assert_eq!(Told::parse(TEXT).unwrap(), Told { seconds: 2.0013, events: 1113.0 });
        assert_eq!(rates(TEXT), [(1.0, 512.5), (2.0, 600.0)]);
        assert!(Told::parse("").is_err());
        let nothing = TEXT.replace("events:              1113", "events:   0");
        assert!(Told::parse(&nothing).unwrap_err().to_string().contains("did nothing"));
    }

    #[test]
    fn the_server_has_every_row_and_every_transaction() {
        if std::process::Command::new("sysbench").arg("--version").output().is_err() {
            return tidelock_servers::skip::missing("sysbench");
        }
        let place = Workspace::new().unwrap();
        let small = [("innodb_log_file_size", "4M"), ("innodb_flush_method", "nosync")];
        let mysqld = Mysqld::mariadb(&place, "m", Arm::Plain).unwrap().installed(&small).unwrap();
        mysqld.start().unwrap();
        let go = AtomicBool::new(false);
        fill(&mysqld, (2, 500), &go).unwrap();
        mysqld.expect("SELECT COUNT(*) FROM sbtest.sbtest2", "500").unwrap();
        let work = |script, rows: &str| Sysbench {
            script,
            threads: Param::from("{t}"),
            tables: Param::from("2"),
            rows: Param::from(rows),
            seconds: Param::from("1"),
            args: vec![Param::from("--rand-type=uniform")],
        };
        let levels = BTreeMap::from([("t".to_owned(), "2".to_owned())]);
        let bulk = work(SysbenchScript::BulkInsert, "3001");
        prepare(&mysqld, &bulk, &levels, &go).unwrap();
        let done = measure(&mysqld, &bulk, &levels, None, 1, &go).unwrap();
        assert!(done.units == 3001.0 && done.metrics["elapsed"] > 0.0, "{done:?}");
        let rows = "SELECT (SELECT COUNT(*) FROM sbbulk.sbtest1) + COUNT(*) FROM sbbulk.sbtest2";
        mysqld.expect(rows, "3001").unwrap();

        let commits = || {
            let status =
                "information_schema.global_status WHERE variable_name = 'COM_STMT_EXECUTE'";
            let told = mysqld.sql(&format!("SELECT variable_value FROM {status}")).unwrap();
            told.parse::<f64>().unwrap()
        };
        let write = work(SysbenchScript::OltpWriteOnly, "500");
        prepare(&mysqld, &write, &levels, &go).unwrap();
        let before = commits();
        let done = measure(&mysqld, &write, &levels, None, 2, &go).unwrap();
        // BEGIN, two updates, delete, insert, COMMIT: six of each transaction, and those that a
        // deadlock began again.
        let statements = (commits() - before) / done.units;
        assert!((5.9..6.5).contains(&statements), "{statements} {done:?}");

        let mut paced = Paced::open(&mysqld, &write, &levels, 3).unwrap();
        let schedule = super::super::pace::Schedule::draw(1, 100.0, 0.5);
        for _ in 0..2 {
            let before = commits();
            let latencies = paced.slice(&schedule, &go).unwrap();
            assert_eq!(latencies.len(), schedule.len());
            assert!(latencies.iter().all(|ms| *ms > 0.0), "{latencies:?}");
            let statements = (commits() - before) / schedule.len() as f64;
            assert!((6.0..6.5).contains(&statements), "{statements}");
        }
        let connections = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'sbtest'";
        mysqld.expect(connections, "2").unwrap();
        mysqld.sql("DROP TABLE sbtest.sbtest1, sbtest.sbtest2").unwrap();
        let why = paced.slice(&schedule, &go).unwrap_err().to_string();
        assert!(why.contains("sbtest"), "{why}");
    }
}
