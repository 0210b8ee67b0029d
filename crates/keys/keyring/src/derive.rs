//! HKDF-Expand-SHA-256 and AES-256-GCM of AWS-LC, as the keyring uses them.
//!
//! No Extract: every key here is uniformly random, or the output of a passphrase function.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use tidelock_cipher::Secret;

use crate::error::Error;

/// Bytes that sealing adds.
pub(crate) const TAG: usize = 16;
/// Bytes of a nonce.
pub(crate) const NONCE: usize = NONCE_LEN;

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// `N` bytes expanded from a key.
pub(crate) fn expand<const N: usize>(key: &Secret<32>, info: &[&[u8]]) -> Result<Secret<N>, Error> {
    let mut out = Secret::new([0; N]);
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, key.expose())
        .expand(info, Length(N))
        .and_then(|okm| okm.fill(out.expose_mut()))
        .map_err(|_| Error::Crypto { what: "HKDF" })?;
    Ok(out)
}

/// Seals `bytes` in place; the tag follows them. The caller left room for it.
pub(crate) fn seal(
    key: &Secret<32>,
    nonce: [u8; NONCE],
    associated: &[u8],
    bytes: &mut Vec<u8>,
) -> Result<(), Error> {
    cipher(key)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(associated), bytes)
        .map_err(|_| Error::Crypto { what: "AES-GCM" })
}

/// Opens `bytes` in place; `None` if key, nonce, associated data or bytes are not what was sealed.
pub(crate) fn open<'b>(
    key: &Secret<32>,
    nonce: [u8; NONCE],
    associated: &[u8],
    bytes: &'b mut [u8],
) -> Result<Option<&'b [u8]>, Error> {
    Ok(cipher(key)?
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(associated), bytes)
        .ok()
        .map(|plain| &*plain))
}

fn cipher(key: &Secret<32>) -> Result<LessSafeKey, Error> {
    UnboundKey::new(&AES_256_GCM, key.expose())
        .map(LessSafeKey::new)
        .map_err(|_| Error::Crypto { what: "AES-GCM" })
}
