//! Wraps under a principal key that is at hand: check value, nonce, AES-256-GCM.
//!
//! The check value tells another key from changed bytes, and commits to the key, which GCM does
//! not.

use tidelock_cipher::Secret;
use zeroize::Zeroizing;

use crate::derive::{NONCE, TAG, expand, open, seal};
use crate::error::Error;
use crate::slot::{PAYLOAD, Payload, SlotTerms, random};

const CHECK: usize = 16;
const LEN: usize = CHECK + NONCE + PAYLOAD + TAG;

pub(super) fn wrap(
    principal: &Secret<32>,
    terms: &SlotTerms,
    payload: &Payload,
) -> Result<Vec<u8>, Error> {
    let nonce = random()?;
    let mut sealed = Zeroizing::new(Vec::with_capacity(PAYLOAD + TAG));
    sealed.extend_from_slice(payload.expose());
    seal(principal, nonce, &terms.associated_data(), &mut sealed)?;
    let mut out = Vec::with_capacity(LEN);
    out.extend_from_slice(check_value(principal, terms)?.expose());
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
    Ok(out)
}

pub(super) fn unwrap(
    principal: &Secret<32>,
    terms: &SlotTerms,
    wrapped: &[u8],
    describe: impl FnOnce() -> String,
) -> Result<Payload, Error> {
    let parts = wrapped
        .split_first_chunk::<CHECK>()
        .and_then(|(check, rest)| Some((check, rest.split_first_chunk::<NONCE>()?)))
        .filter(|_| wrapped.len() == LEN);
    let Some((check, (nonce, sealed))) = parts else {
        return Err(Error::Damaged { what: "a slot's wrapped bytes have another length" });
    };
    if !check_value(principal, terms)?.equals(check) {
        return Err(Error::WrongKey { slot: terms.id, provider: describe() });
    }
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let opened = open(principal, *nonce, &terms.associated_data(), &mut bytes)?;
    opened.and_then(Payload::from_slice).ok_or(Error::Tampered { what: "its slot" })
}

/// Bound to keyring and slot only, so that a changed parameter is told from another key.
fn check_value(principal: &Secret<32>, terms: &SlotTerms) -> Result<Secret<CHECK>, Error> {
    expand(principal, &[b"tidelock v1 principal key check", &terms.keyring.0, &terms.id.0])
}
