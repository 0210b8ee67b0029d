//! A secret of fixed length: wiped when dropped, never printed, copied or compared in the open.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes the bytes; the caller wipes its own copy.
    #[must_use]
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// `N` fresh random bytes.
    ///
    /// # Errors
    /// [`RandomError`](aws_lc_rs::error::Unspecified) if the system has no randomness to give.
    pub fn random() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut secret = Self([0; N]);
        aws_lc_rs::rand::fill(&mut secret.0)?;
        Ok(secret)
    }

    /// The bytes, for a cipher. Nobody else should need them.
    #[must_use]
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    /// The place of the bytes, for a derivation that fills it.
    pub const fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }

    /// Compares in constant time.
    #[must_use]
    pub fn equals(&self, other: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, other).is_ok()
    }
}
