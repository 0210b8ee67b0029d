//! Which file keys are installed in the cipher: found again by header, kept after close for the
//! next open.
//!
//! Opening a file costs a derivation and a MAC; a server opens the same few files over and over. A
//! header that was verified once is recognised by all of its bytes. There are twice as many places
//! as open files, and each key that is in use belongs to an open file: a first write always finds a
//! place.
//!
//! ```text
//!   marks   |16|16| 32 | 64 | ...     keys come into the last region in use; where
//!   places  |16|16| 32 | 64 | ...     one finds no place, the next region begins
//! ```
//!
//! A process that has few files touches few pages: each is a fault, and a server's connection is a
//! process of its own. It asks for the memory of a region when the region begins.

use core::ops::Range;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use tidelock_cipher::KeySlot;
use tidelock_format::COPY_LEN;

use crate::errno::Errno;
use crate::table::OPEN_FILES;
use crate::table_memory::TableMemory;

/// How many file keys a process needs places for.
pub const KEYS: usize = 2 * OPEN_FILES;
/// Places of the first region, and of the second; each other has as many as all before it. They
/// touch two pages: a connection of a server has the keys of eight files.
const FIRST: usize = 16;
/// How far from its home a key may lie.
const REACH: usize = 16;
/// So many places are used before keys that nobody uses give way: each costs 2 KiB of locked
/// memory.
const KEPT: usize = 4096;
const WORDS: usize = COPY_LEN / 8;

/// The mark of a place that never had a key: no search goes on behind it.
const NEVER: u64 = 0;
/// The mark of a place without a known key.
const TAKEN: u64 = 1;

const EMPTY: u32 = 0;
/// Somebody installs a key here.
const BUSY: u32 = u32::MAX;
/// The key is installed; the rest of the word counts its users.
const READY: u32 = 1 << 31;

/// The installed file keys of this process.
pub struct KeyTable {
    /// What tells each place's header from most others: [`mark`]. Apart, so that a search reads few
    /// lines.
    marks: TableMemory<[AtomicU64]>,
    places: TableMemory<[KeyPlace]>,
    /// Makes places writable; one that no region has had may not be written before.
    grant: Grant,
    /// Where the last region in use ends; 0 at first.
    end: AtomicUsize,
    /// Some key lies out of reach of its home.
    strays: AtomicBool,
}

/// Makes the memory of some places writable, or says why that cannot be.
type Grant = fn(&[KeyPlace]) -> Result<(), Errno>;

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
    /// A table without keys, in static memory of zeros: [`KEYS`] marks and places for a real
    /// process. `grant` makes places writable, again if two threads ask for the same ones.
    #[must_use]
    pub const fn over(
        marks: &'static [AtomicU64],
        places: &'static [KeyPlace],
        grant: fn(&[KeyPlace]) -> Result<(), Errno>,
    ) -> Self {
        Self::of(TableMemory::Lent(marks), TableMemory::Lent(places), grant)
    }

    /// A table with memory of its own, for a process that is only simulated.
    #[must_use]
    pub fn with_room(places: usize) -> Self {
        let marks = (0..places).map(|_| AtomicU64::new(NEVER)).collect();
        let places = (0..places).map(|_| KeyPlace::EMPTY).collect();
        Self::of(TableMemory::Own(marks), TableMemory::Own(places), |_| Ok(()))
    }

    const fn of(
        marks: TableMemory<[AtomicU64]>,
        places: TableMemory<[KeyPlace]>,
        grant: Grant,
    ) -> Self {
        Self { marks, places, grant, end: AtomicUsize::new(0), strays: AtomicBool::new(false) }
    }

    fn place(&self, slot: KeySlot) -> Option<&KeyPlace> {
        self.places.get(slot.0 as usize)
    }

    /// The key of this header, joined, if it is installed.
    pub(crate) fn find(&self, copy: &Copy) -> Option<KeySlot> {
        let found = self.regions().find_map(|region| {
            let near = near(&region, copy).take_while(|place| self.mark_of(*place) != NEVER);
            self.find_among(near, copy)
        });
        if found.is_none() && self.strays.load(Acquire) {
            return self.find_among(0..self.places.len(), copy);
        }
        found
    }

    fn find_among(&self, places: impl Iterator<Item = usize>, copy: &Copy) -> Option<KeySlot> {
        let mark = mark(copy);
        places.filter(|place| self.mark_of(*place) == mark).find_map(|place| {
            let entry = self.places.get(place)?;
            if !entry.join() {
                return None;
            }
            let slot = slot_of(place)?;
            if entry.matches(copy) {
                return Some(slot);
            }
            self.leave(slot);
            None
        })
    }

    /// A place for a new key: one that never had a key, or one whose key nobody uses.
    ///
    /// # Errors
    /// `ENFILE` if there is none, `ENOMEM` if there is no memory for one.
    pub(crate) fn vacate(&self, copy: &Copy) -> Result<Vacancy, Errno> {
        let all = self.places.len();
        loop {
            let end = self.end();
            let mut slot = self.take(near(&region_before(end), copy), EMPTY);
            if slot.is_none() && end >= KEPT.min(all) {
                slot = self.take(self.regions().flat_map(|region| near(&region, copy)), READY);
            }
            match slot {
                Some(slot) => return Ok(Vacancy { slot }),
                None if end == all => break,
                None => self.widen(end)?,
            }
        }
        let slot = self.take(0..all, READY).or_else(|| self.take(0..all, EMPTY));
        let slot = slot.ok_or(Errno::NFILE)?;
        self.strays.store(true, Release);
        Ok(Vacancy { slot })
    }

    /// The next region begins where the last one ends. Another thread may do the same.
    fn widen(&self, end: usize) -> Result<(), Errno> {
        let wider = (2 * end).max(FIRST).min(self.places.len());
        (self.grant)(self.places.get(end..wider).unwrap_or_default())?;
        self.end.fetch_max(wider, AcqRel);
        Ok(())
    }

    /// Takes the first of the places whose word is this.
    fn take(&self, mut places: impl Iterator<Item = usize>, wanted: u32) -> Option<KeySlot> {
        places.find_map(|place| {
            let entry = self.places.get(place)?;
            let fits = match self.mark_of(place) {
                // Without a look at its word: a page that is read and then written is two faults.
                NEVER => wanted == EMPTY,
                _ => entry.word.load(Relaxed) == wanted,
            };
            let taken = fits && entry.word.compare_exchange(wanted, BUSY, AcqRel, Relaxed).is_ok();
            if !taken {
                return None;
            }
            if let Some(mark) = self.marks.get(place) {
                mark.store(TAKEN, Relaxed);
            }
            slot_of(place)
        })
    }

    /// The key is installed and has one user.
    pub(crate) fn fill(&self, vacancy: Vacancy, copy: &Copy) -> KeySlot {
        let slot = vacancy.slot;
        if let (Some(entry), Some(place)) = (self.place(slot), self.marks.get(slot.0 as usize)) {
            let (words, _) = copy.as_chunks::<8>();
            for (have, new) in entry.header.iter().zip(words) {
                have.store(u64::from_le_bytes(*new), Relaxed);
            }
            place.store(mark(copy), Relaxed);
            entry.word.store(READY | 1, Release);
        }
        slot
    }

    /// The key could not be installed. The place counts as used: others may lie behind it.
    pub(crate) fn abandon(&self, vacancy: &Vacancy) {
        if let Some(entry) = self.place(vacancy.slot) {
            entry.word.store(READY, Release);
        }
    }

    /// The header of a key that the caller has joined.
    pub(crate) fn header(&self, slot: KeySlot) -> Option<Copy> {
        let mut copy = [0; COPY_LEN];
        let (words, _) = copy.as_chunks_mut::<8>();
        for (word, have) in words.iter_mut().zip(&self.place(slot)?.header) {
            *word = have.load(Relaxed).to_le_bytes();
        }
        Some(copy)
    }

    /// One user less.
    pub(crate) fn leave(&self, slot: KeySlot) {
        if let Some(entry) = self.place(slot) {
            entry.word.fetch_sub(1, AcqRel);
        }
    }

    fn mark_of(&self, place: usize) -> u64 {
        self.marks.get(place).map_or(NEVER, |mark| mark.load(Relaxed))
    }

    fn end(&self) -> usize {
        self.end.load(Acquire).min(self.places.len())
    }

    /// The regions in use, the last one first.
    fn regions(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        let last = region_before(self.end());
        core::iter::successors(Some(last), |later| {
            (later.start > 0).then(|| region_before(later.start))
        })
    }
}

/// The region that ends there.
fn region_before(end: usize) -> Range<usize> {
    let start = match end {
        0..=FIRST => 0,
        _ => FIRST << ((end - 1) / FIRST).ilog2(),
    };
    start..end
}

/// The places of a region where a key may lie, from its home on.
fn near(region: &Range<usize>, copy: &Copy) -> impl Iterator<Item = usize> + Clone + use<> {
    let (start, len) = (region.start, region.len());
    let home = usize::try_from(mark(copy)).unwrap_or(0);
    (0..REACH.min(len)).map(move |step| start + home.wrapping_add(step) % len)
}

fn slot_of(place: usize) -> Option<KeySlot> {
    u32::try_from(place).ok().map(KeySlot)
}

/// The end of a header's MAC, as good as random; neither [`NEVER`] nor [`TAKEN`].
fn mark(copy: &Copy) -> u64 {
    copy.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail)).max(2)
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
        let used = (0..KEYS).filter(|place| table.mark_of(*place) != NEVER).count();
        assert!((KEPT / 2..=KEPT).contains(&used), "{used}");
        assert!(table.find(&copy_of(4 * KEYS - 1)).is_some());
    }

    #[test]
    fn few_keys_lie_in_few_places_and_are_found_after_others_came() {
        let table = KeyTable::with_room(KEYS);
        for number in 0..FIRST / 2 {
            let vacancy = table.vacate(&copy_of(number)).unwrap();
            assert!((vacancy.slot.0 as usize) < FIRST, "{number}");
            table.fill(vacancy, &copy_of(number));
        }
        for number in FIRST / 2..20 * FIRST {
            let vacancy = table.vacate(&copy_of(number)).unwrap();
            assert!((vacancy.slot.0 as usize) < 40 * FIRST, "{number}");
            table.fill(vacancy, &copy_of(number));
        }
        for number in 0..20 * FIRST {
            assert!(table.find(&copy_of(number)).is_some(), "{number}");
        }
        assert!(!table.strays.load(Relaxed));
    }

    #[test]
    fn a_key_that_could_not_be_installed_hides_no_other() {
        let table = KeyTable::with_room(8);
        let (failed, behind) = (table.vacate(&copy_of(0)).unwrap(), table.vacate(&copy_of(0)));
        let slot = table.fill(behind.unwrap(), &copy_of(0));
        table.abandon(&failed);
        assert_eq!(table.find(&copy_of(0)), Some(slot));
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
