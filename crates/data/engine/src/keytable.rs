//! Which file keys are installed in the cipher: found again by header, kept after close for the
//! next open.
//!
//! Opening a file costs two derivations and a MAC; a server opens the same few files over and over.
//! A header that was verified once is recognised by all of its bytes. There are twice as many
//! places as open files, and each key that is in use belongs to an open file: a first write always
//! finds a place.

use core::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use tidelock_cipher::KeySlot;
use tidelock_format::COPY_LEN;

use crate::errno::Errno;
use crate::room::Room;
use crate::table::OPEN_FILES;

/// How many file keys a process needs places for.
pub const KEYS: usize = 2 * OPEN_FILES;
/// How far from its home a key may lie. Where half of the places are in use, one file in a million
/// finds none so near.
const REACH: usize = 64;
/// So many places are filled before keys that nobody uses give way: each costs 3 KiB of locked
/// memory.
const KEPT: u32 = 4096;
const WORDS: usize = COPY_LEN / 8;

const EMPTY: u32 = 0;
/// Somebody installs a key here.
const BUSY: u32 = u32::MAX;
/// The key is installed; the rest of the word counts its users.
const READY: u32 = 1 << 31;

/// The installed file keys of this process.
pub struct KeyTable {
    places: Room<KeyPlace>,
    /// Places that have been filled.
    filled: AtomicU32,
    /// Some key lies out of reach of its home.
    strays: AtomicU32,
}

/// The place of one key.
pub struct KeyPlace {
    word: AtomicU32,
    header: [AtomicU64; WORDS],
}

/// One copy of a header, as it stands on the disk.
pub(crate) type Copy = [u8; COPY_LEN];

/// A place for a key that is being installed; only its owner uses it.
pub(crate) struct Vacancy {
    pub(crate) slot: KeySlot,
}

impl KeyPlace {
    /// A place without a key; all of its bytes are zero.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "the value that arrays of it begin with"
    )]
    pub const EMPTY: Self =
        Self { word: AtomicU32::new(EMPTY), header: [const { AtomicU64::new(0) }; WORDS] };

    fn matches(&self, copy: &Copy) -> bool {
        let (words, _) = copy.as_chunks::<8>();
        self.header
            .iter()
            .zip(words)
            .all(|(have, want)| have.load(Relaxed) == u64::from_le_bytes(*want))
    }

    /// True if it may be the place of this header, by the last word of its MAC.
    fn resembles(&self, copy: &Copy) -> bool {
        self.word.load(Relaxed) & READY != 0
            && self.header.last().map(|word| word.load(Relaxed)) == Some(tail(copy))
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
    /// A table without keys, in static memory: [`KEYS`] places for a real process.
    #[must_use]
    pub const fn over(places: &'static [KeyPlace]) -> Self {
        Self { places: Room::Lent(places), filled: AtomicU32::new(0), strays: AtomicU32::new(0) }
    }

    /// A table with memory of its own, for a process that is only simulated.
    #[must_use]
    pub fn with_room(places: usize) -> Self {
        let places = (0..places).map(|_| KeyPlace::EMPTY).collect();
        Self { places: Room::Own(places), filled: AtomicU32::new(0), strays: AtomicU32::new(0) }
    }

    fn place(&self, slot: KeySlot) -> Option<&KeyPlace> {
        self.places.get(slot.0 as usize)
    }

    /// The key of this header, joined, if it is installed.
    pub(crate) fn find(&self, copy: &Copy) -> Option<KeySlot> {
        let found = self.window(copy).find_map(|near| self.join_if_same(near, copy));
        if found.is_none() && self.strays.load(Acquire) != 0 {
            return self.all().find_map(|any| self.join_if_same(any, copy));
        }
        found
    }

    fn join_if_same(&self, (slot, entry): (KeySlot, &KeyPlace), copy: &Copy) -> Option<KeySlot> {
        if !entry.resembles(copy) || !entry.join() {
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
        let spares = self.filled.load(Relaxed) < KEPT;
        let order = if spares { [EMPTY, READY] } else { [READY, EMPTY] };
        if let Some(slot) = self.take(self.window(copy), order) {
            return Ok(Vacancy { slot });
        }
        let slot = self.take(self.all(), order).ok_or(Errno::NFILE)?;
        self.strays.store(1, Release);
        Ok(Vacancy { slot })
    }

    /// Takes the first of the places that has the first of these words, or else the second.
    fn take<'t>(
        &self,
        places: impl Iterator<Item = (KeySlot, &'t KeyPlace)> + Clone,
        order: [u32; 2],
    ) -> Option<KeySlot> {
        for wanted in order {
            for (slot, entry) in places.clone() {
                if entry.word.load(Relaxed) == wanted
                    && entry.word.compare_exchange(wanted, BUSY, AcqRel, Relaxed).is_ok()
                {
                    if wanted == EMPTY {
                        self.filled.fetch_add(1, Relaxed);
                    }
                    return Some(slot);
                }
            }
        }
        None
    }

    /// The key is installed and has one user.
    pub(crate) fn fill(&self, vacancy: Vacancy, copy: &Copy) -> KeySlot {
        let slot = vacancy.slot;
        if let Some(entry) = self.place(slot) {
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
        if let Some(entry) = self.place(vacancy.slot) {
            entry.word.store(EMPTY, Release);
            self.filled.fetch_sub(1, Relaxed);
        }
    }

    /// One user less.
    pub(crate) fn leave(&self, slot: KeySlot) {
        if let Some(entry) = self.place(slot) {
            entry.word.fetch_sub(1, AcqRel);
        }
    }

    fn all(&self) -> impl Iterator<Item = (KeySlot, &KeyPlace)> + Clone {
        (0..).map(KeySlot).zip(self.places.iter())
    }

    fn window(&self, copy: &Copy) -> impl Iterator<Item = (KeySlot, &KeyPlace)> + Clone {
        let places = &*self.places;
        let home = usize::try_from(tail(copy)).unwrap_or(0);
        (0..REACH.min(places.len())).filter_map(move |step| {
            let index = home.wrapping_add(step) % places.len();
            let slot = KeySlot(u32::try_from(index).ok()?);
            places.get(index).map(|entry| (slot, entry))
        })
    }
}

/// The end of a header's MAC: as good as random.
fn tail(copy: &Copy) -> u64 {
    copy.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_of(number: usize) -> Copy {
        let mut copy = [7; COPY_LEN];
        let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        copy[..8].copy_from_slice(&(number as u64).to_le_bytes());
        copy[COPY_LEN - 8..].copy_from_slice(&(mixed ^ mixed >> 29).to_le_bytes());
        copy
    }

    #[test]
    fn there_is_a_place_for_the_key_of_every_open_file() {
        let table = KeyTable::with_room(KEYS);
        for number in 0..OPEN_FILES {
            let vacancy = table.vacate(&copy_of(number)).unwrap();
            table.fill(vacancy, &copy_of(number));
        }
        for number in 0..OPEN_FILES {
            assert!(table.find(&copy_of(number)).is_some(), "{number}");
        }
        assert_eq!(table.find(&copy_of(OPEN_FILES)), None);
    }

    #[test]
    fn keys_that_nobody_uses_give_way_before_the_table_is_full() {
        let table = KeyTable::with_room(KEYS);
        for number in 0..4 * KEYS {
            let vacancy = table.vacate(&copy_of(number)).unwrap();
            let slot = table.fill(vacancy, &copy_of(number));
            table.leave(slot);
        }
        let filled = table.filled.load(Relaxed);
        assert!((KEPT..3 * KEPT).contains(&filled), "{filled}");
        assert!(table.find(&copy_of(4 * KEYS - 1)).is_some());
    }

    #[test]
    fn a_full_table_says_so_and_a_key_that_is_left_makes_room() {
        let table = KeyTable::with_room(8);
        let fill =
            |number| table.vacate(&copy_of(number)).map(|free| table.fill(free, &copy_of(number)));
        let slots: Vec<_> = (0..8).map(|number| fill(number).unwrap()).collect();
        assert_eq!(fill(8), Err(Errno::NFILE));
        table.leave(slots[3]);
        assert_eq!(fill(8), Ok(slots[3]));
    }
}
