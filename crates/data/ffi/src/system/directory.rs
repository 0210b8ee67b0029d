//! The working directory, so that relative paths need no system call: a sequence lock over bytes.

use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, fence,
};

use tidelock_engine::Errno;

use crate::sys;

const LEN: usize = 4096;
static BYTES: [AtomicU8; LEN] = [const { AtomicU8::new(0) }; LEN];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Odd while it is being written.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);

pub(super) fn read(into: &mut [u8]) -> Result<usize, Errno> {
    for _ in 0..1000 {
        let before = SEQUENCE.load(Acquire);
        if before & 1 == 1 {
            core::hint::spin_loop();
            continue;
        }
        let count = COUNT.load(Relaxed).min(LEN);
        let room = into.get_mut(..count).ok_or(Errno::NAMETOOLONG)?;
        for (out, byte) in room.iter_mut().zip(&BYTES) {
            *out = byte.load(Relaxed);
        }
        fence(Acquire);
        if SEQUENCE.load(Relaxed) == before {
            return if count == 0 { Err(Errno::NOENT) } else { Ok(count) };
        }
    }
    sys::working_directory(into)
}

pub(super) fn refresh() {
    // A handler that changes it too would wait for its own thread.
    let mask = sys::block_signals();
    // First of all: of two threads the later one must have the newer answer.
    while SEQUENCE.load(Relaxed) & 1 == 1 || {
        let now = SEQUENCE.load(Relaxed);
        SEQUENCE.compare_exchange(now & !1, (now & !1) + 1, AcqRel, Relaxed).is_err()
    } {
        core::hint::spin_loop();
    }
    let mut buffer = [0u8; LEN];
    let found = sys::working_directory(&mut buffer).unwrap_or(0);
    // A directory that cannot be reached from the root has no path to go by.
    let path = buffer.get(..found).filter(|path| path.first() == Some(&b'/')).unwrap_or(&[]);
    for (byte, &new) in BYTES.iter().zip(path) {
        byte.store(new, Relaxed);
    }
    COUNT.store(path.len(), Relaxed);
    SEQUENCE.fetch_add(1, Release);
    sys::restore_signals(mask);
}

/// Another thread may have been in the middle of it, or just before, and is not there any more.
pub(super) fn after_fork_in_child() {
    if SEQUENCE.load(Relaxed) & 1 == 1 {
        SEQUENCE.fetch_add(1, Release);
    }
    refresh();
}
