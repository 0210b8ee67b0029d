//! The data keys that this process holds, and which of them seals new files.
//!
//! They lie where the host puts them. Forked children share that memory, so a key is stored once
//! and never changes: keys that come later are added.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Release};

use tidelock_cipher::{DataKey, HeldKeys, StreamMac};
use tidelock_engine::SetOnce;
use tidelock_format::{DataKeyId, Generation, Header, KeyringId, MAC_LEN, SIGNED_LEN};

use crate::host::Host;

const KEYS: usize = 1024;
const KEYRINGS: usize = 8;

static ENTRIES: [SetOnce<Entry>; KEYS] = [const { SetOnce::new() }; KEYS];
static HELD: [SetOnce<HeldKeyring>; KEYRINGS] = [const { SetOnce::new() }; KEYRINGS];

struct Entry {
    id: DataKeyId,
    key: &'static DataKey,
}

/// A keyring whose data keys are here.
pub struct HeldKeyring {
    id: KeyringId,
    generation: AtomicU64,
    /// The place of its current data key.
    current: AtomicU32,
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

impl HeldKeyring {
    /// Its generation.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Acquire))
    }

    /// Whose it is, and the data key of new files.
    #[must_use]
    pub fn current(&self) -> Option<(KeyringId, DataKeyId, &'static DataKey)> {
        let place = usize::try_from(self.current.load(Acquire)).ok()?;
        let entry = ENTRIES.get(place)?.get()?;
        Some((self.id, entry.id, entry.key))
    }
}

/// Takes over those of a keyring's data keys that are new here; its current one seals new files
/// from now on.
///
/// One caller at a time. `None` if there is no room, or the current one is not among them.
pub fn take<'k>(
    host: &dyn Host,
    source: Source,
    keys: impl Iterator<Item = (DataKeyId, &'k [u8; 32])>,
) -> Option<&'static HeldKeyring> {
    let (ids, new): (Vec<_>, Vec<_>) = keys.filter(|(id, _)| find(*id).is_none()).unzip();
    for (id, key) in ids.into_iter().zip(host.store_keys(&new)?) {
        SetOnce::put_into(&ENTRIES, Entry { id, key })?;
    }
    let is_current = |place: &SetOnce<Entry>| place.get().is_some_and(|it| it.id == source.current);
    let current = u32::try_from(ENTRIES.iter().position(is_current)?).ok()?;
    let keyring = match held(source.keyring) {
        Some(known) => known,
        None => {
            let new = HeldKeyring {
                id: source.keyring,
                generation: AtomicU64::new(source.generation.0),
                current: AtomicU32::new(current),
            };
            SetOnce::put_into(&HELD, new)?
        }
    };
    keyring.generation.fetch_max(source.generation.0, Release);
    keyring.current.store(current, Release);
    Some(keyring)
}

/// The data key with this id.
#[must_use]
pub fn find(id: DataKeyId) -> Option<&'static DataKey> {
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
        held(keyring).map(HeldKeyring::generation)
    }
}

fn held(id: KeyringId) -> Option<&'static HeldKeyring> {
    SetOnce::all(&HELD).find(|keyring| keyring.id == id)
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    SetOnce::all(&ENTRIES)
}
