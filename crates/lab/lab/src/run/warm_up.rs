//! Warm-up by rule: seconds of the workload itself, until two in a row differ by less than 5 %, or
//! the experiment's limit is reached (ten if it has none).
//!
//! SQL that makes its own tables runs once, unmeasured: its files and the server's code are then
//! warm, and nothing else can be. mysqlslap and the batch engine are not warmed up: each of their
//! trials fills its tables first, and the first block may be slower in all arms.

use std::sync::atomic::AtomicBool;

use super::servers::{Database, Server};
use crate::error::Result;
use crate::experiment::Work;
use crate::trial::Cell;
use crate::work::{pgbench, sql};

/// Warms one server up, `most` seconds at most.
///
/// # Errors
/// When the workload fails.
pub(super) fn run(
    server: &Server<'_>,
    work: &Work,
    cell: &Cell,
    most: u32,
    stop: &AtomicBool,
) -> Result<()> {
    let Database::Postgres(cluster) = &server.database else { return Ok(()) };
    match work {
        Work::Pgbench(work) => {
            let mut last = 0.0;
            for _ in 0..most {
                let done = pgbench::measure(cluster, work, &cell.0, Some(1), None, stop)?;
                let now = done.units / done.seconds;
                if (now / last - 1.0).abs() < STEADY {
                    break;
                }
                last = now;
            }
        }
        Work::Sql(work) => {
            sql::prepare(cluster, work, &cell.0, stop)?;
            sql::measure(cluster, work, &cell.0, stop)?;
        }
        Work::Mysqlslap(_) | Work::Billing(_) | Work::Crypto(_) => {}
    }
    Ok(())
}

const STEADY: f64 = 0.05;
