//! mysqlslap (mariadb-slap, which serves MySQL as well) once, on a table that it makes, fills and
//! drops by itself.
//!
//! The time that counts is the client's own "Average number of seconds to run all queries": from
//! the moment when all its threads may go until the last one has ended, with their connecting,
//! without the table's filling and dropping. Published figures are this number. The server's CPU
//! time and the wall clock of a trial have the filling in them, in all arms alike.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tidelock_servers::mysqld::Mysqld;

use super::{Done, run};
use crate::error::{Error, Result};
use crate::experiment::Mysqlslap;

/// One run; its units are the queries of all clients.
///
/// # Errors
/// When the client fails, one of its queries does, or it did not run as many queries as the
/// experiment says; when the lab is interrupted.
pub(crate) fn measure(
    mysqld: &Mysqld<'_>,
    work: &Mysqlslap,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<Done> {
    let args: Vec<String> = work.args.iter().map(|arg| arg.text(levels)).collect::<Result<_>>()?;
    let start = Instant::now();
    let output = run(mysqld.client(PROGRAM)?.args(&args).limit(LIMIT).log(mysqld.log()), stop)?;
    let wall = start.elapsed().as_secs_f64();
    let told = Told::parse(&output.stdout, &output.stderr)?;
    let queries: f64 = work.queries.number(levels)?;
    if (told.queries - queries).abs() > 0.5 {
        let why = format!("{PROGRAM} ran {} queries, the experiment says {queries}", told.queries);
        return Err(Error::Other(why));
    }
    let metrics = [
        ("elapsed", told.seconds),
        ("wall_clock", wall),
        ("transactions_per_second", told.queries / told.seconds),
    ];
    Ok(Done {
        units: told.queries,
        seconds: told.seconds,
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Done::default()
    })
}

/// What runs before a trial: no table of an interrupted one, no binary log of earlier ones.
///
/// # Errors
/// When a statement fails.
pub(crate) fn prepare(mysqld: &Mysqld<'_>) -> Result<()> {
    mysqld.sql("DROP DATABASE IF EXISTS mysqlslap")?;
    Ok(mysqld.empty_binary_log()?)
}

/// What the client says at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    seconds: f64,
    queries: f64,
}

impl Told {
    fn parse(stdout: &str, stderr: &str) -> Result<Self> {
        // A query that fails is told on standard error; the exit code is 0 all the same.
        if let Some(line) = stderr.lines().find(|line| line.contains("slap: ")) {
            return Err(Error::Other(line.trim().to_owned()));
        }
        let number = |label: &str| {
            let line = stdout.lines().find_map(|line| line.trim().strip_prefix(label));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
                .ok_or_else(|| Error::Other(format!("{PROGRAM} printed no `{label}`: {stdout}")))
        };
        Ok(Self {
            seconds: number("Average number of seconds to run all queries:")?,
            queries: number("Number of clients running queries:")?
                * number("Average number of queries per client:")?,
        })
    }
}

const PROGRAM: &str = "mariadb-slap";

/// Seconds after which it has failed: the largest published run took 66.
const LIMIT: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Param;
    use tidelock_servers::{Arm, Workspace};

    #[test]
    fn the_client_s_own_time_and_all_clients_queries_count() {
        let text = "Benchmark\n\tRunning for engine innodb\n\
            \tAverage number of seconds to run all queries: 0.164 seconds\n\
            \tMinimum number of seconds to run all queries: 0.160 seconds\n\
            \tMaximum number of seconds to run all queries: 0.170 seconds\n\
            \tNumber of clients running queries: 20\n\
            \tAverage number of queries per client: 100\n\n";
        let told = Told::parse(text, "").unwrap();
        assert_eq!(told, Told { seconds: 0.164, queries: 2000.0 });
        assert!(Told::parse("", "").is_err());
        for program in ["mariadb-slap", "/usr/bin/mysqlslap"] {
            let failed = format!("{program}: Cannot run query INSERT ERROR : disk full\n");
            assert!(Told::parse(text, &failed).unwrap_err().to_string().contains("disk full"));
        }
    }

    #[test]
    fn the_server_has_seen_as_many_queries() {
        let place = Workspace::new().unwrap();
        let small = [("innodb_log_file_size", "4M"), ("innodb_flush_method", "nosync")];
        let mysqld = Mysqld::mariadb(&place, "m", Arm::Plain).unwrap().installed(&small).unwrap();
        mysqld.set("log_bin", "on").unwrap();
        mysqld.start().unwrap();
        let arg = |text: &&str| Param::from(*text);
        let args = ["--auto-generate-sql", "--auto-generate-sql-guid-primary", "--engine=innodb"];
        let numbers = ["--concurrency={c}", "--auto-generate-sql-execute-number=50"];
        let filling = ["--auto-generate-sql-write-number=30", "--iterations=1"];
        let args = args.iter().chain(&numbers).chain(&filling).map(arg).collect();
        let levels = BTreeMap::from([("c".to_owned(), "4".to_owned())]);
        let slap = Mysqlslap { args, queries: Param::from("200") };
        let go = AtomicBool::new(false);
        let done = measure(&mysqld, &slap, &levels, &go).unwrap();
        assert!(done.units == 200.0 && done.seconds > 0.0);
        assert!(done.metrics["wall_clock"] >= done.metrics["elapsed"]);
        let status = "information_schema.global_status WHERE variable_name IN";
        let seen = mysqld
            .sql(&format!("SELECT SUM(variable_value) FROM {status} ('COM_INSERT', 'COM_SELECT')"));
        // 200, the rows that it filled in, and a few of the client and of this test.
        let seen: f64 = seen.unwrap().parse().unwrap();
        assert!((230.0..250.0).contains(&seen), "{seen}");
        mysqld.sql("CREATE DATABASE mysqlslap").unwrap();
        prepare(&mysqld).unwrap();
        mysqld.expect("SHOW DATABASES LIKE 'mysqlslap'", "").unwrap();
        let other = Mysqlslap { queries: Param::from("300"), ..slap };
        assert!(measure(&mysqld, &other, &levels, &go).is_err());
    }
}
