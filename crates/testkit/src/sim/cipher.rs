//! A unit cipher for simulations: fast, keyed, and every bit of a block depends on all others, so
//! that a torn block, a wrong key or a wrong unit shows as garbage. It keeps nobody out.
//!
//! Headers are real ones, with real MACs.

use std::cell::RefCell;
use std::rc::Rc;

use tidelock_cipher::{
    DataKey, FileKey, HeldKeys, KeySlot, Proven, Root, SealedHeader, UnitCipher, UnlockError,
};
use tidelock_format::{
    Class, DataKeyId, Generation, Header, HeaderRegion, KeyringId, Layout, Nonce, UnitNumber,
};

use super::SimDisk;

/// The cipher of one simulated process, with its own table of keys.
pub struct SimCipher {
    disk: Rc<SimDisk>,
    slots: RefCell<Vec<Option<Schedule>>>,
}

const KEYRING: KeyringId = KeyringId([3; 16]);
const GENERATION: Generation = Generation(1);

/// The one data key of a simulated disk.
struct Held<'k> {
    id: DataKeyId,
    key: &'k DataKey,
}

impl HeldKeys for Held<'_> {
    fn data_key(&self, id: DataKeyId) -> Option<&DataKey> {
        (id == self.id).then_some(self.key)
    }

    fn generation(&self, keyring: KeyringId) -> Option<Generation> {
        (keyring == KEYRING).then_some(GENERATION)
    }
}

#[derive(Clone, Copy)]
struct Schedule {
    whiten: u128,
    multiply: [u128; 2],
    divide: [u128; 2],
}

impl SimCipher {
    pub(super) const fn new(disk: Rc<SimDisk>) -> Self {
        Self { disk, slots: RefCell::new(Vec::new()) }
    }

    fn with(&self, slot: KeySlot, work: impl FnOnce(&Schedule)) {
        let slots = self.slots.borrow();
        let schedule = slots.get(slot.0 as usize).and_then(Option::as_ref);
        work(schedule.expect("the slot has a key"));
    }
}

impl UnitCipher for SimCipher {
    fn choose(&self, first: &[u8]) -> Result<Proven, UnlockError> {
        let (id, key) = SimDisk::data_key();
        tidelock_cipher::choose(first, &Held { id, key: &key })
    }

    fn unlock(&self, slot: KeySlot, header: &Proven) -> Result<(), UnlockError> {
        let (_, key) = SimDisk::data_key();
        let schedule = Schedule::new(&key.file_key(header.header()));
        let mut slots = self.slots.borrow_mut();
        let index = slot.0 as usize;
        if slots.len() <= index {
            slots.resize(index + 1, None);
        }
        slots[index] = Some(schedule);
        Ok(())
    }

    fn create(
        &self,
        _root: Root,
        class: Class,
        layout: Layout,
    ) -> Result<SealedHeader, UnlockError> {
        let (data_key, key) = SimDisk::data_key();
        let mut nonce = [0x99; 32];
        nonce[..8].copy_from_slice(&self.disk.nonce().to_le_bytes());
        let from = (KEYRING, GENERATION);
        let header = Header::new(class, layout, from, data_key, Nonce(nonce));
        let signed = header.signed_bytes();
        Ok(SealedHeader::new(HeaderRegion::both(&signed, &key.header_mac(&signed))))
    }

    fn seal(&self, slot: KeySlot, first: UnitNumber, plain: &[u8], sealed: &mut [u8]) {
        assert!(plain.len() == sealed.len() && plain.len().is_multiple_of(16));
        self.with(slot, |schedule| {
            let blocks = plain.as_chunks::<16>().0.iter().zip(sealed.as_chunks_mut::<16>().0);
            for (index, (plain, sealed)) in blocks.enumerate() {
                let (unit, index) = place(first, index);
                *sealed = schedule.seal(unit, index, u128::from_le_bytes(*plain)).to_le_bytes();
            }
        });
    }

    fn open(&self, slot: KeySlot, first: UnitNumber, bytes: &mut [u8]) {
        assert!(bytes.len().is_multiple_of(16));
        self.with(slot, |schedule| {
            for (index, block) in bytes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let (unit, index) = place(first, index);
                *block = schedule.open(unit, index, u128::from_le_bytes(*block)).to_le_bytes();
            }
        });
    }
}

/// Unit and number within it of a block, counted from the start of unit `first`.
fn place(first: UnitNumber, block: usize) -> (UnitNumber, usize) {
    const BLOCKS: usize = tidelock_format::UNIT_USIZE / 16;
    (UnitNumber(first.0 + (block / BLOCKS) as u64), block % BLOCKS)
}

impl Schedule {
    fn new(key: &FileKey) -> Self {
        let (words, _) = key.expose().as_chunks::<16>();
        let odd = |index: usize| u128::from_le_bytes(words[index]) | 1;
        let multiply = [odd(1), odd(2)];
        Self { whiten: u128::from_le_bytes(words[0]), multiply, divide: multiply.map(inverse) }
    }

    fn tweak(&self, unit: UnitNumber, block: usize) -> u128 {
        let place = u128::from(unit.0) << 8 | block as u128;
        let mixed = (self.whiten ^ place).wrapping_mul(self.multiply[0]);
        (mixed ^ mixed >> 71).wrapping_mul(self.multiply[1])
    }

    fn seal(&self, unit: UnitNumber, block: usize, plain: u128) -> u128 {
        let tweak = self.tweak(unit, block);
        let mut word = (plain ^ tweak).wrapping_mul(self.multiply[0]);
        word ^= word >> 65;
        word = word.wrapping_mul(self.multiply[1]);
        (word ^ word >> 67) ^ tweak.rotate_left(64)
    }

    fn open(&self, unit: UnitNumber, block: usize, sealed: u128) -> u128 {
        let tweak = self.tweak(unit, block);
        let mut word = sealed ^ tweak.rotate_left(64);
        word = (word ^ word >> 67).wrapping_mul(self.divide[1]);
        (word ^ word >> 65).wrapping_mul(self.divide[0]) ^ tweak
    }
}

/// The inverse of an odd number modulo 2^128, by Newton's iteration.
const fn inverse(odd: u128) -> u128 {
    let mut x = odd;
    let mut step = 0;
    while step < 7 {
        x = x.wrapping_mul(2u128.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}
