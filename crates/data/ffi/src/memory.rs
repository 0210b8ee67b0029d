//! The library's own memory: locked, left out of core dumps, wiped when it is given back.
//!
//! Serves Rust's allocations in the preload library and every allocation of AWS-LC (key schedules
//! among them), so that the program's malloc is never called from a hook and keys never lie in its
//! heap. Private memory: a forked child has its own copy, since schedules come and go in both
//! processes afterwards.
//!
//! UNSAFETY: this is an allocator.
#![expect(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{
    AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

use rustix::mm::{Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags};

/// Address space that is reserved; pages are used, and locked, as they are touched.
const ARENA: usize = 256 << 20;
/// What is locked at once.
const CHUNK: usize = 256 << 10;
const PAGE: usize = 4096;
/// Blocks begin at multiples of this.
const STEP: usize = 16;
/// Sizes up to here are multiples of [`STEP`]; from here on, four between a power of two and the
/// next.
const FINE: usize = 64;
/// From 16 bytes to 128 MiB.
const CLASSES: usize = class_of(128 << 20) + 1;
/// No call of the command's that handles keys uses more of the stack; the least that it has is far
/// more.
pub(crate) const DEEPEST: usize = 128 << 10;
/// What the library wipes in programs, whose threads may have little. It costs an open 0.1 us.
pub(crate) const IN_PROGRAMS: usize = 16 << 10;
/// Before each block: its class, and room so that blocks are aligned to 16.
const PREFIX: usize = 16;

/// The allocator of the preload library.
pub struct LockedMemory;

struct Arena {
    start: AtomicUsize,
    used: AtomicUsize,
    /// The free blocks of each class: a [`Head`].
    free: [AtomicU64; CLASSES],
}

static MEMORY: Arena = Arena {
    start: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    free: [const { AtomicU64::new(0) }; CLASSES],
};

/// The first block of a list, and how often the list was changed: who reads the head, then the
/// block, notices that others took the block and gave it back meanwhile.
///
/// Nobody waits for anybody: a signal handler may allocate in the middle of an allocation, and a
/// forked child finds the lists whole whatever other threads were doing.
#[derive(Clone, Copy)]
struct Head(u64);

/// A block by its place in the arena, counted in [`STEP`]s from 1; 0 for none.
type Link = u32;

impl Head {
    const fn link(self) -> Link {
        let [_, _, _, _, a, b, c, d] = self.0.to_be_bytes();
        Link::from_be_bytes([a, b, c, d])
    }

    /// The same list, one change later.
    fn then(self, first: Link) -> Self {
        Self(((self.0 >> 32).wrapping_add(1) << 32) | u64::from(first))
    }
}

fn link_to(block: *mut u8) -> Link {
    let at = block.addr() - MEMORY.start.load(Relaxed);
    Link::try_from(at / STEP + 1).unwrap_or(0)
}

fn block_of(link: Link) -> Option<*mut u8> {
    let at = usize::try_from(link).ok()?.checked_sub(1)? * STEP;
    Some(core::ptr::with_exposed_provenance_mut(MEMORY.start.load(Relaxed) + at))
}

/// Takes a block from the list of its class.
fn pop(class: usize) -> Option<*mut u8> {
    let list = MEMORY.free.get(class)?;
    let mut head = Head(list.load(Acquire));
    loop {
        let block = block_of(head.link())?;
        let next: Link;
        // SAFETY: the block lies in the arena, which is never unmapped. If another thread has taken
        // it by now and writes there, this is any number, and the exchange fails: so it is read in
        // assembly, where that is no error.
        unsafe {
            core::arch::asm!(
                "mov {0:e}, dword ptr [{1}]", out(reg) next, in(reg) block,
                options(nostack, preserves_flags, readonly)
            );
        }
        match list.compare_exchange_weak(head.0, head.then(next).0, AcqRel, Acquire) {
            Ok(_) => return Some(block),
            Err(now) => head = Head(now),
        }
    }
}

/// Puts a block onto the list of its class; it belongs to the caller alone.
fn push(class: usize, block: *mut u8) {
    let Some(list) = MEMORY.free.get(class) else { return };
    let mut head = Head(list.load(Relaxed));
    loop {
        let first = block.cast::<Link>();
        // SAFETY: the block is the caller's, aligned, and has room for a link.
        unsafe { first.write(head.link()) };
        let with_it = head.then(link_to(block)).0;
        match list.compare_exchange_weak(head.0, with_it, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => head = Head(now),
        }
    }
}

/// A new block from the end of what is used; null if there is no room.
fn grow(class: usize) -> *mut u8 {
    let mut at = MEMORY.used.load(Relaxed);
    loop {
        let end = at + room_of(class);
        if end > ARENA {
            return core::ptr::null_mut();
        }
        // Before anybody can use it.
        if !open_range(at.next_multiple_of(CHUNK), end.next_multiple_of(CHUNK)) {
            return core::ptr::null_mut();
        }
        match MEMORY.used.compare_exchange_weak(at, end, Relaxed, Relaxed) {
            Ok(_) => {
                let start = MEMORY.start.load(Relaxed);
                return core::ptr::with_exposed_provenance_mut(start + at);
            }
            Err(now) => at = now,
        }
    }
}

/// After a fork, in the child: locked memory is not inherited. Locks the chunks that are in use;
/// the limit (RLIMIT_MEMLOCK) counts address space, so what nobody uses is left.
pub(crate) fn after_fork_in_child() {
    lock_range(0, MEMORY.used.load(Relaxed).next_multiple_of(CHUNK));
}

/// Makes chunks usable, and locks them. Other threads may do the same to them at the same time.
///
/// Until then nobody may touch them, and so nobody accounts for them: where the kernel does not
/// overcommit (vm.overcommit_memory = 2), each process would be charged for the whole arena, and
/// each fork once more.
fn open_range(from: usize, to: usize) -> bool {
    let start = core::ptr::with_exposed_provenance_mut(MEMORY.start.load(Relaxed) + from);
    if to > from {
        let usable = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies in our own mapping.
        if unsafe { rustix::mm::mprotect(start, to - from, usable) }.is_err() {
            return false;
        }
    }
    lock_range(from, to);
    true
}

fn lock_range(from: usize, to: usize) {
    lock_from_the_start(from, to, |at, len| {
        let start = core::ptr::with_exposed_provenance_mut(MEMORY.start.load(Relaxed) + at);
        // SAFETY: the range lies in our own mapping.
        unsafe { rustix::mm::mlock_with(start, len, MlockFlags::ONFAULT) }
    });
}

/// Locks all of a range by one call; where the limit does not allow that, its first pages, as many
/// as the limit allows. The rest stays unlocked.
fn lock_from_the_start(
    mut from: usize,
    to: usize,
    lock: impl Fn(usize, usize) -> rustix::io::Result<()>,
) {
    let mut len = to.saturating_sub(from);
    while len >= PAGE {
        match lock(from, len) {
            Ok(()) => from += len,
            Err(rustix::io::Errno::NOMEM) => {}
            Err(_) => return,
        }
        if from >= to {
            return;
        }
        // Twice as much was too much: what is left of the limit is less than that.
        len = ((len - 1).next_power_of_two() / 2).min(to - from);
    }
}

/// Reserves the arena; true if that is done.
pub fn start() -> bool {
    let address = MEMORY.start.load(Acquire);
    address != 0 || map()
}

fn map() -> bool {
    // SAFETY: a fresh private mapping wherever the kernel likes.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            ARENA,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let Ok(start) = mapped else { return false };
    // SAFETY: the range is the mapping just made.
    let _ = unsafe { rustix::mm::madvise(start, ARENA, Advice::LinuxDontDump) };
    let address = start.expose_provenance();
    if MEMORY.start.compare_exchange(0, address, AcqRel, Acquire).is_err() {
        // SAFETY: another thread was faster; nobody knows of this mapping.
        let _ = unsafe { rustix::mm::munmap(start, ARENA) };
    }
    true
}

/// The class whose blocks have room for `size` bytes, and hardly more.
const fn class_of(size: usize) -> usize {
    match size {
        0 => 0,
        1..=FINE => (size - 1) / STEP,
        _ => {
            let below = (size - 1).ilog2() as usize;
            let quarter = (size - 1 - (1 << below)) >> (below - 2);
            FINE / STEP + 4 * (below - FINE.ilog2() as usize) + quarter
        }
    }
}

const fn room_of(class: usize) -> usize {
    if class < FINE / STEP {
        return (class + 1) * STEP;
    }
    let (doublings, quarter) = ((class - FINE / STEP) / 4, (class - FINE / STEP) % 4);
    (FINE << doublings) + (quarter + 1) * ((FINE / 4) << doublings)
}

/// `size` bytes, aligned to 16; null if there is no room.
pub(crate) fn allocate(size: usize) -> *mut u8 {
    let class = class_of(size + PREFIX);
    if class >= CLASSES || !start() {
        return core::ptr::null_mut();
    }
    let block = pop(class).unwrap_or_else(|| grow(class));
    if block.is_null() {
        return block;
    }
    let class_place = block.cast::<usize>();
    // SAFETY: the block has at least PREFIX bytes.
    unsafe { class_place.write(class) };
    // SAFETY: the block is longer than PREFIX.
    unsafe { block.add(PREFIX) }
}

/// Wipes a block and gives it back.
///
/// # Safety
/// `memory` came from [`allocate`] and is not used any more.
pub(crate) unsafe fn release(memory: *mut u8) {
    // SAFETY: the caller promises a block of ours, whose prefix lies before it.
    let block = unsafe { memory.sub(PREFIX) };
    let class_place = block.cast::<usize>();
    // SAFETY: the prefix holds the class.
    let class = unsafe { class_place.read() };
    // SAFETY: the block is ours, and nobody reads it meanwhile.
    unsafe { wipe(block, room_of(class)) };
    push(class, block);
}

/// How many bytes a block of ours has room for.
///
/// # Safety
/// `memory` came from [`allocate`].
pub(crate) unsafe fn room(memory: *mut u8) -> usize {
    // SAFETY: the caller promises a block of ours, whose prefix lies before it.
    let class_place = unsafe { memory.sub(PREFIX) }.cast::<usize>();
    // SAFETY: the prefix holds the class.
    room_of(unsafe { class_place.read() }) - PREFIX
}

/// # Safety
/// `len` bytes from `at` may be written.
unsafe fn wipe(at: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_bytes(at, 0, len) };
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: keeps the write alive: the compiler must assume that the assembly reads it.
    unsafe { core::arch::asm!("/* {0} */", in(reg) at, options(nostack, preserves_flags)) };
}

/// Wipes what ended calls have left on the stack below this call. Keys that were moved leave copies
/// there, and the stack is no locked memory: it may be dumped.
#[inline(never)]
pub(crate) fn wipe_stack<const DEPTH: usize>() {
    let mut room = core::mem::MaybeUninit::<[u8; DEPTH]>::uninit();
    // SAFETY: the room is ours; it lies where those calls had their frames.
    unsafe { wipe(room.as_mut_ptr().cast(), DEPTH) };
}

// SAFETY: blocks are distinct, large enough and aligned as asked, or null.
unsafe impl GlobalAlloc for LockedMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= PREFIX {
            return allocate(layout.size());
        }
        // Alignments above 16 are rare: more room, and a copy of the prefix before the aligned
        // place.
        let block = allocate(layout.size() + 2 * layout.align());
        if block.is_null() {
            return block;
        }
        let skip = block.add_alignment(layout.align());
        // SAFETY: there are two alignments more than the size.
        let place = unsafe { block.add(skip) };
        // SAFETY: the word before the place lies within the block.
        let skip_place = unsafe { place.sub(size_of::<usize>()) }.cast::<usize>();
        // SAFETY: as above, and aligned like the place.
        unsafe { skip_place.write(skip) };
        place
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let block = if layout.align() <= PREFIX {
            memory
        } else {
            // SAFETY: `alloc` put the distance before the place.
            let skip_place = unsafe { memory.sub(size_of::<usize>()) }.cast::<usize>();
            // SAFETY: as above.
            let skip = unsafe { skip_place.read() };
            // SAFETY: back to the start of the block.
            unsafe { memory.sub(skip) }
        };
        // SAFETY: `alloc` took the block from `allocate`.
        unsafe { release(block) };
    }
}

trait AddAlignment {
    fn add_alignment(&self, align: usize) -> usize;
}

impl AddAlignment for *mut u8 {
    /// The distance to the next aligned place that leaves a word before it.
    fn add_alignment(&self, align: usize) -> usize {
        let first = self.addr() + size_of::<usize>();
        first.next_multiple_of(align) - self.addr()
    }
}

/// Lets AWS-LC allocate here. Once, before its first use.
pub(crate) fn serve_aws_lc() {
    // SAFETY: the three functions keep malloc's contract; AWS-LC takes them only once and ignores
    // the rest.
    unsafe {
        crate::aws_lc::CRYPTO_set_mem_functions(Some(lc_malloc), Some(lc_realloc), Some(lc_free))
    };
}

unsafe extern "C" fn lc_malloc(
    size: usize,
    _: *const core::ffi::c_char,
    _: core::ffi::c_int,
) -> *mut core::ffi::c_void {
    allocate(size).cast()
}

unsafe extern "C" fn lc_free(
    memory: *mut core::ffi::c_void,
    _: *const core::ffi::c_char,
    _: core::ffi::c_int,
) {
    if !memory.is_null() {
        // SAFETY: AWS-LC gives back what it got from `lc_malloc`.
        unsafe { release(memory.cast()) };
    }
}

unsafe extern "C" fn lc_realloc(
    memory: *mut core::ffi::c_void,
    size: usize,
    _: *const core::ffi::c_char,
    _: core::ffi::c_int,
) -> *mut core::ffi::c_void {
    let new = allocate(size);
    if !memory.is_null() && !new.is_null() {
        // SAFETY: AWS-LC passes a block of ours.
        let old = unsafe { room(memory.cast()) };
        // SAFETY: both blocks have that many bytes and are distinct.
        unsafe { core::ptr::copy_nonoverlapping(memory.cast::<u8>(), new, old.min(size)) };
        // SAFETY: the old block is not used any more.
        unsafe { release(memory.cast()) };
    }
    new.cast()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Fills a block with its owner's number, lets others have their turn, and looks.
    fn hold(blocks: &mut Vec<(*mut u8, usize)>, size: usize, mark: u8) {
        let block = allocate(size);
        assert!(!block.is_null() && block.addr().is_multiple_of(16));
        // SAFETY: the block has that many bytes.
        unsafe { block.write_bytes(mark, size) };
        blocks.push((block, size));
    }

    fn give_back((block, size): (*mut u8, usize), mark: u8) {
        // SAFETY: the block is ours until it is released.
        let found = unsafe { core::slice::from_raw_parts(block, size) };
        assert!(found.iter().all(|byte| *byte == mark), "somebody else had the block too");
        // SAFETY: it came from `allocate`.
        unsafe { release(block) };
    }

    #[test]
    fn no_block_has_two_owners_among_many_threads() {
        std::thread::scope(|scope| {
            for mark in 1..=16u8 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(mark.into());
                    let mut blocks = Vec::new();
                    for _ in 0..20_000 {
                        if blocks.len() < 8 || (blocks.len() < 32 && random.bool()) {
                            hold(&mut blocks, random.usize(1..200), mark);
                        } else {
                            give_back(blocks.swap_remove(random.usize(..blocks.len())), mark);
                        }
                    }
                    blocks.into_iter().for_each(|one| give_back(one, mark));
                });
            }
        });
    }

    #[test]
    fn a_block_has_room_for_its_size_and_wastes_a_quarter_at_most() {
        for size in (1..70_000).chain((16..27).flat_map(|bit| (1 << bit) - 1..(1 << bit) + 2)) {
            let room = room_of(class_of(size));
            assert!(room >= size && room.is_multiple_of(STEP), "{size}");
            assert!(room < size + size / 4 + STEP, "{size}");
            assert_eq!(class_of(room), class_of(size), "{size}");
        }
    }

    #[test]
    fn a_block_that_came_back_is_given_out_again_wiped() {
        // A class that no other test uses.
        let (size, class) = (3 << 20, class_of((3 << 20) + PREFIX));
        let first = allocate(size);
        // SAFETY: the block has that many bytes.
        unsafe { first.write_bytes(7, size) };
        // SAFETY: it came from `allocate`.
        unsafe { release(first) };
        let second = allocate(size);
        assert_eq!(first, second);
        // SAFETY: the block has that many bytes.
        let found = unsafe { core::slice::from_raw_parts(second, size) };
        assert!(found.iter().all(|byte| *byte == 0) && pop(class).is_none());
        // SAFETY: it came from `allocate`.
        unsafe { release(second) };
    }

    #[test]
    fn where_not_all_can_be_locked_as_much_is_as_the_limit_allows() {
        let page = |pages: usize| pages * PAGE;
        for all in [CHUNK, 3 * CHUNK, 257 * CHUNK] {
            for limit in [0, 1, 2, 63, 64, 65, 100, 191, 192, 1 << 20] {
                let (locked, calls) = (Cell::new(0), Cell::new(0));
                lock_from_the_start(CHUNK, CHUNK + all, |at, len| {
                    calls.set(calls.get() + 1);
                    assert_eq!(at, CHUNK + locked.get());
                    assert!(len.is_multiple_of(PAGE) && locked.get() + len <= all);
                    if locked.get() + len > page(limit) {
                        return Err(rustix::io::Errno::NOMEM);
                    }
                    locked.set(locked.get() + len);
                    Ok(())
                });
                assert_eq!(locked.get(), all.min(page(limit)), "{all} {limit}");
                let most = if all <= page(limit) { 1 } else { 18 };
                assert!(calls.get() <= most, "{all} {limit}: {} calls", calls.get());
            }
        }
    }

    #[test]
    fn what_nobody_uses_is_no_memory_that_the_kernel_must_promise() {
        let block = allocate(100);
        assert!(!block.is_null());
        let chunks = || MEMORY.used.load(Relaxed).next_multiple_of(CHUNK);
        let before = chunks();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = MEMORY.start.load(Relaxed);
        let parts: Vec<(usize, &str)> = maps
            .lines()
            .filter_map(|line| {
                let (range, rest) = line.split_once(' ')?;
                let (from, to) = range.split_once('-')?;
                let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16).unwrap());
                let within = from.max(start)..to.min(start + ARENA);
                (!within.is_empty()).then(|| (within.len(), rest.split(' ').next().unwrap()))
            })
            .collect();
        let usable: usize =
            parts.iter().filter(|(_, rights)| rights.starts_with("rw")).map(|(len, _)| len).sum();
        // Other tests allocate meanwhile.
        assert!((before..=chunks()).contains(&usable) && usable < ARENA / 2, "{parts:?}");
        // SAFETY: it came from `allocate`.
        unsafe { release(block) };
    }
}
