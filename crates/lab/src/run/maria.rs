//! MariaDB in a run: its servers, and one trial of mysqlslap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tidelock_servers::mariadb::MariaDb;
use tidelock_servers::{Place, cpu_seconds};

use super::trial::{Measured, now};
use crate::arm::Definition;
use crate::error::{Error, Result};
use crate::experiment::Work;
use crate::trial::Cell;
use crate::work::mysqlslap;

/// An arm's server, installed and started. What it encrypts by itself is encrypted from its first byte.
///
/// # Errors
/// When it does not come up.
pub(super) fn make<'p>(
    place: &'p Place,
    arm: &Definition,
    dir: Option<PathBuf>,
    settings: &BTreeMap<String, String>,
) -> Result<MariaDb<'p>> {
    let mut maria = MariaDb::at(place, &arm.name, arm.arm)?.with(arm.bin.clone(), arm.env.clone());
    if let Some(dir) = dir {
        maria = maria.on(dir);
    }
    settings.iter().try_for_each(|(name, value)| maria.set(name, value))?;
    if arm.own {
        maria.encrypt_itself()?;
    }
    maria.install()?;
    maria.start()?;
    Ok(maria)
}

/// Restarts it with other settings.
///
/// # Errors
/// When it does not come up again.
pub(super) fn set(maria: &MariaDb<'_>, settings: &BTreeMap<String, String>) -> Result<()> {
    settings.iter().try_for_each(|(name, value)| maria.set(name, value))?;
    Ok(maria.restart()?)
}

/// One trial. CPU time is that of the filling too.
///
/// # Errors
/// When the server or the work fails.
pub(super) fn measure(
    maria: &MariaDb<'_>,
    work: &Work,
    cell: &Cell,
    stop: &AtomicBool,
) -> Result<Measured> {
    let Work::Mysqlslap(work) = work else {
        return Err(Error::Other(format!("{} cannot run on MariaDB", cell.workload())));
    };
    mysqlslap::prepare(maria)?;
    let process = maria.process()?;
    let written = || -> Result<f64> {
        let told = maria.sql(
            "SELECT variable_value FROM information_schema.global_status
             WHERE variable_name = 'INNODB_OS_LOG_WRITTEN'",
        )?;
        let broken = |_| Error::Other(format!("the server's counters cannot be read: {told}"));
        told.parse().map_err(broken)
    };
    let log = written()?;
    let (started, clock, cpu) = (now(), Instant::now(), cpu_seconds(process));
    let done = mysqlslap::measure(maria, work, &cell.0, stop)?;
    let (cpu, elapsed) = (cpu_seconds(process) - cpu, clock.elapsed().as_secs_f64());
    let metrics = [
        ("cpu_per_unit", cpu / done.units * 1e6),
        ("wal_bytes_per_second", (written()? - log) / elapsed),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(Measured { started, done, metrics, warnings: Vec::new() })
}
