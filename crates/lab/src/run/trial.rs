//! One trial: brings the server to the same state, measures the work, and looks at what else happened.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidelock_servers::{Cluster, cpu_seconds};

use super::cell::writes;
use super::servers::Server;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Script, Work};
use crate::plan::Step;
use crate::trial::{Trial, Warning, WarningKind};
use crate::work::{Done, cipher, pgbench, sql};

/// Everything that was measured.
pub(super) struct Measured {
    pub(super) started: f64,
    pub(super) done: Done,
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) warnings: Vec<Warning>,
}

/// Runs the trial `step` on `server`, at `rate` transactions a second if given.
///
/// # Errors
/// When the server or the work fails.
pub(super) fn measure(
    server: &Server<'_>,
    work: &Work,
    step: &Step,
    rate: Option<f64>,
    stop: &AtomicBool,
) -> Result<Measured> {
    let levels = &step.cell.0;
    if let Some(maria) = &server.maria {
        return super::maria::measure(maria, work, &step.cell, stop);
    }
    let Some(cluster) = &server.cluster else {
        let Work::Crypto(crypto) = work else {
            return Err(Error::Other(format!("{} needs a server", step.cell.workload())));
        };
        let started = now();
        let done = cipher::measure(&server.arm, crypto, levels)?;
        return Ok(Measured { started, done, metrics: BTreeMap::new(), warnings: Vec::new() });
    };
    prepare(cluster, work, levels, stop)?;
    let postmaster = cluster.postmaster()?;
    let before = Counters::read(cluster)?;
    let (started, clock, cpu) = (now(), Instant::now(), cpu_seconds(postmaster));
    let done = match work {
        Work::Pgbench(work) => pgbench::measure(cluster, work, levels, None, rate, stop)?,
        Work::Sql(work) => sql::measure(cluster, work, levels, stop)?,
        Work::Mysqlslap(_) | Work::Billing(_) | Work::Crypto(_) => {
            return Err(Error::Other(format!("{} cannot run here", step.cell.workload())));
        }
    };
    let checkpoints = Counters::read(cluster)?.checkpoints - before.checkpoints;
    if writes(work) && !matches!(work, Work::Sql(_)) {
        // The pages that it left dirty are paid for by their arm, not by the next trial.
        cluster.sql("CHECKPOINT")?;
    }
    let cpu = cpu_seconds(postmaster) - cpu;
    let elapsed = clock.elapsed().as_secs_f64();
    let after = Counters::read(cluster)?;
    let mut metrics = BTreeMap::new();
    metrics.insert("cpu_per_unit".to_owned(), cpu / done.units * 1e6);
    metrics.insert("wal_bytes_per_second".to_owned(), (after.wal - before.wal) / elapsed);
    let mut warnings = Vec::new();
    // The workload SQL has its own checkpoint.
    let own = f64::from(u8::from(matches!(work, Work::Sql(_))));
    metrics.insert("checkpoints".to_owned(), checkpoints);
    if checkpoints > own {
        let text =
            format!("{} checkpoints that were not asked for fell into it", checkpoints - own);
        warnings.push(Warning { kind: WarningKind::Checkpoint, text });
    }
    Ok(Measured { started, done, metrics, warnings })
}

/// The lines of results that a trial makes.
pub(super) fn trials(experiment: &Experiment, step: &Step, measured: Measured) -> Vec<Trial> {
    let Measured { started, done, mut metrics, warnings } = measured;
    metrics.extend(done.metrics);
    metrics.insert("units".into(), done.units);
    metrics.retain(|_, value| value.is_finite());
    vec![Trial {
        experiment: experiment.name.clone(),
        cell: step.cell.clone(),
        phase: step.phase,
        block: step.block,
        order: step.order,
        arm: step.arm.clone(),
        started,
        seconds: done.seconds,
        metrics,
        series: done.series,
        warnings,
    }]
}

fn prepare(
    cluster: &Cluster<'_>,
    work: &Work,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<()> {
    match work {
        Work::Sql(work) => sql::prepare(cluster, work, levels, stop),
        Work::Pgbench(work) => {
            let mut text = String::new();
            if work.script == Script::TpcbLike {
                text +=
                    "TRUNCATE pgbench_history; VACUUM pgbench_branches; VACUUM pgbench_tellers;";
            }
            if work.reindex {
                text += "REINDEX DATABASE postgres;";
            }
            text += "CHECKPOINT";
            crate::work::run(cluster.psql("postgres", &text).limit(3600).log(cluster.log()), stop)
                .map(drop)
        }
        Work::Mysqlslap(_) | Work::Billing(_) | Work::Crypto(_) => Ok(()),
    }
}

/// What the server counts.
struct Counters {
    wal: f64,
    checkpoints: f64,
}

impl Counters {
    fn read(cluster: &Cluster<'_>) -> Result<Self> {
        // PostgreSQL 17 moved the count of checkpoints.
        let told = cluster.sql(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
                    (xpath('/row/c/text()', query_to_xml(
                        CASE WHEN current_setting('server_version_num')::int >= 170000
                        THEN 'SELECT num_timed + num_requested AS c FROM pg_stat_checkpointer'
                        ELSE 'SELECT checkpoints_timed + checkpoints_req AS c FROM pg_stat_bgwriter'
                        END, false, true, '')))[1]::text::float8",
        )?;
        let mut fields = told.split('|').map(|field| field.trim().parse().ok());
        let mut next = || fields.next().flatten();
        let (wal, checkpoints) = (next(), next());
        match (wal, checkpoints) {
            (Some(wal), Some(checkpoints)) => Ok(Self { wal, checkpoints }),
            _ => Err(Error::Other(format!("the server's counters cannot be read: {told}"))),
        }
    }
}

pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
