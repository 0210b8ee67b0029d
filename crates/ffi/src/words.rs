//! The memory that all processes of a directory share, who they are in it, and sleeping for each other.
//!
//! ```text
//!       0  the words of the engine (tidelock_engine::Words), one map for each protected directory
//!   behind  byte N + the map's length is record-locked by the living process with number N
//! ```
//!
//! A process takes a number at its first lock and holds a POSIX record lock on its byte of the file in memory, which the
//! kernel drops when it dies, however it dies. That file lies in memory, where such locks are always to be had, and nothing
//! but this module ever opens it, so no close can drop them.
//!
//! UNSAFETY: the words lie in a mapping that is made once and never undone.
#![expect(unsafe_code, reason = "atomics in a shared mapping")]

use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use rustix::thread::futex;
use tidelock_engine::{Actor, Fd, LARGEST_NUMBER, Words};

use crate::sys;

const ROOTS: usize = 8;
/// The length of the map.
pub(crate) const MAP: usize = size_of::<Words>();
/// How long a sleeper sleeps before it asks whether whom it waits for lives.
const ASK_AFTER_NS: i64 = 20_000_000;

/// The words of a process that shares with nobody.
static OWN: Words = Words::new();
static MAPS: [AtomicPtr<Words>; ROOTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; ROOTS];
/// The file in memory.
static FILES: [AtomicI32; ROOTS] = [const { AtomicI32::new(-1) }; ROOTS];
/// The lock file, in which the keyring's generation is announced.
static LOCK_FILES: [AtomicI32; ROOTS] = [const { AtomicI32::new(-1) }; ROOTS];
/// This process's number in each directory; 0 until its first lock.
static NUMBERS: [AtomicU32; ROOTS] = [const { AtomicU32::new(0) }; ROOTS];

/// Names the lock file of a directory.
pub(crate) fn set_lock_file(root: u8, file: Fd) {
    LOCK_FILES[index(root)].store(file.0, Relaxed);
}

/// Names the file in memory of a directory, and its map.
pub(crate) fn set_memory(root: u8, file: Fd, map: *mut Words) {
    FILES[index(root)].store(file.0, Relaxed);
    MAPS[index(root)].store(map, Release);
}

const fn index(root: u8) -> usize {
    root as usize % ROOTS
}

/// The words of a directory.
#[inline]
pub(crate) fn of(root: u8) -> &'static Words {
    let map = MAPS[index(root)].load(Acquire);
    // SAFETY: a map of this size, aligned to a page, shared by atomics only and never unmapped; or null.
    unsafe { map.as_ref() }.unwrap_or(&OWN)
}

/// The generation of the keyring that was last announced in this directory; 0 if none was.
pub(crate) fn announced(root: u8) -> u64 {
    let file = LOCK_FILES[index(root)].load(Relaxed);
    let mut bytes = [0u8; 8];
    match sys::read_at(file, &mut bytes, tidelock_keys::ANNOUNCED_AT as u64) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

/// The calling thread.
#[inline]
pub(crate) fn actor(root: u8) -> Actor {
    let number = match NUMBERS[index(root)].load(Relaxed) {
        0 => take_number(root),
        number => number,
    };
    Actor::new(number, sys::thread())
}

/// True if the process with this number lives: it holds the record lock on its byte.
pub(crate) fn lives(root: u8, number: u32) -> bool {
    let file = FILES[index(root)].load(Relaxed);
    if number == NUMBERS[index(root)].load(Relaxed) || file < 0 {
        // A thread of our own; it gives back what it holds, or all of us end with it.
        return true;
    }
    let mut lock = record(number);
    match sys::query_record(file, &mut lock) {
        Ok(()) => i32::from(lock.l_type) != libc::F_UNLCK,
        Err(_) => true,
    }
}

fn record(number: u32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap_or(0),
        l_whence: 0,
        l_start: i64::try_from(MAP).unwrap_or(0) + i64::from(number),
        l_len: 1,
        l_pid: 0,
    }
}

/// True if this process can have a number: whether others live is asked by record locks.
pub(crate) fn can_have_number(root: u8) -> bool {
    let file = FILES[index(root)].load(Relaxed);
    let mut lock = record(LARGEST_NUMBER + 1);
    file < 0 || sys::query_record(file, &mut lock).is_ok()
}

/// A number of this process's own: taken at its first lock, and again after a fork, since record locks are not
/// inherited.
#[cold]
fn take_number(root: u8) -> u32 {
    let file = FILES[index(root)].load(Relaxed);
    loop {
        let mut bytes = [0u8; 4];
        // On failure the bytes stay zero, and the next number is tried below.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let number = (u32::from_le_bytes(bytes) & LARGEST_NUMBER).max(1);
        if file < 0 {
            // Nobody else has these words.
            NUMBERS[index(root)].store(number, Relaxed);
            return number;
        }
        if sys::lock_record(file, i64::from(libc::F_SETLK), &record(number)).is_ok() {
            // Another thread may have been faster; its number is as good, ours stays locked and unused.
            let first = NUMBERS[index(root)].compare_exchange(0, number, AcqRel, Acquire);
            if first.is_ok() {
                of(root).inherit(number);
            }
            return first.map_or_else(|other| other, |_| number);
        }
        // Taken by another, or the kernel has no memory for a lock just now.
        rustix::thread::sched_yield();
    }
}

/// Sleeps at a word, see the engine's `Kernel`.
pub(crate) fn sleep(word: &AtomicU64, seen: u64) {
    let pause = futex::Timespec { tv_sec: 0, tv_nsec: ASK_AFTER_NS };
    // The kernel compares the lower half, which comes first on this machine.
    let [low, ..] = halves(seen);
    let _ = futex::wait(lower_half(word), futex::Flags::empty(), low, Some(&pause));
}

/// Wakes all that sleep at a word: one that is killed after being woken must not take the wake with it.
pub(crate) fn wake(word: &AtomicU64) {
    let _ = futex::wake(lower_half(word), futex::Flags::empty(), u32::MAX >> 1);
}

fn halves(word: u64) -> [u32; 2] {
    let (low, high) =
        word.to_le_bytes().split_first_chunk::<4>().map_or(([0; 4], [0; 4]), |(low, high)| {
            (*low, high.first_chunk().copied().unwrap_or_default())
        });
    [u32::from_le_bytes(low), u32::from_le_bytes(high)]
}

fn lower_half(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: the first four of the word's eight bytes, aligned as it is; only the kernel reads them by this reference.
    unsafe { &*core::ptr::from_ref(word).cast::<AtomicU32>() }
}

/// In a forked child: numbers of its own, and nothing that the parent's threads hold in words that are not shared.
pub(crate) fn after_fork_in_child() {
    for number in &NUMBERS {
        number.store(0, Relaxed);
    }
    OWN.forget_all();
}
