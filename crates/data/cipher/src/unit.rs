//! The cipher of units, and how sealed bytes become plain in place.

use tidelock_format::{BLOCK_USIZE, Class, HeaderError, Layout, UNIT_USIZE, UnitNumber, ZeroRule};

use crate::choose::Proven;
use crate::sealed::SealedHeader;

/// Which installed file key; an index into the cipher's own table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySlot(pub u32);

/// A protected directory of this process, by its number in the engine's table of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root(pub u8);

impl Root {
    /// The first directory, which a process that knows any directory has.
    pub const FIRST: Self = Self(0);
}

/// AES-256-XTS over units, keys addressed by slot, so that no caller ever holds one.
///
/// `seal` and `open` may be called at any time from any thread and signal handler, also while
/// another call uses the same slot; a slot that is being installed is used by nobody else.
pub trait UnitCipher {
    /// The header in the first bytes of a file, as [`choose`](crate::choose()) finds it under all
    /// keys that are held.
    ///
    /// # Errors
    /// [`UnlockError`].
    fn choose(&self, first: &[u8]) -> Result<Proven, UnlockError>;

    /// Installs the file key of `header` into `slot`.
    ///
    /// # Errors
    /// [`UnlockError`]; the slot is then empty.
    fn unlock(&self, slot: KeySlot, header: &Proven) -> Result<(), UnlockError>;

    /// A new file of directory `root` may be made next. This may wait, for an agent that tells a
    /// changed keyring; whoever calls holds nothing that others wait for.
    fn prepare(&self, root: Root) {
        let _ = root;
    }

    /// Makes the header of a new file of directory `root`, under its current data key and a fresh
    /// nonce. Waits for nobody: the file's gate is held.
    ///
    /// # Errors
    /// [`UnlockError`] if there is no current data key or no randomness.
    fn create(&self, root: Root, class: Class, layout: Layout)
    -> Result<SealedHeader, UnlockError>;

    /// Seals the units from `first` on; of the last perhaps its first bytes only. All lengths are
    /// multiples of 16.
    fn seal(&self, slot: KeySlot, first: UnitNumber, plain: &[u8], sealed: &mut [u8]);

    /// Opens the units from `first` on in place; of the last perhaps its first bytes only. All
    /// lengths are multiples of 16.
    fn open(&self, slot: KeySlot, first: UnitNumber, bytes: &mut [u8]);
}

/// Why a file has no key here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// The bytes are no header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// No unlocked keyring has this data key.
    #[error(
        "no unlocked keyring holds the data key of this file; one of another node is brought by \
         `tidelock key adopt`"
    )]
    UnknownKey,
    /// The MAC is wrong.
    #[error("the header's MAC does not match its data key: another key, or changed bytes")]
    Mismatch,
    /// Two good copies of one sequence number.
    #[error("the two copies of the header have the same sequence number and different contents")]
    TwoHeaders,
    /// The keyring is older than the file.
    #[error(
        "the file was written under a later generation of the keyring: the keyring was rolled back"
    )]
    RolledBack,
    /// The system gave no memory to work with.
    #[error("the system gave no memory")]
    NoMemory,
    /// The system gave no random bytes.
    #[error("the system gave no random bytes")]
    NoRandomness,
}

/// True if all bytes are zero.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (wide, rest) = bytes.as_chunks::<BLOCK_USIZE>();
    // The first block of ciphertext is never zero in practice, so this ends at once for sealed
    // bytes.
    wide.iter().all(|block| u128::from_ne_bytes(*block) == 0) && rest.iter().all(|&byte| byte == 0)
}

/// Opens `bytes`, which begin at the start of `first` and whose length is a multiple of 16, in
/// place; what the zero rule calls a hole stays zeros.
pub fn open_units<C: UnitCipher + ?Sized>(
    cipher: &C,
    slot: KeySlot,
    first: UnitNumber,
    rule: ZeroRule,
    bytes: &mut [u8],
) {
    let may_have_hole = |unit: &[u8]| match rule {
        ZeroRule::Unit => is_zero(unit),
        ZeroRule::Block => may_have_zero_block(unit),
    };
    let (mut number, mut rest) = (first.0, bytes);
    while !rest.is_empty() {
        // Units without a hole in one go, and the one behind them.
        let whole = rest.chunks(UNIT_USIZE).take_while(|unit| !may_have_hole(unit)).count();
        let (run, behind) = rest.split_at_mut((whole * UNIT_USIZE).min(rest.len()));
        let (unit, behind) = behind.split_at_mut(UNIT_USIZE.min(behind.len()));
        if !run.is_empty() {
            cipher.open(slot, UnitNumber(number), run);
        }
        number += whole as u64;
        if rule == ZeroRule::Block && !unit.is_empty() {
            open_around_zero_blocks(cipher, slot, UnitNumber(number), unit);
        }
        number += 1;
        rest = behind;
    }
}

/// True if the first four bytes of a block are zeros: of ciphertext, one unit in 16 million has
/// such a block. It takes a third of the time of a look at each block.
fn may_have_zero_block(unit: &[u8]) -> bool {
    unit.as_chunks::<BLOCK_USIZE>().0.iter().fold(false, |any, block| {
        let [a, b, c, d, ..] = *block;
        any | (u32::from_ne_bytes([a, b, c, d]) == 0)
    })
}

fn open_around_zero_blocks<C: UnitCipher + ?Sized>(
    cipher: &C,
    slot: KeySlot,
    number: UnitNumber,
    unit: &mut [u8],
) {
    let mut holes = [0u64; UNIT_USIZE / BLOCK_USIZE / 64];
    let mut any = false;
    for (index, block) in unit.as_chunks::<BLOCK_USIZE>().0.iter().enumerate() {
        if u128::from_ne_bytes(*block) == 0 {
            if let Some(word) = holes.get_mut(index / 64) {
                *word |= 1 << (index % 64);
            }
            any = true;
        }
    }
    cipher.open(slot, number, unit);
    if any {
        for (index, block) in unit.as_chunks_mut::<BLOCK_USIZE>().0.iter_mut().enumerate() {
            if holes.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1) {
                *block = [0; BLOCK_USIZE];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds its number and one to each byte of a unit.
    struct Adds;

    impl UnitCipher for Adds {
        fn choose(&self, _first: &[u8]) -> Result<Proven, UnlockError> {
            Err(UnlockError::UnknownKey)
        }

        fn unlock(&self, _slot: KeySlot, _header: &Proven) -> Result<(), UnlockError> {
            Err(UnlockError::UnknownKey)
        }

        fn create(&self, _: Root, _: Class, _: Layout) -> Result<SealedHeader, UnlockError> {
            Err(UnlockError::UnknownKey)
        }

        fn seal(&self, _slot: KeySlot, _first: UnitNumber, plain: &[u8], sealed: &mut [u8]) {
            sealed.copy_from_slice(plain);
        }

        fn open(&self, _slot: KeySlot, first: UnitNumber, bytes: &mut [u8]) {
            for (number, unit) in (first.0..).zip(bytes.chunks_mut(UNIT_USIZE)) {
                for byte in unit {
                    *byte = byte.wrapping_add(number.to_le_bytes()[0] + 1);
                }
            }
        }
    }

    #[test]
    fn blocks_of_zeros_stay_holes_wherever_they_lie_in_a_run_of_units() {
        // The last unit is not whole; unit 2 has a block that only begins with zeros.
        let mut sealed = vec![0x40u8; 5 * UNIT_USIZE + 3 * BLOCK_USIZE];
        let holes = [(1, 0), (1, 255), (3, 7), (5, 2)];
        for (unit, block) in holes {
            let at = unit * UNIT_USIZE + block * BLOCK_USIZE;
            sealed[at..at + BLOCK_USIZE].fill(0);
        }
        sealed[2 * UNIT_USIZE + 64..2 * UNIT_USIZE + 72].fill(0);
        let mut want = sealed.clone();
        for (at, byte) in want.iter_mut().enumerate() {
            let (unit, block) = (at / UNIT_USIZE, at % UNIT_USIZE / BLOCK_USIZE);
            if !holes.contains(&(unit, block)) {
                *byte += u8::try_from(unit + 10).unwrap() + 1;
            }
        }
        let mut opened = sealed.clone();
        open_units(&Adds, KeySlot(0), UnitNumber(10), ZeroRule::Block, &mut opened);
        assert_eq!(opened, want);
    }
}
