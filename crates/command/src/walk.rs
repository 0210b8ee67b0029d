//! All files of a protected directory, under the names by which the policy knows them.
//!
//! Links are followed: tablespaces, a pg_wal on another disk, a configuration file elsewhere. What
//! lies behind a link has the link's name. Each directory is visited once.
//!
//! Clusters of several versions of PostgreSQL may share a tablespace, each with a folder of its
//! own there. Those of other versions than `PG_VERSION` says are not this directory's.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use tidelock_contract::control::FOLDER;
use tidelock_contract::postgres::TABLESPACES;
use tidelock_format::{Header, PROBE_LEN, Probe};

/// A regular file.
pub(crate) struct Found {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The name that the policy decides by: relative to the protected directory.
    pub(crate) name: PathBuf,
    /// Size and kind, when it was found.
    pub(crate) metadata: Metadata,
}

impl Found {
    /// The name as the policy takes it.
    pub(crate) fn name_bytes(&self) -> &[u8] {
        self.name.as_os_str().as_bytes()
    }
}

/// The regular files of `dir`, `.tidelock` and [`other_versions`] left out, sorted by name. What
/// cannot be listed goes to `failed`; what vanished meanwhile is left out.
pub(crate) fn files(dir: &Path, failed: &mut dyn FnMut(&Path, io::Error)) -> Vec<Found> {
    let others = other_versions(dir);
    let mut walk = Walk { found: Vec::new(), seen: HashSet::new(), others, failed };
    walk.directory(dir, Path::new(""));
    walk.found.sort_by(|a, b| a.name.cmp(&b.name));
    walk.found
}

/// The folders in tablespaces of `dir` that clusters of other versions have.
pub(crate) fn other_versions(dir: &Path) -> Vec<PathBuf> {
    let Ok(version) = fs::read_to_string(dir.join("PG_VERSION")) else { return Vec::new() };
    let own = format!("PG_{}_", version.trim());
    let spaces = entries(&dir.join(TABLESPACES));
    let mut others: Vec<_> = spaces.iter().flat_map(|space| entries(space)).collect();
    others.retain(|folder| {
        let name = folder.file_name().unwrap_or_default().as_bytes();
        name.starts_with(b"PG_") && !name.starts_with(own.as_bytes())
    });
    others.sort();
    others
}

/// What lies in a directory; nothing if it cannot be listed.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The header of a file, if it has one; the fields only, not verified.
pub(crate) fn header(path: &Path) -> Option<Header> {
    let mut first = [0u8; PROBE_LEN];
    let count = read_first(&File::open(path).ok()?, &mut first).ok()?;
    Probe::parse(first.get(..count)?).likely().cloned()
}

/// Reads from the start of a file until `into` is full or the file ends.
///
/// # Errors
/// The system's.
pub(crate) fn read_first(file: &File, into: &mut [u8]) -> io::Result<usize> {
    read_at(file, into, 0)
}

/// Reads at an offset until `into` is full or the file ends.
///
/// # Errors
/// The system's.
pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(done)
}

struct Walk<'f> {
    found: Vec<Found>,
    seen: HashSet<(u64, u64)>,
    others: Vec<PathBuf>,
    failed: &'f mut dyn FnMut(&Path, io::Error),
}

impl Walk<'_> {
    fn directory(&mut self, path: &Path, name: &Path) {
        if self.others.iter().any(|other| other == path) {
            return;
        }
        let first_visit = match fs::metadata(path) {
            Ok(found) => self.seen.insert((found.dev(), found.ino())),
            Err(why) => return self.fail(path, why),
        };
        if !first_visit {
            return;
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(why) => return self.fail(path, why),
        };
        for entry in entries {
            match entry {
                Ok(entry) if name.as_os_str().is_empty() && entry.file_name() == FOLDER => {}
                Ok(entry) => self.entry(entry.path(), name.join(entry.file_name())),
                Err(why) => self.fail(path, why),
            }
        }
    }

    fn entry(&mut self, path: PathBuf, name: PathBuf) {
        // Follows links: what they lead to is part of the directory.
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => self.directory(&path, &name),
            Ok(metadata) if metadata.is_file() => self.found.push(Found { path, name, metadata }),
            Ok(_) => {}
            Err(why) => self.fail(&path, why),
        }
    }

    fn fail(&mut self, path: &Path, why: io::Error) {
        if why.kind() != io::ErrorKind::NotFound {
            (self.failed)(path, why);
        }
    }
}
