//! CPU time of the machine by what it went to, and that of processes that are not ours.

use std::collections::BTreeMap;
use std::fs;

/// Clock ticks since boot, summed over processors (proc(5), /proc/stat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTimes {
    all: u64,
    stolen: u64,
}

impl CpuTimes {
    pub(super) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    pub(super) fn steal_percent_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let stolen = self.stolen.saturating_sub(before.stolen);
        if all == 0 { 0.0 } else { 100.0 * stolen as f64 / all as f64 }
    }
}

/// CPU seconds of every process that does not descend from `lab`, with their ended children: kernel
/// threads apart. The difference of two readings is what they used between.
pub(super) fn others(lab: u32) -> f64 {
    let processes: BTreeMap<u32, Usage> = all();
    let ours = |mut id: u32| {
        // No chain of parents is longer than there are processes.
        for _ in 0..processes.len() {
            if id == lab {
                return true;
            }
            match processes.get(&id) {
                Some(usage) => id = usage.parent,
                None => return false,
            }
        }
        false
    };
    let kernel = |id: u32, usage: &Usage| id == KTHREADD || usage.parent == KTHREADD;
    let others = processes.iter().filter(|(id, usage)| !kernel(**id, usage) && !ours(**id));
    let ticks: u64 = others.map(|(_, usage)| usage.ticks).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

struct Usage {
    parent: u32,
    /// Its own and its ended children's, user and system.
    ticks: u64,
}

fn all() -> BTreeMap<u32, Usage> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id: u32| {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name may hold spaces and brackets: the last bracket ends it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11..15)?.iter().filter_map(|f| f.parse::<u64>().ok()).sum();
        Some((id, Usage { parent: fields.get(1)?.parse().ok()?, ticks }))
    })
    .collect()
}

/// The parent of all kernel threads.
const KTHREADD: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let before = CpuTimes::parse("cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1 1\n").unwrap();
        let after = CpuTimes::parse("cpu  20 0 20 140 0 0 0 20 5 0\n").unwrap();
        assert_eq!(before, CpuTimes { all: 100, stolen: 10 });
        assert!((after.steal_percent_since(&before) - 10.0).abs() < 1e-9);
        assert!(before.steal_percent_since(&after).abs() < 1e-9, "counters never go back");
        assert_eq!(CpuTimes::parse("intr 5"), None);
    }
}
