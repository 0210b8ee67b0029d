//! The process: its descriptors, and the calls that make and copy them.

use core::sync::atomic::Ordering::Relaxed;

use tidelock_cipher::{KeySlot, Proven, Root, UnitCipher};
use tidelock_format::{COPY_LEN, DiskSize, Form, SECOND_COPY_AT, bytes_agree};

use crate::ancestry::Outside;
use crate::errno::Errno;
use crate::file::OpenFile;
use crate::flags::{O_CLOEXEC, O_PATH, O_WRONLY};
use crate::forks::{Change, Forks};
use crate::gate;
use crate::kernel::{Fd, FileStat, Links, System};
use crate::keytable::KeyTable;
use crate::moving::Moving;
use crate::once_per_file::OncePerFile;
use crate::path::PathBuffer;
use crate::refusal::Refusal;
use crate::resolve::LastLink;
use crate::roots::{Decide, Decided, Roots};
use crate::table::{Claim, DESCRIPTORS, Entry, OpenFlags, Slot, Table, Traits};
use crate::table_memory::TableMemory;
use crate::unopened::Unopened;
use crate::words::{Stripe, WORDS_U32};

/// Everything the library knows about the process it is loaded in.
pub struct Process<S, C, P: 'static> {
    pub(crate) system: S,
    pub(crate) cipher: C,
    pub(crate) roots: TableMemory<Roots<P>>,
    pub(crate) table: Table,
    pub(crate) keys: KeyTable,
    pub(crate) moving: Moving,
    forks: Forks,
    pub(crate) outside: Outside,
    /// Files that a refusal has named already.
    pub(crate) reported: OncePerFile,
    pub(crate) unopened: Unopened,
}

/// Where a real file goes when it is opened, and which number the program sees.
pub(crate) enum Placing {
    /// It moves to this spare descriptor, and the anchor takes its number.
    Move(Fd),
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
    /// A process; `roots` is static memory of zeros.
    #[must_use]
    pub const fn new(
        system: S,
        cipher: C,
        roots: &'static Roots<P>,
        keys: KeyTable,
        table: Table,
    ) -> Self {
        Self::of(system, cipher, TableMemory::Lent(roots), keys, table)
    }

    /// A process that is only simulated, with memory of its own for its protected directories.
    #[must_use]
    pub fn simulated(system: S, cipher: C, keys: KeyTable, table: Table) -> Self {
        Self::of(system, cipher, TableMemory::Own(Box::default()), keys, table)
    }

    const fn of(
        system: S,
        cipher: C,
        roots: TableMemory<Roots<P>>,
        keys: KeyTable,
        table: Table,
    ) -> Self {
        Self {
            system,
            cipher,
            roots,
            table,
            keys,
            moving: Moving::new(),
            forks: Forks::new(),
            outside: Outside::new(),
            reported: OncePerFile::new(),
            unopened: Unopened::new(),
        }
    }

    /// The protected directories.
    #[must_use]
    pub fn roots(&self) -> &Roots<P> {
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
                    let file = OpenFile::of(self, index);
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

    /// dup(2), F_DUPFD, F_DUPFD_CLOEXEC of a sealed file: the lowest free number not below
    /// `lowest`.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn duplicate(
        &self,
        file: &OpenFile<'_, S, C, P>,
        lowest: i32,
        cloexec: bool,
    ) -> Result<i32, Errno> {
        let _change = self.change();
        let fd =
            self.system.duplicate(self.system.anchor(file.traits().root()), lowest, cloexec)?;
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
        let _change = self.change();
        // If the kernel refuses, `onto` stays what it was.
        self.system.duplicate_onto(self.system.anchor(file.traits().root()), Fd(onto), cloexec)?;
        let joined = self.table.join(file.index);
        let before =
            if joined { self.table.replace(Fd(onto), file.index) } else { self.table.take(onto) };
        self.displace(before);
        Ok(())
    }

    /// Lets `put` give the number `onto` to something that is not ours; what it returns.
    pub fn replaced_by(&self, onto: i32, put: impl FnOnce() -> i32) -> i32 {
        let _change = self.change();
        let done = put();
        // If the kernel refuses, `onto` stays what it was.
        if done >= 0 {
            self.forget(onto);
        }
        done
    }

    /// The sealed descriptors from `first` to `last`, for close_range and closefrom.
    pub fn sealed_in(&self, first: u32, last: u32) -> impl Iterator<Item = i32> {
        self.table.ours_in(range(first, last))
    }

    /// The hidden descriptors from `first` to `last`, lowest first: what close_range must leave
    /// alone.
    pub fn hidden_in(&self, first: u32, last: u32) -> impl Iterator<Item = i32> {
        self.table.hidden_in(range(first, last))
    }

    /// The key for the header in the first bytes of a file, joined.
    pub(crate) fn unlock(&self, first: &[u8], traits: Traits) -> Result<KeySlot, Refusal> {
        let layout = self.roots.layout(traits.root());
        if let (Some(a), Some(b)) = (first.first_chunk(), copy_at(first, SECOND_COPY_AT))
            && a == b
            && let Some(key) = self.keys.find(a)
        {
            // Good bytes, but perhaps moved to where the policy wants other ones.
            return if bytes_agree(a, layout, traits.zero_rule) {
                Ok(key)
            } else {
                self.keys.leave(key);
                Err(Refusal::PolicyMismatch)
            };
        }
        let proven = self.cipher.choose(first)?;
        if proven.header().form == Form::Stream {
            return Err(Refusal::Stream);
        }
        if !proven.header().agrees(layout, traits.zero_rule) {
            return Err(Refusal::PolicyMismatch);
        }
        self.load_key(&proven)
    }

    /// Installs the key of a header that was just made, joined.
    pub(crate) fn install(&self, region: &[u8]) -> Result<KeySlot, Refusal> {
        self.load_key(&self.cipher.choose(region)?)
    }

    fn load_key(&self, proven: &Proven) -> Result<KeySlot, Refusal> {
        let copy = proven.copy();
        if let Some(key) = self.keys.find(copy) {
            return Ok(key);
        }
        let vacancy = self.keys.vacate(copy).map_err(|_| Refusal::TooManyKeys)?;
        match self.cipher.unlock(vacancy.slot, proven) {
            Ok(()) => Ok(self.keys.fill(vacancy, copy)),
            Err(why) => {
                self.keys.abandon(&vacancy);
                Err(Refusal::Unlock(why))
            }
        }
    }

    /// The size that the program sees of the file at `path`, which `found` says of the disk;
    /// `changes` is what [`size_changes`](Self::size_changes) gave before that was asked.
    ///
    /// # Errors
    /// Those of looking it up; ENOENT for what is hidden.
    pub fn size_at(
        &self,
        (at, path): (Fd, &[u8]),
        last: LastLink,
        found: &FileStat,
        changes: u64,
    ) -> Result<u64, Errno> {
        match self.decide(at, path, last)? {
            Decided::Sealed(root, class) => {
                let stripe = Stripe::of(root, class, found.device, found.inode);
                let size = match self.generation_since(stripe, changes) {
                    Some(_) => found.size,
                    None => self.size_between_changes((at, path), last, stripe)?,
                };
                Ok(size.plain(self.roots.layout(root)).0)
            }
            Decided::Control(_) => Err(Errno::NOENT),
            _ => Ok(found.size.0),
        }
    }

    /// The file was perhaps in the middle of a change.
    #[cold]
    fn size_between_changes(
        &self,
        (at, path): (Fd, &[u8]),
        last: LastLink,
        stripe: Stripe,
    ) -> Result<DiskSize, Errno> {
        let probe = O_PATH | O_CLOEXEC | last.flag();
        let fd = self.system.open(at, path, probe, 0, Links::Follow)?;
        let found = gate::between_changes(&self.system, stripe, || self.system.stat(fd));
        // An O_PATH descriptor: closing it loses nothing.
        let _ = self.system.close(fd);
        found.map(|stat| stat.size)
    }

    /// truncate(2), through a descriptor of its own.
    ///
    /// # Errors
    /// As open and ftruncate.
    pub fn truncate_at(&self, path: &[u8], size: u64) -> Result<(), Errno> {
        if self.moving.is_forbidden()
            && let Some(file) = self.open_for_writing(path)
        {
            return file.set_len(size);
        }
        if let Some(done) = self.truncate_plain(path, size) {
            return done;
        }
        // To open a FIFO is to wait for its other end. (The anchor is a link.)
        let may_be_opened = |stat: FileStat| stat.regular || stat.directory || stat.symlink;
        if self.stat_followed(Fd::CWD, path).is_ok_and(|stat| !may_be_opened(stat)) {
            return Err(Errno::INVAL);
        }
        let fd = self.open(Fd::CWD, path, O_WRONLY | O_CLOEXEC, 0)?;
        let done = match self.descriptor(fd) {
            Descriptor::Sealed(file) => file.set_len(size),
            _ => self.system.set_size(Fd(fd), tidelock_format::DiskSize(size)),
        };
        self.close(fd)?;
        done
    }

    /// truncate(2) of a plain file. A descriptor of it could not be closed without dropping the
    /// record locks on it. `None` for a file that has to be opened: it is sealed, or there is a
    /// reason to refuse.
    fn truncate_plain(&self, path: &[u8], size: u64) -> Option<Result<(), Errno>> {
        if self.named_descriptor(path).is_some() {
            return None;
        }
        // A link that leads out takes its target along, so the name counts too.
        let by_name = self.decide(Fd::CWD, path, LastLink::Follow).ok()?;
        if !matches!(by_name, Decided::Plain(_) | Decided::Outside) {
            return None;
        }
        let probe = O_PATH | O_CLOEXEC;
        let fd = self.system.open(Fd::CWD, path, probe, 0, Links::Follow).ok()?;
        let done = match self.is_plain_to_write(fd) {
            Ok(true) => Some(self.system.set_size_of_path(fd, tidelock_format::DiskSize(size))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        // Closing an O_PATH descriptor drops nothing.
        let _ = self.system.close(fd);
        done
    }

    /// Whether an O_PATH descriptor is of a file that no policy seals, also nobody else's.
    fn is_plain_to_write(&self, fd: Fd) -> Result<bool, Errno> {
        if !self.system.stat(fd)?.regular {
            return Ok(false);
        }
        let mut real = PathBuffer::new();
        real.fill(|room| self.system.path_of(fd, room))?;
        match self.roots.decide(real.as_bytes()) {
            Decided::Plain(_) => Ok(true),
            Decided::Outside => match self.judge_outside(Fd::CWD, real.as_c(), Links::Follow) {
                // The file has no name any more.
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
                judged => Ok(judged? == Decided::Outside),
            },
            _ => Ok(false),
        }
    }

    /// The open file of this path, if the program has it open for writing: another descriptor of it
    /// could not be closed without dropping the record locks on it.
    fn open_for_writing(&self, path: &[u8]) -> Option<OpenFile<'_, S, C, P>> {
        let stat = self.stat_followed(Fd::CWD, path).ok()?;
        self.open_file_of(&stat, |slot| slot.open_flags().access().write)
    }

    /// Numbers for a file that will be opened now, and perhaps made: taken before, so that one that
    /// cannot be hidden is never created.
    ///
    /// # Errors
    /// EMFILE if no number is left, or only those that the table has no room for.
    pub(crate) fn place_for(
        &self,
        root: Root,
        cloexec: bool,
        makes: bool,
    ) -> Result<Placing, Errno> {
        let placing = if self.moving.is_forbidden() {
            let visible = self.system.duplicate(self.system.anchor(root), 0, cloexec)?;
            self.forget(visible.0);
            Placing::Stay(visible)
        } else {
            let spare = self.system.reserve_hidden(root)?;
            if !Table::holds(spare) {
                let _ = self.system.close(spare);
                return Err(Errno::MFILE);
            }
            self.table.hide(spare);
            Placing::Move(spare)
        };
        if makes && !self.system.has_number_below(DESCRIPTORS) {
            self.give_back(root, &placing);
            return Err(Errno::MFILE);
        }
        Ok(placing)
    }

    /// Gives the numbers back: the file was not opened, or is not to be hidden.
    pub(crate) fn give_back(&self, root: Root, placing: &Placing) {
        match *placing {
            Placing::Move(spare) => self.retire(root, spare),
            // The anchor's: closing it cannot lose anything.
            Placing::Stay(visible) => drop(self.system.close(visible)),
        }
    }

    /// Lets an open file with these traits stand behind a visible descriptor, which is returned. It
    /// takes over the real file `fd`; on failure that is the caller's still.
    #[expect(clippy::too_many_arguments, reason = "what an open knows, each of another type")]
    pub(crate) fn conceal(
        &self,
        claim: Claim<'_>,
        fd: Fd,
        placing: &Placing,
        flags: OpenFlags,
        traits: Traits,
        stat: &FileStat,
        key: Option<KeySlot>,
    ) -> Result<Fd, Errno> {
        if !Table::holds(fd) {
            return Err(Errno::MFILE);
        }
        // Before it the file is a descriptor without a name, which exec closes.
        let _change = self.change();
        let slot = claim.slot();
        let (hidden, visible) = match *placing {
            Placing::Move(spare) => self.move_real(slot, fd, spare, traits.root(), flags)?,
            Placing::Stay(visible) => (fd, visible),
        };
        self.table.hide(hidden);
        slot.set_hidden(hidden);
        slot.flags.store(flags.0.cast_unsigned(), Relaxed);
        slot.set_traits(traits);
        slot.device.store(stat.device, Relaxed);
        slot.inode.store(stat.inode, Relaxed);
        slot.key.store(key.map_or(0, |key| key.0 + 1), Relaxed);
        let process = self.system.actor(traits.root()).number();
        let turn = process.wrapping_mul(31).wrapping_add(claim.index()) % WORDS_U32;
        slot.turn.store(u16::try_from(turn).unwrap_or(0), Relaxed);
        claim.publish(visible);
        Ok(visible)
    }

    /// The real file goes to the spare number and the anchor takes its place; where record locks
    /// have come up since the open, the file stays, and the anchor gets a number of its own. The
    /// hidden number and the visible one.
    fn move_real(
        &self,
        slot: &Slot,
        fd: Fd,
        spare: Fd,
        root: Root,
        flags: OpenFlags,
    ) -> Result<(Fd, Fd), Errno> {
        let anchor = self.system.anchor(root);
        if let Some(_move) = self.moving.begin(&slot.mover, self.system.actor(Root::FIRST)) {
            self.system
                .duplicate_onto(fd, spare, true)
                .and_then(|()| self.system.duplicate_onto(anchor, fd, flags.is_cloexec()))?;
            return Ok((spare, fd));
        }
        let visible = match self.system.duplicate(anchor, 0, flags.is_cloexec()) {
            Ok(visible) => {
                self.retire(root, spare);
                visible
            }
            // To close the file now would drop its locks. The spare number is the anchor's already.
            Err(_) => {
                self.system.duplicate_onto(anchor, spare, flags.is_cloexec()).map(|()| spare)?
            }
        };
        self.forget(visible.0);
        Ok((fd, visible))
    }

    /// Announces that descriptors and the table are about to change, and waits for a fork that is
    /// under way.
    #[inline]
    pub(crate) fn change(&self) -> Change<'_> {
        self.forks.change(|looks| self.system.pause(looks))
    }

    /// A fork is about to happen: waits until no thread changes descriptors and table.
    pub fn fork_begins(&self) {
        self.forks.begin(|looks| self.system.pause(looks));
    }

    /// It has happened, or failed: in the parent.
    pub fn fork_ended(&self) {
        self.forks.end();
    }

    /// After a fork, in the child: what other threads were moving is not its business.
    pub fn forked_child(&self) {
        self.forks.forget();
        let me = self.system.actor(Root::FIRST).code();
        // Written only where it must be: each first write of a child copies a page.
        for mover in self.table.movers().filter(|mover| ![0, me].contains(&mover.load(Relaxed))) {
            mover.store(0, Relaxed);
        }
    }

    /// Follows links as the flags say.
    pub(crate) const AS_FLAGS: Links = Links::Follow;
}

fn copy_at(bytes: &[u8], at: usize) -> Option<&[u8; COPY_LEN]> {
    bytes.get(at..)?.first_chunk()
}

fn range(first: u32, last: u32) -> core::ops::RangeInclusive<usize> {
    let clamp = |number: u32| usize::try_from(number).unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    clamp(first)..=clamp(last)
}
