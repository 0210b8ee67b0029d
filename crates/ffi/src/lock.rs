//! The words that all processes of a directory share, in its lock file: locks of slow paths, and the
//! sequence words of writers.
//!
//! ```text
//!       0  256 sequence words of 64 bits, 64 bytes apart
//!       8  the generation of the keyring that its agent last announced (`renewal`)
//!   16384  256 lock words of 32 bits, 64 bytes apart: 0, or the number of the process that holds it
//!   32768  end of the map; behind it, byte 65536 + N is record-locked by the living process with number N
//! ```
//!
//! A lock that nobody else wants costs no system call but the two that block signals meanwhile: a handler that
//! writes to the same file would wait for ever. A process takes a number at its first lock and holds a POSIX record
//! lock on its byte, which the kernel drops when it dies, however it dies: who waits too long looks whether the
//! holder still lives. What a crash of the machine left in the file is stale in the same way.
//!
//! UNSAFETY: the words lie in a mapping that is made once and never undone.
#![expect(unsafe_code, reason = "atomics in a shared mapping")]

use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use rustix::thread::futex;
use tidelock_engine::{Errno, Fd, Reach, Stripe};

use crate::sys;

const ROOTS: usize = 8;
const BYTES: usize = 256;
const STRIDE: usize = 64;
const LOCKS_AT: usize = BYTES * STRIDE;
/// The length of the map.
pub(crate) const MAP: usize = 2 * LOCKS_AT;
const ALIVE_AT: i64 = 65_536;
/// Somebody waits for the lock.
const AWAITED: u32 = 1 << 31;
const NUMBERS: u32 = AWAITED - 1;
/// How long a waiter sleeps before it asks whether the holder lives.
const LOOK_AFTER_NS: i64 = 20_000_000;

/// A line of the map of a process that shares with nobody: its threads still exclude each other.
#[repr(align(64))]
struct Line(AtomicU64);

static OWN: [Line; 2 * BYTES] = [const { Line(AtomicU64::new(0)) }; 2 * BYTES];
static MAPS: [AtomicPtr<u8>; ROOTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; ROOTS];
static FILES: [AtomicI32; ROOTS] = [const { AtomicI32::new(-1) }; ROOTS];
/// The signal mask that the holder of each lock goes back to.
static MASKS: [[AtomicU64; BYTES]; ROOTS] = [const { [const { AtomicU64::new(0) }; BYTES] }; ROOTS];
/// This process's number in each directory; 0 until its first lock.
static NUMBER: [AtomicU32; ROOTS] = [const { AtomicU32::new(0) }; ROOTS];

/// Names the lock file of a directory, and its map if there could be one.
pub(crate) fn set_file(root: u8, file: Fd, map: *mut u8) {
    FILES[index(root)].store(file.0, Relaxed);
    MAPS[index(root)].store(map, Release);
}

const fn index(root: u8) -> usize {
    root as usize % ROOTS
}

fn line(root: u8, number: usize) -> *const u8 {
    let map = MAPS[index(root)].load(Acquire);
    if map.is_null() {
        (&raw const OWN[number].0).cast()
    } else {
        // SAFETY: the map has twice 256 lines of 64 bytes, and `number` is below that.
        unsafe { map.add(number * STRIDE) }
    }
}

/// The sequence word of a stripe.
pub(crate) fn sequence(stripe: Stripe) -> &'static AtomicU64 {
    // SAFETY: a line is aligned, shared by atomics only, and never unmapped.
    unsafe { &*line(stripe.root, usize::from(stripe.byte)).cast() }
}

/// The generation of the keyring that was last announced in this directory.
pub(crate) fn announced(root: u8) -> &'static AtomicU64 {
    let line = line(root, 0);
    if MAPS[index(root)].load(Acquire).is_null() {
        static NEVER: AtomicU64 = AtomicU64::new(0);
        return &NEVER;
    }
    // SAFETY: a line has 64 bytes, of which the sequence word takes 8; aligned, shared by atomics, never unmapped.
    unsafe { &*line.wrapping_add(tidelock_keys::ANNOUNCED_AT).cast() }
}

fn word(stripe: Stripe) -> &'static AtomicU32 {
    // SAFETY: as for `sequence`.
    unsafe { &*line(stripe.root, BYTES + usize::from(stripe.byte)).cast() }
}

/// Takes the lock of a stripe; it keeps out every process, whatever the reach.
pub(crate) fn take(stripe: Stripe, _reach: Reach) -> Result<(), Errno> {
    let mask = sys::block_signals();
    let word = word(stripe);
    let me = number(stripe.root);
    if word.compare_exchange(0, me, Acquire, Relaxed).is_err() {
        wait(stripe, word, me);
    }
    MASKS[index(stripe.root)][usize::from(stripe.byte)].store(mask, Relaxed);
    Ok(())
}

/// Gives it back.
pub(crate) fn give(stripe: Stripe, _reach: Reach) {
    let mask = MASKS[index(stripe.root)][usize::from(stripe.byte)].load(Relaxed);
    let word = word(stripe);
    if word.swap(0, Release) & AWAITED != 0 {
        // All of them: a waiter that was killed after being woken must not take the wake with it.
        let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
    }
    sys::restore_signals(mask);
}

#[cold]
fn wait(stripe: Stripe, word: &AtomicU32, me: u32) {
    let mut spins = 0;
    loop {
        let held = word.load(Relaxed);
        if held == 0 {
            // Others may wait too: whoever takes the lock after a wait wakes them when it is done.
            if word.compare_exchange(0, me | AWAITED, Acquire, Relaxed).is_ok() {
                return;
            }
        } else if spins < 100 {
            spins += 1;
            core::hint::spin_loop();
        } else if held & AWAITED != 0
            || word.compare_exchange(held, held | AWAITED, AcqRel, Relaxed).is_ok()
        {
            let pause = futex::Timespec { tv_sec: 0, tv_nsec: LOOK_AFTER_NS };
            let slept = futex::wait(word, futex::Flags::empty(), held | AWAITED, Some(&pause));
            if slept == Err(rustix::io::Errno::TIMEDOUT)
                && word.load(Relaxed) == held | AWAITED
                && !lives(stripe.root, held & NUMBERS, me)
                && word.compare_exchange(held | AWAITED, me | AWAITED, AcqRel, Relaxed).is_ok()
            {
                return;
            }
        }
    }
}

/// True if the process with this number still lives: it holds the record lock on its byte.
fn lives(root: u8, number: u32, me: u32) -> bool {
    let file = FILES[index(root)].load(Relaxed);
    if number == me || file < 0 {
        // A thread of our own; it gives the lock back, or all of us end with it.
        return true;
    }
    let mut lock = record(number, libc::F_WRLCK);
    match sys::query_record(file, &mut lock) {
        Ok(()) => i32::from(lock.l_type) != libc::F_UNLCK,
        Err(_) => true,
    }
}

fn record(number: u32, kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: 0,
        l_start: ALIVE_AT + i64::from(number),
        l_len: 1,
        l_pid: 0,
    }
}

/// This process's number: taken at its first lock, and again after a fork, since record locks are not inherited.
fn number(root: u8) -> u32 {
    match NUMBER[index(root)].load(Relaxed) {
        0 => take_number(root),
        number => number,
    }
}

#[cold]
fn take_number(root: u8) -> u32 {
    let file = FILES[index(root)].load(Relaxed);
    for _ in 0..64 {
        let mut bytes = [0u8; 4];
        // On failure the bytes stay zero, and the next number is tried below.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let number = (u32::from_le_bytes(bytes) & NUMBERS).max(1);
        let alone = file < 0
            || sys::lock_record(file, i64::from(libc::F_SETLK), &record(number, libc::F_WRLCK))
                .is_ok();
        if alone {
            // Another thread may have been faster; its number is as good, ours stays locked and unused.
            let first = NUMBER[index(root)].compare_exchange(0, number, AcqRel, Acquire);
            return first.map_or_else(|other| other, |_| number);
        }
    }
    // A file that cannot be locked (read-only): threads still exclude each other.
    1
}

/// In a forked child: a number of its own, and no lock of the parent's threads in memory that is not shared.
pub(crate) fn after_fork_in_child() {
    for number in &NUMBER {
        number.store(0, Relaxed);
    }
    for line in OWN.get(BYTES..).unwrap_or_default() {
        line.0.store(0, Relaxed);
    }
}
