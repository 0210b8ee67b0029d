//! Opening: path rule, header and key must agree, or there is no open file.

mod mend;

use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::{KeySlot, Root, UnitCipher, UnlockError};
use tidelock_format::{
    Class, DiskOffset, DiskSize, Front, HeaderError, PROBE_LEN, Start, ZeroRule, looks_sealed,
};

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::flags::{
    O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_EXCL, O_NOATIME, O_NOCTTY, O_NOFOLLOW,
    O_NONBLOCK, O_PATH, O_RDWR, O_TRUNC, O_WRONLY, PATH_DIRECTORY, TMPFILE_BIT, makes,
};
use crate::gate::Alone;
use crate::index::may_be_index;
use crate::kernel::{Fd, FileStat, Links, System};
use crate::path::PathBuffer;
use crate::process::{Placing, Process};
use crate::refusal::Refusal;
use crate::resolve::LastLink;
use crate::roots::{Decide, Decided};
use crate::table::{Claim, OpenFlags, Traits};
use crate::whole;
use crate::words::Stripe;

/// Where the kernel shall look for the file.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'p> {
    pub(crate) at: Fd,
    pub(crate) path: &'p [u8],
    pub(crate) links: Links,
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// open(2) and its kin, for every file, ours or not. `path` ends with a zero byte.
    ///
    /// # Errors
    /// Those of the kernel; EIO, with a message, where policy, header and key do not agree; ENOENT
    /// for what is hidden.
    pub fn open(&self, at: Fd, path: &[u8], flags: i32, mode: u32) -> Result<i32, Errno> {
        if let Some(file) = self.named_descriptor(path) {
            return self.open_by_number(&file, path, flags, mode);
        }
        if flags & TMPFILE_BIT != 0 {
            return self.open_unnamed(at, path, flags, mode);
        }
        let mut text = PathBuffer::new();
        if let Some(decided) = self.judge_text(at, path, &mut text) {
            let lookup = Lookup { at, path, links: Links::Refuse };
            let decided = match decided {
                // Below /proc without a link are the kernel's files.
                Decided::Outside if writes(flags) && !text.as_bytes().starts_with(b"/proc/") => {
                    self.judge_outside(at, path, Links::Refuse)
                }
                known => Ok(known),
            };
            let opened = decided.and_then(|decided| {
                self.open_decided(lookup, flags, mode, decided, text.as_bytes())
            });
            match opened {
                Err(Errno::LOOP | Errno::NOSYS) => {}
                done => return done,
            }
        }
        self.open_resolved(at, path, flags, mode)
    }

    /// What `/proc/self/fd/N` names, once more.
    // Apart, as `open_resolved` is: a path's buffer is a page of the stack, and a server's
    // connection, a process of its own, pays for each page of it that it reaches.
    #[inline(never)]
    fn open_by_number(
        &self,
        file: &OpenFile<'_, S, C, P>,
        path: &[u8],
        flags: i32,
        mode: u32,
    ) -> Result<i32, Errno> {
        let mut again = PathBuffer::new();
        Self::path_again(file, &mut again)?;
        let traits = file.traits();
        let lookup = Lookup { at: Fd::CWD, path: again.as_c(), links: Self::AS_FLAGS };
        let decided = Decided::Sealed(traits.root(), traits.class);
        self.open_decided(lookup, flags, mode, decided, path)
    }

    /// Where links may be in the path.
    #[inline(never)]
    fn open_resolved(&self, at: Fd, path: &[u8], flags: i32, mode: u32) -> Result<i32, Errno> {
        let last = LastLink::of_open(flags);
        let mut place = self.resolve(at, path, last)?;
        if last == LastLink::Follow && place.decided_by_proc() {
            drop(place);
            return self.open_by_proc(Lookup { at, path, links: Self::AS_FLAGS }, flags, mode);
        }
        let is_directory = place.name.as_bytes().is_empty();
        if place.decided == Decided::Outside && writes(flags) && !is_directory {
            place.decided = self.judge_in(place.directory, place.name.as_bytes(), path)?;
        }
        if is_directory || place.decided == Decided::Outside {
            // A directory, a link below /proc, or a file that no policy knows: as the program wants
            // it, with the lowest number that is free.
            drop(place);
            let lookup = Lookup { at, path, links: Self::AS_FLAGS };
            return self.open_decided(lookup, flags, mode, Decided::Outside, path);
        }
        let lookup = Lookup { at: place.directory, path: place.name.as_c(), links: Self::AS_FLAGS };
        self.open_decided(lookup, flags | O_NOFOLLOW, mode, place.decided, path)
    }

    /// Below /proc: a magic link leads to an open file, which is judged by the path that the kernel
    /// knows it by.
    fn open_by_proc(&self, lookup: Lookup<'_>, flags: i32, mode: u32) -> Result<i32, Errno> {
        let probe = O_PATH | O_CLOEXEC;
        let fd = self.system.open(lookup.at, lookup.path, probe, 0, lookup.links)?;
        let mut real = PathBuffer::new();
        let found = real.fill(|room| self.system.path_of(fd, room));
        self.system.close(fd)?;
        found?;
        let decided = match self.roots.decide(real.as_bytes()) {
            decided @ (Decided::Sealed(..) | Decided::Control(_)) => decided,
            Decided::Outside if writes(flags) && is_path(real.as_bytes()) => {
                match self.judge_outside(Fd::CWD, real.as_c(), Links::Follow) {
                    // The file has no name any more.
                    Err(Errno::NOENT | Errno::NOTDIR) => Decided::Outside,
                    judged => judged?,
                }
            }
            _ => Decided::Outside,
        };
        self.open_decided(lookup, flags, mode, decided, real.as_bytes())
    }

    /// O_TMPFILE: a file without a name has no policy, so it would lie plain below a protected
    /// directory.
    fn open_unnamed(&self, at: Fd, path: &[u8], flags: i32, mode: u32) -> Result<i32, Errno> {
        match self.decide(at, path, LastLink::Follow)? {
            Decided::Outside => {
                let open = |links| self.system.open(at, path, PATH_DIRECTORY, 0, links);
                // Where no link is in the way, none has to be followed.
                let directory = match open(Links::Refuse) {
                    Err(Errno::LOOP | Errno::NOSYS) => {
                        // The directory itself may be opened, a file in it may not.
                        if !self.follow(at, path)? {
                            return self.refuse(path, Refusal::TooManyLinks);
                        }
                        open(Self::AS_FLAGS)?
                    }
                    opened => opened?,
                };
                let judged = self.judge_in(directory, b"", path);
                // An O_PATH descriptor: closing it cannot lose anything.
                let _ = self.system.close(directory);
                if judged? != Decided::Outside {
                    return Err(Errno::OPNOTSUPP);
                }
                self.open_plain(Lookup { at, path, links: Self::AS_FLAGS }, flags, mode, path)
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn open_decided(
        &self,
        lookup: Lookup<'_>,
        flags: i32,
        mode: u32,
        decided: Decided,
        name: &[u8],
    ) -> Result<i32, Errno> {
        match decided {
            Decided::Control(_) => Err(Errno::NOENT),
            Decided::Ambiguous => self.refuse(name, Refusal::WhichDirectory),
            Decided::Sealed(root, class) if flags & O_PATH == 0 => {
                self.open_sealed(lookup, flags, mode, root, class, name)
            }
            Decided::Plain(_) | Decided::Outside if may_be_index(lookup.path) => {
                self.open_index(lookup, flags, mode, name)
            }
            _ => {
                self.unopened.note(decided, flags);
                self.open_plain(lookup, flags, mode, name)
            }
        }
    }

    /// A file that is not sealed by its path; one that is sealed all the same must not be taken for
    /// plain.
    pub(crate) fn open_plain(
        &self,
        lookup: Lookup<'_>,
        flags: i32,
        mode: u32,
        name: &[u8],
    ) -> Result<i32, Errno> {
        let fd = self.system.open(lookup.at, lookup.path, flags, mode, lookup.links)?;
        self.forget(fd.0);
        let made = makes(flags);
        if made || flags & (O_PATH | O_TRUNC) != 0 {
            return Ok(fd.0);
        }
        let Ok(stat) = self.system.stat(fd) else { return Ok(fd.0) };
        if !stat.regular || stat.size.0 < PROBE_LEN as u64 {
            return Ok(fd.0);
        }
        let mut first = [0u8; PROBE_LEN];
        let access = flags & O_ACCMODE;
        // With O_DIRECT, so few bytes cannot be read.
        let blind = access == O_WRONLY || access == O_RDWR && flags & O_DIRECT != 0;
        let read = if blind {
            self.peek(fd, &mut first)
        } else {
            self.system.pread(fd, &mut first, DiskOffset::HEADER)
        };
        match read {
            Ok(count) if looks_sealed(first.get(..count).unwrap_or_default()) => {}
            _ => return Ok(fd.0),
        }
        let why = if access == 0 {
            match self.adopt_stray(fd, flags, &stat, &first) {
                Ok(visible) => return Ok(visible.0),
                Err(why) => why,
            }
        } else {
            Missing::Refused(Refusal::SealedWherePlain)
        };
        self.system.close(fd)?;
        match why {
            Missing::Errno(error) => Err(error),
            Missing::Refused(why) => self.refuse(name, why),
            Missing::Lost(behind) => self.refuse(name, Refusal::LostHeader(behind)),
        }
    }

    /// The first bytes of a file that the program's own descriptor cannot read, by a second one. To
    /// close that one drops the process's record locks on the file: where there may be any, nothing
    /// is read. A lock that another thread takes at this very moment is not seen; it would not
    /// outlive the program's own descriptor either.
    // Apart: a path's buffer is a page of the stack.
    #[inline(never)]
    fn peek(&self, fd: Fd, into: &mut [u8]) -> Result<usize, Errno> {
        if self.system.may_be_locked(fd) {
            return Ok(0);
        }
        let mut path = PathBuffer::new();
        Self::path_of_number(fd, &mut path)?;
        // Should another thread have put a pipe or a terminal in place of the number: no waiting.
        let flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        let again = self.system.open(Fd::CWD, path.as_c(), flags, 0, Self::AS_FLAGS)?;
        let read = self.system.pread(again, into, DiskOffset::HEADER);
        // Opened for reading: nothing of it can be lost.
        let _ = self.system.close(again);
        read
    }

    /// A sealed file outside, opened for reading only: an archived log, a copy of a backup. Its
    /// header says all there is to know, if one of our keyrings has its data key.
    fn adopt_stray(
        &self,
        fd: Fd,
        flags: i32,
        stat: &FileStat,
        first: &[u8],
    ) -> Result<Fd, Missing> {
        let proven = self.cipher.choose(first).map_err(|why| {
            Missing::Refused(match why {
                // Nobody's whom we know: what it is cannot be said.
                UnlockError::UnknownKey => Refusal::SealedWherePlain,
                why => Refusal::Unlock(why),
            })
        })?;
        let header = proven.header();
        let rules = (header.class, header.zero_rule);
        let traits = Self::traits_of(Root::FIRST, rules, Front::Copy, stat);
        let key = self.unlock(first, traits).map_err(Missing::Refused)?;
        let flags = OpenFlags(flags);
        let visible = self.table.reserve().and_then(|claim| {
            let placing = self.place_for(Root::FIRST, flags.is_cloexec(), false)?;
            let concealed = self.conceal(claim, fd, &placing, flags, traits, stat, Some(key));
            concealed.inspect_err(|_| self.give_back(Root::FIRST, &placing))
        });
        visible.map_err(|error| {
            self.keys.leave(key);
            Missing::Errno(error)
        })
    }

    fn open_sealed(
        &self,
        lookup: Lookup<'_>,
        flags: i32,
        mode: u32,
        root: Root,
        class: Class,
        name: &[u8],
    ) -> Result<i32, Errno> {
        if flags & O_ACCMODE == O_WRONLY && flags & O_EXCL == 0 && self.is_special(lookup) {
            let fd = self.system.open(lookup.at, lookup.path, flags, mode, lookup.links)?;
            self.forget(fd.0);
            return Ok(fd.0);
        }
        // Partial blocks are read before they are written; O_APPEND would make pwrite ignore its
        // offset. O_TRUNC empties the file also when it is opened for reading only.
        let writes = flags & O_ACCMODE == O_WRONLY || flags & O_TRUNC != 0;
        let access = if writes { O_RDWR } else { flags & O_ACCMODE };
        let real = flags & !(O_ACCMODE | O_TRUNC | O_APPEND | O_DIRECT) | access | O_CLOEXEC;
        let cloexec = OpenFlags(flags).is_cloexec();
        // Whatever may run out is taken first: a file that was made must not be left behind.
        let claim = self.table.reserve()?;
        let placing = self.place_for(root, cloexec, flags & O_CREAT != 0)?;
        let opened = self.open_real(lookup, real, mode).inspect_err(|&error| {
            self.tell_of_extra_access(error, (lookup.at, lookup.path), flags, name)
        });
        let admitted = opened.and_then(|(fd, unread)| {
            self.forget(fd.0);
            match self.admit(claim, fd, &placing, flags | unread, root, class, name) {
                Ok(Admitted::Special) if access == flags & O_ACCMODE => {
                    if unread != 0 {
                        self.system.set_flags(fd, flags & O_NONBLOCK);
                    }
                    self.keep(fd, &placing, root, cloexec).map(Admitted::Sealed)
                }
                Ok(Admitted::Sealed(visible)) => Ok(Admitted::Sealed(visible)),
                other => {
                    self.system.close(fd)?;
                    other
                }
            }
        });
        match admitted {
            Ok(Admitted::Sealed(visible)) => Ok(visible.0),
            Ok(Admitted::Special | Admitted::Directory) => {
                // Exactly as the program asked for it.
                self.give_back(root, &placing);
                let plain = flags & !(O_CREAT | O_EXCL);
                let again = self.system.open(lookup.at, lookup.path, plain, mode, lookup.links)?;
                self.forget(again.0);
                Ok(again.0)
            }
            Err(error) => {
                self.give_back(root, &placing);
                Err(error)
            }
        }
    }

    /// Opens the real file; and what its flags are to be remembered with: [`OpenFlags::UNREAD`], or
    /// nothing.
    ///
    /// The header is read at each opening. That shall not count as an access: the inode would
    /// change, and an fsync that follows would have to write it again (docs/decisions/0017).
    fn open_real(&self, lookup: Lookup<'_>, real: i32, mode: u32) -> Result<(Fd, i32), Errno> {
        let open = |flags| self.system.open(lookup.at, lookup.path, flags, mode, lookup.links);
        // With O_EXCL a second try would meet the file that the first one made.
        if real & (O_EXCL | O_NOATIME) == 0 {
            match open(real | O_NOATIME) {
                // Somebody else's file.
                Err(Errno::PERM) => {}
                opened => return opened.map(|fd| (fd, OpenFlags::UNREAD)),
            }
        }
        open(real).map(|fd| (fd, 0))
    }

    /// A pipe, a socket, a terminal. To open a pipe is an act, so it is not tried in another mode
    /// first.
    fn is_special(&self, lookup: Lookup<'_>) -> bool {
        let found = self.system.stat_at(lookup.at, lookup.path);
        found.is_ok_and(|stat| !stat.regular && !stat.directory && !stat.symlink && !stat.block)
    }

    /// Lets the program have what was opened, which is no file: to open a pipe once more would wake
    /// up whoever waits at its other end, and lose what is in it.
    fn keep(&self, fd: Fd, placing: &Placing, root: Root, cloexec: bool) -> Result<Fd, Errno> {
        let (kept, visible) = match *placing {
            Placing::Move(spare) => {
                // Over itself, to have the flag that was asked for.
                let kept = self
                    .system
                    .duplicate_onto(fd, spare, true)
                    .and_then(|()| self.system.duplicate_onto(spare, fd, cloexec));
                if kept.is_ok() {
                    self.retire(root, spare);
                }
                (kept, fd)
            }
            Placing::Stay(visible) => (self.system.duplicate_onto(fd, visible, cloexec), visible),
        };
        if kept.is_err() || visible != fd {
            self.system.close(fd)?;
        }
        kept.map(|()| visible)
    }

    #[expect(clippy::too_many_arguments, reason = "what an open knows, each of another type")]
    fn admit(
        &self,
        claim: Claim<'_>,
        fd: Fd,
        placing: &Placing,
        flags: i32,
        root: Root,
        class: Class,
        name: &[u8],
    ) -> Result<Admitted, Errno> {
        let changes = self.size_changes();
        let stat = self.system.stat(fd)?;
        if stat.block {
            return self.refuse(name, Refusal::BlockDevice);
        }
        if !stat.regular {
            return Ok(if stat.directory { Admitted::Directory } else { Admitted::Special });
        }
        let front = Front::of(name.strip_suffix(b"\0").unwrap_or(name));
        let traits = Self::traits_of(root, (class, class.zero_rule()), front, &stat);
        let size = stat.size.plain(self.roots.layout(root));
        let generation = self.generation_since(traits.stripe, changes);
        claim
            .slot()
            .wholeness
            .store(generation.map_or(0, |generation| whole::memo(generation, size)), Relaxed);
        let key = match self.key_of(fd, &stat, traits) {
            Ok(key) => key,
            Err(Missing::Errno(error)) => return Err(error),
            Err(Missing::Refused(why)) => return self.refuse(name, why),
            Err(Missing::Lost(_)) => self.mend(fd, flags, traits, name)?,
        };
        if key.is_some() {
            self.send_header(fd, OpenFlags(flags), root).inspect_err(|_| self.drop_key(key))?;
        }
        let made = makes(flags);
        if flags & O_TRUNC != 0 && !made {
            self.empty(fd, traits, &stat).inspect_err(|_| self.drop_key(key))?;
        }
        self.conceal(claim, fd, placing, OpenFlags(flags), traits, &stat, key)
            .map(Admitted::Sealed)
            .inspect_err(|_| self.drop_key(key))
    }

    /// For a descriptor that learns a file's key: its writes send their own ranges to the disk if
    /// it promises that, and whose header it is may have left that in the page cache
    /// (docs/decisions/0004).
    pub(crate) fn send_header(&self, fd: Fd, flags: OpenFlags, root: Root) -> Result<(), Errno> {
        if !flags.promises() {
            return Ok(());
        }
        let start = self.roots.layout(root).start().get();
        self.system.write_out(fd, DiskOffset::HEADER, start)
    }

    fn key_of(&self, fd: Fd, stat: &FileStat, traits: Traits) -> Result<Option<KeySlot>, Missing> {
        if stat.size.0 == 0 {
            return Ok(None);
        }
        let mut first = [0u8; PROBE_LEN];
        let count =
            self.system.pread(fd, &mut first, DiskOffset::HEADER).map_err(Missing::Errno)?;
        let first = first.get(..count).unwrap_or_default();
        match Start::of(first, stat.size, self.roots.layout(traits.root())) {
            Start::Empty => return Ok(None),
            Start::Blank { behind } => return Err(Missing::Lost(behind)),
            Start::Header => {}
        }
        match self.unlock(first, traits) {
            Ok(key) => Ok(Some(key)),
            Err(Refusal::Unlock(UnlockError::Header(HeaderError::Magic))) => {
                Err(Missing::Refused(Refusal::PlainWhereSealed))
            }
            Err(why) => Err(Missing::Refused(why)),
        }
    }

    fn drop_key(&self, key: Option<KeySlot>) {
        if let Some(key) = key {
            self.keys.leave(key);
        }
    }

    /// O_TRUNC: the header stays, since others may hold the file open.
    fn empty(&self, fd: Fd, traits: Traits, stat: &FileStat) -> Result<(), Errno> {
        let start = self.roots.layout(traits.root()).start();
        if stat.size.is_at_most(start) {
            // The file may be made just now: no open fails for its times, and leaves it behind. Nor
            // is it cut, after which ext4 writes out all data at the close.
            if self.system.touch(fd).is_err() {
                let _ = self.renew_times(fd, traits);
            }
            return Ok(());
        }
        let alone = Alone::take(&self.system, traits.stripe)?;
        alone.begin_change();
        self.system.set_size(fd, DiskSize(start.get()))
    }

    /// An empty file of another user gets new times by a cut.
    fn renew_times(&self, fd: Fd, traits: Traits) -> Result<(), Errno> {
        let start = self.roots.layout(traits.root()).start();
        // Nobody makes a header meanwhile, which would be cut off.
        let _alone = Alone::take(&self.system, traits.stripe)?;
        match self.system.stat(fd)?.size {
            size if size.is_at_most(start) => self.system.set_size(fd, size),
            _ => Ok(()),
        }
    }

    fn traits_of(
        root: Root,
        (class, zero_rule): (Class, ZeroRule),
        front: Front,
        stat: &FileStat,
    ) -> Traits {
        let stripe = Stripe::of(root, class, stat.device, stat.inode);
        Traits { class, zero_rule, front: front as u8, stripe, shared: false, locks: false }
    }

    pub(crate) fn refuse<T>(&self, name: &[u8], why: Refusal) -> Result<T, Errno> {
        self.system.report(name.strip_suffix(b"\0").unwrap_or(name), why);
        Err(why.errno())
    }
}

/// True if an open with these flags may change bytes or make a file.
const fn writes(flags: i32) -> bool {
    flags & O_PATH == 0 && (flags & O_ACCMODE != 0 || flags & (O_CREAT | O_TRUNC) != 0)
}

/// The kernel's word for an open file is a path: not "pipe:[17]", nor one of its own files.
fn is_path(real: &[u8]) -> bool {
    real.starts_with(b"/") && !real.starts_with(b"/proc/")
}

/// What became of a descriptor that was opened where sealed files are.
enum Admitted {
    /// Behind this descriptor.
    Sealed(Fd),
    Directory,
    /// A pipe, a socket, a device.
    Special,
}

/// Why a file has no key.
enum Missing {
    Errno(Errno),
    Refused(Refusal),
    Lost(u64),
}
