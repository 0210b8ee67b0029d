//! The metrics: name in results, title, unit, and which direction is better.

/// What larger values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it describes a trial.
    Neither,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Key in [`crate::trial::Trial::metrics`].
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Unit; per transaction, row or record where it says "unit".
    pub unit: &'static str,
    /// Direction.
    pub better: Better,
}

impl Metric {
    /// Whether it is a percentile of how long transactions took.
    #[must_use]
    pub fn is_latency(&self) -> bool {
        self.name.starts_with("latency")
    }
}

/// The metric with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// All metrics.
pub const METRICS: [Metric; 19] = [
    metric("transactions_per_second", "throughput", "transactions/s", Better::Higher),
    metric("rows_per_second", "throughput", "rows/s", Better::Higher),
    metric("records_per_second", "throughput", "records/s", Better::Higher),
    metric("gigabytes_per_second", "throughput of one core", "GB/s", Better::Higher),
    metric("elapsed", "time", "s", Better::Lower),
    metric("cpu_per_unit", "CPU time of the server per unit of work", "us", Better::Lower),
    metric("latency_p50", "latency, median", "ms", Better::Lower),
    metric("latency_p95", "latency, 95th percentile", "ms", Better::Lower),
    metric("latency_p99", "latency, 99th percentile", "ms", Better::Lower),
    metric("wall_clock", "time with what surrounds the work", "s", Better::Neither),
    metric("units", "work done", "units", Better::Neither),
    metric("rate", "rate that was asked for", "transactions/s", Better::Neither),
    metric("read_iops", "reads of the device", "1/s", Better::Neither),
    metric("write_iops", "writes of the device", "1/s", Better::Neither),
    metric("wal_bytes_per_second", "write-ahead log", "B/s", Better::Neither),
    metric("page_images", "full-page images", "per transaction", Better::Neither),
    metric("steal_percent", "CPU time taken by the hypervisor", "%", Better::Neither),
    metric("throttled_seconds", "time throttled by the kernel", "s", Better::Neither),
    metric("checkpoints", "checkpoints", "", Better::Neither),
];

const fn metric(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
) -> Metric {
    Metric { name, title, unit, better }
}
