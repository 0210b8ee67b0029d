//! How much a copy or a conversion takes, and how much is there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;
use tidelock_format::UNIT;

use crate::console;
use crate::error::{Error, Result};
use crate::walk;

/// A sealed file takes at most so much more than a plain one: the written part of its header.
const HEADER: u64 = 4096;
/// WAL that comes while the copy is made.
const MEANWHILE: u64 = 64 << 20;

/// What lies below a directory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

impl Size {
    /// Everything below `dir`, links not followed.
    pub(crate) fn of(dir: &Path) -> Self {
        let mut size = Self::default();
        let mut ahead = vec![dir.to_path_buf()];
        while let Some(dir) = ahead.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let Ok(found) = entry.metadata() else { continue };
                if found.is_dir() {
                    ahead.push(entry.path());
                } else if found.is_file() {
                    // Where the file system compresses, a sealed copy takes more blocks.
                    let allocated = found.blocks() * 512;
                    size.bytes += match allocated < found.len() {
                        true => without_holes(&entry.path(), found.len()),
                        false => allocated,
                    };
                    size.files += 1;
                }
            }
        }
        size
    }

    /// What its files have more when they are sealed.
    pub(crate) fn growth(self) -> u64 {
        self.files * HEADER
    }

    /// What a copy of it may take.
    pub(crate) fn copied(self) -> u64 {
        self.bytes + self.growth()
    }
}

/// How many bytes of a file are in no hole, by whole units; all, if the file system does not say.
pub(crate) fn without_holes(path: &Path, size: u64) -> u64 {
    let count = || -> io::Result<u64> {
        let file = walk::open_file(path, OFlags::NOFOLLOW)?;
        let (mut bytes, mut at) = (0, 0);
        while at < size {
            let found = match seek(&file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                found => found?,
            };
            at = seek(&file, SeekFrom::Hole(found))?.next_multiple_of(UNIT);
            bytes += at - found / UNIT * UNIT;
        }
        Ok(bytes)
    };
    count().map_or(size, |bytes| size.min(bytes + UNIT))
}

/// What goes where.
#[derive(Default)]
pub(crate) struct Needs(Vec<(PathBuf, u64)>);

impl Needs {
    /// So many bytes below this path, which need not exist.
    pub(crate) fn add(&mut self, to: &Path, bytes: u64) {
        self.0.push((to.into(), bytes));
    }

    /// All of it.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Compares it with what is free, file system by file system.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is less; [`Error::Io`].
    pub(crate) fn check(&self) -> Result<()> {
        let mut systems = BTreeMap::<u64, (PathBuf, u64, u64)>::new();
        for (to, bytes) in &self.0 {
            let there = to.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
            let failed = |errno: rustix::io::Errno| Error::io("look at", there)(errno.into());
            let found = rustix::fs::statvfs(there).map_err(failed)?;
            let device = fs::metadata(there).map_err(Error::io("look at", there))?.dev();
            let free = found.f_bavail * found.f_frsize;
            let entry = systems.entry(device).or_insert((there.into(), free, MEANWHILE));
            entry.2 += bytes;
        }
        for (path, free, needed) in systems.values() {
            if needed > free {
                return Err(Error::refused(
                    format!(
                        "about {} are needed below {}, and {} are free",
                        console::bytes(*needed),
                        path.display(),
                        console::bytes(*free)
                    ),
                    "name a directory on a larger disk, or make room",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_places_on_one_disk_count_together() {
        let home = tempfile::tempdir().unwrap();
        let free = rustix::fs::statvfs(home.path()).unwrap();
        let free = free.f_bavail * free.f_frsize;
        let mut needs = Needs::default();
        needs.add(&home.path().join("a/b"), free / 2);
        needs.check().unwrap();
        needs.add(&home.path().join("c"), free / 2);
        assert!(matches!(needs.check(), Err(Error::Refused { .. })));
    }

    #[test]
    fn files_are_counted_and_links_are_not() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("sub")).unwrap();
        fs::write(home.path().join("sub/file"), vec![1; 10_000]).unwrap();
        std::os::unix::fs::symlink("/", home.path().join("link")).unwrap();
        let size = Size::of(home.path());
        assert_eq!(size.files, 1);
        assert!(size.bytes >= 10_000 && size.copied() >= 14_096);
    }
}
