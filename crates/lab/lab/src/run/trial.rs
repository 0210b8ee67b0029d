//! One trial: brings the server to the same state, measures the work, and looks at what else
//! happened.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidelock_servers::Cluster;

use super::cell::settles;
use super::elsewhere::SCHEMA;
use super::servers::{Database, Server};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Param, Pgbench, Script, Work};
use crate::host::Sampler;
use crate::plan::Step;
use crate::trial::{Trial, WORKLOAD, Warning, WarningKind};
use crate::work::billing::SHORT;
use crate::work::{Done, billing, cipher, mysqlslap, pgbench, sql, sysbench};

/// Everything that was measured of one part of a trial.
pub(super) struct Measured {
    /// Name of the part, for works that have several: `phase1`.
    part: Option<String>,
    started: f64,
    done: Done,
    metrics: BTreeMap<String, f64>,
    series: BTreeMap<String, Vec<(f64, f64)>>,
    warnings: Vec<Warning>,
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
) -> Result<Vec<Measured>> {
    let levels = &step.cell.0;
    match (&server.database, work) {
        (Database::None, Work::Crypto(work)) => {
            let run = |_: &Span<'_>| cipher::measure(&server.arm, work, levels, stop);
            Ok(vec![observe(server, None, false, stop, run)?])
        }
        (Database::Postgres(cluster), Work::Pgbench(pgbench)) => {
            prepare(cluster, pgbench, step.block == 0, stop)?;
            let run = |_: &Span<'_>| pgbench::measure(cluster, pgbench, levels, None, rate, stop);
            let mut measured = observe(server, None, settles(work), stop, run)?;
            measured.warn_of_images(work);
            Ok(vec![measured])
        }
        (Database::Postgres(cluster), Work::Sql(work)) => {
            sql::prepare(cluster, work, levels, stop)?;
            let run = |_: &Span<'_>| sql::measure(cluster, work, levels, stop);
            let mut measured = observe(server, None, false, stop, run)?;
            // One checkpoint is the workload's own.
            measured.warn_of_checkpoints(1.0);
            Ok(vec![measured])
        }
        (Database::Postgres(cluster), Work::Billing(work)) => {
            let job = billing::prepare(cluster, work, levels, stop)?;
            let phases = billing::PHASES.iter().map(|phase| {
                let part = format!("phase{}", phase.number());
                let run = |span: &Span<'_>| job.measure(*phase, &mut || span.mark(), stop);
                let mut measured = observe(server, Some(part), true, stop, run)?;
                measured.warn_of_checkpoints(f64::INFINITY);
                Ok(measured)
            });
            phases.collect()
        }
        (Database::Mysqld(mysqld), Work::Mysqlslap(work)) => {
            mysqlslap::prepare(mysqld)?;
            let run = |_: &Span<'_>| mysqlslap::measure(mysqld, work, levels, stop);
            Ok(vec![observe(server, None, false, stop, run)?])
        }
        (Database::Mysqld(mysqld), Work::Sysbench(sysbench)) => {
            sysbench::prepare(mysqld, sysbench, levels, stop)?;
            let seed = sysbench::seed((&step.cell, step.block));
            let run = |_: &Span<'_>| sysbench::measure(mysqld, sysbench, levels, None, seed, stop);
            Ok(vec![observe(server, None, settles(work), stop, run)?])
        }
        _ => Err(Error::Other(format!("{} does not run on this engine", step.cell.workload()))),
    }
}

/// The part of a work whose CPU time counts: from the first mark to the last, or all of it if it
/// makes none.
struct Span<'s> {
    read: &'s dyn Fn() -> Result<Option<f64>>,
    first: Cell<Option<f64>>,
    last: Cell<Option<f64>>,
}

impl Span<'_> {
    fn mark(&self) {
        let Ok(Some(now)) = (self.read)() else { return };
        self.first.set(self.first.get().or(Some(now)));
        self.last.set(Some(now));
    }
}

/// Does the work and measures around it. `settle` ends it with a checkpoint, so that the pages that
/// it left dirty are paid for by its arm: in CPU time, not in throughput. What the lab asks the
/// server in between does not count.
fn observe(
    server: &Server<'_>,
    part: Option<String>,
    settle: bool,
    stop: &AtomicBool,
    work: impl FnOnce(&Span<'_>) -> Result<Done>,
) -> Result<Measured> {
    // Parts of a trial may be short, and the chart of their I/O wants a line.
    let period = if part.is_some() { SHORT } else { Duration::from_secs(1) };
    let sampler = Sampler::every(period, server.device(), server.group());
    let before = Counters::read(&server.database)?;
    let cpu = || match server.database {
        Database::None => Ok(None),
        ref database if database.is_elsewhere() => Ok(None),
        _ => server.cpu_seconds().map(Some),
    };
    let span = Span { read: &cpu, first: Cell::new(None), last: Cell::new(None) };
    let (started, clock, used) = (now(), Instant::now(), cpu()?);
    let done = work(&span)?;
    let worked = cpu()?;
    let seconds = clock.elapsed().as_secs_f64();
    let samples = sampler.finish();
    let after = Counters::read(&server.database)?;
    let counted = cpu()?;
    if settle && !server.database.is_elsewhere() {
        server.database.write_out(stop)?;
    }
    let mut metrics = samples.metrics;
    let work = span.first.get().or(used).zip(span.last.get().or(worked));
    if let (Some((from, to)), Some((counted, settled))) = (work, counted.zip(cpu()?)) {
        let seconds = (to - from) + (settled - counted);
        metrics.insert("cpu_per_unit".into(), seconds / done.units * 1e6);
    }
    if let (Some(before), Some(after)) = (before, after) {
        metrics.insert("wal_bytes_per_second".into(), (after.wal - before.wal) / seconds);
        metrics.extend(after.since(&before, done.units));
    }
    let mut warnings = samples.warnings;
    warnings.extend(server.unlimited.iter().chain(&server.coarse).cloned());
    let mut measured = Measured { part, started, done, metrics, series: samples.series, warnings };
    measured.warn_of_checkpoints(0.0);
    Ok(measured)
}

impl Measured {
    /// A trial that was measured elsewhere than by [`measure`].
    pub(super) fn of(started: f64, done: Done, warnings: Vec<Warning>) -> Self {
        let (metrics, series) = (BTreeMap::new(), BTreeMap::new());
        Self { part: None, started, done, metrics, series, warnings }
    }

    /// Adds something that may have disturbed it.
    pub(super) fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
    }

    /// Adds what the server counted before it and after it, and warns of what should not be there.
    /// One checkpoint is its own where it `settles`.
    pub(super) fn count(
        &mut self,
        counters: Option<(Counters, Counters)>,
        units: f64,
        settles: bool,
        work: &Work,
    ) {
        let Some((before, after)) = counters else { return };
        self.metrics.extend(after.since(&before, units));
        self.warn_of_checkpoints(if settles { 1.0 } else { 0.0 });
        self.warn_of_images(work);
    }

    /// Warns where a workload that is to be warm is not.
    fn warn_of_images(&mut self, work: &Work) {
        match (work, self.metrics.get("page_images")) {
            (Work::Pgbench(work), Some(images)) if work.warm > 0 && *images > WARM => {
                let text = format!("{images:.2} full-page images for each transaction");
                self.warnings.push(Warning { kind: WarningKind::PageImages, text });
            }
            _ => {}
        }
    }

    /// Warns of more checkpoints than `own`, and takes an earlier such warning back.
    fn warn_of_checkpoints(&mut self, own: f64) {
        self.warnings.retain(|warning| warning.kind != WarningKind::Checkpoint);
        let others = self.metrics.get("checkpoints").copied().unwrap_or(0.0) - own;
        if others > 0.0 {
            let text = format!("checkpoints that were not asked for fell into it: {others}");
            self.warnings.push(Warning { kind: WarningKind::Checkpoint, text });
        }
    }
}

/// The lines of results that a trial makes.
pub(super) fn trials(
    experiment: &Experiment,
    step: &Step,
    sitting: u32,
    measured: Vec<Measured>,
) -> Vec<Trial> {
    let line = |measured: Measured| {
        let Measured { part, started, done, mut metrics, mut series, warnings } = measured;
        let mut cell = step.cell.clone();
        if let Some(part) = part {
            cell.0.insert(WORKLOAD.into(), format!("{}/{part}", step.cell.workload()));
        }
        metrics.extend(done.metrics);
        metrics.insert("units".into(), done.units);
        metrics.retain(|_, value| value.is_finite());
        series.extend(done.series);
        series.retain(|_, points| !points.is_empty());
        Trial {
            experiment: experiment.name.clone(),
            cell,
            phase: step.phase,
            block: step.block,
            sitting,
            order: step.order,
            arm: step.arm.clone(),
            instance: step.instance,
            started,
            seconds: done.seconds,
            metrics,
            series,
            warnings,
        }
    };
    measured.into_iter().map(line).collect()
}

/// Brings a server to the state in which every trial of pgbench begins, or the `first` one of its
/// cell and phase; a warm one is left as it is.
pub(super) fn prepare(
    cluster: &Cluster<'_>,
    work: &Pgbench,
    first: bool,
    stop: &AtomicBool,
) -> Result<()> {
    if work.warm > 0 { Ok(()) } else { begin(cluster, work, first, stop) }
}

/// The state after a checkpoint.
pub(super) fn begin(
    cluster: &Cluster<'_>,
    work: &Pgbench,
    first: bool,
    stop: &AtomicBool,
) -> Result<()> {
    let mut text = String::new();
    // Elsewhere others may have tables of these names.
    let ours = if cluster.is_elsewhere() { format!("{SCHEMA}.") } else { String::new() };
    if work.script != Script::SelectOnly && work.scale != Param("0".into()) {
        text += &format!(
            "TRUNCATE {ours}pgbench_history; VACUUM {ours}pgbench_branches; \
             VACUUM {ours}pgbench_tellers;"
        );
    }
    if work.reindex && first {
        text += &match cluster.is_elsewhere() {
            true => format!("REINDEX SCHEMA {SCHEMA};"),
            false => "REINDEX DATABASE postgres;".to_owned(),
        };
    }
    if !cluster.is_elsewhere() {
        text += "CHECKPOINT";
    }
    let tool = cluster.psql("postgres", &text).limit(3600).log(cluster.log());
    crate::work::run(tool, stop).map(drop)
}

/// What the server counts.
pub(super) struct Counters {
    wal: f64,
    checkpoints: f64,
    /// Full-page images; PostgreSQL counts them since 14.
    images: Option<f64>,
}

impl Counters {
    /// Checkpoints, and full-page images of each of so many transactions.
    pub(super) fn since(&self, before: &Self, units: f64) -> BTreeMap<String, f64> {
        let checkpoints = self.checkpoints - before.checkpoints;
        let mut metrics = BTreeMap::from([("checkpoints".to_owned(), checkpoints)]);
        if let (Some(after), Some(before)) = (self.images, before.images) {
            metrics.insert("page_images".into(), (after - before) / units);
        }
        metrics
    }

    /// None where nothing is counted.
    pub(super) fn read(database: &Database<'_>) -> Result<Option<Self>> {
        let cluster = match database {
            Database::None => return Ok(None),
            Database::Mysqld(mysqld) => {
                let told = mysqld.sql("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")?;
                let wal = told.split_once('\t').and_then(|(_, bytes)| bytes.parse().ok());
                let broken = || Error::Other(format!("the server's counters: {told}"));
                let wal = wal.ok_or_else(broken)?;
                return Ok(Some(Self { wal, checkpoints: 0.0, images: None }));
            }
            Database::Postgres(cluster) => cluster,
        };
        // PostgreSQL 17 moved the count of checkpoints, 14 began to count images.
        let version = cluster.sql("SHOW server_version_num")?;
        let version = version.trim().parse::<u32>().unwrap_or_default();
        let checkpoints = match version {
            170_000.. => "num_timed + num_requested FROM pg_stat_checkpointer",
            _ => "checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter",
        };
        let images = if version >= 140_000 { "(SELECT wal_fpi FROM pg_stat_wal)" } else { "NULL" };
        let told = cluster.sql(&format!(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'), {images}, {checkpoints}"
        ));
        let told = match told {
            // A service may have no such log, or show it to nobody.
            Err(_) if database.is_elsewhere() => return Ok(None),
            told => told?,
        };
        let mut fields = told.split('|').map(|field| field.trim().parse().ok());
        let mut next = || fields.next().flatten();
        let (wal, images, checkpoints) = (next(), next(), next());
        match (wal, checkpoints) {
            (Some(wal), Some(checkpoints)) => Ok(Some(Self { wal, checkpoints, images })),
            _ => Err(Error::Other(format!("the server's counters cannot be read: {told}"))),
        }
    }
}

/// Full-page images of a transaction below which a server is warm. After a checkpoint TPC-B writes
/// one and more.
pub(crate) const WARM: f64 = 0.05;

/// Unix time in seconds.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
