//! Many files at once: written in batches, each batch synced with one call, then compared, then
//! renamed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::file::{Conditions, Place, Worker, Written};
use super::filesystem::syncfs_is_enough;
use super::progress::Progress;
use super::scan::{Item, LINK};
use crate::error::{Error, Result};

/// A batch has at most so many files, ...
pub(super) const FILES: usize = 256;
/// ... and ends with the file that brings it to so many bytes.
const BYTES: u64 = 32 << 20;

/// What was done.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Files that had the other form already.
    pub(super) before: u64,
    /// Time of all workers for comparing.
    pub(super) compared: Duration,
    /// Sealed files whose end was not as it must be, and the first of them with what is wrong.
    pub(super) bad_ends: usize,
    pub(super) first_bad_end: Option<String>,
}

/// How it is done.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) jobs: usize,
    /// New files that a worker keeps open, at most.
    pub(super) files: usize,
    pub(super) compare: bool,
}

/// Converts all `items`, and makes their names last.
///
/// # Errors
/// The first that a worker met; the others end with the files that they have. Each file is in one
/// form or the other.
pub(super) fn run(
    conditions: &Conditions<'_>,
    items: &[Item],
    manner: Manner,
    progress: &Progress,
) -> Result<Tally> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let total = Mutex::new((Tally::default(), BTreeSet::new()));
    let one = |number: usize| -> Result<()> {
        let number = u32::try_from(number).unwrap_or(0);
        let mut crew = Crew::new(Worker::new(conditions, number), manner, progress);
        let done = crew.work(|| match failed.load(Ordering::Relaxed) {
            true => None,
            false => items.get(next.fetch_add(1, Ordering::Relaxed)),
        });
        if done.is_err() {
            failed.store(true, Ordering::Relaxed);
            crew.drop_batch();
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.0.add(&crew.tally);
        total.1.append(&mut crew.folders);
        done
    };
    let failure = match manner.jobs {
        0 | 1 => one(0),
        jobs => thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = (0..jobs).map(|number| scope.spawn(move || one(number))).collect();
            let ended = all.into_iter().map(|one| match one.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.fold(Ok(()), Result::and)
        }),
    };
    let (tally, folders) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    sync_folders(&folders)?;
    failure.map(|()| tally)
}

/// Makes the names in these folders last, whoever gave them.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn sync_folders(folders: &BTreeSet<PathBuf>) -> Result<()> {
    for folder in folders {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(Error::io("sync", folder))?;
    }
    Ok(())
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.before += other.before;
        self.compared += other.compared;
        self.bad_ends += other.bad_ends;
        if self.first_bad_end.is_none() {
            self.first_bad_end.clone_from(&other.first_bad_end);
        }
    }
}

/// A worker, and the files that it has written and not yet put in their places.
struct Crew<'c> {
    worker: Worker<'c>,
    manner: Manner,
    progress: &'c Progress,
    batch: Vec<(&'c Item, Written)>,
    bytes: u64,
    tally: Tally,
    folders: BTreeSet<PathBuf>,
}

impl<'c> Crew<'c> {
    fn new(worker: Worker<'c>, manner: Manner, progress: &'c Progress) -> Self {
        let (batch, folders) = (Vec::new(), BTreeSet::new());
        Self { worker, manner, progress, batch, bytes: 0, tally: Tally::default(), folders }
    }

    fn work(&mut self, mut next: impl FnMut() -> Option<&'c Item>) -> Result<()> {
        while let Some(item) = next() {
            if self.worker.conditions.stop.load(Ordering::Relaxed) {
                return Err(Error::Keys(tidelock_keyring::Error::Interrupted));
            }
            match self.worker.convert(item, Place::Beside)? {
                Some(written) => {
                    self.batch.push((item, written));
                    self.bytes += item.size;
                }
                None => {
                    self.tally.before += 1;
                    self.progress.add(1, item.size);
                }
            }
            if self.batch.len() >= self.manner.files || self.bytes >= BYTES {
                self.put_in_place()?;
            }
        }
        self.put_in_place()
    }

    /// Syncs, compares and renames what is written.
    fn put_in_place(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        sync(&self.batch)?;
        if self.manner.compare {
            let start = Instant::now();
            for (item, written) in &self.batch {
                self.worker.compare(item, written)?;
            }
            self.tally.compared += start.elapsed();
        }
        // In one step, so that a batch does not look like a very slow file.
        let before = (self.tally.files, self.tally.bytes);
        while let Some((item, written)) = self.batch.pop() {
            let unchanged = item.names.first().map_or(Ok(()), |name| written.refuse_changed(name));
            if let Err(why) = unchanged.and_then(|()| replace(item, &written.path)) {
                self.batch.push((item, written));
                return Err(why);
            }
            for name in &item.names {
                self.folders.extend(name.parent().map(Path::to_path_buf));
            }
            self.tally.files += 1;
            self.tally.bytes += item.size;
            if let (Some(fault), Some(path)) = (written.bad_end, item.names.first()) {
                self.tally.bad_ends += 1;
                let told = || format!("{}: {fault}", path.display());
                self.tally.first_bad_end.get_or_insert_with(told);
            }
        }
        self.progress.add(self.tally.files - before.0, self.tally.bytes - before.1);
        self.bytes = 0;
        Ok(())
    }

    /// Removes what has not taken its place. A file of several names may have taken some.
    fn drop_batch(&mut self) {
        for (_, written) in self.batch.drain(..) {
            if fs::symlink_metadata(&written.path).is_ok_and(|found| found.nlink() == 1) {
                let _ = fs::remove_file(&written.path);
            }
        }
    }
}

/// Makes the contents of new files last: several with one call for each file system, where that is
/// enough.
fn sync(batch: &[(&Item, Written)]) -> Result<()> {
    let failed = |written: &Written| Error::io("sync", written.path.clone());
    if let [(_, only)] = batch {
        return only.file.sync_all().map_err(failed(only));
    }
    let mut enough = HashMap::new();
    for (item, written) in batch {
        let is_enough = match enough.entry(item.inode.0) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                rustix::fs::syncfs(&written.file)
                    .map_err(|errno| failed(written)(io::Error::from(errno)))?;
                *new.insert(syncfs_is_enough(&written.file))
            }
        };
        if !is_enough {
            written.file.sync_all().map_err(failed(written))?;
        }
    }
    Ok(())
}

/// Puts the new file in the place of the old one, under all names.
fn replace(item: &Item, new: &Path) -> Result<()> {
    let Some((first, others)) = item.names.split_first() else { return Ok(()) };
    for name in others {
        put_link(new, name)?;
    }
    fs::rename(new, first).map_err(Error::io("replace", first))
}

/// Makes `name` a name of the file `new`, in one step.
pub(super) fn put_link(new: &Path, name: &Path) -> Result<()> {
    let mut between = new.file_name().unwrap_or_default().to_owned();
    between.push(LINK);
    let between = name.with_file_name(between);
    fs::hard_link(new, &between).map_err(Error::io("link", &between))?;
    fs::rename(&between, name).map_err(Error::io("replace", name))
}
