//! The data keys of this process, in memory that not even root can read while the server runs.
//!
//! memfd_secret(2) pages are taken out of the kernel's own map, cannot be swapped or dumped, and stay over fork. They
//! are shared with forked children, so a page is filled once and never changes: keys that come later get a page
//! of their own. Where the kernel does not offer such memory, the locked private memory of `memory` serves.
//!
//! UNSAFETY: objects are placed in a mapping by hand.
#![expect(unsafe_code, reason = "objects in a mapping of their own")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::OnceLock;

use tidelock_agent::wire::Grant;
use tidelock_cipher::{DataKey, HeldKeys, Secret, StreamMac};
use tidelock_format::{DataKeyId, Generation, Header, KeyringId, MAC_LEN, SIGNED_LEN};

use crate::memory;

const KEYS: usize = 1024;
const ROOTS: usize = 8;
const PAGE: usize = 4096;

static ENTRIES: [OnceLock<Entry>; KEYS] = [const { OnceLock::new() }; KEYS];
/// The place of the current data key of each directory, plus 1.
static CURRENT: [AtomicU32; ROOTS] = [const { AtomicU32::new(0) }; ROOTS];
/// The generation of the keyring that each directory's keys come from.
static GENERATION: [AtomicU64; ROOTS] = [const { AtomicU64::new(0) }; ROOTS];

struct Entry {
    root: u8,
    keyring: KeyringId,
    id: DataKeyId,
    key: &'static DataKey,
}

/// What new files of a directory are sealed with.
pub(crate) struct Current {
    pub(crate) keyring: KeyringId,
    pub(crate) generation: Generation,
    pub(crate) id: DataKeyId,
    pub(crate) key: &'static DataKey,
}

/// Where keys come from, and which of them seals new files.
#[derive(Clone, Copy)]
pub struct Source {
    /// The keyring.
    pub keyring: KeyringId,
    /// Its generation.
    pub generation: Generation,
    /// The data key of new files.
    pub current: DataKeyId,
}

/// Takes over those of a keyring's data keys that are new here; its current one seals the new files of `root` from
/// now on.
///
/// One caller at a time. False if there is no room, or the current one is not among them.
pub fn take<'k>(
    root: u8,
    source: Source,
    keys: impl Iterator<Item = (DataKeyId, &'k [u8; 32])>,
) -> bool {
    let known = |id: &DataKeyId| entries().any(|have| have.root == root && have.id == *id);
    let new: Vec<_> = keys.filter(|(id, _)| !known(id)).collect();
    let mut room = Room::of(new.len());
    for (id, key) in new {
        let Some(place) = ENTRIES.iter().find(|place| place.get().is_none()) else { return false };
        let Some(key) = room.store(key) else { return false };
        let _ = place.set(Entry { root, keyring: source.keyring, id, key });
    }
    let current = entries().position(|have| have.root == root && have.id == source.current);
    let Some(current) = current.and_then(|place| u32::try_from(place + 1).ok()) else {
        return false;
    };
    let number = usize::from(root) % ROOTS;
    GENERATION[number].fetch_max(source.generation.0, Release);
    CURRENT[number].store(current, Release);
    true
}

/// As [`take`], of what an agent has granted.
pub(crate) fn take_granted(root: u8, grant: &Grant) -> bool {
    let Grant { keyring, generation, current, .. } = *grant;
    let keys = grant.keys.iter().map(|key| (key.id, key.key.secret().expose()));
    take(root, Source { keyring, generation, current }, keys)
}

/// The generation of the keyring whose keys `root` has here.
pub(crate) fn generation(root: u8) -> Generation {
    Generation(GENERATION[usize::from(root) % ROOTS].load(Acquire))
}

/// The data key with this id.
pub(crate) fn find(id: DataKeyId) -> Option<&'static DataKey> {
    entries().find(|entry| entry.id == id).map(|entry| entry.key)
}

/// The MAC of the stream with this header, at its beginning, if its data key is here.
#[must_use]
pub fn stream_mac(header: &Header) -> Option<StreamMac> {
    find(header.data_key).map(|key| StreamMac::begin(key, header))
}

/// The MAC of a header that a command makes, if its data key is here.
#[must_use]
pub fn header_mac(id: DataKeyId, signed: &[u8; SIGNED_LEN]) -> Option<[u8; MAC_LEN]> {
    find(id).map(|key| key.header_mac(signed))
}

/// All of them, for the choice of a header.
pub struct Held;

impl HeldKeys for Held {
    fn data_key(&self, id: DataKeyId) -> Option<&DataKey> {
        find(id)
    }

    fn generation(&self, keyring: KeyringId) -> Option<Generation> {
        let entry = entries().find(|entry| entry.keyring == keyring)?;
        Some(generation(entry.root))
    }
}

pub(crate) fn current(root: u8) -> Option<Current> {
    let place = CURRENT.get(usize::from(root))?.load(Acquire).checked_sub(1)?;
    let entry = ENTRIES.get(usize::try_from(place).ok()?)?.get()?;
    let (keyring, id, key) = (entry.keyring, entry.id, entry.key);
    Some(Current { keyring, generation: generation(root), id, key })
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().map_while(OnceLock::get)
}

/// Memory for the keys of one grant.
struct Room {
    start: usize,
    end: usize,
}

impl Room {
    fn of(keys: usize) -> Self {
        let len = (keys * size_of::<DataKey>()).next_multiple_of(PAGE);
        if len == 0 {
            return Self { start: 0, end: 0 };
        }
        let start = crate::primitives::secret_mapping(len)
            .unwrap_or_else(|| memory::allocate(len))
            .expose_provenance();
        Self { start, end: if start == 0 { 0 } else { start + len } }
    }

    fn store(&mut self, key: &[u8; 32]) -> Option<&'static DataKey> {
        let next = self.start + size_of::<DataKey>();
        if next > self.end {
            return None;
        }
        let place = core::ptr::with_exposed_provenance_mut::<DataKey>(self.start);
        self.start = next;
        // SAFETY: the place is ours, large enough, aligned (DataKey is bytes), and nothing else is put there.
        unsafe { place.write(DataKey::new(Secret::new(*key))) };
        // SAFETY: it was just written, and is never freed or changed.
        Some(unsafe { &*place })
    }
}
