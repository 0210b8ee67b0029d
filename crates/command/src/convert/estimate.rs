//! What a conversion will take, by a sample of the files themselves.
//!
//! A few files are written in the other form to files without a name, synced, and let go.

use std::cmp::Reverse;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::file::{Conditions, Place, Worker};
use super::instance;
use super::scan::{Item, Scan};
use crate::error::{Error, Result};

/// Bytes of large files that are tried.
const LARGE: u64 = 64 << 20;
/// Files of each kind that are tried, and what is small.
const FILES: usize = 64;
const SMALL: u64 = 64 << 10;

/// How long all files would take, with one worker and without comparing; `None` where a file system
/// has no files without a name.
///
/// # Errors
/// A file cannot be read or is not as it must be.
pub(super) fn time(conditions: &Conditions<'_>, scan: &Scan) -> Result<Option<Duration>> {
    match sampled(conditions, scan) {
        Err(Error::Io { what: "create", source, .. }) if has_none_nameless(&source) => Ok(None),
        sampled => sampled.map(Some),
    }
}

/// What open(2) answers to `O_TMPFILE` where that is not known: by the file system, or at all.
fn has_none_nameless(why: &io::Error) -> bool {
    let errno = Errno::from_io_error(why);
    [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL].iter().any(|it| Some(*it) == errno)
}

fn sampled(conditions: &Conditions<'_>, scan: &Scan) -> Result<Duration> {
    let (small, large): (Vec<_>, Vec<_>) = scan.items.iter().partition(|item| item.size <= SMALL);
    let mut worker = Worker::new(conditions, 0);
    let mut total = 0.0;
    let mut tried = 0;
    let some: Vec<_> = large
        .iter()
        .rev()
        .take(FILES)
        .take_while(|item| {
            let first = tried == 0;
            tried += item.size;
            first || tried <= LARGE
        })
        .copied()
        .collect();
    total += scaled(&mut worker, &some, bytes)? * bytes_of(&large);
    let some: Vec<_> = small.iter().take(FILES).copied().collect();
    total += scaled(&mut worker, &some, |_| 1.0)? * count(small.len());
    Ok(Duration::try_from_secs_f64(total).unwrap_or(Duration::MAX))
}

/// Seconds for each unit of `measure`.
fn scaled(worker: &mut Worker<'_>, some: &[&Item], measure: impl Fn(&Item) -> f64) -> Result<f64> {
    let start = Instant::now();
    let mut all = Vec::new();
    for item in some {
        all.extend(worker.convert(item, Place::Nameless)?);
    }
    for written in all.iter().take(1) {
        // One call for all of them, as batches do.
        let _ = rustix::fs::syncfs(&written.file);
    }
    let amount: f64 = some.iter().map(|item| measure(item)).sum();
    Ok(if amount > 0.0 { start.elapsed().as_secs_f64() / amount } else { 0.0 })
}

/// How many workers there is room for: so many as are wanted, else one; and what they need, a
/// folder of each file system and the bytes that must be free there.
///
/// # Errors
/// [`Error::Refused`] if one worker needs more than is free.
pub(super) fn room(
    scan: &Scan,
    growth: u64,
    wanted: usize,
    batch: u64,
) -> Result<(usize, Vec<(PathBuf, u64)>)> {
    let needs = space(scan, growth, wanted, batch);
    if wanted == 1 || instance::refuse_full(&needs).is_ok() {
        instance::refuse_full(&needs)?;
        return Ok((wanted, needs));
    }
    let needs = space(scan, growth, 1, batch);
    instance::refuse_full(&needs)?;
    Ok((1, needs))
}

/// What workers need at most: each has a batch and the file that ends it, and what the files before
/// did not give back is gone. What is done already needs nothing.
fn space(scan: &Scan, growth: u64, jobs: usize, batch: u64) -> Vec<(PathBuf, u64)> {
    struct System<'s> {
        device: u64,
        folder: &'s Path,
        files: u64,
        stays: u64,
        in_flight: Vec<u64>,
    }
    let mut systems: Vec<System<'_>> = Vec::new();
    for item in scan.items.iter().filter(|item| !item.done) {
        let Some(folder) = item.names.first().and_then(|name| name.parent()) else { continue };
        let device = item.inode.0;
        let place = systems.iter().position(|system| system.device == device);
        let place = place.unwrap_or_else(|| {
            systems.push(System { device, folder, files: 0, stays: 0, in_flight: Vec::new() });
            systems.len() - 1
        });
        if let Some(system) = systems.get_mut(place) {
            system.files += 1;
            system.stays += item.stays();
            system.in_flight.push(item.data + batch);
        }
    }
    let need = |mut system: System<'_>| {
        system.in_flight.sort_unstable_by_key(|bytes| Reverse(*bytes));
        let in_flight: u64 = system.in_flight.iter().take(jobs).sum();
        (system.folder.to_path_buf(), system.files * growth + system.stays + in_flight)
    };
    systems.into_iter().map(need).collect()
}

fn bytes_of(items: &[&Item]) -> f64 {
    items.iter().map(|item| bytes(item)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn bytes(item: &Item) -> f64 {
    item.size as f64
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use tidelock_format::Class;

    use super::*;

    const BATCH: u64 = 32 << 20;

    fn scan(dir: &Path, sizes: &[u64]) -> Scan {
        let item = |size: &u64| Item {
            names: vec![dir.join("file")],
            class: Class::Paged,
            size: *size,
            data: *size,
            allocated: *size,
            links: 1,
            inode: (1, 1),
            done: false,
        };
        Scan { items: sizes.iter().map(item).collect(), ..Scan::default() }
    }

    #[test]
    fn one_large_file_is_not_counted_for_every_worker() {
        let found = scan(Path::new("/d"), &[1 << 40, 4096, 512]);
        let bytes = |jobs| space(&found, 100, jobs, BATCH).iter().map(|(_, it)| it).sum::<u64>();
        assert_eq!(bytes(1), (1 << 40) + BATCH + 300);
        assert_eq!(bytes(2), (1 << 40) + 4096 + 2 * BATCH + 300);
        // More workers than files: three have work.
        assert_eq!(bytes(4), (1 << 40) + 4096 + 512 + 3 * BATCH + 300);
    }

    #[test]
    fn what_is_done_and_what_is_a_hole_need_no_room() {
        let mut found = scan(Path::new("/d"), &[1 << 40, 4096, 512]);
        found.items[0].done = true;
        assert_eq!(space(&found, 100, 2, BATCH)[0].1, 4096 + 512 + 2 * BATCH + 200);
        let first = &mut found.items[0];
        (first.done, first.data, first.allocated) = (false, 1024, 1024);
        assert_eq!(space(&found, 100, 2, BATCH)[0].1, 4096 + 1024 + 2 * BATCH + 300);
    }

    #[test]
    fn what_is_not_given_back_is_counted_for_each_file() {
        let mut found = scan(Path::new("/d"), &[1 << 30, 1 << 30, 4096]);
        let need = |found: &Scan| space(found, 0, 1, BATCH)[0].1;
        assert_eq!((need(&found), found.stays()), ((1 << 30) + BATCH, 0));
        // Another name elsewhere keeps the old bytes.
        found.items[0].links = 2;
        assert_eq!((need(&found), found.stays()), ((2 << 30) + BATCH, 1 << 30));
        // Sealed bytes do not compress.
        found.items[1].allocated = 1 << 28;
        assert_eq!(found.stays(), (1 << 30) + (3 << 28));
    }

    #[test]
    fn what_fits_for_one_worker_alone_is_done_by_one() {
        let home = tempfile::tempdir().unwrap();
        let found = rustix::fs::statvfs(home.path()).unwrap();
        let free = found.f_bavail * found.f_frsize;
        // Two of them do not fit, however much is written here meanwhile.
        let large = free / 3 * 2;
        let (jobs, needs) = room(&scan(home.path(), &[large, large]), 0, 4, BATCH).unwrap();
        assert_eq!((jobs, needs), (1, vec![(home.path().into(), large + BATCH)]));
        let (jobs, _) = room(&scan(home.path(), &[4096, 4096]), 0, 4, BATCH).unwrap();
        assert_eq!(jobs, 4);
        assert!(room(&scan(home.path(), &[free * 2]), 0, 4, BATCH).is_err());
    }
}
