//! Which files have been examined, over several looks through a directory.
//!
//! A file is told by its inode, so that one that was renamed is not read twice; by the time of its
//! birth too, since an inode that is free is given away again; and by what the policy wants of it,
//! which a new name may change. Where a file system knows no births, the name decides.

use std::collections::{BTreeMap, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tidelock_format::Class;

use super::examine::Kind;
use crate::walk::Found;

/// A file, whatever its names are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Inode {
    device: u64,
    number: u64,
    born: Option<SystemTime>,
}

/// A file as it was examined: in this class, or as a plain one.
type Examined = (Inode, Option<Class>, Option<PathBuf>);

/// What was examined, and what was not there to be.
#[derive(Default)]
pub(super) struct Seen {
    examined: HashSet<Examined>,
    inodes: HashSet<Inode>,
    missing: BTreeMap<PathBuf, (Inode, Kind)>,
}

impl Seen {
    /// True if this file was examined in this class.
    pub(super) fn holds(&self, found: &Found, class: Option<Class>) -> bool {
        self.examined.contains(&examined(found, class))
    }

    /// Keeps what became of a file.
    pub(super) fn add(&mut self, found: &Found, class: Option<Class>, kind: Kind) {
        let inode = Inode::of(&found.metadata);
        if kind.is_missing() {
            self.missing.insert(found.path.clone(), (inode, kind));
            return;
        }
        self.examined.insert(examined(found, class));
        self.inodes.insert(inode);
        self.missing.remove(&found.path);
    }

    /// The names under which nothing was examined, whose files were not under any other.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&Path, Kind)> {
        let inodes = &self.inodes;
        let missing = self.missing.iter();
        let missing = missing.filter(move |(_, (inode, _))| !inodes.contains(inode));
        missing.map(|(path, (_, kind))| (path.as_path(), *kind))
    }
}

impl Inode {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), number: found.ino(), born: found.created().ok() }
    }
}

fn examined(found: &Found, class: Option<Class>) -> Examined {
    let inode = Inode::of(&found.metadata);
    let name = inode.born.is_none().then(|| found.path.clone());
    (inode, class, name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::walk::files;

    fn found(dir: &Path) -> Vec<Found> {
        files(dir, &mut |path, why| panic!("{}: {why}", path.display()))
    }

    const PAGED: Option<Class> = Some(Class::Paged);

    #[test]
    fn a_file_that_was_renamed_before_it_was_read_is_read_and_not_missing() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        for name in ["a", "b", "c"] {
            fs::write(dir.join(name), name).unwrap();
        }
        let mut seen = Seen::default();
        let first = found(dir);
        fs::rename(dir.join("b"), dir.join("d")).unwrap();
        fs::rename(dir.join("c"), home.path().join("z")).unwrap();
        for (found, kind) in first.iter().zip([Kind::Sealed, Kind::Gone, Kind::Gone]) {
            seen.add(found, PAGED, kind);
        }
        assert_eq!(seen.missing().count(), 2);
        let again = found(dir);
        let new: Vec<_> = again.iter().filter(|found| !seen.holds(found, PAGED)).collect();
        let names: Vec<_> = new.iter().map(|found| found.name.display().to_string()).collect();
        assert_eq!(names, ["d", "z"]);
        seen.add(new[0], PAGED, Kind::Sealed);
        let missing: Vec<_> = seen.missing().map(|(path, _)| path.to_path_buf()).collect();
        assert_eq!(missing, [dir.join("c")]);
        seen.add(new[1], PAGED, Kind::Gone);
        // Under another name it may have to be something else.
        assert!(seen.holds(new[0], PAGED) && !seen.holds(new[0], None));
    }

    #[test]
    fn a_file_that_took_the_place_of_another_is_new_and_the_name_is_not_missing() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("a"), "one").unwrap();
        let mut seen = Seen::default();
        seen.add(&found(&dir)[0], PAGED, Kind::Changed);
        fs::rename(dir.join("a"), home.path().join("kept")).unwrap();
        fs::write(dir.join("a"), "two").unwrap();
        let again = found(&dir);
        assert!(!seen.holds(&again[0], PAGED));
        assert_eq!(seen.missing().count(), 1);
        seen.add(&again[0], PAGED, Kind::Sealed);
        assert_eq!(seen.missing().count(), 0);
    }
}
