//! Which copy of a header counts: the one decision for the library and for every tool that has
//! keys.
//!
//! ```text
//!   no magic, or a MAC that is wrong       torn or damaged: does not count
//!   a MAC that is right                    counts; of two, the higher sequence
//!   a data key that nobody holds           may be a good one: refused if it would be the newer
//! ```
//!
//! What counts and has fields that version 1 does not know is refused, never skipped for the older
//! copy: that one may tell of bytes that are not there any more. Needs no I/O and never allocates.

use tidelock_format::{COPY_LEN, DataKeyId, Generation, Header, HeaderCopy, KeyringId, Probe};

use crate::derive::DataKey;
use crate::unit::UnlockError;

/// The keys of all unlocked keyrings.
pub trait HeldKeys {
    /// The data key with this id.
    fn data_key(&self, id: DataKeyId) -> Option<&DataKey>;

    /// The generation of this keyring, if it is unlocked.
    fn generation(&self, keyring: KeyringId) -> Option<Generation>;
}

/// A header whose MAC is right and whose fields are all known. Only [`choose`] makes one.
#[derive(Clone, Debug)]
pub struct Proven {
    header: Header,
    copy: [u8; COPY_LEN],
}

impl Proven {
    /// Its fields.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The copy as it stands on the disk.
    #[must_use]
    pub const fn copy(&self) -> &[u8; COPY_LEN] {
        &self.copy
    }
}

/// The header in the first bytes of a file.
///
/// # Errors
/// [`UnlockError`]: by name, what the copy that counts is refused for, or why none counts.
pub fn choose<K: HeldKeys + ?Sized>(first: &[u8], keys: &K) -> Result<Proven, UnlockError> {
    let probe = Probe::parse(first);
    let mut found = Found::default();
    let mut copies = probe.copies();
    if let Some(one) = copies.next() {
        found.look_at(one, keys)?;
        if let Some(other) = copies.next().filter(|other| other.bytes != one.bytes) {
            found.look_at(other, keys)?;
        }
    }
    match found {
        Found { proven: Some(proven), unknown: None, .. } => admit(proven, keys),
        Found { proven: Some(proven), unknown: Some(unknown), .. } => {
            // One that nobody can check is the newer one, unless its own words say otherwise.
            if unknown.outline.sequence > proven.outline.sequence {
                Err(not_held(unknown, keys))
            } else {
                admit(proven, keys)
            }
        }
        Found { unknown: Some(unknown), .. } => Err(not_held(unknown, keys)),
        Found { mismatch: true, .. } => Err(UnlockError::Mismatch),
        Found { .. } => Err(probe.error().into()),
    }
}

#[derive(Default)]
struct Found<'p> {
    /// Its MAC is right.
    proven: Option<&'p HeaderCopy>,
    /// Its data key is not held.
    unknown: Option<&'p HeaderCopy>,
    /// Some MAC was wrong.
    mismatch: bool,
}

impl<'p> Found<'p> {
    fn look_at<K: HeldKeys + ?Sized>(
        &mut self,
        copy: &'p HeaderCopy,
        keys: &K,
    ) -> Result<(), UnlockError> {
        let newer = |than: &HeaderCopy| copy.outline.sequence > than.outline.sequence;
        match keys.data_key(copy.outline.data_key) {
            None if self.unknown.is_none_or(newer) => self.unknown = Some(copy),
            None => {}
            Some(key) if !key.proves(copy) => self.mismatch = true,
            Some(_) => match self.proven {
                // Whoever updates a header counts on: two of one number were never written here.
                Some(other) if other.outline.sequence == copy.outline.sequence => {
                    return Err(UnlockError::TwoHeaders);
                }
                Some(other) if !newer(other) => {}
                _ => self.proven = Some(copy),
            },
        }
        Ok(())
    }
}

fn admit<K: HeldKeys + ?Sized>(copy: &HeaderCopy, keys: &K) -> Result<Proven, UnlockError> {
    let header = copy.fields.clone()?;
    if is_ahead(copy, keys) {
        return Err(UnlockError::RolledBack);
    }
    Ok(Proven { header, copy: copy.bytes })
}

/// A keyring that is older than the file may lack its key because it was put back.
fn not_held<K: HeldKeys + ?Sized>(copy: &HeaderCopy, keys: &K) -> UnlockError {
    if is_ahead(copy, keys) { UnlockError::RolledBack } else { UnlockError::UnknownKey }
}

/// Only the keyring that the header names has the generation that it speaks of.
fn is_ahead<K: HeldKeys + ?Sized>(copy: &HeaderCopy, keys: &K) -> bool {
    let ours = keys.generation(copy.outline.keyring);
    ours.is_some_and(|ours| copy.outline.generation > ours)
}

#[cfg(test)]
mod tests {
    use tidelock_format::{Class, HeaderError, Layout, Nonce, PROBE_LEN, SIGNED_LEN};

    use super::*;
    use crate::secret::Secret;

    struct One(DataKey);

    const ID: DataKeyId = DataKeyId([2; 16]);
    const RING: KeyringId = KeyringId([1; 16]);

    impl HeldKeys for One {
        fn data_key(&self, id: DataKeyId) -> Option<&DataKey> {
            (id == ID).then_some(&self.0)
        }

        fn generation(&self, keyring: KeyringId) -> Option<Generation> {
            (keyring == RING).then_some(Generation(5))
        }
    }

    fn keys() -> One {
        One(DataKey::new(Secret::new([0x42; 32])))
    }

    /// A copy with this sequence, after `change`, with a valid MAC.
    fn copy(sequence: u64, change: impl FnOnce(&mut [u8; SIGNED_LEN])) -> [u8; COPY_LEN] {
        let from = (RING, Generation(5));
        let mut header = Header::new(Class::Bytes, Layout::DEFAULT, from, ID, Nonce([9; 32]));
        header.sequence = sequence;
        let mut signed = header.signed_bytes();
        change(&mut signed);
        let mut copy = [0; COPY_LEN];
        copy[..SIGNED_LEN].copy_from_slice(&signed);
        copy[SIGNED_LEN..].copy_from_slice(&keys().0.header_mac(&signed));
        copy
    }

    fn both(a: [u8; COPY_LEN], b: [u8; COPY_LEN]) -> Result<u64, UnlockError> {
        let mut first = [0; PROBE_LEN];
        first[..COPY_LEN].copy_from_slice(&a);
        first[512..].copy_from_slice(&b);
        choose(&first, &keys()).map(|proven| proven.header().sequence)
    }

    fn same(_: &mut [u8; SIGNED_LEN]) {}

    const ZEROS: [u8; COPY_LEN] = [0; COPY_LEN];

    #[test]
    fn the_higher_sequence_counts_and_a_torn_update_leaves_the_other_copy() {
        let torn = |mut bytes: [u8; COPY_LEN]| {
            bytes[200] ^= 1;
            bytes
        };
        for (a, b, wanted) in [
            (copy(1, same), copy(1, same), 1),
            (copy(1, same), copy(2, same), 2),
            (copy(3, same), copy(2, same), 3),
            (copy(1, same), torn(copy(2, same)), 1),
            (torn(copy(2, same)), copy(1, same), 1),
            (copy(1, same), ZEROS, 1),
            (ZEROS, copy(1, same), 1),
            (copy(1, same), [0x55; COPY_LEN], 1),
        ] {
            assert_eq!(both(a, b), Ok(wanted));
        }
        assert_eq!(both(torn(copy(1, same)), ZEROS), Err(UnlockError::Mismatch));
        assert_eq!(both(ZEROS, ZEROS), Err(UnlockError::Header(HeaderError::Zero)));
    }

    #[test]
    fn a_newer_copy_that_must_be_refused_is_never_skipped_for_the_older() {
        for at in (8..24).chain(24..32).chain(40..48).chain(128..SIGNED_LEN) {
            let strange = copy(2, |signed| signed[at] ^= 0x40);
            for (a, b) in [(copy(1, same), strange), (strange, copy(1, same)), (strange, strange)] {
                assert!(matches!(both(a, b), Err(UnlockError::Header(_))), "byte {at}");
            }
            let older = copy(1, |signed| signed[at] ^= 0x40);
            assert_eq!(both(older, copy(2, same)), Ok(2), "byte {at}");
        }
    }

    #[test]
    fn one_sequence_and_two_contents_are_damage() {
        let other = copy(1, |signed| signed[100] ^= 1);
        assert_eq!(both(copy(1, same), other), Err(UnlockError::TwoHeaders));
        assert_eq!(both(other, copy(1, same)), Err(UnlockError::TwoHeaders));
    }

    #[test]
    fn a_data_key_that_is_not_held_is_refused_where_it_would_be_the_newer() {
        let foreign = |sequence| copy(sequence, |signed| signed[80] ^= 1);
        assert_eq!(both(copy(1, same), foreign(2)), Err(UnlockError::UnknownKey));
        assert_eq!(both(foreign(2), copy(1, same)), Err(UnlockError::UnknownKey));
        assert_eq!(both(foreign(1), copy(1, same)), Ok(1));
        assert_eq!(both(foreign(1), ZEROS), Err(UnlockError::UnknownKey));
    }

    #[test]
    fn the_generation_is_that_of_the_keyring_that_the_header_names() {
        let later = |ring: u8| {
            copy(1, move |signed| {
                signed[56] ^= ring;
                signed[72] = 6;
            })
        };
        assert_eq!(both(later(0), later(0)), Err(UnlockError::RolledBack));
        assert_eq!(both(later(1), later(1)), Ok(1));
        let lost = copy(1, |signed| (signed[72], signed[80]) = (6, 0));
        assert_eq!(both(lost, lost), Err(UnlockError::RolledBack));
    }
}
