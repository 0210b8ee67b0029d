//! Warm-up by rule: seconds of the workload itself, until two in a row differ by less than 5 %, or
//! the experiment's limit is reached (ten if it has none).
//!
//! A workload that is to be warm runs until its transactions write no full-page images any more, or
//! for as long as it says: a page is written into the log as a whole at its first change after a
//! checkpoint, and the speed of two seconds in a row is alike long before all pages were there.
//!
//! SQL that makes its own tables runs once, unmeasured: its files and the server's code are then
//! warm, and nothing else can be. mysqlslap, bulk inserts by sysbench and the batch engine are
//! not warmed up: each of their trials fills its tables first, and the first block may be slower in
//! all arms.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use procfs::Current as _;

use super::servers::{Database, Server};
use super::trial::{self, Counters, Measured, WARM};
use crate::error::Result;
use crate::experiment::Work;
use crate::trial::{Cell, Warning, WarningKind};
use crate::work::{pgbench, sql, sysbench};

/// Warms one server up, `most` seconds at most.
///
/// # Errors
/// When the workload fails.
pub(super) fn run(
    server: &Server<'_>,
    work: &Work,
    cell: &Cell,
    most: u32,
    stop: &AtomicBool,
) -> Result<()> {
    match (&server.database, work) {
        (Database::Postgres(cluster), Work::Sql(work)) => {
            sql::prepare(cluster, work, &cell.0, stop)?;
            sql::measure(cluster, work, &cell.0, stop)?;
        }
        (Database::Postgres(cluster), Work::Pgbench(work)) if work.warm > 0 => {
            trial::begin(cluster, work, true, stop)?;
            for _ in 0..work.warm {
                let before = Counters::read(&server.database)?;
                let done = pgbench::measure(cluster, work, &cell.0, Some(1), None, stop)?;
                let after = Counters::read(&server.database)?;
                // What does not count images runs for all of its time.
                let Some((before, after)) = before.zip(after) else { continue };
                let counted = after.since(&before, done.units);
                if counted.get("page_images").is_some_and(|images| *images <= WARM) {
                    break;
                }
            }
        }
        (_, Work::Pgbench(_) | Work::Sysbench(_)) => {
            let mut last = 0.0;
            for number in 0..most {
                let Some(now) = rate(server, work, cell, (1, number), stop)? else { break };
                if (now / last - 1.0).abs() < STEADY {
                    break;
                }
                last = now;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Transactions a second at capacity, over so many seconds in run `number`; `None` of what has no
/// such rate.
///
/// # Errors
/// As [`run`].
pub(super) fn rate(
    server: &Server<'_>,
    work: &Work,
    cell: &Cell,
    (seconds, number): (u32, u32),
    stop: &AtomicBool,
) -> Result<Option<f64>> {
    let done = match (&server.database, work) {
        (Database::Postgres(cluster), Work::Pgbench(work)) => {
            pgbench::measure(cluster, work, &cell.0, Some(seconds), None, stop)?
        }
        (Database::Mysqld(mysqld), Work::Sysbench(work)) if work.script.is_oltp() => {
            let seed = sysbench::seed((cell, "warm-up", number));
            sysbench::measure(mysqld, work, &cell.0, Some(seconds), seed, stop)?
        }
        _ => return Ok(None),
    };
    Ok(Some(done.units / done.seconds))
}

/// Whether the files of all servers are read into the page cache before each block. Servers are
/// filled one after the other, so what else empties the cache takes most from the first: a run has
/// shown a sealed server ten times as fast as a plain one by that alone.
///
/// Not where a limit of memory is in force: what is cached then is what is measured. Nor where they
/// would not fit all together, as one server's files would push out another's: then each trial says
/// so.
pub(super) struct PageCache {
    /// Why nothing is read; `None` where all is.
    cold: Option<Warning>,
}

impl PageCache {
    /// By what the files are now, and the memory that is free now.
    pub(super) fn of(servers: &[Server<'_>]) -> Self {
        let free = procfs::Meminfo::current().ok().and_then(|memory| memory.mem_available);
        Self { cold: cold(servers.iter().flat_map(files).map(|(_, size)| size), free) }
    }

    /// Reads the files that are to be read.
    pub(super) fn fill(&self, servers: &[Server<'_>]) {
        if self.cold.is_some() {
            return;
        }
        let mut piece = vec![0; 1 << 20];
        for (path, _) in servers.iter().flat_map(files) {
            let Ok(mut file) = fs::File::open(path) else { continue };
            while file.read(&mut piece).is_ok_and(|read| read > 0) {}
        }
    }

    /// Tells the trials of a block where nothing was read before it.
    pub(super) fn tell(&self, measured: &mut [Measured]) {
        let Some(warning) = &self.cold else { return };
        measured.iter_mut().for_each(|measured| measured.warn(warning.clone()));
    }
}

/// Fills the page cache for a block that is measured by itself.
pub(super) fn page_cache(servers: &[Server<'_>]) {
    PageCache::of(servers).fill(servers);
}

/// The files of a server that may be read, with their sizes.
fn files(server: &Server<'_>) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let dir = match &server.database {
        Database::Postgres(cluster) => cluster.dir(),
        Database::Mysqld(mysqld) => mysqld.dir(),
        Database::None => return files,
    };
    if server.limits_memory() || server.database.is_elsewhere() {
        return files;
    }
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        // What vanishes meanwhile is a temporary file of the server.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => dirs.push(entry.path()),
                Ok(meta) if meta.is_file() => files.push((entry.path(), meta.len())),
                _ => {}
            }
        }
    }
    files
}

/// The warning where files of these sizes have no place together in half of what is free.
fn cold(sizes: impl Iterator<Item = u64>, free: Option<u64>) -> Option<Warning> {
    let bytes = sizes.fold(0, u64::saturating_add);
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    let why = match free {
        _ if bytes == 0 => return None,
        Some(free) if bytes <= free / 2 => return None,
        Some(free) => format!("do not fit into half of the {:.1} GiB that are free", gib(free)),
        None => "may not fit, as the kernel does not say how much memory is free".into(),
    };
    let text = format!(
        "files of all servers, {:.1} GiB, {why}: they were not read into the page cache before \
         the block",
        gib(bytes)
    );
    Some(Warning { kind: WarningKind::ColdCache, text })
}

const STEADY: f64 = 0.05;

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::path::Path;

    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    use tidelock_servers::{Arm, Cluster, Workspace, skip};

    use super::*;
    use crate::arm::Definition;
    use crate::plan::Step;
    use crate::synthetic::experiment;
    use crate::trial::Phase;
    use crate::work::Done;

    /// Whether each 64 KiB of a file come from the page cache: a read that may not wait says so.
    fn is_cached(path: &Path) -> bool {
        let file = fs::File::open(path).unwrap();
        let length = file.metadata().unwrap().len();
        (0..length).step_by(1 << 16).all(|at| {
            let mut byte = [0];
            let mut bytes = [IoSliceMut::new(&mut byte)];
            match preadv2(&file, &mut bytes, at, ReadWriteFlags::NOWAIT) {
                Ok(read) => read == 1,
                Err(Errno::AGAIN) => false,
                Err(why) => panic!("{why}"),
            }
        })
    }

    /// Writes a file, and takes it out of the page cache as far as the file system allows.
    fn write_cold(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![7; 4 << 20]).unwrap();
        let file = fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    #[test]
    fn files_of_all_servers_are_in_the_page_cache_before_a_block() {
        let place = Workspace::new().unwrap();
        let (mut servers, mut files) = (Vec::new(), Vec::new());
        for name in ["plain", "control"] {
            let cluster = Cluster::at(&place, name, Arm::Plain).unwrap();
            for file in ["base/1/16384", "pg_wal/000000010000000000000001"] {
                files.push(cluster.dir().join(file));
            }
            let definition = Definition::of(&experiment(&["plain", "control"]), name);
            servers.push(Server::over(definition, Database::Postgres(cluster)));
        }
        // A read that may not wait can start one ahead, so a file of its own tells that they are
        // cold.
        let witness = place.join("witness");
        files.iter().chain([&witness]).for_each(|path| write_cold(path));
        if is_cached(&witness) {
            skip::because("nothing leaves the page cache on this file system");
            return;
        }
        let cache = PageCache::of(&servers);
        assert_eq!(cache.cold, None);
        cache.fill(&servers);
        for path in &files {
            assert!(is_cached(path), "{} was not read", path.display());
        }
    }

    #[test]
    fn servers_that_fit_one_by_one_and_not_together_are_not_read() {
        let servers = [40, 40, 40];
        let fit = |sizes: &[u64], free| cold(sizes.iter().copied(), free).is_none();
        assert!(servers.iter().all(|bytes| fit(&[*bytes], Some(200))));
        assert!(!fit(&servers, Some(200)));
        assert!(fit(&servers, Some(240)));
        assert!(!fit(&servers, None));
        assert!(fit(&[], None), "there is nothing to read");
    }

    #[test]
    fn each_trial_of_a_block_says_that_the_cache_was_not_filled() {
        let gib = 1 << 30;
        let mut measured = Vec::new();
        measured.resize_with(2, || Measured::of(0.0, Done::default(), Vec::new()));
        PageCache { cold: None }.tell(&mut measured);
        PageCache { cold: cold([gib, 2 * gib].into_iter(), Some(5 * gib)) }.tell(&mut measured);
        let step = Step {
            cell: Cell::default(),
            phase: Phase::Capacity,
            block: 0,
            order: 0,
            arm: "plain".into(),
            instance: 0,
        };
        let trials = trial::trials(&experiment(&["plain"]), &step, 0, measured);
        assert_eq!(trials.len(), 2);
        for trial in trials {
            let [warning] = &*trial.warnings else { panic!("{:?}", trial.warnings) };
            let about = "files of all servers, 3.0 GiB, do not fit into half of the 5.0 GiB that \
                         are free";
            assert!(warning.text.starts_with(about), "{}", warning.text);
            let written = serde_json::to_value(warning).unwrap();
            assert_eq!(written["kind"], "cold-cache");
            assert_eq!(serde_json::from_value::<Warning>(written).unwrap(), *warning);
        }
    }
}
