//! A link of a protected directory that leads out of it takes its target along: a tablespace, a
//! pg_wal on another disk, a database that is a link.
//!
//! Links are met where the library starts, where a path is opened, and where a program follows a
//! path by itself (readlink, realpath, chdir): what it opens then no longer says whose it is. The
//! way is that of the kernel: each link counts, wherever it lies.

use tidelock_cipher::{Root, UnitCipher};

use crate::ancestry::Identity;
use crate::errno::Errno;
use crate::flags::{O_CLOEXEC, O_PATH};
use crate::kernel::{Fd, Links, System};
use crate::path::{PathBuffer, next_component, split_last};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::resolve::{Location, MAX_LINKS};
use crate::roots::{Decide, Decided};

/// Where programs share memory, with what lies above.
const EVERYBODYS: [&[u8]; 6] = [b"/", b"/dev", b"/dev/shm", b"/run", b"/run/shm", b"/run/tidelock"];

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Whose a file is that lies outside, behind all links of `path`.
    pub(crate) fn judge_behind_links(
        &self,
        at: Fd,
        path: &[u8],
        place: &Location<'_, S>,
    ) -> Result<Decided, Errno> {
        let all_attached = self.follow(at, path)?;
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(place.directory, room))?;
        if !place.name.as_bytes().is_empty() {
            real.push(place.name.as_bytes())?;
        }
        match self.roots.decide(real.as_bytes()) {
            // It lies in a tablespace, and not where a server has its files. A directory has no
            // bytes: servers open it to sync it.
            Decided::Outside if !all_attached => {
                let name = &place.name;
                let stat = || self.system.stat_at(place.directory, name.as_c());
                if name.as_bytes().is_empty() || stat().is_ok_and(|found| found.directory) {
                    return Ok(Decided::Outside);
                }
                self.refuse(path, Refusal::TooManyLinks)
            }
            decided => Ok(decided),
        }
    }

    /// Follows `path` as the kernel does, and takes along what links of protected directories on
    /// the way lead to. What is no link, or not there, is left alone, and so is a tablespace for
    /// which there is no room: the paths of its files say whose they are.
    ///
    /// # Errors
    /// ENFILE if protected directories have too many such places, ENAMETOOLONG; those of looking a
    /// target up.
    pub fn attach(&self, at: Fd, path: &[u8]) -> Result<(), Errno> {
        self.follow(at, path).map(drop)
    }

    /// The same; false if there was no room for a tablespace.
    pub(crate) fn follow(&self, at: Fd, path: &[u8]) -> Result<bool, Errno> {
        let (mut here, mut rest) = (PathBuffer::new(), PathBuffer::new());
        rest.set(path.strip_suffix(b"\0").unwrap_or(path))?;
        if self.begin(at, rest.as_bytes(), &mut here).is_err() {
            // A directory that has no path any more is in no protected one.
            return Ok(true);
        }
        let (mut missing, mut all_attached) = (None, true);
        let (mut from, mut links) = (0, 0);
        while let Some((part, behind)) = next_component(rest.as_bytes(), from) {
            from = behind;
            if part == b".." {
                here.pop();
                continue;
            }
            here.push(part)?;
            let mut target = PathBuffer::new();
            let link = target.fill(|room| self.system.read_link(Fd::CWD, here.as_c(), room));
            if link.is_err() {
                continue;
            }
            links += 1;
            if links > MAX_LINKS || here.as_bytes().starts_with(b"/proc/") {
                return Ok(all_attached);
            }
            let is_last = next_component(rest.as_bytes(), from).is_none();
            let mut name = PathBuffer::new();
            if let Decided::Plain(root) | Decided::Sealed(root, _) =
                self.roots.decide(here.as_bytes())
                && self.roots.relative(root, here.as_bytes(), &mut name).is_ok()
            {
                match self.attach_target(root, &here, name.as_bytes())? {
                    Target::Known => {}
                    Target::NamesItself => all_attached = false,
                    Target::Missing if is_last => missing = Some((root, name)),
                    Target::Missing => {}
                }
            }
            if target.as_bytes().first() == Some(&b'/') {
                here.set(b"/")?;
            } else {
                here.pop();
            }
            target.push(rest.as_bytes().get(from..).unwrap_or_default())?;
            (rest, from) = (target, 0);
        }
        if let Some((root, name)) = missing {
            self.attach_missing(root, here.as_bytes(), name.as_bytes())?;
        }
        Ok(all_attached)
    }

    /// Attaches what a link leads to, unless it belongs to somebody.
    fn attach_target(&self, root: Root, link: &PathBuffer, name: &[u8]) -> Result<Target, Errno> {
        let flags = O_PATH | O_CLOEXEC;
        let fd = match self.system.open(Fd::CWD, link.as_c(), flags, 0, Links::Follow) {
            Err(Errno::NOENT) => return Ok(Target::Missing),
            opened => opened?,
        };
        let mut real = PathBuffer::new();
        let found = real.fill(|room| self.system.path_of(fd, room));
        let identity = self.system.identity(fd);
        let file = self.system.stat(fd).is_ok_and(|stat| stat.regular);
        self.system.close(fd)?;
        found?;
        if self.is_nobodys(real.as_bytes()) && !self.is_anothers(real.as_bytes(), file) {
            self.refuse_everybodys(root, link, name, (real.as_bytes(), &identity))?;
            let known = identity.ok().map(|Identity { device, inode, .. }| (device, inode));
            match self.roots.attach_known(root, real.as_bytes(), name, file, known) {
                Err(Errno::NFILE)
                    if !file && self.roots.names_itself(root, name, real.as_bytes()) =>
                {
                    return Ok(Target::NamesItself);
                }
                attached => attached?,
            }
            // We have just looked, and found it to be outside.
            self.outside.forget();
        }
        Ok(Target::Known)
    }

    /// The same for a file that is still to be made at `real`.
    fn attach_missing(&self, root: Root, real: &[u8], name: &[u8]) -> Result<(), Errno> {
        let is_free = self.is_nobodys(real) && !real.starts_with(b"/proc/");
        if is_free && !self.is_anothers(real, true) {
            self.roots.attach(root, real, name, true)?;
        }
        Ok(())
    }

    /// Refuses to take along what holds the memory that all programs share, this library's too,
    /// unless it stays plain.
    #[inline(never)]
    fn refuse_everybodys(
        &self,
        root: Root,
        link: &PathBuffer,
        name: &[u8],
        (real, identity): (&[u8], &Result<Identity, Errno>),
    ) -> Result<(), Errno> {
        if !EVERYBODYS.contains(&real) {
            return Ok(());
        }
        let mut below = PathBuffer::new();
        below.set(name)?;
        below.push(b"any")?;
        match self.roots.decide_relative(root, below.as_bytes()) {
            Decided::Sealed(..) => {
                let is_first = |it: &Identity| self.reported.is_first(it.device, it.inode);
                if identity.as_ref().is_ok_and(is_first) {
                    self.system.report(link.as_bytes(), Refusal::LinkToShared);
                }
                Err(Refusal::LinkToShared.errno())
            }
            _ => Ok(()),
        }
    }

    /// True for what lies in a protected directory whose keys are not here: it stays with that.
    #[inline(never)]
    fn is_anothers(&self, real: &[u8], file: bool) -> bool {
        let place = if file { split_last(real).map_or(real, |(before, _)| before) } else { real };
        self.lies_in_another(place).unwrap_or(false)
    }

    fn is_nobodys(&self, real: &[u8]) -> bool {
        self.roots.decide(real) == Decided::Outside && !self.roots.is_left_out(real)
    }

    /// Judges a new link by the name `path`, which ends with a zero byte. A directory may lie
    /// outside, and so may what stays plain.
    ///
    /// # Errors
    /// EOPNOTSUPP, after a message, for a link to a file outside: programs that open that by its
    /// own name would not know whose it is, and after a restart nobody would. ENFILE, after one
    /// too, where there is no room for what it leads to: the next start would end.
    pub fn judge_new_link(&self, target: &[u8], at: Fd, path: &[u8]) -> Result<(), Errno> {
        let (mut name, mut text) = (PathBuffer::new(), PathBuffer::new());
        name.set(path.strip_suffix(b"\0").unwrap_or(path))?;
        text.set(target.strip_suffix(b"\0").unwrap_or(target))?;
        let here = self.enter(at, &mut name)?;
        let (Decided::Sealed(root, _) | Decided::Plain(root)) = here.decided else { return Ok(()) };
        let there = self.enter(here.directory, &mut text)?;
        if there.decided != Decided::Outside || there.decided_by_proc() {
            return Ok(());
        }
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(there.directory, room))?;
        let found = self.system.stat_at(there.directory, there.name.as_c())?;
        if self.roots.is_left_out(real.as_bytes()) {
            return Ok(());
        }
        if found.regular && matches!(here.decided, Decided::Sealed(..)) {
            return self.refuse(path, Refusal::LinkToFile);
        }
        if self.roots.is_full() && !self.is_tablespace(root, &here, &there)? {
            return self.refuse(path, Refusal::TooManyLinks);
        }
        Ok(())
    }

    /// True if a link at `here` to `there` needs no room.
    #[inline(never)]
    fn is_tablespace(
        &self,
        root: Root,
        here: &Location<'_, S>,
        there: &Location<'_, S>,
    ) -> Result<bool, Errno> {
        let (mut link, mut name, mut real) =
            (PathBuffer::new(), PathBuffer::new(), PathBuffer::new());
        for (place, path) in [(here, &mut link), (there, &mut real)] {
            path.fill(|room| self.system.path_of(place.directory, room))?;
            if !place.name.as_bytes().is_empty() {
                path.push(place.name.as_bytes())?;
            }
        }
        self.roots.relative(root, link.as_bytes(), &mut name)?;
        Ok(self.roots.names_itself(root, name.as_bytes(), real.as_bytes()))
    }
}

/// What became of what a link leads to.
enum Target {
    /// It is attached, or belongs to somebody.
    Known,
    /// A tablespace that there is no room for.
    NamesItself,
    /// It is not there.
    Missing,
}
