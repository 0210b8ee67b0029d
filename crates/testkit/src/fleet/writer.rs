//! A writer that counts what was acknowledged: each row that a server said was committed must be
//! there for ever.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::config::TargetSessionAttrs;
use postgres::{Client, Config, NoTls};
use tidelock_servers::{Result, ensure};

/// Where the rows go.
pub(super) const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS acknowledged (n bigint PRIMARY KEY, text text NOT NULL)";

/// Threads that insert until they are stopped.
pub struct Writer {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

struct State {
    stop: AtomicBool,
    /// The next number; none is written twice, since the fate of one may be unknown.
    next: AtomicU64,
    acknowledged: Mutex<BTreeSet<i64>>,
    /// How often a connection was lost or refused.
    broken: AtomicU64,
}

impl Writer {
    pub(super) fn start(hosts: Vec<String>, text: &str, threads: u32) -> Self {
        let state = Arc::new(State {
            stop: AtomicBool::new(false),
            next: AtomicU64::new(1),
            acknowledged: Mutex::new(BTreeSet::new()),
            broken: AtomicU64::new(0),
        });
        let work = |_| {
            let (state, config, text) = (Arc::clone(&state), config(&hosts), text.to_owned());
            thread::spawn(move || state.write(&config, &text))
        };
        Self { threads: (0..threads).map(work).collect(), state: Arc::clone(&state) }
    }

    /// How many commits were acknowledged until now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.acknowledged().len()
    }

    /// Waits until so many more were acknowledged.
    ///
    /// # Errors
    /// When they were not within ten minutes.
    pub fn acknowledges(&self, more: usize) -> Result<()> {
        let (start, goal) = (Instant::now(), self.count() + more);
        while self.count() < goal {
            ensure(start.elapsed() < Duration::from_secs(600), || {
                format!("the writer stands still at {}", self.count())
            })?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends it: all that was acknowledged, and how often a connection broke.
    #[must_use]
    pub fn stop(mut self) -> (BTreeSet<i64>, u64) {
        self.end();
        let acknowledged = std::mem::take(&mut *self.state.acknowledged());
        (acknowledged, self.state.broken.load(Ordering::Relaxed))
    }

    fn end(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn write(&self, config: &Config, text: &str) {
        while !self.stop.load(Ordering::Relaxed) {
            // A session ends with its server; the next one finds the next leader.
            if let Ok(mut client) = config.connect(NoTls) {
                self.write_with(&mut client, text);
            }
            self.broken.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn write_with(&self, client: &mut Client, text: &str) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Ok(number) = i64::try_from(number) else { return };
            let done =
                client.execute("INSERT INTO acknowledged VALUES ($1, $2)", &[&number, &text]);
            if done.is_err() {
                return;
            }
            self.acknowledged().insert(number);
            // So that a long run stays small.
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn acknowledged(&self) -> std::sync::MutexGuard<'_, BTreeSet<i64>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn config(hosts: &[String]) -> Config {
    let mut config = Config::new();
    for host in hosts {
        config.host(host);
    }
    config.user("postgres").dbname("postgres").port(5432);
    config.connect_timeout(Duration::from_secs(10));
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config
}
