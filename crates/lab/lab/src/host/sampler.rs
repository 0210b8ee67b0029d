//! What the machine did while a trial ran: I/O of the device, stolen time, throttling, other load.
//!
//! A thread reads a few counters of the kernel once a second, or as often as is asked for. Steal is
//! CPU time that the hypervisor gave to others (proc(5), /proc/stat). Other load is the CPU time of
//! processes that do not descend from the lab; kernel threads are left out, since they also work
//! for the server. What other containers do is not seen from inside one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::device::{Counters, DeviceNumber};
use super::group::{Group, throttled_seconds};
use crate::trial::{Warning, WarningKind};

mod load;

pub use load::CpuTimes;

/// A running sampler.
#[derive(Debug)]
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Samples>,
}

/// Everything that was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Values over time by name: seconds since the start, value. `read_iops`, `write_iops`,
    /// `read_mib_per_second`, `write_mib_per_second` (with a device), `steal_percent`.
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// Values of the whole time by name of a metric: `read_iops`, `write_iops`, `steal_percent`,
    /// `throttled_seconds`.
    pub metrics: BTreeMap<String, f64>,
    /// What may have disturbed the trial.
    pub warnings: Vec<Warning>,
}

impl Sampler {
    /// Starts one that samples each second.
    #[must_use]
    pub fn start(device: Option<DeviceNumber>, group: Option<&Group>) -> Self {
        Self::every(Duration::from_secs(1), device, group)
    }

    /// Starts one with another period.
    #[must_use]
    pub fn every(period: Duration, device: Option<DeviceNumber>, group: Option<&Group>) -> Self {
        let watched = Watched {
            device,
            own_quota: group.and_then(Group::own_quota),
            foreign_quotas: group.map(Group::foreign_quotas).unwrap_or_default(),
        };
        let (stop, stopped) = mpsc::channel();
        let first = Moment::read(&watched);
        let others = load::others(std::process::id());
        let thread = thread::spawn(move || {
            let mut samples = Samples::default();
            let mut last = first.clone();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(period) {
                let now = Moment::read(&watched);
                samples.add(&first, &last, &now);
                last = now;
            }
            let end = Moment::read(&watched);
            // A piece much shorter than the period would be mostly noise.
            // A trial shorter than a period has at least its whole time as one value.
            if end.at.duration_since(last.at) > period / 2 || samples.series.is_empty() {
                samples.add(&first, &last, &end);
            }
            let others = (load::others(std::process::id()) - others).max(0.0);
            samples.conclude(&first, &end, others);
            samples
        });
        Self { stop, thread }
    }

    /// Ends it.
    #[must_use]
    pub fn finish(self) -> Samples {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// What is read in each sample.
struct Watched {
    device: Option<DeviceNumber>,
    own_quota: Option<PathBuf>,
    foreign_quotas: Vec<PathBuf>,
}

/// The counters at one time.
#[derive(Clone)]
struct Moment {
    at: Instant,
    device: Option<Counters>,
    cpu: CpuTimes,
    own_throttled: f64,
    foreign_throttled: f64,
}

impl Moment {
    fn read(watched: &Watched) -> Self {
        let throttled = |dir: &PathBuf| throttled_seconds(dir);
        Self {
            at: Instant::now(),
            device: watched.device.and_then(DeviceNumber::counters),
            cpu: CpuTimes::now(),
            own_throttled: watched.own_quota.as_ref().map_or(0.0, throttled),
            foreign_throttled: watched.foreign_quotas.iter().map(throttled).sum(),
        }
    }
}

impl Samples {
    fn add(&mut self, first: &Moment, last: &Moment, now: &Moment) {
        let at = now.at.duration_since(first.at).as_secs_f64();
        for (name, value) in rates(last, now) {
            self.series.entry(name.to_owned()).or_default().push((at, value));
        }
    }

    /// The whole time at once.
    fn conclude(&mut self, first: &Moment, end: &Moment, others: f64) {
        let seconds = end.at.duration_since(first.at).as_secs_f64();
        let whole: BTreeMap<&str, f64> = rates(first, end).into_iter().collect();
        for name in ["read_iops", "write_iops", "steal_percent"] {
            if let Some(value) = whole.get(name) {
                self.metrics.insert(name.to_owned(), *value);
            }
        }
        let own = (end.own_throttled - first.own_throttled).max(0.0);
        let foreign = (end.foreign_throttled - first.foreign_throttled).max(0.0);
        self.metrics.insert("throttled_seconds".to_owned(), own.max(foreign));
        let steal = whole.get("steal_percent").copied().unwrap_or(0.0);
        let cores = if seconds > 0.0 { others / seconds } else { 0.0 };
        self.warn(WarningKind::Steal, steal > STEAL_PERCENT, || {
            format!("the hypervisor took {steal:.1} % of the CPU time")
        });
        self.warn(WarningKind::Throttling, foreign > 0.0, || {
            format!("a CPU quota that the experiment did not set held threads for {foreign:.2} s")
        });
        self.warn(WarningKind::OtherLoad, cores > OTHER_CORES, || {
            format!("other processes used {:.0} % of a core", cores * 100.0)
        });
    }

    fn warn(&mut self, kind: WarningKind, when: bool, text: impl FnOnce() -> String) {
        if when {
            self.warnings.push(Warning { kind, text: text() });
        }
    }
}

/// Rates between two moments; none where no time has passed.
fn rates(from: &Moment, to: &Moment) -> Vec<(&'static str, f64)> {
    let seconds = to.at.duration_since(from.at).as_secs_f64();
    let mut rates = vec![("steal_percent", to.cpu.steal_percent_since(&from.cpu))];
    if let (Some(a), Some(b), true) = (from.device, to.device, seconds > 0.0) {
        let rate = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
        let mib = f64::from(1 << 20);
        rates.extend([
            ("read_iops", rate(a.reads, b.reads)),
            ("write_iops", rate(a.writes, b.writes)),
            ("read_mib_per_second", rate(a.read_bytes, b.read_bytes) / mib),
            ("write_mib_per_second", rate(a.written_bytes, b.written_bytes) / mib),
        ]);
    }
    rates
}

/// Steal above which a trial carries a warning.
const STEAL_PERCENT: f64 = 1.0;
/// Other load above which it does, in processors.
const OTHER_CORES: f64 = 0.1;

#[cfg(test)]
mod tests;
