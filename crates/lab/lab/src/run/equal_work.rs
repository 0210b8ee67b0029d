//! A block of equal work: every server gets the same transactions at the same fixed rate, in short
//! slices, while all servers are up and keep their connections.
//!
//! ```text
//!   round 1   C A D B      one slice each, 0.2 to 0.5 s, the same length for all
//!   round 2   B D A C      the reverse: a drift across both rounds falls on all alike
//!   rounds 3, 4 ...        another order, and its reverse
//!   checkpoint             of loads that write and are not warm, one server after the other
//! ```
//!
//! A trial is one server in one block. Its CPU time is all that its control group used from the
//! beginning of the block to the end of its checkpoint: also what the server, the kernel and the
//! agent did later for the work of a slice. docs/lab/statistics.md says why so.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::cell::settles;
use super::servers::{Database, Server, Servers};
use super::trial::{self, Counters, Measured};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Work};
use crate::host::{CpuTimes, Sampler};
use crate::phrase;
use crate::plan::{self, Instance, SLICE, Step};
use crate::statistics::quantile;
use crate::trial::{Cell, Warning, WarningKind};
use crate::work::Done;
use crate::work::pace::{Connections, Schedule};
use crate::work::script::Script;
use crate::work::sysbench::{self, Paced};

/// The servers of a cell with their connections.
pub(super) struct Bench<'s, 'p> {
    servers: &'s Servers<'p>,
    loads: BTreeMap<Instance, Load>,
    /// The plain server, whose capacity decides the rate.
    base: Instance,
    rate: Rate,
    rounds: u32,
    clients: u32,
    settles: bool,
    work: &'s Work,
    seed: u64,
}

/// A rate of equal work.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    /// Transactions a second.
    pub(super) per_second: f64,
    /// What is said of it in each trial, where it is lower than was asked for.
    pub(super) lowered: Option<Warning>,
}

/// What gives a server its transactions, over connections that are kept.
enum Load {
    /// The lab itself, with a script of pgbench and its scale.
    Statements(Box<Connections>, Script, i64),
    /// sysbench.
    Sysbench(Paced),
}

/// What one server did in the slices of a block.
#[derive(Default)]
struct Part {
    seconds: f64,
    /// From the beginning of each slice to the moment of its last transaction, in seconds.
    due: f64,
    latencies: Vec<f64>,
    all: f64,
    stolen: f64,
}

impl<'s, 'p> Bench<'s, 'p> {
    /// Connects to all servers (unless each transaction does), brings them to the same state, and
    /// runs rounds that do not count: new connections have empty caches. `capacity` is the plain
    /// server's, in transactions a second by the tool that gave it all it could; what these
    /// connections reach there may be less, and then that counts. `rate` is that of blocks which
    /// another sitting has measured. `first` is the first block that is measured.
    ///
    /// What these rounds changed is written out: the first block would pay for it.
    ///
    /// # Errors
    /// When a connection or a transaction fails.
    pub(super) fn make(
        servers: &'s Servers<'p>,
        experiment: &'s Experiment,
        cell: &Cell,
        (capacity, rate): (f64, Option<Rate>),
        (seed, first): (u64, u32),
        stop: &AtomicBool,
    ) -> Result<Self> {
        let lacks = || Error::Other(format!("{cell} has no equal work"));
        let work = experiment.workload.get(cell.workload()).ok_or_else(lacks)?;
        let mut loads = BTreeMap::new();
        let draws = sysbench::seed((seed, cell, "equal work", first));
        for server in &servers.servers {
            loads.insert(server.instance(), Load::open(server, work, cell, draws, stop)?);
        }
        let mut hasher = DefaultHasher::new();
        (seed, cell, "equal work").hash(&mut hasher);
        let mut bench = Self {
            servers,
            loads,
            base: Instance { arm: experiment.arms.first().cloned().unwrap_or_default(), number: 0 },
            rate: Rate { per_second: capacity, lowered: None },
            rounds: experiment.stop.equal_work_rounds,
            clients: clients(work, cell)?,
            settles: settles(work),
            work,
            seed: hasher.finish(),
        };
        let part = plan::equal_work_rate(experiment, cell)?;
        bench.rate = match rate {
            Some(rate) => {
                bench.unmeasured(0, rate.per_second, stop)?;
                rate
            }
            None => {
                let capacity = bench.reached(capacity, stop)?.min(capacity);
                let clients = bench.clients;
                light_rate(part, capacity, clients, |step, rate| {
                    bench.unmeasured(step, rate, stop)
                })?
            }
        };
        if bench.settles {
            for server in &servers.servers {
                server.database.write_out(stop)?;
            }
        }
        Ok(bench)
    }

    /// Slices at a rate for each server, which do not count: latencies of the plain one in each.
    fn unmeasured(&mut self, step: u32, rate: f64, stop: &AtomicBool) -> Result<Vec<Vec<f64>>> {
        let mut of_base = Vec::new();
        for number in 0..UNMEASURED {
            let seed = self.seed ^ (u64::from(step * UNMEASURED + number) << 48);
            let schedule = Schedule::draw(seed, rate, SLICE.0);
            for server in &self.servers.servers {
                let latencies = self.slice(&server.instance(), &schedule, stop)?;
                if server.instance() == self.base {
                    of_base.push(latencies);
                }
            }
        }
        Ok(of_base)
    }

    /// Transactions a second that the plain server gives to connections that never rest, the most
    /// of two short runs. pgbench reaches more where a transaction is short: at 40 % of that the
    /// lab's two clients once had queues that grew for as long as a slice lasted.
    ///
    /// All servers get the same transactions, so that they stay in the same state.
    fn reached(&mut self, capacity: f64, stop: &AtomicBool) -> Result<f64> {
        let (mut guess, mut reached) = (capacity, 0.0_f64);
        for run in 1..=3 {
            let transactions = (guess * SLICE.0).clamp(self.clients.into(), MOST);
            // What a transaction draws is of this and its moment: no run meets the rows of another.
            let schedule = Schedule::at_once(self.seed ^ (run << 40), transactions);
            for server in &self.servers.servers {
                let clock = Instant::now();
                self.slice(&server.instance(), &schedule, stop)?;
                if server.instance() == self.base {
                    guess = schedule.len() as f64 / clock.elapsed().as_secs_f64();
                }
            }
            // The first one has empty caches.
            if run > 1 {
                reached = reached.max(guess);
            }
        }
        Ok(reached)
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
        let counted = |server: &&Server<'p>| Counters::read(&server.database);
        let counters = servers.iter().map(counted).collect::<Result<Vec<_>>>()?;
        let started = trial::now();
        let device = servers.first().and_then(|server| server.device());
        let sampler = Sampler::start(device, servers.first().and_then(|s| s.group()));
        let before = servers.iter().map(|s| s.cpu_seconds()).collect::<Result<Vec<f64>>>()?;
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        for round in rounds(&mut random, self.rounds, steps.len()) {
            let schedule = Schedule::draw(round.seed, self.rate.per_second, round.length);
            for at in &round.order {
                let part = parts.entry(*at).or_default();
                let (clock, cpu) = (Instant::now(), CpuTimes::now());
                let mut latencies = self.slice(&servers[*at].instance(), &schedule, stop)?;
                part.seconds += clock.elapsed().as_secs_f64();
                part.due += schedule.moments().last().map_or(0.0, Duration::as_secs_f64);
                let (all, stolen) = CpuTimes::now().since(&cpu);
                part.all += all;
                part.stolen += stolen;
                part.latencies.append(&mut latencies);
            }
        }
        let samples = sampler.finish();
        let mut measured = Vec::new();
        for ((at, server), counters) in servers.iter().enumerate().zip(counters) {
            if self.settles {
                server.database.write_out(stop)?;
            }
            let cpu = server.cpu_seconds()? - before[at];
            let part = parts.remove(&at).unwrap_or_default();
            let mut warnings = samples.warnings.clone();
            warnings.extend(part.queue(self.rounds * self.clients));
            warnings.extend(self.rate.lowered.clone());
            let done = part.done(cpu, self.rate.per_second);
            warnings.extend(server.unlimited.iter().chain(&server.coarse).cloned());
            let units = done.units;
            let mut trial = Measured::of(started, done, warnings);
            let after = Counters::read(&server.database)?;
            trial.count(counters.zip(after), units, self.settles, self.work);
            measured.push(vec![trial]);
        }
        Ok(measured)
    }

    fn slice(&mut self, of: &Instance, schedule: &Schedule, stop: &AtomicBool) -> Result<Vec<f64>> {
        let lost = || Error::Other(format!("{} has no connections", of.arm));
        match self.loads.get_mut(of).ok_or_else(lost)? {
            Load::Statements(connections, script, scale) => {
                connections.slice(script, *scale, schedule, stop)
            }
            Load::Sysbench(paced) => paced.slice(schedule, stop),
        }
    }
}

/// The rate that is `part` of `capacity`, lowered until the load is light, or has too few
/// transactions to tell. `slices` gives the latencies of unmeasured slices at a rate, in
/// milliseconds; its first argument is how often the rate was lowered. A part beyond [`LIGHT`]
/// stays as it was asked for.
fn light_rate(
    part: f64,
    capacity: f64,
    clients: u32,
    mut slices: impl FnMut(u32, f64) -> Result<Vec<Vec<f64>>>,
) -> Result<Rate> {
    let (mut step, mut used) = (0, part);
    loop {
        let per_second = used * capacity;
        let slices = slices(step, per_second)?;
        if part > LIGHT {
            return Ok(Rate { per_second, lowered: None });
        }
        let is_light = is_light(per_second, &slices, clients);
        if is_light != Some(false) || step == MOST_STEPS {
            let lowered = (step > 0).then(|| lowered((part, used), is_light));
            return Ok(Rate { per_second, lowered });
        }
        step += 1;
        used *= STEP;
    }
}

/// Whether no more transactions are under way at this rate than there are clients, by the median of
/// the slices. By Little's law, rate times mean latency is how many of them there are at once.
/// `None` if there were too few to say.
fn is_light(rate: f64, slices: &[Vec<f64>], clients: u32) -> Option<bool> {
    let transactions: usize = slices.iter().map(Vec::len).sum();
    if (transactions as f64) < f64::from(clients * FOR_EACH_CLIENT) {
        return None;
    }
    let mean = |latencies: &Vec<f64>| latencies.iter().sum::<f64>() / latencies.len() as f64;
    let under_way: Vec<f64> = slices
        .iter()
        .filter(|latencies| !latencies.is_empty())
        .map(|latencies| rate * mean(latencies) / 1e3)
        .collect();
    quantile(&under_way, 0.5).map(|middle| middle <= f64::from(clients))
}

/// What trials say at a part of capacity below the one that was asked for.
fn lowered((asked, used): (f64, f64), is_light: Option<bool>) -> Warning {
    let (asked, used) = (phrase::part(asked), phrase::part(used));
    let why = match is_light {
        Some(true) => ": at more, transactions waited for a client",
        Some(false) => {
            ", the lowest that is tried, and transactions waited for a client all the same"
        }
        None => {
            ": at more, transactions waited for a client; here there were too few of them to tell"
        }
    };
    let text = format!("the rate is {used} % of capacity and not {asked} %{why}");
    Warning { kind: WarningKind::LoweredRate, text }
}

/// One slice for each server.
struct Round {
    /// In which order they get it, as places in the block.
    order: Vec<usize>,
    /// Seconds.
    length: f64,
    /// Of its moments and what its transactions draw, the same for all.
    seed: u64,
}

/// The rounds of a block with so many servers. Each second one has the order of the one before it
/// reversed.
fn rounds(random: &mut fastrand::Rng, rounds: u32, servers: usize) -> Vec<Round> {
    let mut order: Vec<usize> = (0..servers).collect();
    let mut draw = |round: u32| {
        match round {
            0 => {}
            _ if round % 2 == 1 => order.reverse(),
            _ => random.shuffle(&mut order),
        }
        let length = SLICE.0 + random.f64() * (SLICE.1 - SLICE.0);
        Round { order: order.clone(), length, seed: random.u64(..) }
    };
    (0..rounds).map(&mut draw).collect()
}

/// How many transactions a server has at once, at the most.
fn clients(work: &Work, cell: &Cell) -> Result<u32> {
    match work {
        Work::Pgbench(work) => work.clients.number(&cell.0),
        Work::Sysbench(work) => work.threads.number(&cell.0),
        _ => Ok(1),
    }
}

impl Load {
    /// Brings a server to the state in which its trials begin, and connects to it.
    fn open(
        server: &Server<'_>,
        work: &Work,
        cell: &Cell,
        draws: u32,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let clients = clients(work, cell)?;
        match (&server.database, work) {
            (Database::Postgres(cluster), Work::Pgbench(work)) => {
                trial::prepare(cluster, work, true, stop)?;
                let connections = Connections::open(cluster, clients, work.connect)?;
                let script = Script::of(work).map_err(Error::Other)?;
                Ok(Self::Statements(
                    Box::new(connections),
                    script,
                    work.scale.number::<i64>(&cell.0)?.max(1),
                ))
            }
            (Database::Mysqld(mysqld), Work::Sysbench(work)) => {
                sysbench::prepare(mysqld, work, &cell.0, stop)?;
                Ok(Self::Sysbench(Paced::open(mysqld, work, &cell.0, draws)?))
            }
            _ => Err(Error::Other(format!("{cell} has no equal work on this engine"))),
        }
    }
}

impl Part {
    /// The warning where transactions waited for each other: then latencies are those of a queue,
    /// not of a server at light load. Of all slices there were so many for all clients together.
    fn queue(&self, slices: u32) -> Option<Warning> {
        // Of few transactions the last one alone may take as long.
        let enough = f64::from(slices * FOR_EACH_CLIENT);
        let grew = self.latencies.len() as f64 >= enough && self.seconds > OVERRUN * self.due;
        let text = || {
            let (due, took) = (self.due, self.seconds);
            format!("transactions that were due within {due:.1} s took {took:.1} s: a queue grew")
        };
        grew.then(|| Warning { kind: WarningKind::Queue, text: text() })
    }

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

/// The most transactions by which it is found out how many there can be in a second.
const MOST: f64 = 100_000.0;
/// The part of capacity up to which a load is meant to be light.
const LIGHT: f64 = 0.4;
/// By what a rate is lowered at which it is not, and how often at most: down to a sixth.
const STEP: f64 = 0.8;
const MOST_STEPS: u32 = 8;
/// Slices at each rate that do not count: the median of three is not that of a single hiccup.
const UNMEASURED: u32 = 3;
/// By how much longer than planned slices may take, where each client has so many transactions in a
/// slice: at 40 % of capacity the last one explains an eightieth.
const OVERRUN: f64 = 1.05;
/// With fewer transactions for each client, nothing is said of how long they wait.
const FOR_EACH_CLIENT: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_light_while_fewer_transactions_are_under_way_than_there_are_clients() {
        let slice = |latency: f64| vec![latency; 400];
        let light =
            |rate, mean, clients| is_light(rate, &[(); 3].map(|()| slice(mean)), clients).unwrap();
        // Reads of CYBERTEC's matrix in the run of 27 November 2026, at scale 7 and 20.
        assert!(light(15_923.0, 0.214, 8) && light(13_511.0, 0.228, 8));
        assert!(!light(23_225.0, 0.338, 2) && !light(23_225.0, 0.12, 2));
        assert!(light(23_225.0 * STEP.powi(3), 0.12, 2));
        assert!(light(837.0, 0.674, 2), "TPC-B");
        assert_eq!(is_light(9.0, &[vec![1000.0; 4]], 2), None, "four transactions say nothing");
        // A mean, since Little's law is of means; and one slice of three does not decide.
        let mut queue = slice(0.1);
        queue[..100].fill(2.0);
        assert_eq!(is_light(5_000.0, &[slice(0.1), queue.clone(), queue.clone()], 2), Some(false));
        assert_eq!(is_light(5_000.0, &[slice(0.1), queue, slice(0.1)], 2), Some(true));
    }

    #[test]
    fn a_rate_is_lowered_until_no_queue_grows_and_the_trials_say_to_what() {
        // A server whose clients get a queue beyond 15,000 a second.
        let two_clients = |capacity: f64, beyond: f64, part: f64| {
            let mut tried = Vec::new();
            let slices = |step: u32, rate: f64| {
                assert_eq!(step as usize, tried.len());
                tried.push(rate);
                let latency = if rate > beyond { 5.0 } else { 0.1 };
                Ok(vec![vec![latency; 400]; 3])
            };
            let rate = light_rate(part, capacity, 2, slices).unwrap();
            assert_eq!(tried.last(), Some(&rate.per_second));
            (rate.per_second / capacity, rate.lowered.map(|warning| warning.text), tried.len())
        };
        assert_eq!(two_clients(30_000.0, 15_000.0, 0.4), (0.4, None, 1));
        let (part, said, tried) = two_clients(58_000.0, 15_000.0, 0.4);
        let said = said.unwrap();
        assert!((part - 0.4 * STEP.powi(2)).abs() < 1e-9 && tried == 3, "{part}");
        assert!(
            said.starts_with("the rate is 25.6 % of capacity and not 40.0 %: at more"),
            "{said}"
        );
        // What the experiment asks for beyond a light load, it gets.
        assert_eq!(two_clients(58_000.0, 15_000.0, 0.7), (0.7, None, 1));
        // Where no step is enough, the trials say that.
        let (part, said, tried) = two_clients(58_000.0, 1.0, 0.4);
        assert!((part - 0.4 * STEP.powi(8)).abs() < 1e-9 && tried == 9, "{part}");
        assert!(said.unwrap().ends_with("transactions waited for a client all the same"));
        // Eight clients with 270 transactions in all at the first step, and too few at the second.
        let slices = |_, rate: f64| {
            let each = if rate > 0.35 * 1_000.0 { 90 } else { 80 };
            Ok(vec![vec![50.0; each]; 3])
        };
        let said = light_rate(0.4, 1_000.0, 8, slices).unwrap().lowered.unwrap().text;
        assert!(said.ends_with("here there were too few of them to tell"), "{said}");
    }

    #[test]
    fn a_drift_falls_on_all_servers_alike_and_slices_have_drawn_lengths() {
        let drawn = rounds(&mut fastrand::Rng::with_seed(3), 40, 5);
        let (mut orders, mut lengths) = (Vec::new(), Vec::new());
        for pair in drawn.chunks(2) {
            let [one, other] = pair else { panic!("a round without its reverse") };
            let mut reversed = other.order.clone();
            reversed.reverse();
            assert_eq!(one.order, reversed);
            assert_ne!(one.seed, other.seed, "the same transactions twice");
            let mut all = one.order.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4], "each server once");
            orders.push(&one.order);
            lengths.extend([one.length, other.length]);
        }
        orders.sort_unstable();
        orders.dedup();
        assert!(orders.len() > 10, "orders are not drawn: {orders:?}");
        assert!(lengths.iter().all(|length| (SLICE.0..SLICE.1).contains(length)), "{lengths:?}");
        let spread = lengths.iter().fold(0.0, |most: f64, length| most.max(length - SLICE.0));
        assert!(spread > 0.2, "{lengths:?}");
        let again = rounds(&mut fastrand::Rng::with_seed(3), 40, 5);
        assert!(again.iter().zip(&drawn).all(|(a, b)| a.order == b.order && a.seed == b.seed));
    }
}
