//! What the numbers depend on: the machine, its disk, its programs, and how the servers were set.

use std::collections::BTreeMap;

use crate::experiment::Engine;
use crate::manifest::Planned;
use crate::report::words;
use crate::results::Results;

/// Name and value, in the order in which they are shown; what is not known is left out.
pub(super) fn of(results: &Results) -> Vec<(String, String)> {
    let manifest = &results.manifest;
    let machine = &manifest.machine;
    let gib = |mib: u64| format!("{} GiB", words::figure(mib as f64 / 1024.0));
    let root = if machine.root { "yes" } else { "no" };
    let fsync = machine.fsync_ms.map_or_else(String::new, |ms| {
        format!("{} ms, median, for a write of 8 KiB", words::figure(ms))
    });
    let mut rows: Vec<(String, String)> = [
        ("processor", machine.cpu.clone()),
        ("processors used", machine.cpus.to_string()),
        ("AES instructions", machine.cpu_features.join(", ")),
        ("memory", gib(machine.memory_mib)),
        ("disk", machine.disk.clone()),
        ("file system", machine.file_system.clone()),
        ("fsync latency", fsync),
        ("kernel", machine.kernel.clone()),
        ("system", machine.system.clone()),
        ("limits by the kernel could be set", root.into()),
        ("checksums of pages", checksums(&manifest.experiments)),
        ("commits wait for the disk", commits(&manifest.experiments)),
        ("measured for", duration(results)),
        ("said before it began", results.forecast.join("; ")),
        ("Tidelock", tidelock(&manifest.tidelock, &manifest.commit)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    rows.extend(machine.versions.clone());
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

fn tidelock(version: &str, commit: &str) -> String {
    if commit.is_empty() { version.into() } else { format!("{version}, commit {commit}") }
}

/// What the lab's servers are made with.
fn checksums(experiments: &[Planned]) -> String {
    let any = |engine| experiments.iter().any(|planned| planned.experiment.engine == engine);
    let postgresql = any(Engine::Postgresql).then_some("on (PostgreSQL, initdb -k)");
    let mariadb = any(Engine::Mariadb).then_some("full_crc32 (MariaDB, its default)");
    let mysql = any(Engine::Mysql).then_some("crc32 (MySQL, its default)");
    postgresql.into_iter().chain(mariadb).chain(mysql).collect::<Vec<_>>().join("; ")
}

/// Whether they do, by the settings of the experiments.
fn commits(experiments: &[Planned]) -> String {
    let is_off = |planned: &&Planned| {
        let settings = &planned.experiment.settings;
        let off = |name| settings.get(name).is_some_and(|value| value.0 == "off");
        let lazy = settings.get("innodb_flush_log_at_trx_commit").is_some_and(|v| v.0 != "1");
        off("synchronous_commit") || off("fsync") || lazy
    };
    let servers = || experiments.iter().filter(|p| p.experiment.engine != Engine::None);
    let off: Vec<&str> = servers().filter(is_off).map(|p| p.experiment.name.as_str()).collect();
    match (servers().count(), off.is_empty()) {
        (0, _) => String::new(),
        (_, true) => "yes".into(),
        (_, false) => format!("yes, but not in {}", off.join(", ")),
    }
}

/// From the first trial of a sitting to the end of its last one.
fn duration(results: &Results) -> String {
    let mut sittings: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for trial in &results.trials {
        let end = trial.started + trial.seconds;
        let whole = sittings.entry(trial.sitting).or_insert((trial.started, end));
        *whole = (whole.0.min(trial.started), whole.1.max(end));
    }
    let minutes = sittings.values().map(|(start, end)| (end - start) / 60.0).sum::<f64>().ceil();
    match sittings.len() {
        0 => String::new(),
        1 => format!("{minutes:.0} min"),
        several => format!("{minutes:.0} min in {several} sittings"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, results};

    fn of_run(change: impl Fn(&mut Results)) -> BTreeMap<String, String> {
        let mut run = Synthetic::new(2);
        run.arm("plain", "select", 1.0);
        let mut results = results(run, &["plain"]);
        change(&mut results);
        of(&results).into_iter().collect()
    }

    #[test]
    fn the_environment_says_what_a_commit_costs_and_whether_it_waits() {
        let rows = of_run(|results| {
            results.manifest.machine.fsync_ms = Some(0.8612);
            results.manifest.machine.disk = "QEMU HARDDISK, 32 GiB".into();
            results.manifest.commit = "0123456".into();
        });
        assert_eq!(rows["fsync latency"], "0.861 ms, median, for a write of 8 KiB");
        assert_eq!(rows["disk"], "QEMU HARDDISK, 32 GiB");
        assert_eq!(rows["Tidelock"], "0.1.0, commit 0123456");
        assert_eq!(rows["commits wait for the disk"], "yes");
        let rows = of_run(|results| {
            let settings = &mut results.manifest.experiments[0].experiment.settings;
            settings.insert("synchronous_commit".into(), "off".into());
        });
        assert_eq!(rows["commits wait for the disk"], "yes, but not in synthetic");
        // What an older run does not know is not guessed.
        assert!(!rows.contains_key("fsync latency") && !rows.contains_key("disk"));
    }

    #[test]
    fn pauses_between_sittings_are_no_time_of_measuring() {
        let rows = of_run(|results| {
            for (at, trial) in results.trials.iter_mut().enumerate() {
                (trial.started, trial.seconds) = (at as f64 * 36_000.0, 90.0);
                trial.sitting = u32::try_from(at).unwrap();
            }
        });
        assert_eq!(rows["measured for"], "3 min in 2 sittings");
    }
}
