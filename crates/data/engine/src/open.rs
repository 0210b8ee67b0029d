//! Opening: path rule, header and key must agree, or there is no open file.

use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::{KeySlot, Root, UnitCipher, UnlockError, is_zero};
use tidelock_format::{
    Class, DiskOffset, DiskSize, Front, HeaderError, Layout, PROBE_LEN, Start, ZeroRule,
    looks_sealed,
};

use crate::ancestry::O_PATH_DIRECTORY;
use crate::errno::Errno;
use crate::file::{O_APPEND, O_DIRECT, OpenFile};
use crate::gate::Alone;
use crate::index::may_be_index;
use crate::kernel::{Fd, FileStat, Links, SCRATCH_MAX, System};
use crate::path::PathBuffer;
use crate::process::{Placing, Process};
use crate::refusal::Refusal;
use crate::roots::{Decide, Decided};
use crate::table::{Claim, OpenFlags, Traits};
use crate::whole;
use crate::words::Stripe;

const O_ACCMODE: i32 = 3;
const O_WRONLY: i32 = 1;
const O_RDWR: i32 = 2;
pub(crate) const O_CREAT: i32 = 0o100;
pub(crate) const O_EXCL: i32 = 0o200;
const O_NOCTTY: i32 = 0o400;
pub(crate) const O_TRUNC: i32 = 0o1000;
const O_NONBLOCK: i32 = 0o4_000;
const O_NOFOLLOW: i32 = 0o400_000;
const O_CLOEXEC: i32 = 0o2_000_000;
const O_PATH: i32 = 0o10_000_000;
/// The bit that tells O_TMPFILE from O_DIRECTORY.
const O_TMPFILE: i32 = 0o20_000_000;

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
        if flags & O_TMPFILE != 0 {
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
        let follow = flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
        let mut place = self.resolve(at, path, follow)?;
        if follow && place.decided_by_proc() {
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
        match self.decide(at, path, true)? {
            Decided::Outside => {
                let directory = self.system.open(at, path, O_PATH_DIRECTORY, 0, Self::AS_FLAGS)?;
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
        let made = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
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
        let opened = self.system.open(lookup.at, lookup.path, real, mode, lookup.links);
        let opened = opened
            .inspect_err(|&error| self.tell_of_more(error, (lookup.at, lookup.path), flags, name));
        let admitted = opened.and_then(|fd| {
            self.forget(fd.0);
            match self.admit(claim, fd, &placing, flags, root, class, name) {
                Ok(Admitted::Special) if access == flags & O_ACCMODE => {
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
        if flags & O_TRUNC != 0 {
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

    /// All zeros where a header was, with the file alone: somebody else may mend it at the same
    /// time.
    fn mend(
        &self,
        fd: Fd,
        flags: i32,
        traits: Traits,
        name: &[u8],
    ) -> Result<Option<KeySlot>, Errno> {
        // Asked before, since the answer is read from a sealed file.
        let writes = flags & O_ACCMODE != 0 && flags & O_TRUNC == 0;
        let recovers = writes && self.system.may_rekey_lost(traits.root());
        self.cipher.prepare(traits.root());
        let alone = Alone::take(&self.system, traits.stripe)?;
        alone.begin_change();
        self.mend_alone(fd, flags, traits, name, recovers)
    }

    fn mend_alone(
        &self,
        fd: Fd,
        flags: i32,
        traits: Traits,
        name: &[u8],
        recovers: bool,
    ) -> Result<Option<KeySlot>, Errno> {
        let stat = self.system.stat(fd)?;
        let behind = match self.key_of(fd, &stat, traits) {
            Ok(key) => return Ok(key),
            Err(Missing::Errno(error)) => return Err(error),
            Err(Missing::Refused(why)) => return self.refuse(name, why),
            Err(Missing::Lost(behind)) => behind,
        };
        if flags & O_TRUNC != 0 {
            // Nothing of it is wanted.
            return self.system.set_size(fd, DiskSize(0)).map(|()| None);
        }
        // Zeros from the first byte to the last hold nothing that a new key could lose: a file that
        // was made longer before a crash and never written.
        let blank = self.is_all_zeros(fd, traits)?;
        if flags & O_ACCMODE == 0 {
            // Whoever opens it for writing will mend it; until then zeros are zeros.
            return if blank { Ok(None) } else { self.refuse(name, Refusal::LostHeader(behind)) };
        }
        let replaceable = blank || recovers && self.system.is_sole_holder(fd);
        if !replaceable {
            return self.refuse(name, Refusal::LostHeader(behind));
        }
        let key = self.replace_lost(fd, traits, name)?;
        if !blank {
            self.system.report(name, Refusal::LostHeaderReplaced);
        }
        Ok(Some(key))
    }

    /// Gives a file whose header is lost a new key: see DESIGN, "a lost header".
    fn replace_lost(&self, fd: Fd, traits: Traits, name: &[u8]) -> Result<KeySlot, Errno> {
        let layout = self.roots.layout(traits.root());
        let refuse = |why| self.refuse(name, why);
        let header = match self.cipher.create(traits.root(), traits.class, layout) {
            Ok(header) => header,
            Err(why) => return refuse(Refusal::Unlock(why)),
        };
        let key = self.install(header.as_bytes()).or_else(refuse)?;
        let header = header.with_front(Front::of_number(traits.front));
        let empty = tidelock_cipher::Sealed::EMPTY;
        match self.system.pwrite_first(fd, &header, layout.start(), empty) {
            Ok(count) if count as u64 == layout.start().get() => Ok(key),
            other => {
                self.keys.leave(key);
                Err(other.err().unwrap_or(Errno::NOSPC))
            }
        }
    }

    fn is_all_zeros(&self, fd: Fd, traits: Traits) -> Result<bool, Errno> {
        let mut at = self.roots.layout(traits.root()).start();
        let mut scratch = self.system.scratch(SCRATCH_MAX)?;
        loop {
            let count = self.system.pread(fd, &mut scratch, at)?;
            if !is_zero(scratch.get(..count).unwrap_or_default()) {
                return Ok(false);
            }
            if count == 0 {
                return Ok(true);
            }
            at = Layout::advance(at, count as u64);
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
            return Ok(());
        }
        let alone = Alone::take(&self.system, traits.stripe)?;
        alone.begin_change();
        self.system.set_size(fd, DiskSize(start.get()))
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
