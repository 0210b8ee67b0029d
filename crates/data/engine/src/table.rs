//! Which open file is this descriptor? A table of atomics, read without a lock.
//!
//! Two levels, as in the kernel: descriptors point at open files, and duplicates share one. An open
//! file lives while a descriptor or a running call holds it, so that a descriptor that is closed
//! and opened again meanwhile can never lend its key to another file.

use core::sync::atomic::{
    AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use tidelock_cipher::Root;
use tidelock_format::{Class, ZeroRule};

use crate::end::End;
use crate::errno::Errno;
use crate::kernel::Fd;
use crate::table_memory::TableMemory;
use crate::words::{Stripe, WORDS_U32};

/// How many descriptors a program may have; a sealed file is not opened above.
pub const DESCRIPTORS: usize = 65_536;
/// How many open files there may be; one more is refused before anything is made.
pub const OPEN_FILES: usize = 16_384;
/// Of how many the end is remembered: a kernel that does not overcommit charges each process for
/// the memory.
pub const ENDS: usize = 4096;

/// No file of ours.
const FOREIGN: u32 = 0;
/// A descriptor that only we may use.
const HIDDEN: u32 = u32::MAX;

/// The descriptors and open files of this process.
pub struct Table {
    descriptors: TableMemory<[AtomicU32]>,
    open_files: TableMemory<[Slot]>,
    /// What is known of the ends of the first open files.
    ends: TableMemory<[End]>,
    /// Below this, slots have been used.
    top: AtomicU32,
    /// Where the search for a free slot begins.
    next: AtomicU32,
}

/// One open file description.
pub struct Slot {
    /// Descriptors and running calls; 0 is free, [`CLAIMED`] belongs to an open that is not done.
    users: AtomicU32,
    /// The complement of the hidden descriptor's number; 0 means none.
    hidden: AtomicI32,
    /// Slot of the file key plus one; 0 while the file has no header.
    pub(crate) key: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) state: AtomicU32,
    /// The descriptor for direct access; see `direct`.
    pub(crate) direct: AtomicU16,
    /// Which word is the lock of the offset; the same in a forked child.
    pub(crate) turn: AtomicU16,
    pub(crate) device: AtomicU64,
    pub(crate) inode: AtomicU64,
    /// What is known of the size, see `whole`.
    pub(crate) wholeness: AtomicU64,
    /// The plain offset, until a fork; see `offset`.
    pub(crate) offset: AtomicU64,
    /// The thread that moves the real file at this moment, see `moving`.
    pub(crate) mover: AtomicU64,
}

/// One line of the CPU's cache.
const _: () = assert!(size_of::<Slot>() == 64);

const CLAIMED: u32 = u32::MAX;

/// What a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Foreign,
    Hidden,
    Open(u32),
}

impl Entry {
    const fn from_word(word: u32) -> Self {
        match word {
            FOREIGN => Self::Foreign,
            HIDDEN => Self::Hidden,
            slot => Self::Open(slot - 1),
        }
    }
}

/// A slot that belongs to an open that is under way; free again when dropped.
pub(crate) struct Claim<'t> {
    table: &'t Table,
    index: u32,
}

impl<'t> Claim<'t> {
    pub(crate) fn slot(&self) -> &'t Slot {
        self.table.slot(self.index)
    }

    /// The number of the slot.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Lets `fd` be the first user.
    pub(crate) fn publish(self, fd: Fd) {
        let claim = core::mem::ManuallyDrop::new(self);
        claim.table.publish(fd, claim.index);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.table.free(self.index);
    }
}

/// The flags of an open file as the program gave them (O_APPEND and others are carried out by us),
/// and whether it has read yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// No flag of open(2): the program has not read yet, and until then the real descriptor has
    /// O_NOATIME, which the program did not ask for.
    pub(crate) const UNREAD: i32 = i32::MIN;

    /// True if the real descriptor has O_NOATIME for the library's sake.
    #[inline]
    #[must_use]
    pub const fn is_unread(self) -> bool {
        self.0 & Self::UNREAD != 0
    }
}

/// What an open file is, packed into one word so that it is read at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Traits {
    pub(crate) class: Class,
    pub(crate) zero_rule: ZeroRule,
    /// The number of the [`Front`](tidelock_format::Front) that its header gets, should it get one.
    pub(crate) front: u8,
    /// The file's words.
    pub(crate) stripe: Stripe,
    /// Another process may share the open file: a fork has happened since.
    pub(crate) shared: bool,
    /// POSIX record locks were taken through this open file.
    pub(crate) locks: bool,
}

const SHARED: u32 = 1 << 25;
const LOCKS: u32 = 1 << 26;
/// Something was remembered of the file's end.
const END_KNOWN: u32 = 1 << 27;

impl Traits {
    fn pack(self) -> u32 {
        u32::from(self.stripe.root.0)
            | u32::from(self.stripe.number) << 8
            | (self.class as u32) << 18
            | (self.zero_rule as u32) << 22
            | u32::from(self.front) << 28
            | if self.shared { SHARED } else { 0 }
            | if self.locks { LOCKS } else { 0 }
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        let [root, .., high] = word.to_le_bytes();
        let [class, zero_rule, ..] =
            [word >> 18 & 15, word >> 22 & 3].map(|kind| kind.to_le_bytes()[0]);
        let number = u16::try_from((word >> 8) % WORDS_U32).unwrap_or(0);
        Self {
            class: Class::from_number(class).unwrap_or(Class::Bytes),
            zero_rule: ZeroRule::from_number(zero_rule).unwrap_or(ZeroRule::Block),
            front: high >> 4,
            stripe: Stripe { root: Root(root), number },
            shared: word & SHARED != 0,
            locks: word & LOCKS != 0,
        }
    }

    pub(crate) const fn root(self) -> Root {
        self.stripe.root
    }
}

impl Slot {
    /// No open file; all of its bytes are zero.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "the value that arrays of it begin with"
    )]
    pub const FREE: Self = Self {
        users: AtomicU32::new(0),
        hidden: AtomicI32::new(0),
        key: AtomicU32::new(0),
        flags: AtomicU32::new(0),
        state: AtomicU32::new(0),
        direct: AtomicU16::new(0),
        turn: AtomicU16::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        wholeness: AtomicU64::new(0),
        offset: AtomicU64::new(0),
        mover: AtomicU64::new(0),
    };

    #[inline]
    pub(crate) fn traits(&self) -> Traits {
        Traits::unpack(self.state.load(Relaxed))
    }

    pub(crate) fn open_flags(&self) -> OpenFlags {
        OpenFlags(self.flags.load(Relaxed).cast_signed())
    }

    pub(crate) fn set_traits(&self, traits: Traits) {
        self.state.store(traits.pack(), Relaxed);
    }

    pub(crate) fn mark_locked(&self) {
        self.state.fetch_or(LOCKS, Relaxed);
    }

    pub(crate) fn mark_shared(&self) {
        self.state.fetch_or(SHARED, Relaxed);
    }

    pub(crate) fn mark_end_known(&self) {
        if !self.is_end_known() {
            self.state.fetch_or(END_KNOWN, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_end_known(&self) -> bool {
        self.state.load(Relaxed) & END_KNOWN != 0
    }

    pub(crate) fn hidden(&self) -> Fd {
        Fd(!self.hidden.load(Relaxed))
    }

    /// The descriptors of the real file.
    pub(crate) fn real_files(&self) -> impl Iterator<Item = Fd> {
        let hidden = Some(self.hidden()).filter(|fd| fd.0 >= 0);
        hidden.into_iter().chain(self.direct())
    }

    pub(crate) fn set_hidden(&self, fd: Fd) {
        self.hidden.store(!fd.0, Relaxed);
    }

    /// An open file, and not one that is under way or gone.
    pub(crate) fn is_used(&self) -> bool {
        !matches!(self.users.load(Acquire), 0 | CLAIMED)
    }

    /// Takes part, unless the slot is free or not done.
    fn join(&self) -> bool {
        let mut users = self.users.load(Acquire);
        loop {
            if users == 0 || users == CLAIMED {
                return false;
            }
            match self.users.compare_exchange_weak(users, users + 1, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => users = now,
            }
        }
    }
}

impl Table {
    /// A table in which no descriptor is ours, in static memory of zeros: [`DESCRIPTORS`],
    /// [`OPEN_FILES`] and [`ENDS`] places for a real process.
    #[must_use]
    pub const fn over(
        descriptors: &'static [AtomicU32],
        open_files: &'static [Slot],
        ends: &'static [End],
    ) -> Self {
        Self::of(
            TableMemory::Lent(descriptors),
            TableMemory::Lent(open_files),
            TableMemory::Lent(ends),
        )
    }

    /// A table with memory of its own, for a process that is only simulated.
    #[must_use]
    pub fn with_room(descriptors: usize, open_files: usize) -> Self {
        let descriptors = (0..descriptors).map(|_| AtomicU32::new(FOREIGN)).collect();
        let ends = (0..open_files).map(|_| End::UNKNOWN).collect();
        let open_files = (0..open_files).map(|_| Slot::FREE).collect();
        Self::of(
            TableMemory::Own(descriptors),
            TableMemory::Own(open_files),
            TableMemory::Own(ends),
        )
    }

    const fn of(
        descriptors: TableMemory<[AtomicU32]>,
        open_files: TableMemory<[Slot]>,
        ends: TableMemory<[End]>,
    ) -> Self {
        let (top, next) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { descriptors, open_files, ends, top, next }
    }

    /// What `fd` is at this moment.
    #[inline]
    pub(crate) fn entry(&self, fd: i32) -> Entry {
        let Some(entry) = usize::try_from(fd).ok().and_then(|fd| self.descriptors.get(fd)) else {
            return Entry::Foreign;
        };
        Entry::from_word(entry.load(Acquire))
    }

    /// Joins an open file, so that it lives until [`leave`](Self::leave); false if it is gone.
    #[inline]
    pub(crate) fn join(&self, index: u32) -> bool {
        self.slot(index).join()
    }

    /// One user less; true if it was the last, who must then release what the open file holds and
    /// call [`free`](Self::free).
    #[inline]
    pub(crate) fn leave(&self, index: u32) -> bool {
        let slot = self.slot(index);
        let mut users = slot.users.load(Acquire);
        loop {
            let rest = if users == 1 { CLAIMED } else { users - 1 };
            match slot.users.compare_exchange_weak(users, rest, AcqRel, Acquire) {
                Ok(_) => return rest == CLAIMED,
                Err(now) => users = now,
            }
        }
    }

    pub(crate) fn slot(&self, index: u32) -> &Slot {
        static NONE: Slot = Slot::FREE;
        self.open_files.get(index as usize).unwrap_or(&NONE)
    }

    /// Where the end of an open file is remembered, if its slot is one of the first.
    pub(crate) fn end(&self, index: u32) -> Option<&End> {
        self.ends.get(index as usize)
    }

    /// A slot for an open that is under way.
    ///
    /// # Errors
    /// `EMFILE` if all are taken.
    fn claim(&self) -> Result<u32, Errno> {
        let start = self.next.load(Relaxed) as usize;
        let places = self.open_files.len();
        for step in 0..places {
            let index = (start + step) % places;
            let Some(slot) = self.open_files.get(index) else { continue };
            if slot.users.load(Relaxed) == 0
                && slot.users.compare_exchange(0, CLAIMED, AcqRel, Relaxed).is_ok()
            {
                let index = u32::try_from(index).map_err(|_| Errno::MFILE)?;
                self.top.fetch_max(index + 1, Relaxed);
                self.next.store(index, Relaxed);
                return Ok(index);
            }
        }
        Err(Errno::MFILE)
    }

    /// A slot that is given back unless it is published.
    ///
    /// # Errors
    /// `EMFILE` if all are taken.
    pub(crate) fn reserve(&self) -> Result<Claim<'_>, Errno> {
        Ok(Claim { table: self, index: self.claim()? })
    }

    /// A claimed slot that is not wanted any more.
    pub(crate) fn free(&self, index: u32) {
        let slot = self.slot(index);
        if let Some(end) = self.end(index).filter(|_| slot.is_end_known()) {
            end.wipe();
            end.forget_look();
        }
        slot.hidden.store(0, Relaxed);
        slot.direct.store(0, Relaxed);
        slot.key.store(0, Relaxed);
        slot.wholeness.store(0, Relaxed);
        slot.offset.store(0, Relaxed);
        slot.users.store(0, Release);
        self.next.fetch_min(index, Relaxed);
    }

    /// Where moves are announced.
    pub(crate) fn movers(&self) -> impl Iterator<Item = &AtomicU64> {
        let top = self.top.load(Relaxed) as usize;
        self.open_files.iter().take(top).map(|slot| &slot.mover)
    }

    /// The slots that have been used.
    pub(crate) fn indices(&self) -> core::ops::Range<u32> {
        0..self.top.load(Relaxed)
    }

    /// Lets `fd` be the first user of a claimed slot.
    fn publish(&self, fd: Fd, index: u32) {
        self.slot(index).users.store(1, Release);
        self.set(fd, index + 1);
    }

    /// Marks a descriptor that only we may use.
    pub(crate) fn hide(&self, fd: Fd) {
        self.set(fd, HIDDEN);
    }

    /// Lets `fd` be one more user of an open file that the caller has joined; what it was before.
    pub(crate) fn replace(&self, fd: Fd, index: u32) -> Entry {
        let entry = usize::try_from(fd.0).ok().and_then(|fd| self.descriptors.get(fd));
        entry.map_or(Entry::Foreign, |entry| Entry::from_word(entry.swap(index + 1, AcqRel)))
    }

    /// Forgets what `fd` was.
    pub(crate) fn take(&self, fd: i32) -> Entry {
        let Some(entry) = usize::try_from(fd).ok().and_then(|fd| self.descriptors.get(fd)) else {
            return Entry::Foreign;
        };
        Entry::from_word(entry.swap(FOREIGN, AcqRel))
    }

    /// True if a descriptor of this number has a place in the table.
    pub(crate) fn holds(fd: Fd) -> bool {
        usize::try_from(fd.0).is_ok_and(|fd| fd < DESCRIPTORS)
    }

    /// The descriptors in `range` that are not hidden, lowest first, that have an entry.
    pub(crate) fn ours_in(
        &self,
        range: core::ops::RangeInclusive<usize>,
    ) -> impl Iterator<Item = i32> {
        let (first, last) = (*range.start(), (*range.end()).min(DESCRIPTORS - 1));
        let entries = self.descriptors.iter().enumerate().take(last + 1).skip(first);
        entries.filter_map(|(fd, entry)| {
            matches!(entry.load(Relaxed), slot if slot != FOREIGN && slot != HIDDEN)
                .then(|| i32::try_from(fd).ok())?
        })
    }

    /// The hidden descriptors, lowest first.
    pub(crate) fn hidden_in(
        &self,
        range: core::ops::RangeInclusive<usize>,
    ) -> impl Iterator<Item = i32> {
        let (first, last) = (*range.start(), (*range.end()).min(DESCRIPTORS - 1));
        let entries = self.descriptors.iter().enumerate().take(last + 1).skip(first);
        entries.filter_map(|(fd, entry)| {
            (entry.load(Relaxed) == HIDDEN).then(|| i32::try_from(fd).ok())?
        })
    }

    fn set(&self, fd: Fd, value: u32) {
        if let Some(entry) = usize::try_from(fd.0).ok().and_then(|fd| self.descriptors.get(fd)) {
            entry.store(value, Release);
        }
    }
}
