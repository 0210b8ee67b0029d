//! CPU time of the machine by what it went to, and that of processes that are not ours.

use std::collections::BTreeMap;

use procfs::process::{Stat, all_processes};
use procfs::{CpuTime, CurrentSI as _, KernelStats};
use tidelock_servers::ticks;

/// Clock ticks since boot, summed over processors (proc(5), /proc/stat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    all: u64,
    stolen: u64,
}

impl CpuTimes {
    /// Those of now; zero where the kernel does not say.
    #[must_use]
    pub fn now() -> Self {
        let Ok(KernelStats { total, .. }) = KernelStats::current() else { return Self::default() };
        let stolen = total.steal.unwrap_or(0);
        // Guest time is part of user time.
        let CpuTime { user, nice, system, idle, .. } = total;
        let rest = [total.iowait, total.irq, total.softirq].into_iter().flatten().sum::<u64>();
        Self { all: user + nice + system + idle + rest + stolen, stolen }
    }

    /// Ticks of all kinds since then, and those that the hypervisor took.
    #[must_use]
    pub fn since(&self, before: &Self) -> (f64, f64) {
        let all = self.all.saturating_sub(before.all);
        (all as f64, self.stolen.saturating_sub(before.stolen) as f64)
    }

    pub(super) fn steal_percent_since(&self, before: &Self) -> f64 {
        let (all, stolen) = self.since(before);
        if all > 0.0 { 100.0 * stolen / all } else { 0.0 }
    }
}

/// CPU seconds of every process that does not descend from `lab`, with their ended children: kernel
/// threads apart. The difference of two readings is what they used between.
pub(super) fn others(lab: u32) -> f64 {
    let stats = all_processes().into_iter().flatten().filter_map(|one| one.ok()?.stat().ok());
    let processes: BTreeMap<i32, Stat> = stats.map(|stat| (stat.pid, stat)).collect();
    let ours = |mut id: i32| {
        // No chain of parents is longer than there are processes.
        for _ in 0..processes.len() {
            if u32::try_from(id) == Ok(lab) {
                return true;
            }
            match processes.get(&id) {
                Some(stat) => id = stat.ppid,
                None => return false,
            }
        }
        false
    };
    let kernel = |stat: &Stat| stat.pid == KTHREADD || stat.ppid == KTHREADD;
    let others = processes.values().filter(|stat| !kernel(stat) && !ours(stat.pid));
    let used: u64 = others.map(ticks).sum();
    used as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The parent of all kernel threads.
const KTHREADD: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all() {
        let before = CpuTimes { all: 100, stolen: 10 };
        let after = CpuTimes { all: 200, stolen: 20 };
        assert!((after.steal_percent_since(&before) - 10.0).abs() < 1e-9);
        assert!(before.steal_percent_since(&after).abs() < 1e-9, "counters never go back");
        let now = CpuTimes::now();
        assert!(now.all > now.stolen, "{now:?}");
    }
}
