//! Memory for sealed bytes on their way to the kernel.
//!
//! A request keeps what a few pages need. More is spare for the next one that needs as much: InnoDB
//! writes each batch of its doublewrite buffer, two megabytes, by one request.
//!
//! UNSAFETY: maps that one request has at a time.
#![expect(unsafe_code, reason = "maps")]

use core::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use rustix::mm::{MapFlags, ProtFlags};

/// What a request keeps for the next one; all lengths are multiples of it.
pub(super) const KEPT: usize = 64 * 1024;
/// The longest that is kept as spare.
pub(super) const SPARE: usize = 4 * 1024 * 1024;

/// Spare maps: where one begins, and its length in the bits that a page leaves free.
static SPARES: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
const LEN: usize = 0xfff;

const _: () = assert!(SPARE / KEPT <= LEN);

/// A map, by its start and length; null for none.
pub(super) type Map = (*mut u8, usize);

pub(super) const NONE: Map = (core::ptr::null_mut(), 0);

/// A map of at least so many bytes: a spare one, or a fresh one.
pub(super) fn get(len: usize) -> Option<Map> {
    let len = len.next_multiple_of(KEPT);
    let spare = SPARES.iter().filter(|_| len > KEPT).find_map(|spare| {
        let seen = spare.load(Relaxed);
        let is_enough = (seen & LEN) * KEPT >= len;
        (is_enough && spare.compare_exchange(seen, 0, Acquire, Relaxed).is_ok()).then_some(seen)
    });
    match spare {
        Some(seen) => {
            let start = core::ptr::with_exposed_provenance_mut(seen & !LEN);
            Some((start, (seen & LEN) * KEPT))
        }
        None => Some((map(len)?, len)),
    }
}

/// Keeps a map of [`get`] as spare, or gives it back.
pub(super) fn spare((start, len): Map) {
    let is_kept = (KEPT + 1..=SPARE).contains(&len) && {
        let this = start.expose_provenance() | (len / KEPT);
        SPARES.iter().any(|spare| spare.compare_exchange(0, this, AcqRel, Relaxed).is_ok())
    };
    if !is_kept {
        unmap((start, len));
    }
}

/// Fresh memory, all zeros; pages come into being as they are touched.
pub(super) fn map(len: usize) -> Option<*mut u8> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: fresh private memory wherever the kernel likes.
    let map = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, rights, kind) };
    map.ok().map(<*mut core::ffi::c_void>::cast)
}

/// Gives back a map of ours that nobody uses any more, if there is one.
pub(super) fn unmap((start, len): Map) {
    if !start.is_null() {
        // SAFETY: the caller's map, whole.
        let _ = unsafe { rustix::mm::munmap(start.cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, SPARE, get, spare};

    #[test]
    fn a_spare_map_is_had_by_one_and_only_if_it_is_long_enough() {
        let long = get(SPARE).expect("memory");
        let longer = get(SPARE + 1).expect("memory");
        spare(longer);
        spare(long);
        let short = get(KEPT).expect("memory");
        assert_ne!(short.0, long.0, "it keeps its own");
        let first = get(SPARE - KEPT + 1).expect("memory");
        assert_eq!(first, long);
        let second = get(KEPT + 1).expect("memory");
        assert_ne!(second.0, long.0);
        assert_eq!(second.1, 2 * KEPT);
        [short, first, second].into_iter().for_each(spare);
    }
}
