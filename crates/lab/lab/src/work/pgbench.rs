//! pgbench: as fast as it goes, or at a fixed rate with the latency of each transaction.
//!
//! At a fixed rate it ends after so many transactions, not after so many seconds: at the end of a
//! time it would drop what still waits, and a slow server's tail with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidelock_servers::Cluster;

use super::{Done, run};
use crate::error::{Error, Result};
use crate::experiment::{Pgbench, Script};
use crate::statistics::quantile;

/// One run of pgbench, of `seconds` if given; at `rate` transactions a second if given, and then
/// with as many as are due in that time, however long they take.
///
/// # Errors
/// When pgbench or one of its transactions fails, or the lab is interrupted.
pub(crate) fn measure(
    cluster: &Cluster<'_>,
    work: &Pgbench,
    levels: &BTreeMap<String, String>,
    seconds: Option<u32>,
    rate: Option<f64>,
    stop: &AtomicBool,
) -> Result<Done> {
    let number = |param: &crate::experiment::Param| param.number::<u32>(levels);
    let clients = number(&work.clients)?;
    let jobs = number(&work.jobs)?.min(clients);
    let seconds = match seconds {
        Some(seconds) => seconds,
        None => number(&work.seconds)?,
    };
    let (length, limit) = match rate {
        None => (["-T".to_owned(), seconds.to_string()], u64::from(seconds) * 3 + 120),
        Some(rate) => {
            let each = each_client(rate, seconds, clients);
            (["-t".to_owned(), format!("{each:.0}")], limit(each * f64::from(clients) / rate))
        }
    };
    let mut tool = cluster
        .client("pgbench")
        .args(["-n", "-P", "1", "-c", &clients.to_string(), "-j", &jobs.to_string()])
        .args(length)
        .limit(limit)
        .log(cluster.log());
    match work.script {
        Script::SelectOnly => tool = tool.arg("-S"),
        Script::TpcbLike => {}
        Script::Custom => {
            let path = cluster.workspace().join("script.sql");
            cluster.workspace().write(&path, work.custom.as_deref().unwrap_or_default())?;
            // The script knows the scale as `:scale`.
            let scale = number(&work.scale)?.max(1).to_string();
            tool = tool.args(["-s", &scale, "-f"]).arg(path);
        }
    }
    if work.connect {
        tool = tool.arg("-C");
    }
    let logs = cluster.workspace().join("home");
    if let Some(rate) = rate {
        tool = tool.args(["-R", &rate_of(rate), "-l", "--log-prefix"]);
        tool = tool.arg(logs.join(LOG));
    }
    let output = run(tool, stop)?;
    let printed = |label: &str| {
        let line = output.stdout.lines().find_map(|line| line.strip_prefix(label));
        line.and_then(|rest| rest.split([' ', '/']).next()?.parse::<f64>().ok())
            .ok_or_else(|| Error::Other(format!("pgbench printed no `{label}`: {}", output.stdout)))
    };
    let units = printed("number of transactions actually processed: ")?;
    let per_second = printed("tps = ")?;
    let mut done = Done { units, seconds: units / per_second, ..Done::default() };
    done.metrics.insert("transactions_per_second".into(), per_second);
    done.series.insert("transactions_per_second".into(), progress(&output.stderr));
    if let Some(rate) = rate {
        let latencies = latencies(&logs)?;
        for (name, part) in [("latency_p50", 0.5), ("latency_p95", 0.95), ("latency_p99", 0.99)] {
            if let Some(value) = quantile(&latencies, part) {
                done.metrics.insert(name.into(), value);
            }
        }
        done.metrics.insert("rate".into(), rate);
        done.metrics.remove("transactions_per_second");
    }
    Ok(done)
}

/// A rate as pgbench takes it: slow servers do less than one transaction a second.
fn rate_of(rate: f64) -> String {
    format!("{rate:.3}")
}

/// Transactions of each client, so that all of them have what is due in `seconds`.
fn each_client(rate: f64, seconds: u32, clients: u32) -> f64 {
    (rate * f64::from(seconds) / f64::from(clients)).ceil().max(1.0)
}

/// Seconds that transactions may take that are due in so many: a slow server works off what waits.
fn limit(due: f64) -> u64 {
    Duration::try_from_secs_f64(due * 20.0).map_or(DAY, |time| time.as_secs().min(DAY)) + 600
}

/// `progress: 1.0 s, 12345.6 tps, lat ...` as seconds and transactions a second.
fn progress(stderr: &str) -> Vec<(f64, f64)> {
    let point = |line: &str| {
        let mut words = line.strip_prefix("progress: ")?.split(' ');
        let at = words.next()?.parse().ok()?;
        let tps = words.nth(1)?.parse().ok()?;
        Some((at, tps))
    };
    stderr.lines().filter_map(point).collect()
}

/// Milliseconds of all transactions that the logs tell of, from their scheduled start; sorted.
/// Removes the logs.
fn latencies(dir: &Path) -> Result<Vec<f64>> {
    let failed = || Error::io(format!("reading pgbench's logs in {}", dir.display()));
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let ours = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(LOG));
        if !ours {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(failed())?;
        let third = |line: &str| line.split(' ').nth(2)?.parse::<f64>().ok();
        all.extend(text.lines().filter_map(third).map(|microseconds| microseconds / 1000.0));
        fs::remove_file(&path).map_err(failed())?;
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

const LOG: &str = "pgbench_log";
/// The most seconds of [`limit`], but for what is added to all.
const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_server_keeps_the_fraction_of_its_rate() {
        assert_eq!((rate_of(0.35), rate_of(1234.5678)), ("0.350".into(), "1234.568".into()));
    }

    #[test]
    fn all_clients_together_have_what_is_due_and_time_to_end_it() {
        assert_eq!((each_client(100.0, 2, 4), each_client(101.0, 2, 4)), (50.0, 51.0));
        assert_eq!(each_client(0.01, 1, 16), 1.0);
        assert_eq!((limit(10.0), limit(f64::INFINITY)), (800, DAY + 600));
    }

    #[test]
    fn progress_lines_become_points() {
        let text = "pgbench (15.20)\nprogress: 1.0 s, 5.5 tps, lat 0.1 ms stddev 0.0, 0 failed\n\
                    progress: 2.0 s, 7.0 tps, lat 0.2 ms stddev 0.1, 0 failed\n";
        assert_eq!(progress(text), [(1.0, 5.5), (2.0, 7.0)]);
    }

    #[test]
    fn only_logs_of_pgbench_are_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("pgbench_log.7"), "0 1 2000 0 1 1 0\n1 1 1000 0 1 1 0\n")
            .unwrap();
        fs::write(dir.path().join("key"), "0 1 9 0 1\n").unwrap();
        assert_eq!(latencies(dir.path()).unwrap(), [1.0, 2.0]);
        assert!(dir.path().join("key").exists() && !dir.path().join("pgbench_log.7").exists());
    }
}
