//! Which file keys are installed in the cipher: found again by header, kept after close for the next open.
//!
//! Opening a file costs two derivations and a MAC; a server opens the same few files over and over. A header
//! that was verified once is recognised by all of its bytes.

use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use tidelock_cipher::KeySlot;
use tidelock_format::COPY_LEN;

use crate::errno::Errno;

/// How many file keys are installed at most.
pub(crate) const KEYS: usize = 4096;
/// How far from its home a key may lie.
const REACH: usize = 16;
const WORDS: usize = COPY_LEN / 8;

const EMPTY: u32 = 0;
/// Somebody installs a key here.
const BUSY: u32 = u32::MAX;
/// The key is installed; the rest of the word counts its users.
const READY: u32 = 1 << 31;

/// The installed file keys of this process.
pub struct KeyTable {
    entries: [Entry; KEYS],
    /// Some key lies out of reach of its home.
    strays: AtomicU32,
}

struct Entry {
    word: AtomicU32,
    header: [AtomicU64; WORDS],
}

/// One copy of a header, as it stands on the disk.
pub(crate) type Copy = [u8; COPY_LEN];

/// A place for a key that is being installed; only its owner uses it.
pub(crate) struct Vacancy {
    pub(crate) slot: KeySlot,
}

impl Default for KeyTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "the value that arrays of it begin with"
    )]
    const EMPTY: Self =
        Self { word: AtomicU32::new(EMPTY), header: [const { AtomicU64::new(0) }; WORDS] };

    fn matches(&self, copy: &Copy) -> bool {
        let (words, _) = copy.as_chunks::<8>();
        self.header
            .iter()
            .zip(words)
            .all(|(have, want)| have.load(Relaxed) == u64::from_le_bytes(*want))
    }

    fn join(&self) -> bool {
        let mut word = self.word.load(Acquire);
        while word & READY != 0 && word != BUSY {
            match self.word.compare_exchange_weak(word, word + 1, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }
}

impl KeyTable {
    /// A table without keys.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: [const { Entry::EMPTY }; KEYS], strays: AtomicU32::new(0) }
    }

    /// The key of this header, joined, if it is installed.
    pub(crate) fn find(&self, copy: &Copy) -> Option<KeySlot> {
        let found = self.window(copy).find_map(|near| self.join_if_same(near, copy));
        if found.is_none() && self.strays.load(Acquire) != 0 {
            return self.all().find_map(|any| self.join_if_same(any, copy));
        }
        found
    }

    fn join_if_same(&self, (slot, entry): (KeySlot, &Entry), copy: &Copy) -> Option<KeySlot> {
        if !entry.join() {
            return None;
        }
        if entry.matches(copy) {
            return Some(slot);
        }
        self.leave(slot);
        None
    }

    /// A place for a new key: an empty one, or one whose key nobody uses.
    ///
    /// # Errors
    /// `ENFILE` if there is none.
    pub(crate) fn vacate(&self, copy: &Copy) -> Result<Vacancy, Errno> {
        let near = self.window(copy);
        for wanted in [EMPTY, READY] {
            for (slot, entry) in near.clone() {
                if entry.word.compare_exchange(wanted, BUSY, AcqRel, Relaxed).is_ok() {
                    return Ok(Vacancy { slot });
                }
            }
        }
        for wanted in [EMPTY, READY] {
            for (slot, entry) in self.all() {
                if entry.word.load(Relaxed) == wanted
                    && entry.word.compare_exchange(wanted, BUSY, AcqRel, Relaxed).is_ok()
                {
                    self.strays.store(1, Release);
                    return Ok(Vacancy { slot });
                }
            }
        }
        Err(Errno::NFILE)
    }

    /// The key is installed and has one user.
    pub(crate) fn fill(&self, vacancy: Vacancy, copy: &Copy) -> KeySlot {
        let slot = vacancy.slot;
        if let Some(entry) = self.entries.get(slot.0 as usize) {
            let (words, _) = copy.as_chunks::<8>();
            for (have, new) in entry.header.iter().zip(words) {
                have.store(u64::from_le_bytes(*new), Relaxed);
            }
            entry.word.store(READY | 1, Release);
        }
        slot
    }

    /// The key could not be installed.
    pub(crate) fn abandon(&self, vacancy: &Vacancy) {
        if let Some(entry) = self.entries.get(vacancy.slot.0 as usize) {
            entry.word.store(EMPTY, Release);
        }
    }

    /// One user less.
    pub(crate) fn leave(&self, slot: KeySlot) {
        if let Some(entry) = self.entries.get(slot.0 as usize) {
            entry.word.fetch_sub(1, AcqRel);
        }
    }

    fn all(&self) -> impl Iterator<Item = (KeySlot, &Entry)> {
        let numbered = (0..).map(KeySlot).zip(&self.entries);
        numbered.take(KEYS)
    }

    fn window(&self, copy: &Copy) -> impl Iterator<Item = (KeySlot, &Entry)> + Clone {
        // The MAC, at the end, is as good as random.
        let home = copy.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail));
        let home = usize::try_from(home % KEYS as u64).unwrap_or(0);
        (0..REACH).filter_map(move |step| {
            let index = (home + step) % KEYS;
            let slot = KeySlot(u32::try_from(index).ok()?);
            self.entries.get(index).map(|entry| (slot, entry))
        })
    }
}
