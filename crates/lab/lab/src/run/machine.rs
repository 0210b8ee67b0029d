//! The machine of a run: what it is, and whether it still is what an earlier part of the run was
//! measured on.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tidelock_servers::mysqld::{Brand, program_of};
use tidelock_servers::{Bounded as _, Programs};

use crate::arm::programs;
use crate::experiment::Experiment;
use crate::manifest::{Machine, Manifest};

/// The machine as the lab sees it, with the disk of `work` and the versions of what is measured.
#[must_use]
pub fn machine(work: &Path) -> Machine {
    let bin = std::env::var_os("TIDELOCK_PG_BINDIR")
        .map_or_else(|| PathBuf::from(tidelock_servers::BINDIR), PathBuf::from);
    let of = |brand: Brand| {
        let name = brand.server();
        brand.find(None, name).unwrap_or_else(|| PathBuf::from(name))
    };
    let asked = [
        ("postgresql", bin.join("postgres"), "--version"),
        ("mariadb", of(Brand::MariaDb), "--version"),
        ("mysql", of(Brand::MySql), "--version"),
        ("openssl", PathBuf::from("openssl"), "version"),
        ("gocryptfs", PathBuf::from("gocryptfs"), "--version"),
        ("sysbench", PathBuf::from("sysbench"), "--version"),
    ];
    let mut versions: BTreeMap<String, String> = asked
        .into_iter()
        .filter_map(|(name, program, argument)| {
            Some((name.to_owned(), version(&program, argument)?))
        })
        .collect();
    // MariaDB answers to MySQL's name too.
    versions.retain(|name, told| name != "mysql" || !told.contains("MariaDB"));
    versions.extend(built());
    Machine::read(work, versions)
}

/// What is measured as sealed, by the first bytes of its SHA-256: two builds may have one version
/// and one commit. Nothing where it is not built.
fn built() -> Vec<(String, String)> {
    let Ok(programs) = Programs::built() else { return Vec::new() };
    let one = |name: &str, path: &Path| {
        let bytes = std::fs::read(path).ok()?;
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let hex: String = sum.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some((format!("{OURS}{name}"), format!("SHA-256 {hex}...")))
    };
    let library = one("library", &programs.library);
    library.into_iter().chain(one("command", &programs.command)).collect()
}

/// The same with the versions of other builds that arms of `experiments` run.
pub(super) fn with_builds_of<'e>(
    experiments: impl IntoIterator<Item = &'e Experiment>,
    mut machine: Machine,
) -> Machine {
    for experiment in experiments {
        for own in &experiment.own_arms {
            let Some(bin) = own.bin.as_ref().map(Path::new) else { continue };
            let (server, argument) = programs(experiment.engine).server;
            let program = program_of(bin, server).unwrap_or_else(|| bin.join(server));
            if let Some(version) = version(&program, argument) {
                machine.versions.insert(format!("{server} of {}", own.name), version);
            }
        }
    }
    machine
}

/// What numbers depend on and is not as it was when the run of `manifest` began; a sentence part
/// for each.
pub(super) fn differences(manifest: &Manifest, work: &Path) -> Vec<String> {
    let experiments = manifest.experiments.iter().map(|planned| &planned.experiment);
    let now = with_builds_of(experiments, machine(work));
    let mut found = between(&manifest.machine, &now);
    found.extend(of_build(manifest, env!("CARGO_PKG_VERSION"), env!("TIDELOCK_COMMIT")));
    found
}

/// The build, as far as both are known: a source archive has no commit.
fn of_build(manifest: &Manifest, version: &str, commit: &str) -> Vec<String> {
    let mut found = Vec::new();
    if manifest.tidelock != version {
        found.push(said("tidelock", &manifest.tidelock, version));
    }
    let known = !manifest.commit.is_empty() && !commit.is_empty();
    if known && manifest.commit != commit {
        found.push(said("commit", &manifest.commit, commit));
    }
    found
}

fn between(then: &Machine, now: &Machine) -> Vec<String> {
    let root = |root: bool| if root { "yes" } else { "no" };
    let fields = [
        ("cpu", then.cpu.clone(), now.cpu.clone()),
        ("cpus", then.cpus.to_string(), now.cpus.to_string()),
        ("cpu features", then.cpu_features.join(" "), now.cpu_features.join(" ")),
        ("kernel", then.kernel.clone(), now.kernel.clone()),
        ("file system", then.file_system.clone(), now.file_system.clone()),
        (
            "disk",
            then.disk.clone(),
            if then.disk.is_empty() { String::new() } else { now.disk.clone() },
        ),
        ("root", root(then.root).into(), root(now.root).into()),
    ];
    let differs = fields.iter().filter(|(_, then, now)| then != now);
    let mut found: Vec<String> = differs.map(|(what, then, now)| said(what, then, now)).collect();
    // What the kernel keeps for itself differs a little from one start to the next.
    if then.memory_mib.abs_diff(now.memory_mib) > then.memory_mib / 100 {
        let mib = |mib: u64| format!("{mib} MiB");
        found.push(said("memory", &mib(then.memory_mib), &mib(now.memory_mib)));
    }
    for (name, then) in &then.versions {
        let now = now.versions.get(name).map_or("not there", String::as_str);
        if then != now {
            found.push(said(name, then, now));
        }
    }
    found
}

fn said(what: &str, then: &str, now: &str) -> String {
    let shown = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    format!("{what} was {}, is {}", shown(then), shown(now))
}

/// The first line that a program tells of itself.
fn version(program: &Path, argument: &str) -> Option<String> {
    let mut command = Command::new(program);
    let limit = Duration::from_secs(30);
    let output = command.arg(argument).process_group(0).finish_within(limit).ok()?;
    Some(without_directory(program, &String::from_utf8_lossy(&output.stdout)))
}

/// The first line; mysqld begins it with the path that it was run by.
fn without_directory(program: &Path, told: &str) -> String {
    let line = told.lines().next().unwrap_or_default().trim();
    let dir = program.parent().map(|dir| format!("{}/", dir.display()));
    dir.and_then(|dir| line.strip_prefix(&dir)).unwrap_or(line).to_owned()
}

/// Before the names of Tidelock's own parts among the versions.
pub(crate) const OURS: &str = "tidelock ";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    #[test]
    fn each_difference_that_changes_numbers_is_named_with_both_values() {
        let then = Machine {
            cpu: "A".into(),
            cpus: 2,
            cpu_features: vec!["aes".into(), "vaes".into()],
            memory_mib: 4000,
            kernel: "6.1".into(),
            file_system: "ext4".into(),
            disk: "one, 32 GiB".into(),
            versions: BTreeMap::from([
                ("postgresql".into(), "15.20".into()),
                ("gocryptfs".into(), "2.4".into()),
            ]),
            root: true,
            ..Machine::default()
        };
        let same = Machine { memory_mib: 3990, name: "x".into(), ..then.clone() };
        assert!(between(&then, &same).is_empty());
        // A run of before disks were noted.
        assert!(between(&Machine { disk: String::new(), ..then.clone() }, &same).is_empty());
        let now = Machine {
            cpu: "B".into(),
            cpus: 4,
            cpu_features: vec!["aes".into()],
            memory_mib: 8000,
            kernel: "6.2".into(),
            file_system: String::new(),
            disk: "other, 32 GiB".into(),
            versions: BTreeMap::from([("postgresql".into(), "15.21".into())]),
            root: false,
            ..then.clone()
        };
        let expected = [
            "cpu was A, is B",
            "cpus was 2, is 4",
            "cpu features was aes vaes, is aes",
            "kernel was 6.1, is 6.2",
            "file system was ext4, is none",
            "disk was one, 32 GiB, is other, 32 GiB",
            "root was yes, is no",
            "memory was 4000 MiB, is 8000 MiB",
            "gocryptfs was 2.4, is not there",
            "postgresql was 15.20, is 15.21",
        ];
        assert_eq!(between(&then, &now), expected);
    }

    #[test]
    fn a_version_has_no_path_of_this_machine() {
        let told = "/opt/mysql/bin/mysqld  Ver 8.0.15 for linux\n";
        let mysqld = Path::new("/opt/mysql/bin/mysqld");
        assert_eq!(without_directory(mysqld, told), "mysqld  Ver 8.0.15 for linux");
        let told = "postgres (PostgreSQL) 15.20\nmore";
        assert_eq!(
            without_directory(Path::new("/b/postgres"), told),
            "postgres (PostgreSQL) 15.20"
        );
        assert_eq!(without_directory(Path::new("openssl"), "OpenSSL 3"), "OpenSSL 3");
    }

    #[test]
    fn another_commit_is_another_build_where_both_are_known() {
        let mut manifest = crate::synthetic::results(Synthetic::new(1), &["plain"]).manifest;
        assert!(of_build(&manifest, "0.1.0", "b").is_empty());
        manifest.commit = "a".into();
        assert!(of_build(&manifest, "0.1.0", "a").is_empty());
        assert!(of_build(&manifest, "0.1.0", "").is_empty());
        let expected = ["tidelock was 0.1.0, is 0.2.0", "commit was a, is a-changed"];
        assert_eq!(of_build(&manifest, "0.2.0", "a-changed"), expected);
    }
}
