//! One measured block of work on one server, and the order in which blocks of several servers are run.
//!
//! CPU seconds are those of the server's processes (see [`tidelock_servers::cpu_seconds`]), not of the client and
//! not of the agent, which sleeps once the server runs.

use std::time::Instant;

use tidelock_lab::statistics::{Interval, mean_with_interval, ratio};
use tidelock_servers::{Cluster, Result, cpu_seconds};

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

/// Runs every block once, in the interleaved order; the samples of each arm come back in rounds.
///
/// # Errors
/// When a block fails.
pub fn run_rounds(
    arms: usize,
    rounds: usize,
    seed: u64,
    mut block: impl FnMut(Block) -> Result<Sample>,
) -> Result<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::with_capacity(rounds); arms];
    for next in interleave(arms, rounds, seed) {
        let sample = block(next)?;
        samples[next.arm].push(sample);
    }
    Ok(samples)
}

/// What one arm costs against another; above 1 is better than the base, below 1 is a loss.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Throughput, this arm over the base.
    pub throughput: Interval,
    /// CPU seconds per unit, the base over this arm.
    pub cpu: Interval,
    /// CPU microseconds that this arm spends more, for each 8 KiB block that it read or wrote; `None`
    /// where hardly any did.
    pub per_page: Option<Interval>,
}

impl Cost {
    /// Compares round by round; `None` when a sample is empty.
    #[must_use]
    pub fn of(arm: &[Sample], base: &[Sample], seed: u64) -> Option<Self> {
        let each = |samples: &[Sample], value: fn(&Sample) -> f64| -> Vec<f64> {
            samples.iter().map(value).collect()
        };
        let pages: f64 = arm.iter().map(|s| s.pages).sum();
        let units: f64 = arm.iter().map(|s| s.units).sum();
        let cpu: f64 = arm.iter().map(|s| s.cpu).sum();
        // Below one block in 100 us of CPU the quotient would be noise divided by nearly nothing.
        let many = pages > cpu * 1e4;
        let more = arm
            .iter()
            .zip(base)
            .map(|(arm, base)| (arm.cpu_per_unit() - base.cpu_per_unit()) / (pages / units) * 1e6);
        let more: Vec<f64> = more.collect();
        Some(Self {
            throughput: ratio(
                &each(arm, Sample::throughput),
                &each(base, Sample::throughput),
                seed,
            )?,
            cpu: ratio(&each(base, Sample::cpu_per_unit), &each(arm, Sample::cpu_per_unit), seed)?,
            per_page: if many { mean_with_interval(&more, seed) } else { None },
        })
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
