//! The cases, what one block of each does, and the bar that was set for it.

use tidelock_testkit::pg::{Cluster, Load, Result};

use crate::Options;

/// One workload.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) shared_buffers: &'static str,
    pub(crate) bar: Bar,
    work: Work,
}

/// What the project promised for the case.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    /// CPU per unit, plain over sealed, is at least this.
    Cpu(f64),
    /// At most this many microseconds of CPU more for each 8 KiB block read or written.
    PerPage(f64),
}

enum Work {
    Select,
    TpcB { synchronous_commit: &'static str },
    Insert,
    CreateTableAs,
    Scan { workers: u32 },
}

/// In an order that leaves pgbench's tables clean for the scans and needs few restarts.
pub(crate) const CASES: [Case; 8] = [
    case("select, shared_buffers 8 MB", "transaction", "8MB", Bar::Cpu(0.95), Work::Select),
    case("select, shared_buffers 128 MB", "transaction", "128MB", Bar::PerPage(0.75), Work::Select),
    case("scan, serial", "row", "128MB", Bar::PerPage(0.75), Work::Scan { workers: 0 }),
    case("scan, two workers", "row", "128MB", Bar::PerPage(0.75), Work::Scan { workers: 2 }),
    case("insert", "row", "128MB", Bar::PerPage(0.75), Work::Insert),
    case("create table as md5", "row", "128MB", Bar::PerPage(0.75), Work::CreateTableAs),
    case(
        "TPC-B-like, synchronous_commit on",
        "transaction",
        "128MB",
        Bar::Cpu(0.98),
        Work::TpcB { synchronous_commit: "on" },
    ),
    case(
        "TPC-B-like, synchronous_commit off",
        "transaction",
        "128MB",
        Bar::PerPage(0.75),
        Work::TpcB { synchronous_commit: "off" },
    ),
];

const fn case(
    name: &'static str,
    unit: &'static str,
    shared_buffers: &'static str,
    bar: Bar,
    work: Work,
) -> Case {
    Case { name, unit, shared_buffers, bar, work }
}

impl Case {
    /// Brings the server to the same state before each block.
    pub(crate) fn prepare(&self, server: &Cluster<'_>) -> Result<()> {
        let text = match self.work {
            Work::Select | Work::Scan { .. } => "CHECKPOINT".to_owned(),
            Work::TpcB { synchronous_commit } => format!(
                "ALTER SYSTEM SET synchronous_commit = {synchronous_commit}; SELECT pg_reload_conf();
                 TRUNCATE pgbench_history; VACUUM pgbench_branches; VACUUM pgbench_tellers; CHECKPOINT"
            ),
            Work::Insert => {
                "DROP TABLE IF EXISTS target; CREATE TABLE target (a bigint, b text); CHECKPOINT".into()
            }
            Work::CreateTableAs => "DROP TABLE IF EXISTS target; CHECKPOINT".into(),
        };
        server.sql(&text).map(drop)
    }

    /// One block; returns how many units it did.
    pub(crate) fn block(&self, server: &Cluster<'_>, options: &Options) -> Result<f64> {
        let rows = options.rows;
        match self.work {
            Work::Select => {
                let run = Load::select_only(4, options.seconds).run(server)?;
                Ok(run.transactions)
            }
            Work::TpcB { .. } => {
                let run = Load::tpcb(4, options.seconds).run(server)?;
                server.sql("CHECKPOINT")?;
                Ok(run.transactions)
            }
            Work::Insert => {
                server.sql(&format!(
                    "INSERT INTO target SELECT g, 'row number ' || g FROM generate_series(1, {rows}) g;
                     CHECKPOINT"
                ))?;
                Ok(rows as f64)
            }
            Work::CreateTableAs => {
                server.sql(&format!(
                    "CREATE TABLE target AS SELECT g, md5(g::text) FROM generate_series(1, {rows}) g;
                     CHECKPOINT"
                ))?;
                Ok(rows as f64)
            }
            Work::Scan { workers } => {
                let scans = options.seconds.max(1);
                let scan = "SELECT sum(abalance) FROM pgbench_accounts;".repeat(scans as usize);
                server.sql(&format!("SET max_parallel_workers_per_gather = {workers}; {scan}"))?;
                Ok(f64::from(options.scale) * 100_000.0 * f64::from(scans))
            }
        }
    }
}
