//! One measured block of work on one server, and the order in which blocks of several servers are run.
//!
//! CPU seconds are those of the server's processes (see [`super::cpu_seconds`]), not of the client and
//! not of the agent, which sleeps once the server runs.

use std::time::Instant;

use super::cluster::Cluster;
use super::error::Result;
use super::process::cpu_seconds;

/// What one block cost.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Transactions or rows.
    pub units: f64,
    /// Wall clock seconds.
    pub seconds: f64,
    /// CPU seconds of the server.
    pub cpu: f64,
    /// 8 KiB blocks that the server read and wrote: relation pages, and WAL in blocks.
    pub pages: f64,
}

/// One block's place in the order: round and index of the arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Round, from 0.
    pub round: usize,
    /// Index of the arm.
    pub arm: usize,
}

impl Sample {
    /// Measures `work`, which returns how many units it did, on `cluster`.
    ///
    /// # Errors
    /// When the work fails.
    pub fn of(cluster: &Cluster<'_>, work: impl FnOnce() -> Result<f64>) -> Result<Self> {
        let postmaster = cluster.postmaster()?;
        let pages = pages(cluster)?;
        let (start, cpu) = (Instant::now(), cpu_seconds(postmaster));
        let units = work()?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds(postmaster) - cpu);
        Ok(Self { units, seconds, cpu, pages: self::pages(cluster)? - pages })
    }

    /// Units a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.units / self.seconds
    }

    /// CPU seconds for one unit.
    #[must_use]
    pub fn cpu_per_unit(&self) -> f64 {
        self.cpu / self.units
    }
}

/// 8 KiB blocks that passed between the server and the kernel so far, as its statistics count them.
fn pages(cluster: &Cluster<'_>) -> Result<f64> {
    let told = cluster.sql(
        "SELECT pg_stat_force_next_flush();
         SELECT (SELECT sum(blks_read) FROM pg_stat_database)
              + (SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter)
              + (SELECT wal_bytes / 8192 FROM pg_stat_wal)",
    )?;
    Ok(told.trim().parse().unwrap_or(0.0))
}

/// All blocks of `rounds` rounds: each round has every arm once, in an order drawn from `seed`.
#[must_use]
pub fn interleave(arms: usize, rounds: usize, seed: u64) -> Vec<Block> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..rounds)
        .flat_map(|round| {
            let mut order: Vec<Block> = (0..arms).map(|arm| Block { round, arm }).collect();
            random.shuffle(&mut order);
            order
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_arm_once_and_the_seed_repeats_the_order() {
        let blocks = interleave(3, 20, 7);
        assert_eq!(blocks, interleave(3, 20, 7));
        for round in 0..20 {
            let mut arms: Vec<usize> =
                blocks.iter().filter(|b| b.round == round).map(|b| b.arm).collect();
            arms.sort_unstable();
            assert_eq!(arms, [0, 1, 2]);
        }
        let first: Vec<usize> = blocks.iter().step_by(3).map(|b| b.arm).collect();
        assert!((0..3).all(|arm| first.contains(&arm)), "no arm is always first or never");
    }
}
