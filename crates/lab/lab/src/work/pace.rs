//! Slices: a server gets so many transactions at a fixed rate, over connections that are kept, or
//! over a new one for each.
//!
//! Load is open: each transaction has its moment, drawn before the slice begins, and its latency
//! counts from there, whoever was late. A slice ends when its last transaction has ended, so what
//! was still in the queue is in the tail. Two servers with one [`Schedule`] get equal work: the
//! same transactions with the same numbers at the same moments.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::postgres::{Client, Config, NoTls};
use tidelock_servers::Cluster;

use super::script::Script;
use crate::error::{Error, Result};

/// When the transactions of a slice begin, and what they draw from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    at: Vec<Duration>,
    seed: u64,
}

impl Schedule {
    /// Transactions of about `seconds` at `rate` a second, four at least: so many and no other
    /// number, with exponential gaps as pgbench draws them.
    pub(crate) fn draw(seed: u64, rate: f64, seconds: f64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut at = 0.0;
        let mut moments = Vec::new();
        while moments.len() < LEAST || at < seconds {
            moments.push(Duration::from_secs_f64(at));
            at += -(1.0 - random.f64()).ln() / rate;
        }
        Self { at: moments, seed }
    }

    /// At least so many transactions, each due as soon as a client is free.
    pub(crate) fn at_once(seed: u64, transactions: f64) -> Self {
        let mut at = Vec::new();
        // What a transaction draws is of its moment, so no two are the same.
        while (at.len() as f64) < transactions {
            at.push(Duration::from_nanos(at.len() as u64));
        }
        Self { at, seed }
    }

    /// How many transactions it has.
    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    /// When each of them begins, from the beginning of the slice on.
    pub(crate) fn moments(&self) -> &[Duration] {
        &self.at
    }
}

/// The clients of one server: each keeps its connection, or makes one for each transaction.
pub(crate) struct Connections {
    config: Config,
    /// `None` where no connection is kept.
    clients: Vec<Option<Client>>,
}

impl Connections {
    /// Opens so many; with `fresh` none, since each transaction opens its own.
    ///
    /// # Errors
    /// When the server turns one away.
    pub(crate) fn open(cluster: &Cluster<'_>, clients: u32, fresh: bool) -> Result<Self> {
        let mut config = Config::new();
        config
            .host_path(cluster.socket_dir())
            .port(5432)
            .user("postgres")
            .dbname("postgres")
            .application_name("tidelock-lab")
            // A statement that hangs ends the run instead of holding it for ever.
            .options("-c statement_timeout=600s");
        let one = |_| match fresh {
            true => Ok(None),
            false => config.connect(NoTls).map(Some).map_err(|e| failed(&e)),
        };
        let clients = (0..clients).map(one).collect::<Result<_>>()?;
        Ok(Self { config, clients })
    }

    /// Runs a slice: milliseconds that each transaction took from its moment on.
    ///
    /// # Errors
    /// When a statement fails, or the lab is interrupted.
    pub(crate) fn slice(
        &mut self,
        script: &Script,
        scale: i64,
        schedule: &Schedule,
        stop: &AtomicBool,
    ) -> Result<Vec<f64>> {
        let (next, trouble) = (AtomicUsize::new(0), Mutex::new(None));
        let latencies = Mutex::new(Vec::with_capacity(schedule.len()));
        let start = Instant::now();
        let config = &self.config;
        thread::scope(|scope| {
            for client in &mut self.clients {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    let ends = || stop.load(Ordering::Relaxed) || lock(&trouble).is_some();
                    while let Some(moment) = schedule.at.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if ends() {
                            return;
                        }
                        let seed = schedule.seed ^ u64::try_from(moment.as_nanos()).unwrap_or(0);
                        let done = || -> Result<()> {
                            let mut random = fastrand::Rng::with_seed(seed);
                            let all =
                                script.statements(scale, &mut random).map_err(Error::Other)?;
                            thread::sleep(moment.saturating_sub(start.elapsed()));
                            match client {
                                Some(client) => transaction(client, &all),
                                None => {
                                    let mut client =
                                        config.connect(NoTls).map_err(|e| failed(&e))?;
                                    transaction(&mut client, &all)?;
                                    client.close().map_err(|e| failed(&e))
                                }
                            }
                        }();
                        if let Err(why) = done {
                            *lock(&trouble) = Some(why);
                            return;
                        }
                        own.push(start.elapsed().saturating_sub(*moment).as_secs_f64() * 1e3);
                    }
                    lock(&latencies).append(&mut own);
                });
            }
        });
        if let Some(why) = lock(&trouble).take() {
            return Err(why);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(latencies.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn transaction(client: &mut Client, statements: &[String]) -> Result<()> {
    for sql in statements {
        client.simple_query(sql).map_err(|e| failed(&e))?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &::postgres::Error) -> Error {
    let told = error.as_db_error().map_or_else(|| error.to_string(), |e| e.message().into());
    Error::Other(format!("a transaction at a fixed rate failed: {told}"))
}

/// Transactions of the shortest slice: a quantile of fewer says nothing.
const LEAST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_has_its_rate_and_repeats() {
        let schedule = Schedule::draw(3, 1000.0, 50.0);
        let count = schedule.len() as f64;
        // Four standard deviations of a Poisson number of 50,000.
        assert!((count - 50_000.0).abs() < 4.0 * 50_000_f64.sqrt(), "{count}");
        assert!(schedule.at.is_sorted());
        assert_eq!(schedule, Schedule::draw(3, 1000.0, 50.0));
        assert_ne!(schedule, Schedule::draw(4, 1000.0, 50.0));
    }

    #[test]
    fn transactions_that_are_due_at_once_differ() {
        let schedule = Schedule::at_once(1, 100.0);
        assert_eq!(schedule.len(), 100);
        assert!(schedule.at.is_sorted_by(|a, b| a < b), "{schedule:?}");
        assert!(schedule.at[99] < Duration::from_micros(1), "{schedule:?}");
    }

    #[test]
    fn a_slow_server_s_slice_is_as_long_as_its_least_work_needs() {
        let schedule = Schedule::draw(1, 0.5, 0.2);
        assert_eq!(schedule.len(), LEAST);
        assert!(schedule.at[LEAST - 1] > Duration::from_secs(1), "{schedule:?}");
    }
}
