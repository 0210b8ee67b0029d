//! What a program without keys may do below a protected directory: read, remove, and copy sealed
//! bytes.
//!
//! ```text
//!   open for writing --> sealed? --> empty, or cut by this open: the descriptor waits (O_PATH)
//!                                      --> has bytes: refused
//!   first write      --> begins as a header does: the descriptor becomes a real one; else refused
//!   rename, link     --> what arrives at a sealed name begins as a header does, or is refused
//! ```
//!
//! That a descriptor waits is known to the kernel alone, so it holds over fork, exec and dup. Knows
//! paths and policies, no keys, and does not look at a byte but the first ones of a file: it keeps
//! plain bytes out, not liars.

use tidelock_cipher::{Root, UnitCipher};
use tidelock_format::{DiskOffset, PROBE_LEN, looks_sealed};

use crate::errno::Errno;
use crate::flags::{
    AT_SYMLINK_FOLLOW, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_NONBLOCK, O_PATH, O_RDWR,
    O_TMPFILE, O_TRUNC, O_WRONLY, RENAME_EXCHANGE, makes,
};
use crate::kernel::{Fd, FileStat, Links, System};
use crate::path::PathBuffer;
use crate::process::Process;
use crate::refusal::Refusal;
use crate::resolve::LastLink;
use crate::roots::{Decide, Decided};

/// What a restore_command of PostgreSQL writes.
const RESTORED: [&[u8]; 2] = [b"RECOVERYXLOG", b"RECOVERYHISTORY"];

/// What becomes of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is not the guard's business.
    Straight,
    /// The file is empty then, and its descriptor waits for bytes that are sealed.
    Waits,
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Judges an open; `path` ends with a zero byte.
    ///
    /// # Errors
    /// EPERM for a file with bytes that a program without keys would garble, after a line on
    /// standard error; EOPNOTSUPP for a file without a name below a protected directory.
    pub fn guard_judge(&self, at: Fd, path: &[u8], flags: i32) -> Result<Verdict, Errno> {
        if flags & O_PATH != 0 || flags & O_ACCMODE == 0 {
            return Ok(Verdict::Straight);
        }
        if flags & O_TMPFILE == O_TMPFILE {
            return match self.decide(at, path, LastLink::Follow) {
                Err(why) if is_shortage(why) => Err(why),
                Ok(Decided::Outside) | Err(_) => Ok(Verdict::Straight),
                Ok(_) => Err(Errno::OPNOTSUPP),
            };
        }
        let exclusive = makes(flags);
        let last = LastLink::of_open(flags);
        let probe = O_PATH | O_CLOEXEC | last.flag();
        let found = match self.system.open(at, path, probe, 0, Links::Follow) {
            Ok(fd) => fd,
            // The name decides what is made; without O_CREAT the kernel says why it is not there.
            Err(Errno::NOENT) if flags & O_CREAT != 0 => {
                return match self.is_sealed(at, path, last)? {
                    true => self.guard_empty(path, flags),
                    false => Ok(Verdict::Straight),
                };
            }
            Err(why) if is_shortage(why) => return Err(why),
            Err(_) => return Ok(Verdict::Straight),
        };
        let stat = self.system.stat(found);
        let real = self.real_place(found);
        self.system.close(found)?;
        let stat = stat?;
        if !stat.regular || exclusive {
            return Ok(Verdict::Straight);
        }
        // The text is asked too: a link on the way may take its target along. Where /proc is not
        // mounted, the text is all there is.
        let sealed = real.is_ok_and(must_be_sealed) || self.is_sealed(at, path, last)?;
        match sealed {
            false => Ok(Verdict::Straight),
            true if stat.size.0 == 0 || flags & O_TRUNC != 0 => self.guard_empty(path, flags),
            true => Err(self.without_keys(path)),
        }
    }

    /// True if a policy seals what is at this path. What cannot be looked up is the kernel's to
    /// refuse.
    fn is_sealed(&self, at: Fd, path: &[u8], last: LastLink) -> Result<bool, Errno> {
        match self.decide(at, path, last) {
            Ok(decided) => Ok(must_be_sealed(decided)),
            Err(why) if is_shortage(why) => Err(why),
            Err(_) => Ok(false),
        }
    }

    /// An empty file at a sealed name may get sealed bytes. Who appends writes something of his
    /// own, a log as a rule: told at once, while his standard error is not yet that file (`pg_ctl
    /// -l`).
    fn guard_empty(&self, path: &[u8], flags: i32) -> Result<Verdict, Errno> {
        if flags & O_APPEND != 0 {
            return Err(self.without_keys(path));
        }
        Ok(Verdict::Waits)
    }

    /// Opens a file whose descriptor has to wait.
    ///
    /// # Errors
    /// Those of the kernel; EPERM if it has bytes after all.
    pub fn guard_open(&self, at: Fd, path: &[u8], flags: i32, mode: u32) -> Result<Fd, Errno> {
        let fd = self.system.open(at, path, flags, mode, Links::Follow)?;
        let parked = match self.system.stat(fd) {
            Ok(stat) if stat.regular && stat.size.0 == 0 => self.park(fd, flags),
            Ok(_) => Err(self.without_keys(path)),
            Err(error) => Err(error),
        };
        if parked.is_err() {
            self.system.close(fd)?;
        }
        parked.map(|()| fd)
    }

    /// Puts an O_PATH descriptor of the same file in the place of a real one.
    fn park(&self, fd: Fd, flags: i32) -> Result<(), Errno> {
        let mut name = PathBuffer::new();
        Self::path_of_number(fd, &mut name)?;
        let waits = self.system.open(Fd::CWD, name.as_c(), O_PATH | O_CLOEXEC, 0, Links::Follow)?;
        let placed = self.system.duplicate_onto(waits, fd, flags & O_CLOEXEC != 0);
        self.system.close(waits)?;
        placed
    }

    /// True for a descriptor that waits for its first bytes.
    pub fn is_waiting(&self, fd: Fd) -> bool {
        self.waiting(fd).is_some()
    }

    /// True for one of a file that has none.
    pub fn is_empty(&self, fd: Fd) -> bool {
        self.waiting(fd).is_some_and(|stat| stat.size.0 == 0)
    }

    fn waiting(&self, fd: Fd) -> Option<FileStat> {
        // O_PATH: there is a file, and no offset.
        let stat = self.system.stat(fd).ok().filter(|stat| stat.regular)?;
        let no_offset = self.system.position(fd) == Err(Errno::BADF);
        (no_offset && self.real_place(fd).is_ok_and(must_be_sealed)).then_some(stat)
    }

    /// A write failed with EBADF. True if the descriptor has waited for this and is a real one now.
    ///
    /// # Errors
    /// EPERM, after a line on standard error, if what comes is not sealed.
    pub fn guard_admit(&self, fd: Fd, first: &[u8], cloexec: bool) -> Result<bool, Errno> {
        let Some(stat) = self.waiting(fd) else { return Ok(false) };
        let mut name = PathBuffer::new();
        if stat.size.0 != 0 || !looks_sealed(first) {
            return Err(self.guard_refuse(fd));
        }
        Self::path_of_number(fd, &mut name)?;
        let open =
            |access| self.system.open(Fd::CWD, name.as_c(), access | O_CLOEXEC, 0, Links::Follow);
        let real = open(O_RDWR).or_else(|_| open(O_WRONLY))?;
        let placed = self.system.duplicate_onto(real, fd, cloexec);
        self.system.close(real)?;
        placed.map(|()| true)
    }

    /// Judges rename and link: `from` comes to lie at `to`.
    ///
    /// # Errors
    /// EPERM, after a line on standard error; EXDEV where a copy, file by file, may do.
    pub fn guard_rename(
        &self,
        from: (Fd, &[u8]),
        to: (Fd, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        self.may_arrive(from, to, 0, true)?;
        if flags & RENAME_EXCHANGE != 0 { self.may_arrive(to, from, 0, true) } else { Ok(()) }
    }

    /// As [`guard_rename`](Self::guard_rename), for linkat(2).
    ///
    /// # Errors
    /// EPERM, after a line on standard error.
    pub fn guard_link(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: i32) -> Result<(), Errno> {
        self.may_arrive(from, to, flags, false)
    }

    fn may_arrive(
        &self,
        from: (Fd, &[u8]),
        to: (Fd, &[u8]),
        flags: i32,
        moves: bool,
    ) -> Result<(), Errno> {
        let mut room = PathBuffer::new();
        match self.decide_name(to, &mut room) {
            Ok((_, target)) if must_be_sealed(target) => {
                self.may_arrive_at(target, from, to, flags, moves)
            }
            Err(why) if is_shortage(why) => Err(why),
            // What cannot be looked up is the kernel's to refuse.
            _ => Ok(()),
        }
    }

    fn may_arrive_at(
        &self,
        target: Decided,
        from: (Fd, &[u8]),
        to: (Fd, &[u8]),
        flags: i32,
        moves: bool,
    ) -> Result<(), Errno> {
        let last = if flags & AT_SYMLINK_FOLLOW == 0 { LastLink::Itself } else { LastLink::Follow };
        let probe = O_PATH | O_CLOEXEC | last.flag();
        let found = if from.1 == b"\0" {
            // AT_EMPTY_PATH: an open file, perhaps without a name.
            self.system.duplicate(from.0, 0, true)
        } else {
            self.system.open(from.0, from.1, probe, 0, Links::Follow)
        };
        let found = match found {
            Err(why) if is_shortage(why) => return Err(why),
            Err(_) => return Ok(()),
            Ok(found) => found,
        };
        let may = self.may_be_there(found, from, target, to, moves);
        self.system.close(found)?;
        if may == Err(Errno::PERM) { Err(self.without_keys(to.1)) } else { may }
    }

    fn may_be_there(
        &self,
        file: Fd,
        from: (Fd, &[u8]),
        target: Decided,
        to: (Fd, &[u8]),
        moves: bool,
    ) -> Result<(), Errno> {
        let stat = self.system.stat(file)?;
        let source = self.real_place(file)?;
        let same = root(source).is_some() && root(source) == root(target);
        if stat.directory {
            return match root(target).filter(|_| same) {
                Some(root) if self.is_same_below(root, from, to)? => Ok(()),
                _ => Err(Errno::XDEV),
            };
        }
        if !stat.regular || same && must_be_sealed(source) {
            return Ok(());
        }
        if stat.size.0 == 0 {
            // Whoever has it open could write plain bytes later; a copy of it is as good.
            return Err(if moves { Errno::XDEV } else { Errno::PERM });
        }
        let mut name = PathBuffer::new();
        Self::path_of_number(file, &mut name)?;
        let flags = O_CLOEXEC | O_NONBLOCK;
        let Ok(readable) = self.system.open(Fd::CWD, name.as_c(), flags, 0, Links::Follow) else {
            return Err(Errno::PERM);
        };
        let mut first = [0; PROBE_LEN];
        let read = self.system.pread(readable, &mut first, DiskOffset::HEADER);
        self.system.close(readable)?;
        let is_sealed = looks_sealed(first.get(..read?).unwrap_or_default());
        if is_sealed { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Judges truncate(2).
    ///
    /// # Errors
    /// EPERM, after a line on standard error.
    pub fn guard_truncate(&self, path: &[u8], len: u64) -> Result<(), Errno> {
        // To be cut off entirely is to be removed, which is allowed.
        if len == 0 { Ok(()) } else { self.guard_open_within(path, O_WRONLY) }
    }

    /// Judges an open that libc or the kernel makes within itself: its descriptor cannot wait.
    ///
    /// # Errors
    /// EPERM, after a line on standard error; those of [`guard_judge`](Self::guard_judge).
    pub fn guard_open_within(&self, path: &[u8], flags: i32) -> Result<(), Errno> {
        match self.guard_judge(Fd::CWD, path, flags)? {
            Verdict::Straight => Ok(()),
            Verdict::Waits => Err(self.without_keys(path)),
        }
    }

    /// Says what is the matter; EPERM, which no mode of a file explains away.
    fn without_keys(&self, path: &[u8]) -> Errno {
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let name = path.rsplit(|byte| *byte == b'/').next();
        let why = match name {
            Some(name) if RESTORED.contains(&name) => Refusal::PlainRecovery,
            _ => Refusal::WithoutKeys,
        };
        self.system.report(path, why);
        why.errno()
    }

    /// What a call on a descriptor that waits gets, if it would make other bytes than sealed ones.
    pub fn guard_refuse(&self, fd: Fd) -> Errno {
        let mut path = PathBuffer::new();
        // Without its name the line is still worth something.
        let _ = path.fill(|room| self.system.path_of(fd, room));
        self.without_keys(path.as_bytes())
    }

    fn real_place(&self, fd: Fd) -> Result<Decided, Errno> {
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(fd, room))?;
        Ok(self.roots.decide(real.as_bytes()))
    }
}

/// True if only the look-up failed, for want of a descriptor or memory, which the program's own
/// call may not need.
#[must_use]
pub const fn is_shortage(why: Errno) -> bool {
    matches!(why, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

const fn must_be_sealed(decided: Decided) -> bool {
    matches!(decided, Decided::Sealed(..) | Decided::Ambiguous)
}

const fn root(decided: Decided) -> Option<Root> {
    match decided {
        Decided::Root(root) | Decided::Plain(root) | Decided::Sealed(root, _) => Some(root),
        _ => None,
    }
}
