//! The process: its descriptors, and the calls that make, copy and close them.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use tidelock_cipher::{KeySlot, UnitCipher};
use tidelock_format::{COPY_LEN, Probe, SECOND_COPY_AT};

use crate::errno::Errno;
use crate::file::OpenFile;
use crate::kernel::{Fd, FileStat, Links, System};
use crate::keytable::{Copy, KeyTable};
use crate::moving::{Leave, Moving};
use crate::path::PathBuffer;
use crate::refusal::Refusal;
use crate::roots::{Decide, Decided, Roots};
use crate::table::{Claim, DESCRIPTORS, Entry, OpenFlags, Table, Traits};

/// Everything the library knows about the process it is loaded in.
pub struct Process<S, C, P> {
    pub(crate) system: S,
    pub(crate) cipher: C,
    pub(crate) roots: Roots<P>,
    pub(crate) table: Table,
    pub(crate) keys: KeyTable,
    pub(crate) moving: Moving,
}

/// Where a real file goes when it is opened, and which number the program sees.
pub(crate) enum Placing<'m> {
    /// It moves to this spare descriptor, and the anchor takes its number.
    Move { spare: Fd, _leave: Leave<'m> },
    /// It stays, and the anchor has this number already.
    Stay(Fd),
}

/// What a descriptor of the program is.
pub enum Descriptor<'p, S: System, C: UnitCipher, P: Decide> {
    /// Not ours: the call goes straight to the kernel.
    Foreign,
    /// One of our own that the program cannot know: for it, there is no such descriptor.
    Hidden,
    /// A sealed file.
    Sealed(OpenFile<'p, S, C, P>),
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// A process without protected directories.
    #[must_use]
    pub const fn new(system: S, cipher: C, keys: KeyTable) -> Self {
        Self {
            system,
            cipher,
            roots: Roots::new(),
            table: Table::new(),
            keys,
            moving: Moving::new(),
        }
    }

    /// The protected directories.
    #[must_use]
    pub const fn roots(&self) -> &Roots<P> {
        &self.roots
    }

    /// The operating system below.
    #[must_use]
    pub const fn system(&self) -> &S {
        &self.system
    }

    /// The cipher below.
    #[must_use]
    pub const fn cipher(&self) -> &C {
        &self.cipher
    }

    /// What `fd` is.
    #[inline]
    pub fn descriptor(&self, fd: i32) -> Descriptor<'_, S, C, P> {
        loop {
            match self.table.entry(fd) {
                Entry::Foreign => return Descriptor::Foreign,
                Entry::Hidden => return Descriptor::Hidden,
                Entry::Open(index) => {
                    if !self.table.join(index) {
                        core::hint::spin_loop();
                        continue;
                    }
                    let file = OpenFile { process: self, index, slot: self.table.slot(index) };
                    if self.table.entry(fd) == Entry::Open(index) {
                        return Descriptor::Sealed(file);
                    }
                }
            }
        }
    }

    /// Marks a descriptor of our own: the program can neither use nor close it.
    pub fn hide(&self, fd: Fd) {
        self.table.hide(fd);
    }

    /// Closes a descriptor of our own.
    pub fn drop_hidden(&self, fd: Fd) {
        self.table.take(fd.0);
        // The anchor's, or one without a file: there is nothing to lose.
        let _ = self.system.close(fd);
    }

    /// close(2).
    ///
    /// # Errors
    /// Those of the kernel; EBADF for a hidden descriptor.
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        if self.table.entry(fd) == Entry::Hidden {
            return Err(Errno::BADF);
        }
        if let Entry::Open(index) = self.table.take(fd) {
            self.drop_locks(index);
            let closed = self.system.close(Fd(fd));
            self.leave(index);
            return closed;
        }
        self.system.close(Fd(fd))
    }

    /// Forgets what `fd` was, because the kernel is about to give the number to something else, or just did.
    pub fn forget(&self, fd: i32) {
        let before = self.table.take(fd);
        self.displace(before);
    }

    /// A descriptor does not stand for this any more.
    fn displace(&self, before: Entry) {
        if let Entry::Open(index) = before {
            self.drop_locks(index);
            self.leave(index);
        }
    }

    /// Closing any descriptor of a file drops the process's record locks on it, also where duplicates remain.
    fn drop_locks(&self, index: u32) {
        let slot = self.table.slot(index);
        if slot.traits().locks {
            self.system.drop_record_locks(slot.hidden());
        }
    }

    /// dup(2), F_DUPFD, F_DUPFD_CLOEXEC of a sealed file: the lowest free number not below `lowest`.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn duplicate(
        &self,
        file: &OpenFile<'_, S, C, P>,
        lowest: i32,
        cloexec: bool,
    ) -> Result<i32, Errno> {
        let fd = self.system.duplicate(self.system.anchor(file.traits().root), lowest, cloexec)?;
        if !Table::holds(fd) {
            self.system.close(fd)?;
            return Err(Errno::MFILE);
        }
        // One more user, which from now on is the new descriptor.
        if !self.table.join(file.index) {
            self.system.close(fd)?;
            return Err(Errno::BADF);
        }
        let before = self.table.replace(fd, file.index);
        self.displace(before);
        Ok(fd.0)
    }

    /// dup2(2), dup3(2) of a sealed file.
    ///
    /// # Errors
    /// EBADF if `onto` is hidden, and those of the kernel.
    pub fn duplicate_onto(
        &self,
        file: &OpenFile<'_, S, C, P>,
        onto: i32,
        cloexec: bool,
    ) -> Result<(), Errno> {
        if self.table.entry(onto) == Entry::Hidden || !Table::holds(Fd(onto)) {
            return Err(Errno::BADF);
        }
        // If the kernel refuses, `onto` stays what it was.
        self.system.duplicate_onto(self.system.anchor(file.traits().root), Fd(onto), cloexec)?;
        let joined = self.table.join(file.index);
        let before =
            if joined { self.table.replace(Fd(onto), file.index) } else { self.table.take(onto) };
        self.displace(before);
        Ok(())
    }

    /// True if the program may let dup2 overwrite `onto` with something that is not ours; forgets what it was.
    ///
    /// # Errors
    /// EBADF if it is hidden.
    pub fn overwrite(&self, onto: i32) -> Result<(), Errno> {
        if self.table.entry(onto) == Entry::Hidden {
            return Err(Errno::BADF);
        }
        self.forget(onto);
        Ok(())
    }

    /// The sealed descriptors from `first` to `last`, for close_range and closefrom.
    pub fn sealed_in(&self, first: u32, last: u32) -> impl Iterator<Item = i32> {
        self.table.ours_in(range(first, last))
    }

    /// The hidden descriptors from `first` to `last`, lowest first: what close_range must leave alone.
    pub fn hidden_in(&self, first: u32, last: u32) -> impl Iterator<Item = i32> {
        self.table.hidden_in(range(first, last))
    }

    /// A fork has happened or is about to: every offset is shared with another process.
    pub fn forked(&self) {
        let joined = self.table.indices().filter(|&index| self.table.join(index));
        let files =
            joined.map(|index| OpenFile { process: self, index, slot: self.table.slot(index) });
        for file in files.filter(|file| !file.traits().shared && file.appends()) {
            self.system.mark_appends(file.hidden(), true);
        }
        self.table.mark_all_shared();
    }

    pub(crate) fn leave(&self, index: u32) {
        if self.table.leave(index) {
            let slot = self.table.slot(index);
            let hidden = slot.hidden();
            let key = slot.key.load(Acquire);
            if hidden.0 >= 0 {
                self.retire(slot.traits().root, hidden);
            }
            self.table.free(index);
            if key != 0 {
                self.keys.leave(KeySlot(key - 1));
            }
        }
    }

    /// Gives back a hidden descriptor.
    pub(crate) fn retire(&self, root: u8, hidden: Fd) {
        // First out of the table: if it is closed, its number may be anybody's at once.
        self.table.take(hidden.0);
        if self.system.retire_hidden(root, hidden) {
            self.table.hide(hidden);
        }
    }

    /// The key for the header in the first bytes of a file, joined.
    pub(crate) fn unlock(&self, first: &[u8], traits: Traits) -> Result<KeySlot, Refusal> {
        let copies = (first.first_chunk::<COPY_LEN>(), copy_at(first, SECOND_COPY_AT));
        if let (Some(a), Some(b)) = copies
            && a == b
            && let Some(key) = self.keys.find(a)
        {
            return Ok(key);
        }
        let probe = Probe::parse(first);
        let mut why = Refusal::Unlock(probe.error().into());
        for (found, copy) in probe.candidates().into_iter().zip([copies.0, copies.1]) {
            let (Some(found), Some(_)) = (found, copy) else { continue };
            if found.header.layout != self.roots.layout(traits.root)
                || found.header.zero_rule != traits.zero_rule
            {
                return Err(Refusal::PolicyMismatch);
            }
            let mut copy = [0; COPY_LEN];
            let (signed, mac) = copy.split_at_mut(found.signed.len());
            signed.copy_from_slice(&found.signed);
            mac.copy_from_slice(&found.mac);
            match self.load_key(found, &copy) {
                Ok(key) => return Ok(key),
                Err(refusal) => why = refusal,
            }
        }
        Err(why)
    }

    /// Installs the key of a header that was just made, joined.
    pub(crate) fn install(&self, region: &[u8]) -> Result<KeySlot, Refusal> {
        let probe = Probe::parse(region);
        let copy = region.first_chunk::<COPY_LEN>();
        match (probe.candidates(), copy) {
            ([Some(found), _], Some(copy)) => self.load_key(found, copy),
            _ => Err(Refusal::Unlock(probe.error().into())),
        }
    }

    fn load_key(
        &self,
        found: &tidelock_format::UnverifiedHeader,
        copy: &Copy,
    ) -> Result<KeySlot, Refusal> {
        if let Some(key) = self.keys.find(copy) {
            return Ok(key);
        }
        let vacancy = self.keys.vacate(copy).map_err(|_| Refusal::TooManyKeys)?;
        match self.cipher.unlock(vacancy.slot, found) {
            Ok(()) => Ok(self.keys.fill(vacancy, copy)),
            Err(why) => {
                self.keys.abandon(&vacancy);
                Err(Refusal::Unlock(why))
            }
        }
    }

    /// The size that the program sees of the file at `path`, whose size on the disk is `disk`.
    ///
    /// # Errors
    /// Those of looking it up; ENOENT for what is hidden.
    pub fn size_at(&self, at: Fd, path: &[u8], follow: bool, disk: u64) -> Result<u64, Errno> {
        match self.decide(at, path, follow)? {
            Decided::Sealed(root, _) => {
                Ok(tidelock_format::DiskSize(disk).plain(self.roots.layout(root)).0)
            }
            Decided::Control(_) => Err(Errno::NOENT),
            _ => Ok(disk),
        }
    }

    /// rename(2) and its kin: EXDEV where the bytes would have to be other ones.
    ///
    /// # Errors
    /// EXDEV, ENOENT for what is hidden, and those of the kernel.
    pub fn rename(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: u32) -> Result<(), Errno> {
        self.may_move(from, to)?;
        self.system.rename(from, to, flags)
    }

    /// linkat(2), under the same rule.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn link(&self, from: (Fd, &[u8]), to: (Fd, &[u8]), flags: i32) -> Result<(), Errno> {
        if flags & AT_SYMLINK_FOLLOW != 0
            && let Some(file) = self.named_descriptor(from.1)
        {
            let mut again = PathBuffer::new();
            Self::path_again(&file, &mut again)?;
            return self.link_open_file(&file, (Fd::CWD, again.as_c()), to, flags);
        }
        self.may_move(from, to)?;
        self.system.link(from, to, flags)
    }

    /// linkat(2) of a sealed file that is open: `from` leads to its hidden descriptor, and the rule is that for the name by
    /// which the kernel knows it.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn link_open_file(
        &self,
        file: &OpenFile<'_, S, C, P>,
        from: (Fd, &[u8]),
        to: (Fd, &[u8]),
        flags: i32,
    ) -> Result<(), Errno> {
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(file.hidden(), room))?;
        let source = match self.roots.decide(real.as_bytes()) {
            // Its name may be gone; its class is not.
            Decided::Sealed(root, _) => Decided::Sealed(root, file.traits().class),
            other => other,
        };
        match (source, self.decide(to.0, to.1, false)?) {
            (_, Decided::Control(_) | Decided::Ambiguous) => Err(Errno::PERM),
            (Decided::Sealed(a, old), Decided::Sealed(b, new))
                if a == b && old.zero_rule() == new.zero_rule() =>
            {
                self.system.link(from, to, flags)
            }
            (Decided::Outside, Decided::Outside) => self.system.link(from, to, flags),
            _ => Err(Errno::XDEV),
        }
    }

    fn may_move(&self, from: (Fd, &[u8]), to: (Fd, &[u8])) -> Result<(), Errno> {
        use Decided::{Ambiguous, Control, Outside, Plain, Root, Sealed};
        let source = self.decide(from.0, from.1, false)?;
        let target = self.decide(to.0, to.1, false)?;
        let allowed = match (source, target) {
            (Control(_) | Ambiguous, _) => return Err(Errno::NOENT),
            (_, Control(_) | Ambiguous) => return Err(Errno::PERM),
            (Outside | Plain(_), Outside | Plain(_)) => true,
            (Sealed(a, old), Sealed(b, new)) if a == b => old.zero_rule() == new.zero_rule(),
            (Root(_), _) | (_, Root(_)) => true,
            _ => false,
        };
        if allowed || self.is_movable(from, source, target)? { Ok(()) } else { Err(Errno::XDEV) }
    }

    /// What has no sealed bytes itself moves freely within a protected directory: directories, links, sockets.
    fn is_movable(
        &self,
        from: (Fd, &[u8]),
        source: Decided,
        target: Decided,
    ) -> Result<bool, Errno> {
        use Decided::{Plain, Sealed};
        let stat = self.system.stat_at(from.0, from.1)?;
        if stat.regular {
            return Ok(stat.size.0 == 0);
        }
        let root = |decided| match decided {
            Plain(root) | Sealed(root, _) => Some(root),
            _ => None,
        };
        Ok(!stat.directory || root(source) == root(target))
    }

    /// truncate(2), through a descriptor of its own.
    ///
    /// # Errors
    /// As open and ftruncate.
    pub fn truncate_at(&self, path: &[u8], size: u64) -> Result<(), Errno> {
        const O_WRONLY_CLOEXEC: i32 = 0o2_000_001;
        if self.moving.is_forbidden()
            && let Some(file) = self.open_for_writing(path)
        {
            return file.set_len(size);
        }
        let fd = self.open(Fd::CWD, path, O_WRONLY_CLOEXEC, 0)?;
        let done = match self.descriptor(fd) {
            Descriptor::Sealed(file) => file.set_len(size),
            _ => self.system.set_size(Fd(fd), tidelock_format::DiskSize(size)),
        };
        self.close(fd)?;
        done
    }

    /// The open file of this path, if the program has it open for writing: another descriptor of it could not be
    /// closed without dropping the record locks on it.
    fn open_for_writing(&self, path: &[u8]) -> Option<OpenFile<'_, S, C, P>> {
        const O_PATH_CLOEXEC: i32 = 0o12_000_000;
        let fd = self.system.open(Fd::CWD, path, O_PATH_CLOEXEC, 0, Links::Follow).ok()?;
        let stat = self.system.stat(fd);
        // Closing an O_PATH descriptor drops nothing.
        let _ = self.system.close(fd);
        let stat = stat.ok()?;
        let joined = self.table.indices().filter(|&index| self.table.join(index));
        let mut files =
            joined.map(|index| OpenFile { process: self, index, slot: self.table.slot(index) });
        files.find(|file| {
            let slot = file.slot;
            let place = (slot.device.load(Relaxed), slot.inode.load(Relaxed));
            place == (stat.device, stat.inode) && file.flags().access().write
        })
    }

    /// Numbers for a file that will be opened now: taken before, so that one that cannot be hidden is never created.
    pub(crate) fn place_for(&self, root: u8, cloexec: bool) -> Result<Placing<'_>, Errno> {
        if let Some(leave) = self.moving.begin() {
            let spare = self.system.reserve_hidden(root)?;
            self.table.hide(spare);
            return Ok(Placing::Move { spare, _leave: leave });
        }
        let visible = self.system.duplicate(self.system.anchor(root), 0, cloexec)?;
        self.forget(visible.0);
        Ok(Placing::Stay(visible))
    }

    /// Gives the numbers back: the file was not opened, or is not to be hidden.
    pub(crate) fn give_back(&self, root: u8, placing: &Placing<'_>) {
        match *placing {
            Placing::Move { spare, .. } => self.retire(root, spare),
            // The anchor's: closing it cannot lose anything.
            Placing::Stay(visible) => drop(self.system.close(visible)),
        }
    }

    /// Lets an open file with these traits stand behind a visible descriptor, which is returned. It takes over the real
    /// file `fd`; on failure that is the caller's still.
    #[expect(clippy::too_many_arguments, reason = "what an open knows, each of another type")]
    pub(crate) fn conceal(
        &self,
        claim: Claim<'_>,
        fd: Fd,
        placing: &Placing<'_>,
        flags: OpenFlags,
        traits: Traits,
        stat: &FileStat,
        key: Option<KeySlot>,
    ) -> Result<Fd, Errno> {
        if !Table::holds(fd) {
            return Err(Errno::MFILE);
        }
        let (hidden, visible) = match *placing {
            Placing::Move { spare, .. } => (spare, fd),
            Placing::Stay(visible) => (fd, visible),
        };
        if let Placing::Move { .. } = placing {
            let anchor = self.system.anchor(traits.root);
            self.system
                .duplicate_onto(fd, hidden, true)
                .and_then(|()| self.system.duplicate_onto(anchor, fd, flags.is_cloexec()))?;
        }
        self.table.hide(hidden);
        let slot = claim.slot();
        slot.hidden.store(hidden.0, Relaxed);
        slot.flags.store(flags.0.cast_unsigned(), Relaxed);
        slot.set_traits(traits);
        slot.device.store(stat.device, Relaxed);
        slot.inode.store(stat.inode, Relaxed);
        slot.key.store(key.map_or(0, |key| key.0 + 1), Relaxed);
        claim.publish(visible);
        Ok(visible)
    }

    /// The descriptor that `/proc/self/fd/N`, `/dev/fd/N` and `/dev/stdin` name, if it is that of a sealed file.
    pub(crate) fn named_descriptor(&self, path: &[u8]) -> Option<OpenFile<'_, S, C, P>> {
        let path = path.strip_suffix(b"\0").unwrap_or(path);
        let number = match path {
            b"/dev/stdin" => 0,
            b"/dev/stdout" => 1,
            b"/dev/stderr" => 2,
            _ => {
                let digits = path
                    .strip_prefix(b"/proc/self/fd/")
                    .or_else(|| path.strip_prefix(b"/dev/fd/"))?;
                core::str::from_utf8(digits).ok()?.parse().ok()?
            }
        };
        match self.descriptor(number) {
            Descriptor::Sealed(file) => Some(file),
            _ => None,
        }
    }

    /// The path of the real file behind a sealed one, to open it once more.
    pub(crate) fn path_again(
        file: &OpenFile<'_, S, C, P>,
        into: &mut PathBuffer,
    ) -> Result<(), Errno> {
        let mut digits = [0u8; 10];
        let mut number = file.hidden().0.cast_unsigned();
        let mut at = digits.len();
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            }
            number /= 10;
            if number == 0 {
                break;
            }
        }
        into.set(b"/proc/self/fd/")?;
        into.append(digits.get(at..).unwrap_or_default())
    }

    /// Follows links as the flags say.
    pub(crate) const AS_FLAGS: Links = Links::Follow;
}

const AT_SYMLINK_FOLLOW: i32 = 0x400;

fn copy_at(bytes: &[u8], at: usize) -> Option<&[u8; COPY_LEN]> {
    bytes.get(at..)?.first_chunk()
}

fn range(first: u32, last: u32) -> core::ops::RangeInclusive<usize> {
    let clamp = |number: u32| usize::try_from(number).unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    clamp(first)..=clamp(last)
}
