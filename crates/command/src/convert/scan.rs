//! The files of a directory that a conversion has to look at, each once, however many names it has.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidelock_cipher::is_zero;
use tidelock_contract::{Decision, Policy};
use tidelock_format::{Class, PROBE_LEN};

use crate::console;
use crate::error::{Error, Result};
use crate::walk::{self, Found};

/// What a file is called until it takes the place of the one that it was made from; then the number
/// of that one's inode.
pub(super) const NEXT: &str = ".tidelock-convert-";
/// A second name of such a file, while it takes the place of a file with several names.
pub(super) const LINK: &str = "-link";

/// A file, by all its names.
pub(super) struct Item {
    /// At least one; none is a link.
    pub(super) names: Vec<PathBuf>,
    /// What the policy wants of it.
    pub(super) class: Class,
    /// Bytes on the disk, when it was found.
    pub(super) size: u64,
    /// Its inode.
    pub(super) inode: (u64, u64),
}

impl Item {
    /// Such a file may have either form: see [`Conversion`](tidelock_keyring::Conversion).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begins_with_zeros(&self) -> Result<bool> {
        let Some(path) = self.names.first() else { return Ok(false) };
        let mut first = [0u8; PROBE_LEN];
        let count = File::open(path).and_then(|file| walk::read_first(&file, &mut first));
        let count = count.map_err(Error::io("read", path))?;
        Ok(is_zero(first.get(..count).unwrap_or_default()))
    }
}

/// What was found.
pub(super) struct Scan {
    /// Files of which the policy says that they are sealed, the largest first.
    pub(super) items: Vec<Item>,
    /// How many are plain by the policy.
    pub(super) plain: usize,
    /// How many are to be sealed and have no bytes: they stay as they are.
    pub(super) empty: usize,
    /// What an interrupted conversion has left.
    pub(super) leftovers: Vec<PathBuf>,
}

/// Looks through `dir`. Names of one file that lie elsewhere are refused, unless `leave_links`.
///
/// # Errors
/// What cannot be listed; links that lead nowhere, or to single files outside; one file under two
/// classes.
pub(super) fn scan(dir: &Path, policy: &Policy, leave_links: bool) -> Result<Scan> {
    let mut failure = None;
    let found = walk::files(dir, &mut |path, why| {
        failure.get_or_insert_with(|| unseen(path, why));
    });
    if let Some(why) = failure {
        return Err(why);
    }
    let mut scan = Scan { items: Vec::new(), plain: 0, empty: 0, leftovers: Vec::new() };
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    for found in found {
        let name = found.path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(NEXT.as_bytes()) {
            scan.leftovers.push(found.path);
            continue;
        }
        let class = match policy.decide(found.name_bytes()) {
            Decision::Plain(_) => {
                scan.plain += 1;
                continue;
            }
            Decision::Seal(_) if found.metadata.len() == 0 => {
                scan.empty += 1;
                continue;
            }
            Decision::Seal(class) => class,
        };
        refuse_link(&found)?;
        let inode = (found.metadata.dev(), found.metadata.ino());
        match places.get(&inode).and_then(|place| scan.items.get_mut(*place)) {
            Some(item) if item.class.zero_rule() == class.zero_rule() => {
                item.names.push(found.path);
            }
            Some(item) => return Err(two_classes(item, &found)),
            None => {
                let several = found.metadata.nlink() > 1;
                if several {
                    places.insert(inode, scan.items.len());
                }
                let size = found.metadata.len();
                scan.items.push(Item { names: vec![found.path], class, size, inode });
            }
        }
    }
    if !leave_links {
        scan.refuse_names_elsewhere()?;
    }
    scan.items.sort_by_key(|item| std::cmp::Reverse(item.size));
    Ok(scan)
}

impl Scan {
    /// Bytes on the disk of all that is to be looked at.
    pub(super) fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.size).sum()
    }

    /// Takes out the file with this name below `dir`.
    pub(super) fn take(&mut self, path: &Path) -> Option<Item> {
        let place = self.items.iter().position(|item| item.names.iter().any(|name| name == path));
        place.map(|place| self.items.remove(place))
    }

    fn refuse_names_elsewhere(&self) -> Result<()> {
        for item in &self.items {
            let Some(name) = item.names.first() else { continue };
            let links = match fs::symlink_metadata(name) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(Error::io("look at", name))?.nlink(),
            };
            let here = item.names.len() as u64;
            // What replaces a file of several names is linked to them one after another.
            if links > here {
                return Err(Error::refused(
                    format!(
                        "{} has {} outside of the directory (hard links), where the bytes stay \
                         as they are",
                        name.display(),
                        console::count(usize::try_from(links - here).unwrap_or(0), "other name")
                    ),
                    "remove them, as the old cluster of pg_upgrade --link; or give --leave-links",
                ));
            }
        }
        Ok(())
    }
}

/// Files that stayed as they are would be lost with the old key, or read as what they are not.
pub(super) fn unseen(path: &Path, why: io::Error) -> Error {
    if why.kind() != io::ErrorKind::NotFound {
        return Error::io("read", path)(why);
    }
    Error::refused(
        format!("{} cannot be converted: {why}", path.display()),
        "mount the disk; or remove the link, if nothing is behind it any more",
    )
}

/// A link to a single file: who else uses that file is unknown.
fn refuse_link(found: &Found) -> Result<()> {
    let itself = match fs::symlink_metadata(&found.path) {
        // A server that runs has removed it meanwhile.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        itself => itself.map_err(Error::io("look at", &found.path))?,
    };
    if !itself.is_symlink() {
        return Ok(());
    }
    Err(Error::refused(
        format!("{} is a link to a single file, which would be converted", found.path.display()),
        "put the file itself there; or name it with --plain, if programs without keys read it",
    ))
}

fn two_classes(item: &Item, found: &Found) -> Error {
    let first = item.names.first().map(|name| name.display().to_string()).unwrap_or_default();
    Error::refused(
        format!(
            "{first} and {} are one file (hard links), and the profile wants two forms of it",
            found.path.display()
        ),
        "make them two files: cp one of them, and rename the copy over it",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tidelock_keyring::Profile;

    use super::*;

    fn scanned(dir: &Path) -> Result<Scan> {
        let policy = Profile::builtin("postgres").unwrap().compile(&[], &[]).unwrap();
        scan(dir, &policy, false)
    }

    #[test]
    fn a_tablespace_that_is_not_there_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let space = home.path().join("pg_tblspc");
        fs::create_dir(&space).unwrap();
        fs::write(home.path().join("PG_VERSION"), "15\n").unwrap();
        assert!(scanned(home.path()).is_ok());
        symlink("/nowhere/at/all", space.join("16400")).unwrap();
        assert!(matches!(scanned(home.path()), Err(Error::Refused { .. })));
    }

    #[test]
    fn links_inside_do_not_change_the_class_of_what_they_lead_to() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        for (folder, link) in [("pg_wal", "pg_xlog"), ("pg_xact", "pg_clog"), ("global", "0")] {
            fs::create_dir(dir.join(folder)).unwrap();
            fs::write(dir.join(folder).join("0001"), "text").unwrap();
            symlink(folder, dir.join(link)).unwrap();
        }
        let mut found = scanned(dir).unwrap();
        for (name, class) in [
            ("pg_wal/0001", Class::Log),
            ("pg_xact/0001", Class::Paged),
            ("global/0001", Class::Paged),
        ] {
            let item = found.take(&dir.join(name)).unwrap();
            assert_eq!(item.class, class, "{name}");
        }
        assert!(found.items.is_empty());
    }
}
