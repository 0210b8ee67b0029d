//! What a conversion will take, by a sample of the files themselves.
//!
//! A few files are written in the other form to files without a name, synced, and let go.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::file::{Conditions, Place, Worker};
use super::scan::{Item, Scan};
use crate::error::Result;

/// Bytes of large files that are tried.
const LARGE: u64 = 64 << 20;
/// Small files that are tried, and what is small.
const FILES: usize = 64;
const SMALL: u64 = 64 << 10;

/// How long all files would take, with one worker and without comparing.
///
/// # Errors
/// A file cannot be read or is not as it must be.
pub(super) fn time(conditions: &Conditions<'_>, scan: &Scan) -> Result<Duration> {
    let (small, large): (Vec<_>, Vec<_>) = scan.items.iter().partition(|item| item.size <= SMALL);
    let mut worker = Worker::new(conditions, 0);
    let mut total = 0.0;
    let mut tried = 0;
    let some: Vec<_> = large
        .iter()
        .rev()
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

/// For each file system, a folder on it and the bytes that must be free there.
pub(super) fn space(scan: &Scan, growth: u64, jobs: usize, batch: u64) -> Vec<(PathBuf, u64)> {
    let mut needs: Vec<(u64, PathBuf, u64, u64)> = Vec::new();
    for item in &scan.items {
        let Some(folder) = item.names.first().and_then(|name| name.parent()) else { continue };
        let place = needs.iter().position(|(device, ..)| *device == item.inode.0);
        let place = place.unwrap_or_else(|| {
            needs.push((item.inode.0, folder.to_path_buf(), 0, 0));
            needs.len() - 1
        });
        if let Some((_, _, files, largest)) = needs.get_mut(place) {
            *files += 1;
            *largest = (*largest).max(item.size);
        }
    }
    let jobs = jobs as u64;
    let need = |(_, path, files, largest)| (path, files * growth + jobs * (largest + batch));
    needs.into_iter().map(need).collect()
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
