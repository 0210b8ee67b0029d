//! Which files a line was written for already, so that a program that asks again and again does not
//! fill a log.
//!
//! For refusals that are an ordinary answer, after which programs go on. A few files in each
//! process; forked children know what their parent had told.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many files are named at most.
const MOST: usize = 16;

/// The files that were named.
pub(crate) struct OncePerFile([AtomicU64; MOST]);

impl OncePerFile {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MOST])
    }

    /// True for a file that was not named yet, which is remembered; false also when there were too
    /// many.
    pub(crate) fn is_first(&self, device: u64, inode: u64) -> bool {
        // Two files with one mark: one of them stays without its line.
        let mark = (device.rotate_left(40) ^ inode) | 1 << 63;
        for place in &self.0 {
            match place.compare_exchange(0, mark, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) if other == mark => return false,
                Err(_) => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_named_once_and_not_too_many() {
        let told = OncePerFile::new();
        assert!(told.is_first(1, 2) && !told.is_first(1, 2));
        assert!(told.is_first(2, 2) && told.is_first(1, 3));
        let named = (100..200).filter(|inode| told.is_first(1, *inode)).count();
        assert_eq!(named, MOST - 3);
        assert!(!told.is_first(1, 2) && !told.is_first(1, 99));
    }
}
