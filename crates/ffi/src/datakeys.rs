//! The data keys of this process, in memory that not even root can read while the server runs.
//!
//! memfd_secret(2) pages are taken out of the kernel's own map, cannot be swapped or dumped, and stay over fork
//! (they are shared, so nothing here changes once other processes exist). Where the kernel does not offer
//! them, the locked private memory of `memory` serves.
//!
//! UNSAFETY: objects are placed in a mapping by hand.
#![expect(unsafe_code, reason = "objects in a mapping of their own")]

use std::sync::OnceLock;

use tidelock_cipher::{DataKey, Secret};
use tidelock_format::{DataKeyId, Generation, Header, KeyringId};

use crate::memory;

const KEYS: usize = 256;
const ROOTS: usize = 8;
const PAGE: usize = 4096;
const SECRET_LEN: usize = 4 * PAGE;

static ENTRIES: [OnceLock<Entry>; KEYS] = [const { OnceLock::new() }; KEYS];
static CURRENT: [OnceLock<Current>; ROOTS] = [const { OnceLock::new() }; ROOTS];
static SECRET: OnceLock<Room> = OnceLock::new();

struct Entry {
    keyring: KeyringId,
    generation: Generation,
    id: DataKeyId,
    key: &'static DataKey,
}

/// What new files of a directory are sealed with.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) keyring: KeyringId,
    pub(crate) generation: Generation,
    pub(crate) id: DataKeyId,
    pub(crate) key: &'static DataKey,
}

struct Room {
    start: usize,
    secret: bool,
}

/// True if the data keys lie in memory that the kernel itself cannot read.
pub fn in_secret_memory() -> bool {
    SECRET.get().is_some_and(|room| room.secret)
}

/// Adds a data key of a keyring; the current one seals the new files of `root`.
///
/// False if there is no room.
pub fn add(
    root: u8,
    keyring: KeyringId,
    generation: Generation,
    id: DataKeyId,
    key: &[u8; 32],
    is_current: bool,
) -> bool {
    for (index, place) in ENTRIES.iter().enumerate() {
        if place.get().is_some_and(|have| have.keyring == keyring && have.id == id) {
            return true;
        }
        if place.get().is_some() {
            continue;
        }
        let Some(key) = store(index, key) else { return false };
        if place.set(Entry { keyring, generation, id, key }).is_err() {
            continue;
        }
        if is_current && let Some(current) = CURRENT.get(usize::from(root)) {
            return current.set(Current { keyring, generation, id, key }).is_ok();
        }
        return true;
    }
    false
}

/// The data key of a header, and the generation of its own keyring if that is unlocked here.
pub(crate) fn find(header: &Header) -> Option<(&'static DataKey, Option<Generation>)> {
    let mut entries = ENTRIES.iter().map_while(OnceLock::get);
    let entry = entries.find(|entry| entry.id == header.data_key)?;
    Some((entry.key, (entry.keyring == header.keyring).then_some(entry.generation)))
}

pub(crate) fn current(root: u8) -> Option<Current> {
    CURRENT.get(usize::from(root))?.get().copied()
}

fn store(index: usize, key: &[u8; 32]) -> Option<&'static DataKey> {
    let room = SECRET.get_or_init(secret_room);
    let at = index * size_of::<DataKey>();
    if room.start == 0 || at + size_of::<DataKey>() > SECRET_LEN {
        return None;
    }
    let place = core::ptr::with_exposed_provenance_mut::<DataKey>(room.start + at);
    // SAFETY: the place is ours, large enough, aligned (DataKey is bytes), and used by this index only.
    unsafe { place.write(DataKey::new(Secret::new(*key))) };
    // SAFETY: it was just written, and is never freed or changed.
    Some(unsafe { &*place })
}

fn secret_room() -> Room {
    match crate::primitives::secret_mapping(SECRET_LEN) {
        Some(start) => Room { start: start.expose_provenance(), secret: true },
        None => Room { start: memory::allocate(SECRET_LEN).expose_provenance(), secret: false },
    }
}
