//! Bytes that the kernel may have. Only this module makes them, and only by encrypting.

use tidelock_format::{Front, HeaderRegion, UnitNumber};

use crate::unit::{KeySlot, UnitCipher};

/// Ciphertext, perhaps followed by the zeros that say how long the file is.
#[derive(Clone, Copy)]
pub struct Sealed<'a>(&'a [u8]);

/// A header with its MAC, ready to be written.
#[derive(Clone)]
pub struct SealedHeader(HeaderRegion);

impl<'a> Sealed<'a> {
    /// No bytes.
    pub const EMPTY: Sealed<'static> = Sealed(&[]);

    /// The bytes, for the kernel.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// What follows the first `count` bytes, none if there are fewer.
    #[must_use]
    pub fn skip(self, count: usize) -> Self {
        Self(self.0.get(count..).unwrap_or(&[]))
    }

    /// The first `count` bytes, all if there are fewer.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        Self(self.0.get(..count).unwrap_or(self.0))
    }
}

impl SealedHeader {
    /// A header whose MAC has been computed.
    #[must_use]
    pub const fn new(region: HeaderRegion) -> Self {
        Self(region)
    }

    /// The same with this at offset 0.
    #[must_use]
    pub fn with_front(self, front: Front) -> Self {
        Self(self.0.with_front(front))
    }

    /// The bytes of both copies, for the kernel; zeros follow up to the data offset.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Seals `plain`, whose length is a multiple of 16, as the units from `first` on, into `out`, and
/// puts `zeros` bytes of zeros behind it. `None` if `out` is too short.
pub fn seal_units<'o, C: UnitCipher + ?Sized>(
    cipher: &C,
    slot: KeySlot,
    first: UnitNumber,
    plain: &[u8],
    zeros: usize,
    out: &'o mut [u8],
) -> Option<Sealed<'o>> {
    let out = out.get_mut(..plain.len() + zeros)?;
    let (body, tail) = out.split_at_mut(plain.len());
    cipher.seal(slot, first, plain, body);
    tail.fill(0);
    Some(Sealed(out))
}
