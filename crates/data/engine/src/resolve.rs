//! Whose is the file that a path names? Symbolic links are resolved, or proved not to be there.
//!
//! The fast way judges the path by its text and lets the kernel prove that the text is the truth
//! (RESOLVE_NO_SYMLINKS). Where a link is met, the slow way opens the directory, asks the kernel
//! for its real path and judges that. Links that lead out of a protected directory: links.rs.

use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::UnitCipher;

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::flags::{O_CLOEXEC, O_NOFOLLOW, O_PATH, PATH_DIRECTORY, makes};
use crate::kernel::{Fd, FileStat, Links, System};
use crate::path::{PathBuffer, components, split_last};
use crate::process::Process;
use crate::roots::{Decide, Decided};
use crate::table::Slot;

/// As many links as the kernel follows.
pub(crate) const MAX_LINKS: usize = 40;

/// What a path means that ends in a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastLink {
    /// What the link leads to.
    Follow,
    /// The link itself.
    Itself,
}

impl LastLink {
    /// What it means to open(2) with these flags.
    pub(crate) const fn of_open(flags: i32) -> Self {
        let exclusive = makes(flags);
        if exclusive || flags & O_NOFOLLOW != 0 { Self::Itself } else { Self::Follow }
    }

    /// The flag by which open(2) does the same.
    pub(crate) const fn flag(self) -> i32 {
        match self {
            Self::Follow => 0,
            Self::Itself => O_NOFOLLOW,
        }
    }
}

/// A file's real place: its directory, open, and its name there.
pub struct Location<'s, S: System> {
    system: &'s S,
    /// The directory, or the one that the caller named, if the path is that of a directory.
    pub(crate) directory: Fd,
    /// Its name, a single component.
    pub(crate) name: PathBuffer,
    /// Whose it is.
    pub decided: Decided,
}

impl<S: System> Drop for Location<'_, S> {
    fn drop(&mut self) {
        // An O_PATH descriptor: closing it cannot lose anything.
        let _ = self.system.close(self.directory);
    }
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Whose the file at `path` is. The path ends with a zero byte.
    ///
    /// # Errors
    /// Those of looking it up; a file that is not there is judged by its name.
    pub fn decide(&self, at: Fd, path: &[u8], last: LastLink) -> Result<Decided, Errno> {
        let mut lexical = PathBuffer::new();
        if let Some(decided) = self.judge_text(at, path, &mut lexical) {
            // Where a last link counts, it is ELOOP as any other.
            let probe = O_PATH | O_CLOEXEC | last.flag();
            match self.system.open(at, path, probe, 0, Links::Refuse) {
                Ok(fd) => {
                    self.system.close(fd)?;
                    return Ok(decided);
                }
                Err(Errno::LOOP | Errno::NOENT | Errno::NOSYS) => {}
                Err(error) => return Err(error),
            }
        }
        self.resolve(at, path, last).map(|place| place.decided)
    }

    /// What is at this path, behind links.
    pub(crate) fn stat_followed(&self, at: Fd, path: &[u8]) -> Result<FileStat, Errno> {
        let fd = self.system.open(at, path, O_PATH | O_CLOEXEC, 0, Links::Follow)?;
        let stat = self.system.stat(fd);
        // Closing an O_PATH descriptor drops nothing.
        let _ = self.system.close(fd);
        stat
    }

    /// An open file of this one, if the program has one that is wanted. Others are not joined:
    /// whoever leaves a file last closes it, and with it the record locks of another open file.
    pub(crate) fn open_file_of(
        &self,
        stat: &FileStat,
        wanted: impl Fn(&Slot) -> bool,
    ) -> Option<OpenFile<'_, S, C, P>> {
        let is_it = |index: u32| {
            let slot = self.table.slot(index);
            let place = (slot.device.load(Relaxed), slot.inode.load(Relaxed));
            place == (stat.device, stat.inode) && wanted(slot)
        };
        let found = self.table.indices().filter(|&index| is_it(index));
        let joined = found.filter(|&index| self.table.join(index));
        // Between the first look and the joining it may have become another one.
        joined.map(|index| OpenFile::found(self, index)).find(|file| is_it(file.index))
    }

    /// True if the program has this file open. Nothing is joined, as whoever leaves it last closes
    /// it.
    pub(crate) fn has_open(&self, stat: &FileStat) -> bool {
        self.table.indices().any(|index| {
            let slot = self.table.slot(index);
            let place = (slot.device.load(Relaxed), slot.inode.load(Relaxed));
            place == (stat.device, stat.inode) && slot.is_used()
        })
    }

    /// As [`decide`](Self::decide), for what shall be written: by whatever path a protected
    /// directory is reached.
    ///
    /// # Errors
    /// Those of [`decide`](Self::decide); EACCES below a protected directory whose keys are not
    /// here.
    pub fn decide_to_write(&self, at: Fd, path: &[u8]) -> Result<Decided, Errno> {
        match self.decide(at, path, LastLink::Follow)? {
            Decided::Outside => self.judge_outside(at, path, Links::Follow),
            decided => Ok(decided),
        }
    }

    /// What the text of a path says, if it says anything: `None` if it goes up with "..".
    pub(crate) fn judge_text(&self, at: Fd, path: &[u8], out: &mut PathBuffer) -> Option<Decided> {
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        self.begin(at, path, out).ok()?;
        for part in components(path) {
            if part == b".." {
                return None;
            }
            out.push(part).ok()?;
        }
        Some(self.roots.decide(out.as_bytes()))
    }

    /// Where the way of a path begins.
    pub(crate) fn begin(&self, at: Fd, path: &[u8], out: &mut PathBuffer) -> Result<(), Errno> {
        if path.first() == Some(&b'/') {
            out.set(b"/")
        } else if at == Fd::CWD {
            out.fill(|room| self.system.working_directory(room))
        } else {
            out.fill(|room| self.system.path_of(at, room))
        }
    }

    /// The slow way: follows links one by one, and the last one only if told to.
    pub(crate) fn resolve(
        &self,
        at: Fd,
        path: &[u8],
        last: LastLink,
    ) -> Result<Location<'_, S>, Errno> {
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let mut rest = PathBuffer::new();
        rest.set(path)?;
        let mut place = self.enter(at, &mut rest)?;
        for _ in 0..MAX_LINKS {
            if place.name.as_bytes().is_empty()
                || place.decided_by_proc()
                || last == LastLink::Itself
            {
                break;
            }
            let mut target = PathBuffer::new();
            match target
                .fill(|room| self.system.read_link(place.directory, place.name.as_c(), room))
            {
                Ok(()) => place = self.enter(place.directory, &mut target)?,
                Err(_) => break,
            }
        }
        if place.decided == Decided::Outside && !place.decided_by_proc() {
            place.decided = self.judge_behind_links(at, path, &place)?;
        }
        Ok(place)
    }

    /// Opens the directory of `path` and judges its real path with the last component.
    pub(crate) fn enter(&self, at: Fd, path: &mut PathBuffer) -> Result<Location<'_, S>, Errno> {
        let mut directory = PathBuffer::new();
        let mut name = PathBuffer::new();
        match split_last(path.as_bytes()) {
            Some((before, last)) => {
                directory.set(if before.is_empty() { b"." } else { before })?;
                name.set(last)?;
            }
            None => directory.set(path.as_bytes())?,
        }
        let fd = self.system.open(at, directory.as_c(), PATH_DIRECTORY, 0, Links::Follow)?;
        let mut place =
            Location { system: &self.system, directory: fd, name, decided: Decided::Outside };
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(fd, room))?;
        if real.as_bytes().starts_with(b"/proc/") {
            place.decided = Decided::Outside;
            return Ok(place);
        }
        if !place.name.as_bytes().is_empty() {
            real.push(place.name.as_bytes())?;
        }
        place.decided = self.roots.decide(real.as_bytes());
        Ok(place)
    }
}

impl<S: System> Location<'_, S> {
    /// Below /proc, links are not paths: they are left to the kernel.
    pub(crate) fn decided_by_proc(&self) -> bool {
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(self.directory, room)).is_ok()
            && real.as_bytes().starts_with(b"/proc/")
    }
}
