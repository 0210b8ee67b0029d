//! Opened folders, for what root does in directories of others: opened once, and all in them by
//! descriptor.
//!
//! Whoever owns a directory may put a link in place of anything in it, at any moment. So no path is
//! looked up twice: the way down is walked a name at a time, and a link on it counts only where
//! nobody but root and the caller can have put it. What is read, replaced or given away is what was
//! opened. Nothing here looks into files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown,
    flock, linkat, mkdirat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use tidelock_keyring::Blocked;

use crate::error::{Error, Result};
use crate::owner::Owner;

/// What a file is called while it is written.
const NEXT: &str = ".tidelock-new";
/// How long another command may take to write the same file.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a file is looked at that another command writes.
const MOMENT: Duration = Duration::from_millis(20);

/// A folder that is held open.
#[derive(Clone)]
pub(crate) struct Folder {
    file: Rc<File>,
    path: PathBuf,
}

/// A name in a folder that is held open; whether there is anything of that name is another matter.
#[derive(Clone)]
pub(crate) struct Entry {
    folder: Folder,
    name: OsString,
}

impl Folder {
    /// The folder at `path`.
    ///
    /// # Errors
    /// [`Error::Refused`] if a link on the way could be somebody else's; [`Error::Io`], of the kind
    /// `NotFound` or `NotADirectory` if there is no folder.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        match tidelock_keyring::walk(path) {
            Ok((file, path)) => Ok(Self { file: Rc::new(file), path }),
            Err(Blocked::Link(at)) => Err(link(&at)),
            Err(Blocked::System(why)) => Err(Error::io("open", path)(why)),
        }
    }

    /// As [`Folder::open`]; folders that are not there are made, for all to read.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub(crate) fn open_or_make(path: &Path) -> Result<Self> {
        match Self::open(path) {
            Err(why) if why.is_not_found() => {}
            opened => return opened,
        }
        let entry = Entry::new(path, Self::open_or_make)?;
        match entry.make_folder(0o755) {
            Err(why) if why.is(io::ErrorKind::AlreadyExists) => entry.open_folder(),
            made => made,
        }
    }

    /// Where it was when it was opened: absolute, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it.
    pub(crate) fn entry(&self, name: impl Into<OsString>) -> Entry {
        Entry { folder: self.clone(), name: name.into() }
    }

    /// Whose it is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn owner(&self) -> Result<Owner> {
        let found = self.file.metadata().map_err(Error::io("look at", &self.path))?;
        Ok(Owner { uid: found.uid(), gid: found.gid() })
    }

    /// Gives it, and nothing in it, to this user; does nothing if it is the caller.
    ///
    /// # Errors
    /// [`Error::Io`]: only root can give folders away.
    pub(crate) fn give_to(&self, owner: Owner) -> Result<()> {
        if owner.uid == Owner::caller().uid {
            return Ok(());
        }
        give(&self.file, owner).map_err(Error::io("chown", &self.path))
    }

    /// What is in it, in no order.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn names(&self) -> Result<Vec<OsString>> {
        let failed = |errno: Errno| Error::io("list", &self.path)(errno.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.file).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Makes the names in it last.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io("sync", &self.path))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Entry {
    /// The last name of `path`, in its folder.
    ///
    /// # Errors
    /// As [`Folder::open`]; [`Error::Usage`] if it has no name.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        Self::new(path, Folder::open)
    }

    /// As [`Entry::of`], in a folder that is made if it is not there.
    ///
    /// # Errors
    /// As [`Entry::of`].
    pub(crate) fn of_new_folder(path: &Path) -> Result<Self> {
        Self::new(path, Folder::open_or_make)
    }

    fn new(path: &Path, open: impl FnOnce(&Path) -> Result<Folder>) -> Result<Self> {
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let name = path.file_name().ok_or_else(|| {
            Error::usage(
                format!("{} has no name of its own", path.display()),
                "name it by its own name",
            )
        })?;
        Ok(open(above)?.entry(name))
    }

    /// The name.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The folder that has the name.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Where it is, for messages and for what nobody writes to.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path.join(&self.name)
    }

    /// True if there is anything of this name, a link too.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn exists(&self) -> Result<bool> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("look at")(errno.into())),
        }
    }

    /// Opens the folder of this name, which is no link.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is one; [`Error::Io`].
    pub(crate) fn open_folder(&self) -> Result<Folder> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Ok(file) => Ok(Folder { file: Rc::new(file.into()), path: self.path() }),
            Err(errno) => Err(self.link_or("open", errno)),
        }
    }

    /// Makes an empty folder of the caller's.
    ///
    /// # Errors
    /// [`Error::Refused`] if somebody puts another in its place; [`Error::Io`], also if there is
    /// something.
    pub(crate) fn make_folder(&self, mode: u32) -> Result<Folder> {
        let bits = Mode::from_raw_mode(mode);
        mkdirat(&self.folder, &self.name, bits)
            .map_err(|errno| self.failed("make")(errno.into()))?;
        let made = self.open_folder()?;
        if made.owner()?.uid != Owner::caller().uid || !made.names()?.is_empty() {
            return Err(Error::refused(
                format!("{} was replaced while it was being made", self.path().display()),
                "see who may write the folder above it",
            ));
        }
        // Whatever the umask says.
        fchmod(&made, bits).map_err(|errno| self.failed("chmod")(errno.into()))?;
        self.folder.sync()?;
        Ok(made)
    }

    /// Makes an empty file of the caller's, which others may not read before they are let.
    ///
    /// # Errors
    /// [`Error::Io`], also if there is something.
    pub(crate) fn create(&self) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        openat(&self.folder, &self.name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|errno| self.failed("create")(errno.into()))
    }

    /// Makes a file of the caller's that is there whole or not at all: `fill` writes it under
    /// another name first.
    ///
    /// # Errors
    /// Those of `fill`; [`Error::Io`], also if there is something of this name.
    pub(crate) fn create_whole(&self, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
        if self.exists()? {
            return Err(self.failed("create")(Errno::EXIST.into()));
        }
        let (next, mut file) = self.begin_next()?;
        let made = fill(&mut file).and_then(|()| {
            file.sync_all().map_err(next.failed("sync"))?;
            next.become_new(self).map_err(|errno| self.failed("create")(errno.into()))
        });
        if made.is_err() {
            let _ = next.remove();
        }
        made?;
        self.folder.sync().inspect_err(|_| {
            let _ = self.remove();
        })
    }

    /// A new file beside it, by the name that its content has while it is written, locked: another
    /// command that wants the same name waits for us, and does not take our file for what a crash
    /// has left.
    fn begin_next(&self) -> Result<(Self, File)> {
        let mut name = self.name.clone();
        name.push(NEXT);
        let next = self.folder.entry(name);
        let until = Instant::now() + PATIENCE;
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let mode = Mode::RUSR | Mode::WUSR;
            match openat(&self.folder, &next.name, flags | OFlags::CLOEXEC, mode) {
                Ok(file) => {
                    let file = File::from(file);
                    let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    // Somebody was faster to lock it than we were, and removes it.
                    if locked != Err(Errno::WOULDBLOCK) && next.is(&file) {
                        return Ok((next, file));
                    }
                }
                Err(Errno::EXIST) if Instant::now() >= until => {
                    return Err(next.failed("create")(Errno::EXIST.into()));
                }
                Err(Errno::EXIST) => next.remove_what_a_crash_has_left()?,
                Err(errno) => return Err(next.failed("create")(errno.into())),
            }
        }
    }

    /// Removes the file, or waits a little if a living command has locked it. Where the file system
    /// has no locks, nothing tells the two apart, and it goes.
    fn remove_what_a_crash_has_left(&self) -> Result<()> {
        // NFS locks only what is open for writing.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // It has its own name by now, or is gone.
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::LOOP) => return self.remove(),
            // Of another user, whose command may be at work.
            Err(Errno::ACCESS) => {
                sleep(MOMENT);
                return Ok(());
            }
            Err(errno) => return Err(self.failed("open")(errno.into())),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => sleep(MOMENT),
            _ if self.is(&file) => self.remove()?,
            _ => {}
        }
        Ok(())
    }

    /// True if this name is that of the open file.
    fn is(&self, file: &File) -> bool {
        let of_name = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(of_name), Ok(of_file)) = (of_name, rustix::fs::fstat(file)) else { return false };
        (of_name.st_dev, of_name.st_ino) == (of_file.st_dev, of_file.st_ino)
    }

    /// Takes the name of another entry of the folder, which nothing may have yet.
    ///
    /// # Errors
    /// The system's, [`Errno::EXIST`] if something has it.
    pub(crate) fn become_new(&self, name: &Self) -> rustix::io::Result<()> {
        let (folder, flags) = (&self.folder, RenameFlags::NOREPLACE);
        match renameat_with(folder, &self.name, folder, &name.name, flags) {
            // A file system that cannot do that has links, perhaps.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(folder, &self.name, folder, &name.name, AtFlags::empty())?;
                unlinkat(folder, &self.name, AtFlags::empty())
            }
            renamed => renamed,
        }
    }

    /// Opens the file of this name for reading; `None` if there is nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is a link; [`Error::Keys`] if it is a pipe, has another name
    /// elsewhere, or belongs neither to the caller, root nor the owner of the folder;
    /// [`Error::Io`].
    pub(crate) fn open(&self) -> Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.link_or("open", errno)),
        };
        tidelock_keyring::check_unshared(&file, &self.path(), self.folder.owner()?.uid)?;
        Ok(Some(file))
    }

    /// What is in the file, up to `limit` bytes; `None` if there is nothing of this name.
    ///
    /// # Errors
    /// As [`Entry::open`].
    pub(crate) fn read(&self, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open()? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).map_err(self.failed("read"))?;
        Ok(Some(bytes))
    }

    /// Writes the file whole: beside it, synced, renamed, the folder synced. Without an owner it is
    /// the caller's.
    ///
    /// # Errors
    /// [`Error::Io`]; what was there is then still there.
    pub(crate) fn replace(&self, bytes: &[u8], mode: u32, owner: Option<Owner>) -> Result<()> {
        let (next, mut file) = self.begin_next()?;
        let mut write = || -> io::Result<()> {
            file.write_all(bytes)?;
            if let Some(owner) = owner {
                give(&file, owner)?;
            }
            fchmod(&file, Mode::from_raw_mode(mode))?;
            file.sync_all()?;
            Ok(renameat(&self.folder, &next.name, &self.folder, &self.name)?)
        };
        let written = write().map_err(self.failed("write"));
        if written.is_err() {
            let _ = next.remove();
        }
        written.and_then(|()| self.folder.sync())
    }

    /// Removes what is no folder; nothing may be there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn remove(&self) -> Result<()> {
        self.unlink(AtFlags::empty())
    }

    /// Removes an empty folder; nothing may be there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn remove_folder(&self) -> Result<()> {
        self.unlink(AtFlags::REMOVEDIR)
    }

    fn unlink(&self, flags: AtFlags) -> Result<()> {
        match unlinkat(&self.folder, &self.name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("remove")(errno.into())),
        }
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> Error {
        Error::io(what, self.path())
    }

    fn link_or(&self, what: &'static str, errno: Errno) -> Error {
        // A link is ENOTDIR where a folder is asked for.
        let found = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Symlink) => link(&self.path()),
            _ => self.failed(what)(errno.into()),
        }
    }
}

fn link(path: &Path) -> Error {
    Error::refused(
        format!("{} is a link that somebody else can change", path.display()),
        "name the directory itself, without links below directories of others",
    )
}

/// Gives an open file away.
pub(crate) fn give(file: &File, owner: Owner) -> io::Result<()> {
    Ok(fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?)
}

/// Locks a file or folder for this process alone, and waits for so long.
///
/// # Errors
/// The system's, [`Errno::WOULDBLOCK`] if another process still has it.
pub(crate) fn lock_within(file: &impl AsFd, patience: Duration) -> rustix::io::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                sleep(Duration::from_millis(20));
            }
            Err(Errno::INTR) => return Err(Errno::WOULDBLOCK),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_way_down_is_the_kernels_and_loops_end() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::write(at("a/file"), "").unwrap();
        symlink("a/../a/b", at("relative")).unwrap();
        symlink(at("relative"), at("a/absolute")).unwrap();
        symlink("loop", at("loop")).unwrap();
        for path in
            ["a", "a/b/../b/./c", "relative", "relative/c/", "a/absolute/c", "a/absolute/.."]
        {
            let opened = Folder::open(&at(path)).unwrap();
            assert_eq!(opened.path(), at(path).canonicalize().unwrap(), "{path}");
        }
        assert!(Folder::open(&at("loop")).is_err_and(|why| !why.is_not_found()));
        assert!(Folder::open(&at("a/none/..")).is_err_and(|why| why.is_not_found()));
        let file = Folder::open(&at("a/file"));
        assert!(file.is_err_and(|why| why.is(io::ErrorKind::NotADirectory)));
    }

    #[test]
    fn what_was_opened_stays_what_it_was_when_its_name_is_taken_by_another() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::create_dir(at("other")).unwrap();
        let folder = Folder::open(&at("dir")).unwrap();
        fs::rename(at("dir"), at("moved")).unwrap();
        symlink(at("other"), at("dir")).unwrap();
        folder.entry("sub").make_folder(0o700).unwrap();
        folder.entry("file").replace(b"text", 0o600, None).unwrap();
        folder.entry("gone").create().unwrap();
        folder.entry("gone").remove().unwrap();
        assert_eq!(fs::read_dir(at("other")).unwrap().count(), 0);
        assert_eq!(fs::read(at("moved/file")).unwrap(), b"text");
        assert_eq!(fs::read_dir(at("moved")).unwrap().count(), 2);
        let mut names = folder.names().unwrap();
        names.sort();
        assert_eq!(names, ["file", "sub"]);
    }

    #[test]
    fn two_commands_that_write_one_file_do_not_take_each_others_bytes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_owned();
        // What a crash has left is in nobody's way.
        fs::write(path.join("key.tidelock-new"), "half").unwrap();
        let write = |path: &Path, text: &str, meanwhile: &mut dyn FnMut()| {
            Folder::open(path).unwrap().entry("key").create_whole(|file| {
                meanwhile();
                file.write_all(text.as_bytes()).map_err(Error::io("write", "it"))
            })
        };
        let mut second = None;
        let slow = write(&path, "slow", &mut || {
            let path = path.clone();
            second = Some(std::thread::spawn(move || write(&path, "quick", &mut || ())));
            sleep(Duration::from_millis(300));
        });
        let quick = second.unwrap().join().unwrap();
        assert!(slow.is_ok(), "{slow:?}");
        assert!(quick.is_err_and(|why| why.is(io::ErrorKind::AlreadyExists)));
        assert_eq!(fs::read(path.join("key")).unwrap(), b"slow");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);

        let each = [b'a', b'b'].map(|byte| {
            let path = path.clone();
            std::thread::spawn(move || {
                let entry = Folder::open(&path).unwrap().entry("copy");
                (0..5).try_for_each(|_| entry.replace(&[byte; 9000], 0o600, None))
            })
        });
        each.into_iter().for_each(|one| one.join().unwrap().unwrap());
        let copy = fs::read(path.join("copy")).unwrap();
        assert!(copy.len() == 9000 && copy.iter().all(|byte| *byte == copy[0]));
    }

    #[test]
    fn links_pipes_and_second_names_are_no_files_of_ours() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::open(home.path()).unwrap();
        fs::write(home.path().join("file"), "x").unwrap();
        symlink("file", home.path().join("link")).unwrap();
        assert!(matches!(folder.entry("link").open(), Err(Error::Refused { .. })));
        assert!(matches!(folder.entry("link").open_folder(), Err(Error::Refused { .. })));
        assert_eq!(folder.entry("none").read(9).unwrap(), None);
        assert_eq!(folder.entry("file").read(9).unwrap(), Some(b"x".to_vec()));
        fs::hard_link(home.path().join("file"), home.path().join("second")).unwrap();
        assert!(matches!(folder.entry("second").read(9), Err(Error::Keys(_))));
        let bits = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(&folder, "pipe", FileType::Fifo, bits, 0).unwrap();
        assert!(matches!(folder.entry("pipe").read(9), Err(Error::Keys(_))));
    }
}
