//! pgbench: filling its tables and running a timed load.

use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// What pgbench runs.
#[derive(Clone, Debug)]
pub struct Load {
    /// Connections, and worker threads (at most 2).
    pub clients: u32,
    /// Length.
    pub seconds: u32,
    /// Other arguments, such as `-S` or `-f FILE`.
    pub args: Vec<String>,
}

/// What pgbench did.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Transactions that were done.
    pub transactions: f64,
    /// Transactions a second, connecting not counted.
    pub per_second: f64,
}

impl Load {
    /// The select-only load.
    #[must_use]
    pub fn select_only(clients: u32, seconds: u32) -> Self {
        Self { clients, seconds, args: vec!["-S".into()] }
    }

    /// The TPC-B-like load.
    #[must_use]
    pub fn tpcb(clients: u32, seconds: u32) -> Self {
        Self { clients, seconds, args: Vec::new() }
    }

    /// Runs it on `cluster`.
    ///
    /// # Errors
    /// When pgbench fails or a transaction does.
    pub fn run(&self, cluster: &Cluster<'_>) -> Result<Run> {
        let clients = self.clients.to_string();
        let threads = self.clients.min(2).to_string();
        let seconds = self.seconds.to_string();
        let output = cluster
            .client("pgbench")
            .args(["-n", "-M", "prepared", "-c", &clients, "-j", &threads, "-T", &seconds])
            .args(&self.args)
            .limit(u64::from(self.seconds) + 120)
            .log(cluster.log())
            .run()?;
        let number = |label: &str| {
            let line = output.stdout.lines().find_map(|line| line.strip_prefix(label));
            line.and_then(|rest| rest.split([' ', '/']).next()?.parse::<f64>().ok()).ok_or_else(
                || Error::Unexpected(format!("pgbench printed no `{label}`:\n{}", output.stdout)),
            )
        };
        Ok(Run {
            transactions: number("number of transactions actually processed: ")?,
            per_second: number("tps = ")?,
        })
    }
}

/// `pgbench -i` at this scale.
///
/// # Errors
/// When pgbench fails.
pub fn fill_pgbench(cluster: &Cluster<'_>, scale: u32) -> Result<()> {
    let scale = scale.to_string();
    let fill = cluster.client("pgbench").args(["-i", "-q", "-s", &scale]).limit(600);
    fill.log(cluster.log()).run().map(drop)
}
