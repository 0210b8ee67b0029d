//! The files of a directory that a conversion has to look at, each once, however many names it has.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tidelock_contract::control::FOLDER;
use tidelock_contract::{Decision, MEMORY_FOLDERS, Policy};
use tidelock_format::{Class, PROBE_LEN, Probe, looks_sealed};
use tidelock_keyring::{Direction, Keyring};

use super::file::broken;
use super::filesystem::is_written;
use crate::console;
use crate::error::{Error, Result};
use crate::sealed::{Fault, Keys, Wanted};
use crate::space::without_holes;
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
    /// Its length on the disk, when it was found.
    pub(super) size: u64,
    /// Those of its bytes that are in no hole, or a few more.
    pub(super) data: u64,
    /// Bytes that it takes on the disk: fewer where the file system compresses.
    pub(super) allocated: u64,
    /// How many names it has, everywhere.
    pub(super) links: u64,
    /// Its inode.
    pub(super) inode: (u64, u64),
    /// It has the other form already, so far as [`Scan::mark_done`] has seen.
    pub(super) done: bool,
}

impl Item {
    /// How much the new file takes more than is given back with the old one: all of it where that
    /// has names elsewhere, and what compression had saved.
    pub(super) fn stays(&self) -> u64 {
        match self.links > self.names.len() as u64 {
            true => self.data,
            false => self.data.saturating_sub(self.allocated),
        }
    }

    /// Such a file may have either form: see [`Conversion`](tidelock_keyring::Conversion).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begins_with_zeros(&self) -> Result<bool> {
        let Some(path) = self.names.first() else { return Ok(false) };
        first(path).map(|first| Probe::is_blank(&first)).map_err(Error::io("read", path))
    }
}

/// Where a header would be: the first bytes of a file, which is no link.
///
/// # Errors
/// As [`walk::open_file`].
pub(super) fn first(path: &Path) -> io::Result<Vec<u8>> {
    first_of(&walk::open_file(path, OFlags::NOFOLLOW)?)
}

fn first_of(file: &File) -> io::Result<Vec<u8>> {
    let mut first = vec![0u8; PROBE_LEN];
    let count = walk::read_first(file, &mut first)?;
    first.truncate(count);
    Ok(first)
}

/// What was found.
#[derive(Default)]
pub(super) struct Scan {
    /// Files of which the policy says that they are sealed, the largest first.
    pub(super) items: Vec<Item>,
    /// Those that are plain by the policy.
    pub(super) plain: Vec<PathBuf>,
    /// How many are to be sealed and have no bytes: they stay as they are.
    pub(super) empty: usize,
    /// What an interrupted conversion has left.
    pub(super) leftovers: Vec<PathBuf>,
    /// The inodes that have one of the names to be sealed, and others, also of files without bytes.
    pub(super) several: HashSet<(u64, u64)>,
    /// The folders of all that is to be sealed.
    pub(super) folders: BTreeSet<PathBuf>,
    /// Links to folders outside, with where they lead.
    pub(super) linked: Vec<(PathBuf, PathBuf)>,
}

/// Looks through `dir`. Names of one file that lie elsewhere are refused, unless `leave_links`.
///
/// # Errors
/// What cannot be listed; links that lead nowhere, or to single files outside; one file under two
/// classes.
pub(super) fn scan(dir: &Path, policy: &Policy, leave_links: bool) -> Result<Scan> {
    let mut failure = None;
    let walk::Listing { files, linked, .. } = walk::list(dir, &mut |path, why| {
        failure.get_or_insert_with(|| unseen(path, why));
    });
    if let Some(why) = failure {
        return Err(why);
    }
    let mut scan = Scan { linked, ..Scan::default() };
    let mut places: HashMap<(u64, u64), usize> = HashMap::new();
    for found in files {
        let name = found.path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(NEXT.as_bytes()) {
            scan.leftovers.push(found.path);
            continue;
        }
        let Decision::Seal(class) = policy.decide(found.name_bytes()) else {
            scan.plain.push(found.path);
            continue;
        };
        let inode = (found.metadata.dev(), found.metadata.ino());
        let several = found.metadata.nlink() > 1;
        if several {
            scan.several.insert(inode);
        }
        scan.folders.extend(found.path.parent().map(Path::to_path_buf));
        if found.metadata.len() == 0 {
            scan.empty += 1;
            continue;
        }
        refuse_link(&found)?;
        match places.get(&inode).and_then(|place| scan.items.get_mut(*place)) {
            Some(item) if item.class.zero_rule() == class.zero_rule() => {
                item.names.push(found.path);
            }
            Some(item) => return Err(two_classes(item, &found)),
            None => {
                if several {
                    places.insert(inode, scan.items.len());
                }
                let (size, allocated) = (found.metadata.len(), found.metadata.blocks() * 512);
                // A file system that compresses has fewer blocks too, and no holes.
                let data = if allocated < size { without_holes(&found.path, size) } else { size };
                let names = vec![found.path];
                let links = found.metadata.nlink();
                let item = Item { names, class, size, data, allocated, links, inode, done: false };
                scan.items.push(item);
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

    /// What all of it takes more on the disk when it is done, beside the headers.
    pub(super) fn stays(&self) -> u64 {
        self.items.iter().map(Item::stays).sum()
    }

    /// Takes out the file with this name below `dir`.
    pub(super) fn take(&mut self, path: &Path) -> Option<Item> {
        let place = self.items.iter().position(|item| item.names.iter().any(|name| name == path));
        place.map(|place| self.items.remove(place))
    }

    /// Marks the files that a conversion in this direction will find done, when it goes on.
    pub(super) fn mark_done(&mut self, direction: Direction, keyring: &Keyring) {
        let current = (keyring.id(), keyring.current().id);
        for item in &mut self.items {
            let Some(Ok(first)) = item.names.first().map(|path| first(path)) else { continue };
            item.done = match direction {
                Direction::Encrypt => looks_sealed(&first),
                Direction::Decrypt => !looks_sealed(&first) && !Probe::is_blank(&first),
                Direction::Rekey => Probe::parse(&first)
                    .ranked()
                    .next()
                    .is_some_and(|it| (it.outline.keyring, it.outline.data_key) == current),
            };
        }
    }

    /// Refuses what is sealed with keys of this keyring where the policy wants it plain: it would
    /// stay as it is, and lose its key with the old ones. What may not be read is left out.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Io`].
    pub(super) fn refuse_sealed_at_plain(&self, keyring: &Keyring) -> Result<()> {
        match sealed_among(self.plain.iter(), keyring)? {
            None => Ok(()),
            Some(path) => Err(Error::refused(
                format!(
                    "{} is sealed with a key of this keyring, and plain by the profile: it would \
                     stay sealed",
                    path.display()
                ),
                "`mv` it to a name that is sealed; or out of the directory, and keep the keyring",
            )),
        }
    }

    /// Refuses a sealed file that no key of this keyring opens where it lies, before any is
    /// converted. A server may be making it just now, so it is looked at twice. What may not be
    /// read is left out, and so is what a conversion that has begun takes for plain. A plain file
    /// is refused where there should be none: `to` other keys.
    ///
    /// # Errors
    /// Why it does not open; the keyring has more data keys than can be held.
    pub(super) fn refuse_unopened(&self, keyring: &Keyring, to: Direction) -> Result<()> {
        let keys = Keys::install(keyring)?;
        let zeros_are_plain = keyring.conversion().is_some_and(|it| it.zeros_are_plain);
        for item in &self.items {
            let Some(path) = item.names.first() else { continue };
            let open = || {
                let file = walk::open_file(path, OFlags::NOFOLLOW).map_err(Fault::from)?;
                keys.open(file, Wanted::File(item.class))
            };
            match open().or_else(|_| open()) {
                Ok(_) | Err(Fault::Read(_)) => {}
                Err(Fault::NotSealed) if to != Direction::Rekey => {}
                // A few plain bytes that begin as a header does.
                Err(Fault::Header(_)) if first(path).is_ok_and(|it| !looks_sealed(&it)) => {}
                Err(Fault::LostHeader { .. }) if zeros_are_plain => {}
                Err(why) => return Err(broken(path, why)),
            }
        }
        Ok(())
    }

    /// Refuses to seal another protected directory within this one, with its keyring.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_protected_below(&self, dir: &Path) -> Result<()> {
        let mut names = self.items.iter().flat_map(|item| &item.names).chain(&self.plain);
        let is_within = |name: &&PathBuf| {
            let below = name.strip_prefix(dir).ok();
            below.is_some_and(|below| below.components().any(|it| it.as_os_str() == FOLDER))
        };
        match names.find(is_within) {
            None => Ok(()),
            Some(name) => Err(Error::refused(
                format!("{} is of another protected directory", name.display()),
                "a file has the keys of one directory: move that one out, or make it plain first \
                 (`tidelock decrypt`)",
            )),
        }
    }

    /// Refuses to seal what lies behind a link to a place of all programs: other servers keep the
    /// memory that they share in /dev/shm.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_everybodys(&self, dir: &Path) -> Result<()> {
        let mut linked = self.linked.iter();
        match linked.find(|(link, target)| is_everybodys(target, dir) && self.has_files(link)) {
            None => Ok(()),
            Some((link, target)) => Err(Error::refused(
                format!(
                    "{} leads to {}, where any program may have files: they would be sealed",
                    link.display(),
                    target.display()
                ),
                "let it lead to a folder of its own, which others may not write to (`chmod o-w`), or \
                 name it plain with --plain",
            )),
        }
    }

    /// Refuses a file to which somebody else can write, whoever that is, but for `ours`, which this
    /// process has open and locked.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Io`].
    pub(super) fn refuse_written(&self, ours: &[File]) -> Result<()> {
        let inode = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
        let ours: HashSet<(u64, u64)> = ours.iter().filter_map(inode).collect();
        for item in self.items.iter().filter(|item| !ours.contains(&item.inode)) {
            let Some(path) = item.names.first() else { continue };
            let file = match File::open(path) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(Error::io("open", path))?,
            };
            if is_written(&file) {
                return Err(Error::refused(
                    format!("somebody has {} open, or mapped, and can write to it", path.display()),
                    "end that program first: what it writes would be lost; `fuser -v FILE`, as \
                     root, shows which it is, and `losetup -j FILE` shows loop devices",
                ));
            }
        }
        Ok(())
    }

    /// Refuses if any file is plain, after all were sealed: somebody else has put it there
    /// meanwhile. One that is gone again does not count.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Io`].
    pub(super) fn refuse_any_plain(&self) -> Result<()> {
        for path in self.items.iter().filter_map(|item| item.names.first()) {
            match first(path) {
                Ok(first) if looks_sealed(&first) => {}
                Err(why) if why.kind() == io::ErrorKind::NotFound => {}
                Err(why) => return Err(Error::io("read", path)(why)),
                Ok(_) => {
                    return Err(Error::refused(
                        format!(
                            "{} is plain: it was written while others were sealed",
                            path.display()
                        ),
                        "end the program that writes there, and go on with --resume",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Refuses if any file is still sealed with keys of this keyring, after all were made plain.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Io`].
    pub(super) fn refuse_any_sealed(&self, keyring: &Keyring) -> Result<()> {
        let names = self.items.iter().filter_map(|item| item.names.first());
        match sealed_among(names.chain(&self.plain), keyring)? {
            None => Ok(()),
            Some(path) => Err(Error::refused(
                format!("{} is still sealed, so the keyring is not removed", path.display()),
                "move the file out of the directory, then run this again with --resume",
            )),
        }
    }

    /// Names of leftovers are in the directory too.
    fn refuse_names_elsewhere(&self) -> Result<()> {
        let mut left: HashMap<(u64, u64), u64> = HashMap::new();
        for found in self.leftovers.iter().filter_map(|path| fs::symlink_metadata(path).ok()) {
            *left.entry((found.dev(), found.ino())).or_default() += 1;
        }
        for item in &self.items {
            let Some(name) = item.names.first() else { continue };
            let links = match fs::symlink_metadata(name) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(Error::io("look at", name))?.nlink(),
            };
            let here = item.names.len() as u64 + left.get(&item.inode).copied().unwrap_or(0);
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

/// The first of these files that is sealed with a key of this keyring, so far as they may be read.
/// One that is plain by the profile may be a link.
fn sealed_among<'p>(
    mut paths: impl Iterator<Item = &'p PathBuf>,
    keyring: &Keyring,
) -> Result<Option<&'p Path>> {
    let begins = |path: &Path| first_of(&walk::open_file(path, OFlags::empty())?);
    let found = paths.find_map(|path| match begins(path) {
        Ok(first) => {
            let is_ours = Probe::parse(&first).copies().any(|copy| {
                copy.outline.keyring == keyring.id()
                    || keyring.data_key(copy.outline.data_key).is_some()
            });
            is_ours.then_some(Ok(path.as_path()))
        }
        Err(why) => match why.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => None,
            _ => Some(Err(Error::io("read", path)(why))),
        },
    });
    found.transpose()
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

/// A folder that everybody may write to, that holds the memory which programs share, or that holds
/// the directory itself.
fn is_everybodys(folder: &Path, dir: &Path) -> bool {
    let is_open = fs::metadata(folder).is_ok_and(|found| found.mode() & 0o002 != 0);
    let is_above = |path: &Path| path.starts_with(folder);
    is_open || is_above(dir) || MEMORY_FOLDERS.map(Path::new).into_iter().any(is_above)
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
    use std::os::unix::fs::{PermissionsExt, symlink};

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
    fn what_any_program_may_have_files_in_is_not_sealed_by_a_link() {
        let home = tempfile::tempdir().unwrap();
        let [dir, far] = ["dir", "far"].map(|name| home.path().join(name));
        for folder in [&dir, &far] {
            fs::create_dir(folder).unwrap();
        }
        let rights = |mode| fs::set_permissions(&far, fs::Permissions::from_mode(mode)).unwrap();
        symlink(&far, dir.join("pg_stat_tmp")).unwrap();
        rights(0o1777);
        // Nothing is there.
        scanned(&dir).unwrap().refuse_everybodys(&dir).unwrap();
        fs::write(far.join("other"), "text").unwrap();
        let why = scanned(&dir).unwrap().refuse_everybodys(&dir).unwrap_err().to_string();
        assert!(why.contains("pg_stat_tmp") && why.contains("far"), "{why}");
        rights(0o700);
        scanned(&dir).unwrap().refuse_everybodys(&dir).unwrap();
        for (folder, is_everybodys_) in
            [("/", true), ("/dev", true), ("/dev/shm", true), ("/dev/shm/own", false)]
        {
            assert_eq!(is_everybodys(Path::new(folder), Path::new("/a/b")), is_everybodys_);
        }
        assert!(is_everybodys(Path::new("/nowhere/a"), Path::new("/nowhere/a/b")));
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
