//! Whose is the file that a path names? Symbolic links are resolved, or proved not to be there.
//!
//! The fast way judges the path by its text and lets the kernel prove that the text is the truth
//! (RESOLVE_NO_SYMLINKS). Where a link is met, the slow way opens the directory, asks the kernel
//! for its real path and judges that. A link below a protected directory that leads out of it takes
//! its target along.

use tidelock_cipher::{Root, UnitCipher};

use crate::ancestry::Identity;
use crate::errno::Errno;
use crate::kernel::{Fd, Links, System};
use crate::path::{PathBuffer, components, split_last};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::roots::{Decide, Decided};

const O_PATH: i32 = 0o10_000_000;
const O_DIRECTORY: i32 = 0o200_000;
const O_NOFOLLOW: i32 = 0o400_000;
const O_CLOEXEC: i32 = 0o2_000_000;
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

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
    pub fn decide(&self, at: Fd, path: &[u8], follow: bool) -> Result<Decided, Errno> {
        let mut lexical = PathBuffer::new();
        if let Some(decided) = self.judge_text(at, path, &mut lexical) {
            // Where a last link counts, it is ELOOP as any other.
            let probe = O_PATH | O_CLOEXEC | if follow { 0 } else { O_NOFOLLOW };
            match self.system.open(at, path, probe, 0, Links::Refuse) {
                Ok(fd) => {
                    self.system.close(fd)?;
                    return Ok(decided);
                }
                Err(Errno::LOOP | Errno::NOENT | Errno::NOSYS) => {}
                Err(error) => return Err(error),
            }
        }
        self.resolve(at, path, follow).map(|place| place.decided)
    }

    /// As [`decide`](Self::decide), for what shall be written: by whatever path a protected
    /// directory is reached.
    ///
    /// # Errors
    /// Those of [`decide`](Self::decide); EACCES below a protected directory whose keys are not
    /// here.
    pub fn decide_to_write(&self, at: Fd, path: &[u8]) -> Result<Decided, Errno> {
        match self.decide(at, path, true)? {
            Decided::Outside => self.judge_outside(at, path, Links::Follow),
            decided => Ok(decided),
        }
    }

    /// What the text of a path says, if it says anything: `None` if it goes up with "..".
    pub(crate) fn judge_text(&self, at: Fd, path: &[u8], out: &mut PathBuffer) -> Option<Decided> {
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        if path.first() == Some(&b'/') {
            out.set(b"/").ok()?;
        } else if at == Fd::CWD {
            out.fill(|room| self.system.working_directory(room)).ok()?;
        } else {
            out.fill(|room| self.system.path_of(at, room)).ok()?;
        }
        for part in components(path) {
            if part == b".." {
                return None;
            }
            out.push(part).ok()?;
        }
        Some(self.roots.decide(out.as_bytes()))
    }

    /// The slow way: follows links one by one, and the last one only if told to.
    pub(crate) fn resolve(
        &self,
        at: Fd,
        path: &[u8],
        follow: bool,
    ) -> Result<Location<'_, S>, Errno> {
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let mut rest = PathBuffer::new();
        rest.set(path)?;
        let mut place = self.enter(at, &mut rest)?;
        for _ in 0..MAX_LINKS {
            if place.name.as_bytes().is_empty() || place.decided_by_proc() || !follow {
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
            place.decided = self.attach_link(at, path, &place)?;
        }
        Ok(place)
    }

    /// Opens the directory of `path` and judges its real path with the last component.
    fn enter(&self, at: Fd, path: &mut PathBuffer) -> Result<Location<'_, S>, Errno> {
        let mut directory = PathBuffer::new();
        let mut name = PathBuffer::new();
        match split_last(path.as_bytes()) {
            Some((before, last)) => {
                directory.set(if before.is_empty() { b"." } else { before })?;
                name.set(last)?;
            }
            None => directory.set(path.as_bytes())?,
        }
        let flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
        let fd = self.system.open(at, directory.as_c(), flags, 0, Links::Follow)?;
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

    /// A path whose text lies below a protected directory and whose file does not: the link between
    /// takes its target along, as `pg_tblspc/16400` does.
    fn attach_link(&self, at: Fd, path: &[u8], place: &Location<'_, S>) -> Result<Decided, Errno> {
        let mut text = PathBuffer::new();
        let root = match self.judge_text(at, path, &mut text) {
            Some(Decided::Plain(root) | Decided::Sealed(root, _)) => root,
            _ => return Ok(Decided::Outside),
        };
        self.attach_along(root, &text)?;
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(place.directory, room))?;
        if !place.name.as_bytes().is_empty() {
            real.push(place.name.as_bytes())?;
        }
        Ok(self.roots.decide(real.as_bytes()))
    }

    /// Attaches the target of the first link on the way of `text` that leads out of directory
    /// `root`.
    fn attach_along(&self, root: Root, text: &PathBuffer) -> Result<(), Errno> {
        let mut walked = PathBuffer::new();
        for part in components(text.as_bytes()) {
            if walked.as_bytes().is_empty() {
                walked.set(b"/")?;
            }
            walked.push(part)?;
            let mut relative = PathBuffer::new();
            if self.roots.relative(root, walked.as_bytes(), &mut relative).is_err()
                || relative.as_bytes().is_empty()
            {
                continue;
            }
            let mut target = PathBuffer::new();
            if target.fill(|room| self.system.read_link(Fd::CWD, walked.as_c(), room)).is_ok() {
                return self.attach_target(root, &walked, relative.as_bytes());
            }
        }
        Ok(())
    }

    fn attach_target(&self, root: Root, link: &PathBuffer, relative: &[u8]) -> Result<(), Errno> {
        let flags = O_PATH | O_CLOEXEC;
        let fd = match self.system.open(Fd::CWD, link.as_c(), flags, 0, Links::Follow) {
            Err(Errno::NOENT) => return self.attach_missing(root, link, relative),
            opened => opened?,
        };
        let mut real = PathBuffer::new();
        let found = real.fill(|room| self.system.path_of(fd, room));
        let identity = self.system.identity(fd);
        let file = self.system.stat(fd).is_ok_and(|stat| stat.regular);
        self.system.close(fd)?;
        found?;
        if self.roots.decide(real.as_bytes()) == Decided::Outside
            && !self.roots.is_left_out(real.as_bytes())
        {
            self.roots.attach(root, real.as_bytes(), relative, file)?;
            if let Ok(Identity { device, inode, .. }) = identity {
                self.roots.identify(real.as_bytes(), device, inode);
            }
        }
        Ok(())
    }

    /// The same for a file that is still to be made there.
    fn attach_missing(&self, root: Root, link: &PathBuffer, relative: &[u8]) -> Result<(), Errno> {
        let (mut path, mut target) = (PathBuffer::new(), PathBuffer::new());
        path.set(link.as_bytes())?;
        let here = self.enter(Fd::CWD, &mut path)?;
        target.fill(|room| self.system.read_link(here.directory, here.name.as_c(), room))?;
        let there = self.enter(here.directory, &mut target)?;
        if there.decided != Decided::Outside || there.name.as_bytes().is_empty() {
            return Ok(());
        }
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(there.directory, room))?;
        real.push(there.name.as_bytes())?;
        if real.as_bytes().starts_with(b"/proc/") || self.roots.is_left_out(real.as_bytes()) {
            return Ok(());
        }
        self.roots.attach(root, real.as_bytes(), relative, true)
    }

    /// Judges a new link by the name `path`, which ends with a zero byte. A directory may lie
    /// outside, and so may what stays plain.
    ///
    /// # Errors
    /// EOPNOTSUPP, after a message, for a link to a file outside: programs that open that by its
    /// own name would not know whose it is, and after a restart nobody would.
    pub fn judge_new_link(&self, target: &[u8], at: Fd, path: &[u8]) -> Result<(), Errno> {
        let (mut name, mut text) = (PathBuffer::new(), PathBuffer::new());
        name.set(path.strip_suffix(b"\0").unwrap_or(path))?;
        text.set(target.strip_suffix(b"\0").unwrap_or(target))?;
        let here = self.enter(at, &mut name)?;
        if !matches!(here.decided, Decided::Sealed(..)) {
            return Ok(());
        }
        let there = self.enter(here.directory, &mut text)?;
        if there.decided != Decided::Outside || there.decided_by_proc() {
            return Ok(());
        }
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(there.directory, room))?;
        let found = self.system.stat_at(there.directory, there.name.as_c())?;
        if !found.regular || self.roots.is_left_out(real.as_bytes()) {
            return Ok(());
        }
        self.refuse(path, Refusal::LinkToFile)
    }

    /// Looks at a link below a protected directory, given by its absolute path, and takes its
    /// target along. What is no link, or not there, is left alone.
    pub fn attach(&self, link: &[u8]) {
        let mut text = PathBuffer::new();
        if let Some(Decided::Plain(root) | Decided::Sealed(root, _)) =
            self.judge_text(Fd::CWD, link, &mut text)
        {
            // What cannot be attached now is met again, and judged, when it is used.
            let _ = self.attach_along(root, &text);
        }
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
