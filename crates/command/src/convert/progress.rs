//! How far a conversion has come: a bar on a terminal, or a line of JSON each second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use crate::console;

const EVERY: Duration = Duration::from_secs(1);

/// Counts files and bytes on the disk.
pub(super) struct Progress {
    command: &'static str,
    bar: ProgressBar,
    json: bool,
    total: (u64, u64),
    files: AtomicU64,
    bytes: AtomicU64,
    start: Instant,
    told: Mutex<Instant>,
}

#[derive(Serialize)]
struct Line {
    event: &'static str,
    files: u64,
    total_files: u64,
    bytes: u64,
    total_bytes: u64,
    seconds: f64,
    /// Seconds that are left, at the pace so far.
    left: Option<f64>,
}

impl Progress {
    pub(super) fn new(command: &'static str, json: bool, files: usize, bytes: u64) -> Self {
        let bar = if json { ProgressBar::hidden() } else { console::progress(bytes, command) };
        let start = Instant::now();
        Self {
            command,
            bar,
            json,
            total: (files as u64, bytes),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            start,
            told: Mutex::new(start),
        }
    }

    /// Shows nothing.
    pub(super) fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), ..Self::new("", false, 0, 0) }
    }

    /// So many files are done, which have so many bytes.
    pub(super) fn add(&self, count: u64, bytes: u64) {
        let files = self.files.fetch_add(count, Relaxed) + count;
        let bytes_done = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.bar.inc(bytes);
        if !self.json {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() < EVERY && files < self.total.0 {
            return;
        }
        *told = Instant::now();
        let seconds = self.start.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let share = bytes_done as f64 / (self.total.1.max(1)) as f64;
        let line = Line {
            event: "progress",
            files,
            total_files: self.total.0,
            bytes: bytes_done,
            total_bytes: self.total.1,
            seconds,
            left: (share > 0.0).then(|| seconds / share - seconds),
        };
        // A reader that has gone does not end a conversion.
        let _ = console::print_json_line(self.command, &line);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
