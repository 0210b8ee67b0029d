//! A block of equal work: every server gets the same transactions at the same fixed rate, in short
//! slices, while all servers are up and keep their connections.
//!
//! ```text
//!   round 1   C A D B      one slice each, 0.2 to 0.5 s, the same length for all
//!   round 2   B D A C      the reverse: a drift across both rounds falls on all alike
//!   rounds 3 and 4         another order, and its reverse
//!   checkpoint             of loads that write, one server after the other
//! ```
//!
//! A trial is one server in one block. Its CPU time is all that its control group used from the
//! beginning of the block to the end of its checkpoint: also what the server, the kernel and the
//! agent did later for the work of a slice. docs/lab/statistics.md says why so.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicBool;

use tidelock_servers::Cluster;

use super::cell::writes;
use super::servers::{Database, Server, Servers};
use super::trial::{self, Measured};
use crate::error::{Error, Result};
use crate::experiment::{Pgbench, Work};
use crate::host::{CpuTimes, Sampler};
use crate::plan::{Instance, ROUNDS, SLICE, Step};
use crate::statistics::quantile;
use crate::trial::Cell;
use crate::work::Done;
use crate::work::pace::{Connections, Schedule};
use crate::work::script::Script;

/// The part of the plain server's capacity that is asked for: low enough that no server queues.
pub(super) const RATE: f64 = 0.4;

/// The servers of a cell with their connections.
pub(super) struct Bench<'s, 'p> {
    servers: &'s Servers<'p>,
    connections: BTreeMap<Instance, Connections>,
    script: Script,
    scale: i64,
    rate: f64,
    writes: bool,
    seed: u64,
}

/// What one server did in the slices of a block.
#[derive(Default)]
struct Part {
    seconds: f64,
    latencies: Vec<f64>,
    all: f64,
    stolen: f64,
}

impl<'s, 'p> Bench<'s, 'p> {
    /// Connects to all servers, brings them to the same state, and runs one round that does not
    /// count: new connections have empty caches.
    ///
    /// # Errors
    /// When a connection or a transaction fails.
    pub(super) fn make(
        servers: &'s Servers<'p>,
        work: &Pgbench,
        cell: &Cell,
        capacity: f64,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let clients = work.clients.number(&cell.0)?;
        let mut connections = BTreeMap::new();
        for server in &servers.servers {
            let cluster = postgres(server)?;
            trial::prepare(cluster, work, stop)?;
            connections.insert(server.instance(), Connections::open(cluster, clients)?);
        }
        let mut hasher = DefaultHasher::new();
        (seed, cell, "equal work").hash(&mut hasher);
        let mut bench = Self {
            servers,
            connections,
            script: Script::of(work).map_err(Error::Other)?,
            scale: work.scale.number::<i64>(&cell.0)?.max(1),
            rate: RATE * capacity,
            writes: writes(&Work::Pgbench(work.clone())),
            seed: hasher.finish(),
        };
        let schedule = Schedule::draw(bench.seed, bench.rate, SLICE.1);
        for server in &servers.servers {
            bench.slice(&server.instance(), &schedule, stop)?;
        }
        Ok(bench)
    }

    /// Measures a block: for each of its `steps` what its server did, in their order.
    ///
    /// # Errors
    /// As [`Bench::make`].
    pub(super) fn block(
        &mut self,
        steps: &[&Step],
        stop: &AtomicBool,
    ) -> Result<Vec<Vec<Measured>>> {
        let number = steps.first().map_or(0, |step| step.block);
        let mut random = fastrand::Rng::with_seed(self.seed ^ (u64::from(number) << 32));
        let servers: Vec<&Server<'p>> = steps
            .iter()
            .map(|step| self.servers.of(&step.arm, step.instance))
            .collect::<Result<_>>()?;
        let started = trial::now();
        let device = servers.first().and_then(|server| server.device());
        let sampler = Sampler::start(device, servers.first().and_then(|s| s.group()));
        let before = servers.iter().map(|s| s.cpu_seconds()).collect::<Result<Vec<f64>>>()?;
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        let mut order: Vec<usize> = (0..steps.len()).collect();
        for round in 0..ROUNDS {
            match round {
                0 => {}
                _ if round % 2 == 1 => order.reverse(),
                _ => random.shuffle(&mut order),
            }
            let length = SLICE.0 + random.f64() * (SLICE.1 - SLICE.0);
            let schedule = Schedule::draw(random.u64(..), self.rate, length);
            for at in &order {
                let part = parts.entry(*at).or_default();
                let (clock, cpu) = (std::time::Instant::now(), CpuTimes::now());
                let mut latencies = self.slice(&servers[*at].instance(), &schedule, stop)?;
                part.seconds += clock.elapsed().as_secs_f64();
                let (all, stolen) = CpuTimes::now().since(&cpu);
                part.all += all;
                part.stolen += stolen;
                part.latencies.append(&mut latencies);
            }
        }
        let samples = sampler.finish();
        let mut measured = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            if self.writes {
                let cluster = postgres(server)?;
                let checkpoint = cluster.psql("postgres", "CHECKPOINT").limit(3600);
                crate::work::run(checkpoint.log(cluster.log()), stop)?;
            }
            let cpu = server.cpu_seconds()? - before[at];
            let part = parts.remove(&at).unwrap_or_default();
            let done = part.done(cpu, self.rate);
            let mut warnings = samples.warnings.clone();
            warnings.extend(server.unlimited.iter().chain(&server.coarse).cloned());
            measured.push(vec![Measured::of(started, done, warnings)]);
        }
        Ok(measured)
    }

    fn slice(&mut self, of: &Instance, schedule: &Schedule, stop: &AtomicBool) -> Result<Vec<f64>> {
        let lost = || Error::Other(format!("{} has no connections", of.arm));
        let connections = self.connections.get_mut(of).ok_or_else(lost)?;
        connections.slice(&self.script, self.scale, schedule, stop)
    }
}

impl Part {
    fn done(self, cpu: f64, rate: f64) -> Done {
        let units = self.latencies.len() as f64;
        let mut done = Done { units, seconds: self.seconds, ..Done::default() };
        let metrics = &mut done.metrics;
        metrics.insert("cpu_per_unit".into(), cpu / units * 1e6);
        metrics.insert("rate".into(), rate);
        if self.all > 0.0 {
            metrics.insert("steal_percent".into(), 100.0 * self.stolen / self.all);
        }
        for (name, level) in [("latency_p50", 0.5), ("latency_p95", 0.95), ("latency_p99", 0.99)] {
            if let Some(value) = quantile(&self.latencies, level) {
                metrics.insert(name.into(), value);
            }
        }
        done
    }
}

fn postgres<'a, 'p>(server: &'a Server<'p>) -> Result<&'a Cluster<'p>> {
    match &server.database {
        Database::Postgres(cluster) => Ok(cluster),
        _ => Err(Error::Other(format!("{} is no PostgreSQL", server.arm.name))),
    }
}
