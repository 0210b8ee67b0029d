//! The batch engine on a server: its files are made once, its tables before each trial.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidelock_servers::Cluster;

use super::{Done, run};
use crate::error::{Error, Result};
use crate::experiment::Billing;
use crate::load::billing::{self, Market, Phase, Settings};

/// The parts of a trial, in their order.
pub(crate) const PHASES: [Phase; 3] = Phase::ALL;

/// Between samples of a phase: it may take less than a second.
pub(crate) const SHORT: Duration = Duration::from_millis(100);

/// A trial that is prepared.
pub(crate) struct Job(Settings);

/// The files of a cell.
fn market(work: &Billing, levels: &BTreeMap<String, String>) -> Result<Market> {
    Ok(Market {
        records: work.records.number(levels)?,
        days: work.days.number(levels)?,
        files: work.files.number(levels)?,
        ..Market::default()
    })
}

/// Makes the files, if they are not there, and takes away what an earlier trial loaded.
///
/// # Errors
/// When files or tables cannot be made or removed.
pub(crate) fn prepare(
    cluster: &Cluster<'_>,
    work: &Billing,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<Job> {
    let market = market(work, levels)?;
    let dir = cluster.workspace().join("market");
    billing::generate(&dir, &market)?;
    let drop =
        "SET client_min_messages = warning; DROP SCHEMA IF EXISTS billing CASCADE;\nCHECKPOINT";
    run(cluster.psql("postgres", drop).limit(3600).log(cluster.log()), stop)?;
    let mut settings = Settings::new(cluster.conninfo(), dir);
    settings.workers = work.workers.number(levels)?;
    settings.batch = work.batch.number(levels)?;
    settings.meters = work.meters.number(levels)?;
    settings.tell_every = SHORT;
    Ok(Job(settings))
}

impl Job {
    /// One phase; its units are records. `mark` is called when the phase begins, while it goes on,
    /// and when it ends: what comes before and after is no part of it.
    ///
    /// # Errors
    /// What the engine says; [`Error::Interrupted`].
    pub(crate) fn measure(
        &self,
        phase: Phase,
        mark: &mut dyn FnMut(),
        stop: &AtomicBool,
    ) -> Result<Done> {
        let settings = Settings { phases: vec![phase], ..self.0.clone() };
        let mut told = Vec::new();
        let mut progress = |now: billing::Progress| {
            mark();
            told.push((now.seconds, now.records as f64));
        };
        let summary = billing::run(&settings, &mut progress, stop)?;
        if summary.stopped {
            return Err(Error::Interrupted);
        }
        let done = summary
            .phase(phase)
            .ok_or_else(|| Error::Other(format!("the batch engine did not run {phase}")))?;
        // The first one is of the beginning.
        let series = rates(told.get(1..).unwrap_or_default());
        Ok(Done {
            units: done.records as f64,
            seconds: done.seconds,
            metrics: BTreeMap::from([("records_per_second".to_owned(), done.rate())]),
            series: BTreeMap::from([("records_per_second".to_owned(), series)]),
        })
    }
}

/// Records done by then, as records a second between two points.
fn rates(told: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut last = (0.0, 0.0);
    let mut rates = Vec::new();
    for &(at, records) in told {
        if at > last.0 {
            rates.push((at, (records - last.1) / (at - last.0)));
            last = (at, records);
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::rates;

    #[test]
    fn sums_become_rates_and_a_repeated_time_is_left_out() {
        assert_eq!(rates(&[(1.0, 10.0), (1.0, 10.0), (3.0, 40.0)]), [(1.0, 10.0), (3.0, 15.0)]);
    }
}
