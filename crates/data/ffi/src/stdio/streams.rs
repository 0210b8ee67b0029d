//! Which descriptor has this FILE? A table of fixed size, searched without a lock.

use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

use libc::FILE;

/// How many streams on sealed files there may be.
const STREAMS: usize = 1024;
/// So that the table begins as zeros, and takes no page before it is used.
const FREE: i32 = 0;

/// One stream on a sealed file; its address is the cookie.
pub(crate) struct Stream {
    /// The descriptor and one, or [`FREE`].
    owner: AtomicI32,
    file: AtomicPtr<FILE>,
    /// What fwide tells: 1 once it is wide, -1 if the program has asked for bytes.
    orientation: AtomicI32,
}

static TABLE: [Stream; STREAMS] = [const {
    Stream {
        owner: AtomicI32::new(FREE),
        file: AtomicPtr::new(null_mut()),
        orientation: AtomicI32::new(0),
    }
}; STREAMS];
/// Below this, entries have been used.
static TOP: AtomicUsize = AtomicUsize::new(0);

/// An entry for the descriptor, if there is room.
pub(crate) fn claim(fd: i32) -> Option<&'static Stream> {
    let owner = fd.checked_add(1)?;
    let free = |entry: &&Stream| entry.owner.compare_exchange(FREE, owner, AcqRel, Relaxed).is_ok();
    let (index, entry) = TABLE.iter().enumerate().find(|(_, entry)| free(entry))?;
    TOP.fetch_max(index + 1, Release);
    Some(entry)
}

/// The entry of this FILE, if it is one of ours.
pub(crate) fn of(file: *mut FILE) -> Option<&'static Stream> {
    if file.is_null() {
        return None;
    }
    TABLE.iter().take(TOP.load(Acquire)).find(|entry| entry.file.load(Acquire) == file)
}

impl Stream {
    pub(crate) fn descriptor(&self) -> i32 {
        self.owner.load(Acquire) - 1
    }

    pub(crate) fn file(&self) -> *mut FILE {
        self.file.load(Acquire)
    }

    pub(crate) fn set_file(&self, file: *mut FILE) {
        self.orientation.store(0, Relaxed);
        self.file.store(file, Release);
    }

    /// Makes it wide (1) or one of bytes (-1), if it is neither, or asks (0); what it is.
    pub(crate) fn orient(&self, wanted: i32) -> i32 {
        match self.orientation.compare_exchange(0, wanted, AcqRel, Relaxed) {
            Ok(_) => wanted,
            Err(is) => is,
        }
    }

    /// Gives the entry back; the descriptor that it had. libc frees the FILE after that.
    pub(crate) fn release(&self) -> i32 {
        self.file.store(null_mut(), Release);
        self.owner.swap(FREE, AcqRel) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_found_until_it_is_released() {
        let entry = claim(1_000_007).unwrap();
        let file = core::ptr::without_provenance_mut::<FILE>(0x7000);
        entry.set_file(file);
        assert_eq!(of(file).map(Stream::descriptor), Some(1_000_007));
        assert_eq!(entry.release(), 1_000_007);
        assert!(of(file).is_none());
        assert!(of(null_mut()).is_none());
    }
}
