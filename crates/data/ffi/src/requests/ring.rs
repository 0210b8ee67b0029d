//! What the program, the kernel and we say to each other about asynchronous I/O
//! (linux, include/uapi/linux/aio_abi.h; the ring: fs/aio.c).
//!
//! UNSAFETY: the kernel writes events into memory of the program, at the address that is the name
//! of the context.
#![expect(unsafe_code, reason = "memory that the kernel writes")]

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// A request: `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Control {
    /// Comes back with the event.
    pub(crate) data: u64,
    pub(crate) key: u32,
    pub(crate) rw_flags: i32,
    pub(crate) operation: u16,
    pub(crate) priority: i16,
    pub(crate) file: i32,
    /// Where the bytes are, or the pieces.
    pub(crate) buffer: u64,
    /// How many bytes, or pieces.
    pub(crate) len: u64,
    pub(crate) at: i64,
    pub(crate) reserved: u64,
    pub(crate) flags: u32,
    pub(crate) event_file: i32,
}

const _: () = assert!(size_of::<Control>() == 64);

impl Control {
    /// The same of no bytes at the beginning of the file.
    pub(super) const fn without_bytes(self) -> Self {
        Self { buffer: 0, len: 0, at: 0, rw_flags: 0, ..self }
    }
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const READ_PIECES: u16 = 7;
pub(crate) const WRITE_PIECES: u16 = 8;
pub(crate) const SYNC: u16 = 2;
pub(crate) const DATA_SYNC: u16 = 3;
pub(crate) const POLL: u16 = 5;

/// That a request is done: `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) data: u64,
    /// The address of its [`Control`].
    pub(crate) control: u64,
    /// What the call would return, errors as negative numbers.
    pub(crate) result: i64,
    pub(crate) second: i64,
}

/// The ring of a context as the kernel has it in memory of the program, before its events.
#[repr(C)]
struct Ring {
    id: AtomicU32,
    len: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: AtomicU32,
    compatible: AtomicU32,
    incompatible: AtomicU32,
    header_len: AtomicU32,
}

/// An event in the ring.
#[repr(C)]
struct Shown {
    data: AtomicU64,
    control: AtomicU64,
    result: AtomicI64,
    _second: AtomicI64,
}

const MAGIC: u32 = 0xa10a_10a1;
/// In its place in a context of ours: who reads rings without a call looks at it, and calls then.
const OURS: u32 = u32::from_le_bytes(*b"tide");

/// Has programs fetch the events of a new context by a call. False for a ring of a kind that is not
/// known.
///
/// # Safety
/// `context` is a context that nobody else knows yet.
pub(super) unsafe fn claim(context: u64) -> bool {
    // SAFETY: the caller's promise.
    let ring = unsafe { of(context) };
    ring.incompatible.load(Relaxed) == 0
        && ring.header_len.load(Relaxed) as usize == size_of::<Ring>()
        && ring.len.load(Relaxed) > 0
        && ring.magic.compare_exchange(MAGIC, OURS, Relaxed, Relaxed).is_ok()
}

/// # Safety
/// `context` is a context that stays.
unsafe fn of<'r>(context: u64) -> &'r Ring {
    let start = usize::try_from(context).unwrap_or(0);
    let ring = core::ptr::with_exposed_provenance::<Ring>(start);
    // SAFETY: the caller's promise: the kernel has put its ring there.
    unsafe { &*ring }
}

/// Looks at the events that stand in the ring, fetched or not, and leaves them there. Each may be
/// of any time, or a mixture of two: its `data` has to tell.
///
/// # Safety
/// `context` is one that was [claimed](claim), and stays for the time of the call.
pub(super) unsafe fn look(context: u64, mut at: impl FnMut(Event)) {
    // SAFETY: the caller's promise.
    let ring = unsafe { of(context) };
    let first = usize::try_from(context).unwrap_or(0) + size_of::<Ring>();
    let events = core::ptr::with_exposed_provenance::<Shown>(first);
    let len = ring.len.load(Relaxed) as usize;
    // SAFETY: so many events follow the head of the ring.
    let events = unsafe { core::slice::from_raw_parts(events, len) };
    // Orders what is read below behind what the kernel wrote before it moved the end.
    let _ = ring.tail.load(Acquire);
    for event in events {
        let data = event.data.load(Acquire);
        let (control, result) = (event.control.load(Relaxed), event.result.load(Relaxed));
        if control != 0 {
            at(Event { data, control, result, second: 0 });
        }
    }
}
