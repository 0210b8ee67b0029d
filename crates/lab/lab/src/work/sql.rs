//! SQL that is run once and timed, with the checkpoint that writes what it left dirty.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tidelock_servers::Cluster;

use super::{Done, run};
use crate::error::Result;
use crate::experiment::Sql;

/// One run.
///
/// # Errors
/// When a statement fails or the lab is interrupted.
pub(crate) fn measure(
    cluster: &Cluster<'_>,
    work: &Sql,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<Done> {
    let units: f64 = work.rows.number(levels)?;
    let text = work.sql.text(levels)?;
    let start = Instant::now();
    run(cluster.psql("postgres", &text).limit(LIMIT).log(cluster.log()), stop)?;
    let elapsed = start.elapsed().as_secs_f64();
    if !cluster.is_elsewhere() {
        run(cluster.psql("postgres", "CHECKPOINT").limit(LIMIT).log(cluster.log()), stop)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let metrics = [("elapsed", elapsed), ("rows_per_second", units / seconds)];
    Ok(Done {
        units,
        seconds,
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
        ..Done::default()
    })
}

/// What runs before a trial, not timed.
///
/// # Errors
/// As [`measure`].
pub(crate) fn prepare(
    cluster: &Cluster<'_>,
    work: &Sql,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut text = format!("{};\n", work.setup.text(levels)?);
    if !cluster.is_elsewhere() {
        text += "CHECKPOINT";
    }
    run(cluster.psql("postgres", &text).limit(LIMIT).log(cluster.log()), stop).map(drop)
}

/// Seconds after which a statement has failed: the largest published one took 130.
const LIMIT: u64 = 3600;
