//! The recovery key: 32 random bytes that are printed once, for a sealed envelope.
//!
//! 56 characters of Crockford's base32 in 14 groups: 256 bits of key, 24 bits of checksum, so that
//! a slip of the pen is told from a wrong key.

use std::fmt;

use aws_lc_rs::digest;
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, PrincipalKey, Purpose, SlotKind, SlotTerms};
use zeroize::Zeroizing;

use crate::room::Kind;

/// Nobody configures it: `--recovery-file` has it.
pub(crate) const KIND: Kind =
    Kind { is_a_persons: true, ..Kind::one_key(RecoveryKey::SLOT, "--recovery-file FILE") };

/// Without I, L, O and U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CHECKSUM: usize = 3;
const CHARACTERS: usize = 56;
const GROUP: usize = 4;

/// Opens the recovery slot.
pub struct RecoveryKey(Secret<32>);

impl RecoveryKey {
    /// The type of its slot.
    pub const SLOT: SlotKind = SlotKind::new(4, "recovery");
    /// What messages call it.
    pub const DESCRIBED: &str = "the recovery key";

    /// A fresh one.
    ///
    /// # Errors
    /// [`Error::Crypto`] if there is no randomness.
    pub fn random() -> Result<Self, Error> {
        Secret::random().map(Self).map_err(|_| Error::Crypto { what: "random bytes" })
    }

    /// The text to print: 14 groups of 4 characters.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(CHARACTERS + CHARACTERS / GROUP));
        let mut bits = 0u16;
        let mut held = 0;
        let check = checksum(&self.0);
        for byte in self.0.expose().iter().chain(&check) {
            bits = bits << 8 | u16::from(*byte);
            held += 8;
            while held >= 5 {
                held -= 5;
                if text.len() % (GROUP + 1) == GROUP {
                    text.push('-');
                }
                text.push(char::from(ALPHABET[usize::from(bits >> held & 31)]));
            }
        }
        text
    }

    /// Reads what [`RecoveryKey::to_text`] wrote; case, spaces and dashes do not matter, and O, I
    /// and L are taken for the digits they look like.
    ///
    /// # Errors
    /// [`Error::RecoveryKey`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |why| Error::RecoveryKey { why };
        let mut bytes = Zeroizing::new([0u8; 32 + CHECKSUM]);
        let mut place = bytes.iter_mut();
        let (mut bits, mut held, mut count) = (0u16, 0, 0);
        for character in text.chars().filter(|c| !c.is_whitespace() && *c != '-') {
            let value =
                value_of(character).ok_or_else(|| refuse("it has a character of no meaning"))?;
            bits = bits << 5 | u16::from(value);
            held += 5;
            count += 1;
            if held >= 8 {
                held -= 8;
                let byte = place.next().ok_or_else(|| refuse("it is too long"))?;
                *byte = u8::try_from(bits >> held & 0xff).unwrap_or(0);
            }
        }
        if count != CHARACTERS {
            return Err(refuse("it does not have 56 characters"));
        }
        let (key, check) = bytes.split_at(32);
        let mut secret = Secret::new([0; 32]);
        secret.expose_mut().copy_from_slice(key);
        if checksum(&secret) != *check {
            return Err(refuse("a character is wrong"));
        }
        Ok(Self(secret))
    }
}

impl PrincipalKey for RecoveryKey {
    fn kind(&self) -> SlotKind {
        Self::SLOT
    }

    fn describe(&self) -> String {
        Self::DESCRIBED.to_owned()
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let mut key = Secret::new([0; 32]);
        key.expose_mut().copy_from_slice(self.0.expose());
        Ok(key)
    }
}

impl fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryKey")
    }
}

fn checksum(key: &Secret<32>) -> [u8; CHECKSUM] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"tidelock v1 recovery key checksum");
    context.update(key.expose());
    let mut check = [0; CHECKSUM];
    check.copy_from_slice(&context.finish().as_ref()[..CHECKSUM]);
    check
}

fn value_of(character: char) -> Option<u8> {
    let character = match character.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    let place = ALPHABET.iter().position(|known| char::from(*known) == character)?;
    u8::try_from(place).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_key_survives_being_written_down() {
        for _ in 0..50 {
            let key = RecoveryKey::random().unwrap();
            let text = key.to_text();
            assert_eq!(text.len(), 56 + 13);
            for written in [
                text.to_string(),
                text.to_lowercase(),
                text.replace('-', " "),
                text.replace('0', "o").replace('1', "l"),
                format!(" {}\n", text.replace('-', "")),
            ] {
                assert!(RecoveryKey::parse(&written).unwrap().0.equals(key.0.expose()));
            }
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_told() {
        // Always the same, since a checksum of 24 bits lets one slip in 16 million through.
        let key = RecoveryKey(Secret::new(std::array::from_fn(|at| u8::try_from(7 * at).unwrap())));
        let text = key.to_text();
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = match changed[at] {
                b'-' => continue,
                b'Z' => b'Y',
                _ => b'Z',
            };
            let changed = String::from_utf8(changed).unwrap();
            assert!(RecoveryKey::parse(&changed).is_err(), "{at}");
        }
        assert!(RecoveryKey::parse(&text[1..]).is_err());
        assert!(RecoveryKey::parse(&format!("{}0", *text)).is_err());
        assert!(RecoveryKey::parse(&text.replace('-', "*")).is_err());
        assert!(RecoveryKey::parse("").is_err());
    }
}
