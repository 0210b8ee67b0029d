//! Workloads: what a trial runs, with its size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Param;
use crate::error::{Error, Result};

/// What one trial does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Work {
    /// pgbench for a time.
    Pgbench(Pgbench),
    /// SQL that is run once and timed.
    Sql(Sql),
    /// mysqlslap (mariadb-slap) once.
    Mysqlslap(Mysqlslap),
    /// sysbench with one of its own scripts.
    Sysbench(Sysbench),
    /// The three-phase batch engine; in trials each phase is a workload of its own.
    Billing(Billing),
    /// The cipher alone, without a server.
    Crypto(Crypto),
}

/// pgbench for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pgbench {
    /// What each transaction does.
    pub script: Script,
    /// SQL of the script `custom`, in pgbench's language; `:scale` is the scale.
    #[serde(default)]
    pub custom: Option<String>,
    /// SQL that makes the tables of a custom script.
    #[serde(default)]
    pub setup: Option<String>,
    /// Scale of pgbench's tables; none are made if 0.
    pub scale: Param,
    /// Connections.
    pub clients: Param,
    /// Threads of pgbench.
    pub jobs: Param,
    /// Length of a trial.
    pub seconds: Param,
    /// `REINDEX DATABASE` before the first trial of a cell at capacity, and before its equal work.
    #[serde(default)]
    pub reindex: bool,
    /// A new connection for each transaction, as with pgbench -C.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub connect: bool,
    /// The most seconds of load in which each server comes to write its pages without full-page
    /// images; then no checkpoint is made up to the end of the cell. 0: one before each trial.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm: u32,
}

/// What each transaction of pgbench does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// pgbench -S.
    SelectOnly,
    /// The built-in default.
    TpcbLike,
    /// The SQL of `custom`.
    Custom,
}

/// SQL that is run once and timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sql {
    /// Run before each trial, not timed.
    pub setup: Param,
    /// Timed, with the checkpoint that writes what it left dirty.
    pub sql: Param,
    /// Rows that it handles.
    pub rows: Param,
}

/// mysqlslap once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mysqlslap {
    /// Arguments beside those that reach the server.
    pub args: Vec<Param>,
    /// Queries that it runs in all.
    pub queries: Param,
}

impl Mysqlslap {
    /// The most clients that run at once: the largest number of `--concurrency`, 1 without it.
    ///
    /// # Errors
    /// When it is no number.
    pub fn concurrency(&self, levels: &BTreeMap<String, String>) -> Result<u32> {
        let mut most = 1;
        for arg in &self.args {
            let text = arg.text(levels)?;
            for number in text.strip_prefix("--concurrency=").into_iter().flat_map(|n| n.split(','))
            {
                let wrong = |_| Error::Other(format!("{text:?} is no number of clients"));
                most = most.max(number.trim().parse().map_err(wrong)?);
            }
        }
        Ok(most)
    }
}

/// sysbench with one of its own scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sysbench {
    /// What it runs.
    pub script: SysbenchScript,
    /// Its threads, each with a connection.
    pub threads: Param,
    /// Tables that its `prepare` makes once; not for `bulk_insert`, which has one for each thread.
    #[serde(default = "zero")]
    pub tables: Param,
    /// Rows of each table; of `bulk_insert` those that all threads insert together.
    pub rows: Param,
    /// Length of a trial; not for `bulk_insert`, which ends with its rows.
    #[serde(default = "zero")]
    pub seconds: Param,
    /// Arguments beside these and those that reach the server.
    #[serde(default)]
    pub args: Vec<Param>,
}

/// A script that comes with sysbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SysbenchScript {
    /// Ten rows by key, four ranges of a hundred.
    OltpReadOnly,
    /// The same, and the changes of `oltp_write_only`.
    OltpReadWrite,
    /// Two updates, a delete and an insert.
    OltpWriteOnly,
    /// Rows in packets, each thread into a table of its own.
    BulkInsert,
}

impl SysbenchScript {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OltpReadOnly => "oltp_read_only",
            Self::OltpReadWrite => "oltp_read_write",
            Self::OltpWriteOnly => "oltp_write_only",
            Self::BulkInsert => "bulk_insert",
        }
    }

    /// Whether it runs transactions for as long as it is told to.
    #[must_use]
    pub const fn is_oltp(self) -> bool {
        !matches!(self, Self::BulkInsert)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn zero() -> Param {
    Param::from("0")
}

fn days() -> Param {
    Param::from("30")
}

fn meters() -> Param {
    Param::from("10")
}

/// The batch engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Billing {
    /// Records in all files.
    pub records: Param,
    /// Days of each meter, 1 to 30: with fewer days there are more meters, and more of phase 3.
    #[serde(default = "days")]
    pub days: Param,
    /// Flat files.
    pub files: Param,
    /// Worker threads, each with a connection.
    pub workers: Param,
    /// Records of one transaction in phases 1 and 2.
    pub batch: Param,
    /// Meters of one transaction in phase 3.
    #[serde(default = "meters")]
    pub meters: Param,
}

/// The cipher alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crypto {
    /// Bytes of one call.
    pub block: Param,
    /// Length of a trial.
    pub seconds: Param,
}
