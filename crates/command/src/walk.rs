//! All files of a protected directory, under the names by which the policy knows them.
//!
//! Links are followed: tablespaces, a pg_wal on another disk, a configuration file elsewhere. What
//! lies behind a link that leads out has the link's name. A link to what lies in the directory
//! anyway says nothing: the library knows that by its own name. Each directory is visited once.
//! What a link leads to in another protected directory stays that one's, as the library has it.
//!
//! A link that leads nowhere, a tablespace without any server's folder, and an empty folder that
//! the server cannot write are no small matter: the disk is not mounted, and sealed files are on
//! it.
//!
//! `lost+found` is the file system's: at the top of a mount it is left out, if root owns it and
//! the server, as another user, cannot have written there. [`list`] names one that may hold files.
//!
//! Clusters of several versions of PostgreSQL may share a tablespace, each with a folder of its
//! own there. Those of other versions than `PG_VERSION` says are not this directory's.

mod read;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use tidelock_contract::control::FOLDER;
use tidelock_contract::postgres::TABLESPACES;

use crate::owner::Owner;
use crate::protected::is_protected;
pub(crate) use read::{header, is_all_zeros, open_file, probe, read_at, read_first, read_small};

/// A regular file.
pub(crate) struct Found {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The name that the policy decides by: relative to the protected directory.
    pub(crate) name: PathBuf,
    /// Size and kind, when it was found.
    pub(crate) metadata: Metadata,
    /// The name itself is a link.
    pub(crate) link: bool,
}

impl Found {
    /// The name as the policy takes it.
    pub(crate) fn name_bytes(&self) -> &[u8] {
        self.name.as_os_str().as_bytes()
    }
}

/// What a look through a directory has found.
pub(crate) struct Listing {
    /// As [`files`] has them.
    pub(crate) files: Vec<Found>,
    /// Each `lost+found` that was left out, and is not known to be empty.
    pub(crate) lost: Vec<PathBuf>,
    /// Links to folders outside, with where they lead.
    pub(crate) linked: Vec<(PathBuf, PathBuf)>,
    /// Links into other protected directories, with those: what they lead to was left out.
    pub(crate) anothers: Vec<(PathBuf, PathBuf)>,
    /// Links to what is not their owner's, with where they lead: left out.
    pub(crate) foreign: Vec<(PathBuf, PathBuf)>,
}

/// Which links that lead out are followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// All.
    All,
    /// Not those into other protected directories.
    Own,
    /// Nor, by root, another user's to what is not that user's: it would have root read what it
    /// cannot read itself.
    Trusted,
}

/// The regular files of `dir`, sorted by name, without `.tidelock`, [`other_versions`] and those of
/// other protected directories. What cannot be listed goes to `failed`, and so does, as
/// [`io::ErrorKind::NotFound`], a link that leads nowhere; what vanished meanwhile is left out.
pub(crate) fn files(dir: &Path, failed: &mut dyn FnMut(&Path, io::Error)) -> Vec<Found> {
    look(dir, Follow::Own, failed).files
}

/// As [`files`], with the places that were left out; for root without what a link of another user
/// leads to that is not this user's.
pub(crate) fn own(dir: &Path, failed: &mut dyn FnMut(&Path, io::Error)) -> Listing {
    look(dir, Follow::Trusted, failed)
}

/// As [`files`], with the files of other protected directories that links lead to.
pub(crate) fn list(dir: &Path, failed: &mut dyn FnMut(&Path, io::Error)) -> Listing {
    look(dir, Follow::All, failed)
}

fn look(dir: &Path, follow: Follow, failed: &mut dyn FnMut(&Path, io::Error)) -> Listing {
    let others = other_versions(dir);
    let others = others.iter().filter_map(|folder| fs::metadata(folder).ok());
    let mut walk = Walk {
        found: Vec::new(),
        lost: Vec::new(),
        linked: Vec::new(),
        anothers: Vec::new(),
        foreign: Vec::new(),
        follow,
        seen: others.map(|folder| (folder.dev(), folder.ino())).collect(),
        links: BTreeMap::new(),
        visited: fs::canonicalize(dir).into_iter().collect(),
        empty: Vec::new(),
        failed,
    };
    walk.directory(dir, Path::new(""));
    walk.follow();
    walk.unmounted(dir);
    walk.found.sort_by(|a, b| a.name.cmp(&b.name));
    let Walk { found: files, lost, linked, anothers, foreign, .. } = walk;
    Listing { files, lost, linked, anothers, foreign }
}

/// The folders in tablespaces of `dir` that clusters of other versions have.
pub(crate) fn other_versions(dir: &Path) -> Vec<PathBuf> {
    let Ok(version) = read_small(&dir.join("PG_VERSION")) else { return Vec::new() };
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

struct Walk<'f> {
    found: Vec<Found>,
    lost: Vec<PathBuf>,
    linked: Vec<(PathBuf, PathBuf)>,
    anothers: Vec<(PathBuf, PathBuf)>,
    foreign: Vec<(PathBuf, PathBuf)>,
    follow: Follow,
    seen: HashSet<(u64, u64)>,
    /// Met and not yet followed, by depth and name: as the library meets them.
    links: BTreeMap<(usize, PathBuf), PathBuf>,
    /// The directory and those behind links, canonical.
    visited: Vec<PathBuf>,
    /// Folders without any entry.
    empty: Vec<PathBuf>,
    failed: &'f mut dyn FnMut(&Path, io::Error),
}

impl Walk<'_> {
    fn directory(&mut self, path: &Path, name: &Path) {
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
        let mut is_empty = true;
        for entry in entries {
            is_empty = false;
            match entry {
                Ok(entry) if name.as_os_str().is_empty() && entry.file_name() == FOLDER => {}
                Ok(entry) => self.entry(entry.path(), name.join(entry.file_name())),
                Err(why) => self.fail(path, why),
            }
        }
        if is_empty {
            self.empty.push(path.to_path_buf());
        }
    }

    fn entry(&mut self, path: PathBuf, name: PathBuf) {
        match fs::symlink_metadata(&path) {
            // Later: what it leads to may have a name of its own.
            Ok(metadata) if metadata.is_symlink() => {
                self.links.insert((name.components().count(), name), path);
            }
            Ok(metadata) if is_lost_and_found(&path, &metadata) => {
                if may_hold(&path) {
                    self.lost.push(path);
                }
            }
            Ok(metadata) if metadata.is_dir() => self.directory(&path, &name),
            Ok(metadata) if metadata.is_file() => {
                self.found.push(Found { path, name, metadata, link: false });
            }
            Ok(metadata) if metadata.file_type().is_block_device() => self.fail(&path, on_disk()),
            Ok(_) => {}
            Err(why) => self.fail(&path, why),
        }
    }

    /// Follows those that lead out.
    fn follow(&mut self) {
        while let Some(((_, name), path)) = self.links.pop_first() {
            match fs::canonicalize(&path) {
                Ok(target) if self.visited.iter().any(|dir| target.starts_with(dir)) => {}
                Ok(target) => match self.another(&target) {
                    Some(other) => self.anothers.push((path, other)),
                    None => self.behind(path, name, target),
                },
                Err(why) => self.fail(&path, why),
            }
        }
    }

    /// The other protected directory that this place is in, if that is left out.
    fn another(&self, target: &Path) -> Option<PathBuf> {
        let all = self.follow == Follow::All;
        let other = target.ancestors().find(|above| is_protected(above)).filter(|_| !all)?;
        (self.visited.first().map(PathBuf::as_path) != Some(other)).then(|| other.to_path_buf())
    }

    fn behind(&mut self, path: PathBuf, name: PathBuf, target: PathBuf) {
        match fs::metadata(&path) {
            Ok(metadata) if self.is_foreign(&path, &metadata) => self.foreign.push((path, target)),
            Ok(metadata) if metadata.is_dir() => {
                self.directory(&path, &name);
                self.linked.push((path, target.clone()));
                self.visited.push(target);
            }
            Ok(metadata) if metadata.is_file() => {
                self.found.push(Found { path, name, metadata, link: true });
            }
            Ok(metadata) if metadata.file_type().is_block_device() => self.fail(&path, on_disk()),
            Ok(_) => {}
            Err(why) => self.fail(&path, why),
        }
    }

    /// True if root is led to what is not the link's owner's.
    fn is_foreign(&self, link: &Path, target: &Metadata) -> bool {
        self.follow == Follow::Trusted
            && Owner::caller().uid == 0
            && fs::symlink_metadata(link)
                .is_ok_and(|link| link.uid() != 0 && link.uid() != target.uid())
    }

    /// Names the places that are empty, as no server leaves them.
    fn unmounted(&mut self, dir: &Path) {
        match fs::symlink_metadata(dir.join("PG_VERSION")) {
            Ok(_) => self.unmounted_of_postgres(dir),
            Err(_) => self.unmounted_of_others(dir),
        }
    }

    /// CREATE TABLESPACE makes a `PG_` folder before the link, and initdb makes
    /// pg_wal/archive_status. A base backup that no server has begun to recover may lack that.
    fn unmounted_of_postgres(&mut self, dir: &Path) {
        let is_oid = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            name.iter().all(u8::is_ascii_digit)
        };
        let spaces = entries(&dir.join(TABLESPACES)).into_iter().filter(is_oid);
        let mut places: Vec<_> = spaces.map(|space| (space, "PG_")).collect();
        places.sort();
        let wal = dir.join("pg_wal");
        if wal.is_symlink() || fs::symlink_metadata(dir.join("backup_label")).is_err() {
            places.push((wal, ""));
        }
        for (place, prefix) in places {
            // What is dropped just now is gone after its folder.
            if lacks(&place, prefix) && fs::symlink_metadata(&place).is_ok() {
                self.is_unmounted(&place);
            } else if let Ok(target) = fs::read_link(&place)
                && self.is_within(&place, &target)
                && is_gone(&place)
            {
                // The disk may be one that is mounted in the directory itself.
                (self.failed)(&place, leads_nowhere(&target));
            }
        }
    }

    /// Of another engine it is not known what its folders hold. But in the directory of an ordinary
    /// user it has made none that only root can write: that is a place to mount a disk.
    fn unmounted_of_others(&mut self, dir: &Path) {
        let Ok(owner) = fs::metadata(dir) else { return };
        for place in std::mem::take(&mut self.empty) {
            let is_roots = |found: Metadata| found.uid() == 0 && found.mode() & 0o022 == 0;
            let is_place = place.file_name() != Some(OsStr::new("lost+found"))
                && fs::metadata(&place).is_ok_and(is_roots);
            if owner.uid() != 0 && is_place {
                self.is_unmounted(&place);
            }
        }
    }

    fn is_unmounted(&mut self, place: &Path) {
        let real = fs::canonicalize(place).unwrap_or_else(|_| place.to_path_buf());
        let why = format!("no server has its files in {}: is a disk not mounted?", real.display());
        (self.failed)(place, io::Error::new(io::ErrorKind::NotFound, why));
    }

    /// True if a link leads into the directory.
    fn is_within(&self, link: &Path, target: &Path) -> bool {
        let folder = link.parent().and_then(|folder| fs::canonicalize(folder).ok());
        let target = folder.map(|folder| plain(&folder.join(target)));
        target.is_some_and(|target| self.visited.first().is_some_and(|dir| target.starts_with(dir)))
    }

    /// What is not there vanished, but for a link that still is and leads out: what an editor's
    /// lock or a broken link leads to in the directory itself is on no other disk.
    fn fail(&mut self, path: &Path, why: io::Error) {
        if why.kind() != io::ErrorKind::NotFound {
            return (self.failed)(path, why);
        }
        if let Ok(target) = fs::read_link(path)
            && !self.is_within(path, &target)
        {
            (self.failed)(path, leads_nowhere(&target));
        }
    }
}

fn leads_nowhere(target: &Path) -> io::Error {
    let why =
        format!("it leads to {}, which is not there: is a disk not mounted?", target.display());
    io::Error::new(io::ErrorKind::NotFound, why)
}

/// True for a link to what is not there.
fn is_gone(link: &Path) -> bool {
    fs::metadata(link).is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
}

/// True for the folder that mkfs and fsck make at the top of a file system: root's alone, where the
/// file system is mounted on a folder of somebody else.
fn is_lost_and_found(path: &Path, found: &Metadata) -> bool {
    let is_roots = found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    if !is_roots || path.file_name() != Some(OsStr::new("lost+found")) {
        return false;
    }
    let above = path.parent().unwrap_or(path);
    let (here, beyond) = (fs::metadata(above), fs::metadata(above.join("..")));
    here.is_ok_and(|here| here.uid() != 0 && beyond.is_ok_and(|beyond| beyond.dev() != here.dev()))
}

/// False if a directory is known to be empty, or gone.
fn may_hold(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(why) => why.kind() != io::ErrorKind::NotFound,
    }
}

/// A path without `.` and `..`, by its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// True if the directory can be listed and has no name that begins so.
fn lacks(dir: &Path, prefix: &str) -> bool {
    let Ok(mut entries) = fs::read_dir(dir) else { return false };
    let begins = |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(prefix.as_bytes());
    !entries.any(|entry| entry.is_ok_and(|entry| begins(&entry)))
}

/// A tablespace of InnoDB may be one (`raw`).
fn on_disk() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a block device, which is never sealed")
}

#[cfg(test)]
mod tests;
