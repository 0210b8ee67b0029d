//! One request on a sealed file: what the kernel is handed in place of the program's own, and what
//! has to be done when it is done.
//!
//! UNSAFETY: who has taken a request, or has its event, is alone with it; what its write holds is
//! given back by who has changed its state.
#![expect(unsafe_code, reason = "memory of requests, shared with the kernel")]

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use tidelock_engine::{ReadRequest, WriteRequest};
use tidelock_format::UNIT;

use super::UNSETTLED;
use super::maps::{self, KEPT, Map};
use super::ring::{self, Control};
use crate::hooks::File;
use crate::{Linux, raw, sys};

/// How many writes the kernel is handed before others are carried out on the spot. Each has a post,
/// and all processes of a directory have 4096.
const MANY: u32 = 1024;
/// How many writes the kernel has, in all contexts.
static WRITES: AtomicU32 = AtomicU32::new(0);
static TICKETS: AtomicU64 = AtomicU64::new(1);

/// A request on a sealed file.
///
/// All zeros at the beginning.
#[repr(C, align(64))]
pub(super) struct Request {
    /// What the kernel is handed. Its address is that of the request.
    control: UnsafeCell<Control>,
    /// The ticket, which no other request of the process ever has, and behind it the state.
    state: AtomicU64,
    /// There is work.
    is_set: AtomicBool,
    /// The program's own: its address, and what comes back with the event.
    theirs: [AtomicU64; 2],
    /// Its result, if it was written by a call because the kernel would not have it, or
    /// [`UNSETTLED`].
    result: AtomicI64,
    /// The one before it among those that are held back, as [`HeldBack`](super::held_back) has it.
    follows: AtomicU16,
    /// A map for sealed bytes, kept for the next one; and its length.
    memory: Cell<Map>,
    /// While it is taken.
    work: UnsafeCell<MaybeUninit<Work>>,
    /// While the state is [`HELD`].
    held: UnsafeCell<MaybeUninit<WriteRequest<'static, Linux>>>,
}

/// In the place of the result of a write that may have stopped anywhere.
pub(super) const ANYWHERE: i64 = 1;
/// Nobody waits for it.
const QUIET: u64 = 0;
/// A write that others see under way.
const HELD: u64 = 1;
/// Somebody gives back what it held.
const LEAVING: u64 = 2;
const STATE: u64 = 3;
const TICKET_AT: u32 = 2;

/// What a request on a sealed file is about.
pub(super) enum Work {
    /// A write that the kernel has, and from where.
    Write { file: File, from: *const u8, len: usize, at: u64 },
    /// A read that the kernel has, and into what.
    Read { file: File, into: *mut u8, len: usize, at: u64, request: ReadRequest },
    /// Carried out on the spot, while an empty read takes its place in the queue.
    OnTheSpot { file: File, result: AtomicI64 },
    /// As the kernel answers it.
    Straight { _file: File },
}

// SAFETY: its cells are used by whoever is alone with it.
unsafe impl Sync for Request {}

/// True if the kernel has writes of this process.
#[inline]
pub(crate) fn are_under_way() -> bool {
    WRITES.load(Acquire) > 0
}

/// In a forked child, whose kernel has none.
pub(super) fn forget_writes() {
    if are_under_way() {
        WRITES.store(0, Relaxed);
    }
}

/// True if the kernel has as many as one process should have.
pub(super) fn are_many() -> bool {
    WRITES.load(Relaxed) >= MANY
}

impl Request {
    pub(super) fn address(&self) -> u64 {
        self.control.get().expose_provenance() as u64
    }

    /// Tells it from others that are under way.
    pub(super) fn number(&self) -> u32 {
        u32::try_from(self.control.get().addr() / size_of::<Self>() % 0x1_0000).unwrap_or(0)
    }

    /// Leaves its file; for who is alone with it.
    pub(super) fn end(&self) {
        if self.is_set.swap(false, AcqRel) {
            // SAFETY: `set` has put it there, and the caller is the last one.
            unsafe { self.work.get().cast::<Work>().drop_in_place() };
        }
        if self.memory.get().1 > KEPT {
            maps::spare(self.memory.replace(maps::NONE));
        }
    }

    /// In a forked child: what it holds is the parent's.
    pub(super) fn forget(&self) {
        self.state.store(QUIET, Relaxed);
        self.end();
    }

    /// What it is about, and what the kernel is handed; for who has taken it. The address for the
    /// kernel.
    pub(super) fn set(&self, theirs: *const Control, mut control: Control, work: Work) -> u64 {
        let [address, data] = &self.theirs;
        address.store(theirs.expose_provenance() as u64, Relaxed);
        data.store(control.data, Relaxed);
        control.data = TICKETS.fetch_add(1, Relaxed);
        self.state.store(control.data << TICKET_AT | QUIET, Release);
        self.result.store(UNSETTLED, Relaxed);
        // SAFETY: the caller is alone with it.
        unsafe { self.control.get().write(control) };
        // SAFETY: as above; nothing is there that would have to be dropped.
        unsafe { self.work.get().write(MaybeUninit::new(work)) };
        self.is_set.store(true, Release);
        self.address()
    }

    /// Lets others see that its write is under way, until somebody lets go; after `set`.
    pub(super) fn hold(&self, held: WriteRequest<'static, Linux>) {
        // SAFETY: the caller has taken it, and nothing is held.
        unsafe { self.held.get().write(MaybeUninit::new(held)) };
        WRITES.fetch_add(1, AcqRel);
        self.state.fetch_or(HELD, Release);
    }

    /// Gives back what its write held, which ended with `result`, once, and waits for who is doing
    /// that.
    pub(super) fn let_go(&self, result: i64) {
        let state = self.state.load(Acquire);
        if !self.let_go_of(state >> TICKET_AT, result) {
            while self.state.load(Acquire) & STATE != QUIET {
                core::hint::spin_loop();
            }
        }
    }

    /// Gives back what its write held, if it still is the one with this ticket; whether it was.
    pub(super) fn let_go_of(&self, ticket: u64, result: i64) -> bool {
        let (held, rest) = (ticket << TICKET_AT | HELD, ticket << TICKET_AT);
        if self.state.compare_exchange(held, rest | LEAVING, AcqRel, Acquire).is_err() {
            return false;
        }
        // SAFETY: the state was `HELD`, and we alone have changed it.
        let held = unsafe { self.held.get().cast::<WriteRequest<'static, Linux>>().read() };
        // What stopped within a unit is written again by who fetches the event. Until then others
        // go on, and must not take the file for one of whole units.
        if result > 0 && !result.cast_unsigned().is_multiple_of(UNIT) {
            held.stopped();
        }
        drop(held);
        self.state.store(rest | QUIET, Release);
        // Last: where there are none, nobody is at a request.
        WRITES.fetch_sub(1, AcqRel);
        true
    }

    /// What it is about, for who has its event.
    pub(super) fn work(&self) -> &Work {
        // SAFETY: it is taken, and nobody changes what `set` has put there.
        unsafe { &*self.work.get().cast::<Work>() }
    }

    /// True for a write that the kernel has no reason to refuse, and that nobody hears of but by
    /// io_getevents; for who has set it.
    pub(super) fn may_be_held_back(&self) -> bool {
        // SAFETY: the caller is alone with it.
        let control = unsafe { &*self.control.get() };
        control.operation == ring::WRITE
            && (control.rw_flags, control.flags, control.reserved) == (0, 0, 0)
    }

    /// Writes by a call, once, what the kernel was to write, and gives back what that held; for who
    /// has taken it from those that are held back, with signals blocked.
    pub(super) fn write_now(&self) {
        if self.settled().is_some() {
            return;
        }
        // SAFETY: the caller is alone with it.
        let control = unsafe { &*self.control.get() };
        let (len, at) = (control.len.cast_signed(), control.at);
        let words = [i64::from(control.file), control.buffer.cast_signed(), len, at];
        // SAFETY: sealed bytes in memory of this request.
        let result = unsafe { raw::call(sys::nr::PWRITE64, words) };
        self.result.store(result, Relaxed);
        self.let_go(result);
    }

    /// The result of one that is written by a call.
    pub(super) fn settled(&self) -> Option<i64> {
        Some(self.result.load(Relaxed)).filter(|result| *result != UNSETTLED)
    }

    pub(super) fn follow(&self, before: u16) {
        self.follows.store(before, Relaxed);
    }

    pub(super) fn follows(&self) -> u16 {
        self.follows.load(Relaxed)
    }

    /// The flags that the program gave to the read or write.
    pub(super) fn rw_flags(&self) -> i32 {
        // SAFETY: the kernel has only read it.
        unsafe { (*self.control.get()).rw_flags }
    }

    /// The program's request, and what comes back with its event.
    pub(super) fn theirs(&self) -> (u64, u64) {
        let [address, data] = &self.theirs;
        (address.load(Relaxed), data.load(Relaxed))
    }

    /// Memory for sealed bytes, aligned to a page; for who has taken the request.
    #[expect(clippy::mut_from_ref, reason = "the caller is alone with the request")]
    pub(super) fn memory(&self, len: usize) -> Option<&mut [u8]> {
        if self.memory.get().1 < len {
            let more = maps::get(len)?;
            self.forget_memory();
            self.memory.set(more);
        }
        // SAFETY: a map of at least so many bytes that this request alone has.
        Some(unsafe { core::slice::from_raw_parts_mut(self.memory.get().0, len) })
    }

    pub(super) fn forget_memory(&self) {
        maps::unmap(self.memory.replace(maps::NONE));
    }
}
