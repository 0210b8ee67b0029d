//! rename and link: which file may get which name?
//!
//! Judged by what is moved, as the flags say, and not by the text alone: EXDEV wherever the bytes
//! would have to be other ones, so that programs copy instead. That holds for an empty file too:
//! who has it open would write the wrong kind of bytes later. What has no bytes (links, sockets,
//! pipes) gets any name.

use tidelock_cipher::{Root, UnitCipher};

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::flags::{
    AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, O_CLOEXEC, O_PATH, RENAME_EXCHANGE, RENAME_WHITEOUT,
};
use crate::kernel::{Fd, FileStat, Links, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::resolve::LastLink;
use crate::roots::{Decide, Decided};

/// A name as a program gives it: a directory and a path with a zero byte at its end.
type Name<'n> = (Fd, &'n [u8]);

/// What a name stands for.
struct Moved {
    decided: Decided,
    stat: FileStat,
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// rename(2) and its kin.
    ///
    /// # Errors
    /// EXDEV where the bytes would have to be other ones, ENOENT for what is hidden, EINVAL for a
    /// whiteout, EACCES into a protected directory whose keys are not here, and those of the
    /// kernel.
    pub fn rename(&self, from: Name<'_>, to: Name<'_>, flags: u32) -> Result<(), Errno> {
        let source = self.moved(from)?;
        let target = self.whose_name(to)?;
        self.may_take(&source, from, target, to)?;
        if flags & RENAME_WHITEOUT != 0 && (is_inside(source.decided) || is_inside(target)) {
            // It leaves a device behind: no engine wants that, and many file systems say the same.
            return Err(Errno::INVAL);
        }
        if flags & RENAME_EXCHANGE != 0 {
            let other = self.moved(to)?;
            if let (Decided::Root(_), _) | (_, Decided::Root(_)) = (source.decided, other.decided) {
                return Err(Errno::XDEV);
            }
            let back = self.whose_name(from)?;
            self.may_take(&other, to, back, from)?;
        }
        self.system.rename(from, to, flags)
    }

    /// linkat(2).
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn link(&self, from: Name<'_>, to: Name<'_>, flags: i32) -> Result<(), Errno> {
        if flags & AT_SYMLINK_FOLLOW != 0
            && let Some(file) = self.named_descriptor(from.1)
        {
            // The link below /proc leads to the anchor; the file is behind it.
            let mut real = PathBuffer::new();
            Self::path_again(&file, &mut real)?;
            return self.link_open_file(&file, (Fd::CWD, real.as_c()), to, flags);
        }
        let target = self.whose_name(to)?;
        let source = if flags & AT_EMPTY_PATH != 0 && matches!(from.1, b"" | b"\0") {
            self.open_file(from.0)?
        } else if flags & AT_SYMLINK_FOLLOW != 0 {
            self.followed(from)?
        } else {
            self.moved(from)?
        };
        self.may_take(&source, from, target, to)?;
        self.system.link(from, to, flags)
    }

    /// linkat(2) of a sealed file that is open: `from` leads to its hidden descriptor.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn link_open_file(
        &self,
        file: &OpenFile<'_, S, C, P>,
        from: Name<'_>,
        to: Name<'_>,
        flags: i32,
    ) -> Result<(), Errno> {
        let traits = file.traits();
        let decided = Decided::Sealed(traits.root(), traits.class);
        let source = Moved { decided, stat: self.system.stat(file.hidden())? };
        self.may_take(&source, from, self.whose_name(to)?, to)?;
        self.system.link(from, to, flags)
    }

    /// What a name stands for, a link itself if it is one. Moving something out of a protected
    /// directory of somebody else is not our business: such a name is outside.
    fn moved(&self, name: Name<'_>) -> Result<Moved, Errno> {
        let mut decided = self.decide(name.0, name.1, LastLink::Itself)?;
        if decided == Decided::Outside {
            let place = self.resolve(name.0, name.1, LastLink::Itself)?;
            let owner = self.owner_of(place.directory, place.name.as_bytes())?;
            decided = owner.unwrap_or(Decided::Outside);
        }
        Ok(Moved { decided, stat: self.system.stat_at(name.0, name.1)? })
    }

    /// The same behind all links.
    fn followed(&self, name: Name<'_>) -> Result<Moved, Errno> {
        let place = self.resolve(name.0, name.1, LastLink::Follow)?;
        if place.decided_by_proc() {
            let probe = O_PATH | O_CLOEXEC;
            let fd = self.system.open(name.0, name.1, probe, 0, Links::Follow)?;
            let moved = self.open_file(fd);
            // An O_PATH descriptor: closing it cannot lose anything.
            let _ = self.system.close(fd);
            return moved;
        }
        if place.name.as_bytes().is_empty() {
            let stat = self.system.stat(place.directory)?;
            return Ok(Moved { decided: place.decided, stat });
        }
        let mut decided = place.decided;
        if decided == Decided::Outside {
            let owner = self.owner_of(place.directory, place.name.as_bytes())?;
            decided = owner.unwrap_or(Decided::Outside);
        }
        Ok(Moved { decided, stat: self.system.stat_at(place.directory, place.name.as_c())? })
    }

    /// What is open here and is no sealed file of this process: by the path that the kernel knows
    /// it by.
    fn open_file(&self, fd: Fd) -> Result<Moved, Errno> {
        let stat = self.system.stat(fd)?;
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(fd, room))?;
        let is_path = real.as_bytes().starts_with(b"/");
        let decided = if is_path { self.roots.decide(real.as_bytes()) } else { Decided::Outside };
        Ok(Moved { decided, stat })
    }

    /// Whose a name will be.
    fn whose_name(&self, name: Name<'_>) -> Result<Decided, Errno> {
        let mut room = PathBuffer::new();
        let (name, decided) = self.decide_name(name, &mut room)?;
        match decided {
            Decided::Outside => {
                let place = self.resolve(name.0, name.1, LastLink::Itself)?;
                self.judge_in(place.directory, place.name.as_bytes(), name.1)
            }
            known => Ok(known),
        }
    }

    /// What a name will be, and the name without the slashes that a directory's new one may end
    /// with, in `room`: nothing can be looked up there yet.
    pub(crate) fn decide_name<'n>(
        &self,
        name: Name<'n>,
        room: &'n mut PathBuffer,
    ) -> Result<(Name<'n>, Decided), Errno> {
        match self.decide(name.0, name.1, LastLink::Itself) {
            Err(Errno::NOENT) => {}
            done => return done.map(|decided| (name, decided)),
        }
        let text = name.1.strip_suffix(b"\0").unwrap_or(name.1);
        let end = text.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        if end == 0 || end == text.len() {
            return Err(Errno::NOENT);
        }
        room.set(text.get(..end).unwrap_or_default())?;
        let short = (name.0, room.as_c());
        self.decide(short.0, short.1, LastLink::Itself).map(|decided| (short, decided))
    }

    fn may_take(
        &self,
        source: &Moved,
        from: Name<'_>,
        target: Decided,
        to: Name<'_>,
    ) -> Result<(), Errno> {
        use Decided::{Ambiguous, Control, Outside, Plain, Root, Sealed};
        let admitted = match (source.decided, target) {
            (Control(_) | Ambiguous, _) => return Err(Errno::NOENT),
            (_, Control(_) | Ambiguous) => return Err(Errno::PERM),
            // It takes its keyring along; over one, the kernel moves nothing, since it is not
            // empty.
            (Root(_), _) | (_, Root(_)) => true,
            (had, gets) if source.stat.directory => match (root_of(had), root_of(gets)) {
                (None, None) => true,
                (Some(a), Some(b)) if a == b => self.is_same_below(a, from, to)?,
                _ => false,
            },
            _ if !source.stat.regular => true,
            (Outside | Plain(_), Outside | Plain(_)) => true,
            (Sealed(a, old), Sealed(b, new)) => a == b && old.zero_rule() == new.zero_rule(),
            _ => false,
        };
        if admitted { Ok(()) } else { Err(Errno::XDEV) }
    }

    /// True if the files of a directory stay what they are when it is renamed within directory
    /// `root`.
    #[inline(never)]
    pub(crate) fn is_same_below(
        &self,
        root: Root,
        from: Name<'_>,
        to: Name<'_>,
    ) -> Result<bool, Errno> {
        let (mut old, mut new) = (PathBuffer::new(), PathBuffer::new());
        self.policy_name(root, from, &mut old)?;
        let mut room = PathBuffer::new();
        self.policy_name(root, self.decide_name(to, &mut room)?.0, &mut new)?;
        Ok(self.roots.same_below(root, old.as_bytes(), new.as_bytes()))
    }

    /// The name of a directory relative to protected directory `root`.
    fn policy_name(&self, root: Root, name: Name<'_>, into: &mut PathBuffer) -> Result<(), Errno> {
        let place = self.resolve(name.0, name.1, LastLink::Itself)?;
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(place.directory, room))?;
        if !place.name.as_bytes().is_empty() {
            real.push(place.name.as_bytes())?;
        }
        // By another mount: as if it were another file system.
        self.roots.relative(root, real.as_bytes(), into).map_err(|_| Errno::XDEV)
    }
}

const fn is_inside(decided: Decided) -> bool {
    root_of(decided).is_some()
}

const fn root_of(decided: Decided) -> Option<Root> {
    match decided {
        Decided::Root(root) | Decided::Plain(root) | Decided::Sealed(root, _) => Some(root),
        _ => None,
    }
}
