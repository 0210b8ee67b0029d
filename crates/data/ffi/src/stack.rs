//! Stacks of our own, for calls that need more than a thread may have left.
//!
//! ```text
//!   hook on the program's stack --run--> path buffers, key derivation, messages on a stack of ours
//! ```
//!
//! A program may call from a handler on an alternate stack of 8 KiB or from a thread with 16 KiB,
//! and libc's own calls are content with that. Judging a path takes several buffers of 4 KiB, and
//! deriving a key as much again. A pool of fixed size, and a map of its own for whom the pool has
//! nothing left: nobody waits. Each lies above a page that nobody may touch, is left out of core
//! dumps, since keys pass through, and has room for handlers of the program that run meanwhile. A
//! handler that jumps out of the call (siglongjmp) leaves its stack taken.
//!
//! UNSAFETY: the stack pointer is moved by hand, for the time of one call that returns by the same
//! way.
#![expect(unsafe_code, reason = "another stack for the time of a call")]

use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use tidelock_engine::Errno;

use crate::sys;

const STACKS: usize = 48;
/// The deepest calls take 100 KiB where nothing is optimised; the rest is for handlers. Pages that
/// nobody reaches cost nothing.
const SIZE: usize = 512 << 10;
/// Who stands on one of our stacks already, with so much left, stays there.
const ENOUGH: usize = 160 << 10;
const GUARD: usize = 4096;

/// Where the pool lies; 0 before its first use. Nobody may touch a stack of it that nobody has used
/// yet: a page of another kind before each would be two maps a stack, and a fork copies them all.
static POOL: AtomicUsize = AtomicUsize::new(0);
/// The stacks of the pool that may be used, a bit each.
static READY: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(STACKS <= 64);
/// The thread that stands on each stack, 0 for none.
static OWNERS: [AtomicU64; STACKS] = [const { AtomicU64::new(0) }; STACKS];

/// Some thread has called sigaltstack. It is kept over fork, as alternate stacks are; a program
/// that exec starts has neither.
static HAS_ALTERNATE: AtomicBool = AtomicBool::new(false);

/// A stack of ours, given back when dropped.
struct Stack {
    /// The lowest address, that of the guard page.
    start: usize,
    from: Source,
}

enum Source {
    Pool(usize),
    Map,
}

/// Runs `work` on a stack of ours; at most 1 KiB of the program's is taken.
///
/// # Errors
/// `ENOMEM` where the pool is used up and the kernel gives no memory: then nothing has run.
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> Result<R, Errno> {
    if has_enough() {
        return Ok(work());
    }
    let stack = Stack::take()?;
    let mut errand = Errand { work: Some(work), answer: None };
    // The kernel would give an alternate stack that we have left to the next handler, from its top.
    let mask = is_alternate().then(sys::block_signals);
    // SAFETY: the stack is ours alone, and the errand lives until the call has returned.
    unsafe { switch(stack.top(), carry_out_of(&errand), (&raw mut errand).cast()) };
    if let Some(mask) = mask {
        sys::restore_signals(mask);
    }
    drop(stack);
    errand.answer.ok_or(Errno::IO)
}

struct Errand<W, R> {
    work: Option<W>,
    answer: Option<R>,
}

type CarryOut = unsafe extern "C" fn(*mut c_void);

fn carry_out_of<W: FnOnce() -> R, R>(_of: &Errand<W, R>) -> CarryOut {
    carry_out::<W, R>
}

unsafe extern "C" fn carry_out<W: FnOnce() -> R, R>(errand: *mut c_void) {
    // SAFETY: `run` passes the errand of these types, which nobody else uses meanwhile.
    let errand = unsafe { &mut *errand.cast::<Errand<W, R>>() };
    errand.answer = errand.work.take().map(|work| work());
}

/// Calls `function(argument)` with the stack pointer at `top`, which is a multiple of 16. The frame
/// tells debuggers and unwinders the way back.
#[unsafe(naked)]
unsafe extern "C" fn switch(top: *mut c_void, function: CarryOut, argument: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
}

impl Stack {
    fn take() -> Result<Self, Errno> {
        let pool = pool();
        let me = sys::thread();
        let free = |owner: &AtomicU64| {
            owner.load(Relaxed) == 0 && owner.compare_exchange(0, me, Acquire, Relaxed).is_ok()
        };
        let ready = READY.load(Acquire);
        let is_ready = |index: &usize| ready >> index & 1 == 1;
        // One that is ready first: to open another may fail.
        let mut places = (0..STACKS).filter(is_ready).chain((0..STACKS).filter(|i| !is_ready(i)));
        if pool != 0
            && let Some(index) = places.find(|index| free(&OWNERS[*index]))
        {
            let stack = Self { start: pool + index * SIZE, from: Source::Pool(index) };
            if is_ready(&index) {
                return Ok(stack);
            }
            if open(stack.start) {
                READY.fetch_or(1 << index, Release);
                return Ok(stack);
            }
        }
        let stack = Self { start: map(SIZE).ok_or(Errno::NOMEM)?, from: Source::Map };
        if open(stack.start) { Ok(stack) } else { Err(Errno::NOMEM) }
    }

    fn top(&self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.start + SIZE)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        match self.from {
            Source::Pool(index) => OWNERS[index].store(0, Release),
            Source::Map => unmap(self.start, SIZE),
        }
    }
}

/// The pool; 0 if there is no memory for it.
fn pool() -> usize {
    match POOL.load(Acquire) {
        0 => start(),
        pool => pool,
    }
}

/// Makes the pool, and its first stack, which is all that most processes use. While the library
/// starts; or at the first use, in programs that only link the engine.
#[cold]
pub(crate) fn start() -> usize {
    let Some(new) = map(STACKS * SIZE) else { return 0 };
    let is_open = open(new);
    POOL.compare_exchange(0, new, AcqRel, Acquire).map_or_else(
        |other| {
            // Another thread was faster.
            unmap(new, STACKS * SIZE);
            other
        },
        |_| {
            READY.fetch_or(u64::from(is_open), Release);
            new
        },
    )
}

/// Lets all but the lowest page of a stack be used; false if there is no memory. Nobody uses it.
fn open(stack: usize) -> bool {
    let lowest = core::ptr::with_exposed_provenance_mut(stack + GUARD);
    let rights = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: its pages are of a map of ours.
    unsafe { rustix::mm::mprotect(lowest, SIZE - GUARD, rights) }.is_ok()
}

/// Address space that nobody may touch yet.
fn map(len: usize) -> Option<usize> {
    let rights = ProtFlags::empty();
    let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: fresh private memory wherever the kernel likes.
    let mapped = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, rights, kind) };
    let start = mapped.ok()?;
    // SAFETY: the map that was just made.
    let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontDump) };
    Some(start.expose_provenance())
}

fn unmap(start: usize, len: usize) {
    let start = core::ptr::with_exposed_provenance_mut(start);
    // SAFETY: a map of ours that nobody uses any more.
    let _ = unsafe { rustix::mm::munmap(start, len) };
}

/// True if the caller stands on a stack of the pool with room for another deep call: within one, or
/// in a handler that came in between.
fn has_enough() -> bool {
    let pool = POOL.load(Acquire);
    let place = sys::stack_pointer().wrapping_sub(pool);
    pool != 0 && place < STACKS * SIZE && place % SIZE > ENOUGH
}

/// True if the caller stands on an alternate signal stack. The kernel is asked only in programs
/// that have set one up; who does that by an instruction of its own is not seen.
fn is_alternate() -> bool {
    HAS_ALTERNATE.load(Relaxed) && sys::alternate_stack() & libc::SS_ONSTACK != 0
}

/// A thread of this program sets up an alternate stack, perhaps.
pub(crate) fn note_alternate() {
    HAS_ALTERNATE.store(true, Relaxed);
}

/// In a forked child only the forking thread exists: what others stood on is free.
pub(crate) fn after_fork_in_child() {
    let me = sys::thread();
    for owner in &OWNERS {
        // Written only where it must be: each first write of a child copies a page.
        if ![0, me].contains(&owner.load(Relaxed)) {
            owner.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_stack_and_answers() {
        let here = sys::stack_pointer();
        let (sum, there) = run(|| ((1..=10).sum::<u32>(), sys::stack_pointer())).expect("memory");
        assert_eq!(sum, 55);
        assert!(here.abs_diff(there) > SIZE, "{here:x} {there:x}");
    }

    #[test]
    fn work_within_work_stays_where_it_is() {
        let (outer, inner) =
            run(|| (sys::stack_pointer(), run(sys::stack_pointer).expect("memory")))
                .expect("memory");
        assert!(outer.abs_diff(inner) < ENOUGH);
    }

    #[test]
    fn who_finds_the_pool_used_up_does_not_wait() {
        let held: Vec<_> = (0..STACKS + 3).map(|_| Stack::take().expect("memory")).collect();
        assert_eq!(run(|| 7), Ok(7));
        let mut starts: Vec<_> = held.iter().map(|stack| stack.start).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= SIZE));
    }
}
