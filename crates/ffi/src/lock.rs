//! The locks of slow paths: a word in this process, and a byte of the directory's lock file for the others.
//!
//! The byte is a POSIX record lock: it belongs to the process, so that forked children exclude each other, and the
//! kernel drops it when its holder dies. Signals are blocked while a lock is held: a handler that writes to
//! the same file would wait for ever.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use tidelock_engine::{Errno, Fd, Reach, Stripe};

use crate::sys;

const ROOTS: usize = 8;
const BYTES: usize = 256;
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const AWAITED: u32 = 2;

static WORDS: [[AtomicU32; BYTES]; ROOTS] = [const { [const { AtomicU32::new(FREE) }; BYTES] }; ROOTS];
/// The signal mask that the holder of each word goes back to.
static MASKS: [[AtomicU64; BYTES]; ROOTS] = [const { [const { AtomicU64::new(0) }; BYTES] }; ROOTS];
static FILES: [AtomicI32; ROOTS] = [const { AtomicI32::new(-1) }; ROOTS];

/// Names the lock file of a directory.
pub(crate) fn set_file(root: u8, file: Fd) {
    FILES[usize::from(root) % ROOTS].store(file.0, Relaxed);
}

pub(crate) fn take(stripe: Stripe, reach: Reach) -> Result<(), Errno> {
    let mask = sys::block_signals();
    let word = &WORDS[usize::from(stripe.root) % ROOTS][usize::from(stripe.byte)];
    if word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
        while word.swap(AWAITED, Acquire) != FREE {
            // Woken, interrupted or too late to sleep: the loop looks again.
            let _ = rustix::thread::futex::wait(word, rustix::thread::futex::Flags::PRIVATE, AWAITED, None);
        }
    }
    MASKS[usize::from(stripe.root) % ROOTS][usize::from(stripe.byte)].store(mask, Relaxed);
    if reach == Reach::Everyone
        && let Err(error) = record(stripe, libc::F_WRLCK)
    {
        give(stripe, Reach::Process);
        return Err(error);
    }
    Ok(())
}

pub(crate) fn give(stripe: Stripe, reach: Reach) {
    if reach == Reach::Everyone {
        // Unlocking a byte that we hold cannot fail.
        let _ = record(stripe, libc::F_UNLCK);
    }
    let mask = MASKS[usize::from(stripe.root) % ROOTS][usize::from(stripe.byte)].load(Relaxed);
    let word = &WORDS[usize::from(stripe.root) % ROOTS][usize::from(stripe.byte)];
    if word.swap(FREE, Release) == AWAITED {
        let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::PRIVATE, 1);
    }
    sys::restore_signals(mask);
}

fn record(stripe: Stripe, kind: i32) -> Result<(), Errno> {
    let file = FILES[usize::from(stripe.root) % ROOTS].load(Relaxed);
    if file < 0 {
        return Ok(());
    }
    let lock = libc::flock {
        l_type: i16::try_from(kind).unwrap_or(0),
        l_whence: 0,
        l_start: i64::from(stripe.byte),
        l_len: 1,
        l_pid: 0,
    };
    sys::lock_record(file, i64::from(libc::F_SETLKW), &lock)
}

/// In a forked child no other thread exists, and record locks are not inherited.
pub(crate) fn after_fork_in_child() {
    for word in WORDS.iter().flatten() {
        word.store(FREE, Relaxed);
    }
}
