//! Shares the work of one phase out among threads, counts what they do, and tells it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use super::error::Result;
use super::store::Store;
use super::summary::{PhaseSummary, Progress};
use super::{Phase, Settings};

/// What all workers of one phase have in common.
pub(super) struct Crew<'a> {
    pub(super) settings: &'a Settings,
    pub(super) stop: &'a AtomicBool,
    pub(super) phase: Phase,
    /// Records that earlier runs did.
    pub(super) before: u64,
    pub(super) of: Option<u64>,
}

/// What the workers have done, and whether they must end.
pub(super) struct Tally<'a> {
    stop: &'a AtomicBool,
    /// One of them failed.
    failed: AtomicBool,
    records: AtomicU64,
    rejected: AtomicU64,
    inserted: AtomicU64,
}

impl Tally<'_> {
    /// Whether to end after the transaction that was just committed.
    pub(super) fn must_end(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Counts what was just committed.
    pub(super) fn add(&self, records: usize, rejected: usize, inserted: usize) {
        self.records.fetch_add(records as u64, Ordering::Relaxed);
        self.rejected.fetch_add(rejected as u64, Ordering::Relaxed);
        self.inserted.fetch_add(inserted as u64, Ordering::Relaxed);
    }
}

impl Crew<'_> {
    /// Does `work` for each of `items`, each by one thread with a connection of its own; `place`
    /// names an item for the message when that connection fails.
    ///
    /// # Errors
    /// The first failure of a worker, once all have ended.
    pub(super) fn run<S: Store, I: Sync>(
        &self,
        items: &[I],
        work: impl Fn(&mut S, &I, &Tally<'_>) -> Result<()> + Sync,
        place: impl Fn(&I) -> String + Sync,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PhaseSummary> {
        let tally = Tally {
            stop: self.stop,
            failed: AtomicBool::new(false),
            records: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
        };
        let start = Instant::now();
        progress(self.progress(&tally, start));
        let next = AtomicUsize::new(0);
        let take = || match tally.must_end() {
            true => None,
            false => items.get(next.fetch_add(1, Ordering::Relaxed)),
        };
        let worker = || -> Result<()> {
            let Some(mut item) = take() else { return Ok(()) };
            let connected = S::connect(&self.settings.connection);
            let mut store = connected.map_err(|trouble| trouble.at(self.phase, place(item)))?;
            loop {
                work(&mut store, item, &tally)?;
                match take() {
                    Some(more) => item = more,
                    None => return Ok(()),
                }
            }
        };
        let mut outcome = Ok(());
        thread::scope(|scope| {
            let (sender, ended) = mpsc::channel();
            for _ in 0..self.settings.workers.clamp(1, items.len().max(1)) {
                let (sender, worker, failed) = (sender.clone(), &worker, &tally.failed);
                scope.spawn(move || {
                    let result = worker();
                    if result.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    // The receiver waits until all senders are gone.
                    let _ = sender.send(result);
                });
            }
            drop(sender);
            let mut tell_next = start + self.settings.tell_every;
            loop {
                match ended.recv_timeout(tell_next.saturating_duration_since(Instant::now())) {
                    Ok(result) => outcome = std::mem::replace(&mut outcome, Ok(())).and(result),
                    Err(RecvTimeoutError::Timeout) => {
                        tell_next += self.settings.tell_every;
                        progress(self.progress(&tally, start));
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        });
        progress(self.progress(&tally, start));
        outcome?;
        Ok(PhaseSummary {
            phase: self.phase,
            records: tally.records.into_inner(),
            before: self.before,
            seconds: start.elapsed().as_secs_f64(),
            rejected: tally.rejected.into_inner(),
            inserted: tally.inserted.into_inner(),
        })
    }

    fn progress(&self, tally: &Tally<'_>, start: Instant) -> Progress {
        Progress {
            phase: self.phase,
            seconds: start.elapsed().as_secs_f64(),
            records: tally.records.load(Ordering::Relaxed),
            rejected: tally.rejected.load(Ordering::Relaxed),
            of: self.of,
        }
    }
}
