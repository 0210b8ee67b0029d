//! A grant: everything that a listed program needs of a keyring.
//!
//! ```text
//!    0  16  keyring id
//!   16   8  generation
//!   24   4  data offset
//!   28   4  flags: 1 = its programs may leave core files; others are refused
//!   32  16  id of the current data key
//!   48      directory (text)
//!           number of data keys (16 bits), each: id 16, key 32, state 1
//!           length of the policy (32 bits), policy
//! ```

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidelock_cipher::{DataKey, Secret};
use tidelock_format::{DataKeyId, Generation, KeyringId, Layout, Reader, Truncated};
use tidelock_keys::{KeyState, Keyring, Policy};
use zeroize::Zeroizing;

use super::{GRANT, MAX_ANSWER, WireError, bounded, head};

const CORE_DUMPS: u32 = 1;

/// Everything that a listed program needs of a keyring.
pub struct Grant {
    /// The protected directory, canonical.
    pub directory: PathBuf,
    /// The keyring.
    pub keyring: KeyringId,
    /// Its generation, for the headers of new files.
    pub generation: Generation,
    /// Where the units of its files begin.
    pub layout: Layout,
    /// The data key of new files; one of `keys`.
    pub current: DataKeyId,
    /// All data keys.
    pub keys: Vec<GrantedKey>,
    /// Programs may leave core files, which hold plain pages.
    pub core_dumps: bool,
    /// Which files are sealed.
    pub policy: Policy,
}

/// A data key of a grant.
pub struct GrantedKey {
    /// Its id.
    pub id: DataKeyId,
    /// The key.
    pub key: DataKey,
    /// What it may be used for.
    pub state: KeyState,
}

impl Grant {
    /// The message with everything of `keyring`; `None` if it is too long for one.
    #[must_use]
    pub fn encode(
        keyring: &Keyring,
        directory: &Path,
        core_dumps: bool,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let directory = bounded(directory, 4096);
        let policy = keyring.policy().encode();
        let keys = keyring.data_keys();
        let len = 48 + 2 + directory.len() + 2 + 49 * keys.len() + 4 + policy.len();
        let policy_len = u32::try_from(policy.len()).ok()?;
        if super::HEAD + len > MAX_ANSWER {
            return None;
        }
        let mut out = head(GRANT, len);
        out.bytes(&keyring.id().0);
        out.u64(keyring.generation().0);
        out.u32(keyring.layout().data_offset());
        out.u32(if core_dumps { CORE_DUMPS } else { 0 });
        out.bytes(&keyring.current().id.0);
        out.text(directory);
        out.count(keys.len());
        for entry in keys {
            out.bytes(&entry.id.0);
            out.bytes(entry.key.secret().expose());
            out.u8(entry.state as u8);
        }
        out.u32(policy_len);
        out.bytes(&policy);
        Some(Zeroizing::new(out.into_bytes()))
    }

    /// Reads the body of a grant. The caller wipes the message.
    ///
    /// # Errors
    /// [`WireError::Damaged`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let damaged = |_: Truncated| WireError::Damaged("grant");
        let mut from = Reader::new(body);
        let keyring = KeyringId(from.array().map_err(damaged)?);
        let generation = Generation(from.u64().map_err(damaged)?);
        let layout = Layout::new(from.u32().map_err(damaged)?);
        let layout = layout.map_err(|_| WireError::Damaged("data offset"))?;
        let flags = from.u32().map_err(damaged)?;
        if flags & !CORE_DUMPS != 0 {
            return Err(WireError::Damaged("grant"));
        }
        let core_dumps = flags & CORE_DUMPS != 0;
        let current = DataKeyId(from.array().map_err(damaged)?);
        let directory = super::text(&mut from, "directory")?;
        let directory = PathBuf::from(std::ffi::OsStr::from_bytes(directory));
        if !directory.is_absolute() {
            return Err(WireError::Damaged("directory"));
        }
        let count = from.u16().map_err(damaged)?;
        let keys = (0..count).map(|_| key(&mut from)).collect::<Result<Vec<_>, _>>()?;
        if !keys.iter().any(|key| key.id == current) {
            return Err(WireError::Damaged("current data key"));
        }
        let policy_len = from.u32().map_err(damaged)?;
        if usize::try_from(policy_len) != Ok(from.rest().len()) {
            return Err(WireError::Damaged("policy"));
        }
        let policy = Policy::decode(from.rest()).map_err(|_| WireError::Damaged("policy"))?;
        Ok(Self { directory, keyring, generation, layout, current, keys, core_dumps, policy })
    }
}

fn key(from: &mut Reader<'_>) -> Result<GrantedKey, WireError> {
    let damaged = |_: Truncated| WireError::Damaged("data key");
    let id = DataKeyId(from.array().map_err(damaged)?);
    let mut key = Secret::new([0; 32]);
    key.expose_mut().copy_from_slice(from.bytes(32).map_err(damaged)?);
    let state = KeyState::from_number(from.u8().map_err(damaged)?);
    let state = state.ok_or(WireError::Damaged("state of a data key"))?;
    Ok(GrantedKey { id, key: DataKey::new(key), state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Answer;
    use tidelock_keys::{Profile, RecoveryKey};

    fn keyring() -> Keyring {
        let policy = Policy::compile(&Profile::builtin("postgres").unwrap(), &[], &[]).unwrap();
        let key = RecoveryKey::random().unwrap();
        let mut keyring = Keyring::create(policy, Layout::DEFAULT, &[&key]).unwrap();
        keyring.add_data_key().unwrap();
        keyring
    }

    #[test]
    fn a_grant_survives_its_encoding() {
        let keyring = keyring();
        let message = Grant::encode(&keyring, Path::new("/data/pg"), true).unwrap();
        let Answer::Grant(body) = Answer::decode(&message).unwrap() else { panic!("no grant") };
        let grant = Grant::decode(body).unwrap();
        assert_eq!(grant.keyring, keyring.id());
        assert_eq!(grant.current, keyring.current().id);
        assert_eq!(grant.directory, Path::new("/data/pg"));
        assert_eq!(&grant.policy, keyring.policy());
        assert_eq!(grant.keys.len(), 2);
        assert!(grant.core_dumps);
        let message = Grant::encode(&keyring, Path::new("/data/pg"), false).unwrap();
        assert!(!Grant::decode(&message[crate::wire::HEAD..]).unwrap().core_dumps);
        for (granted, entry) in grant.keys.iter().zip(keyring.data_keys()) {
            assert!(granted.key.secret().equals(entry.key.secret().expose()));
            assert_eq!(granted.state, entry.state);
        }
    }

    #[test]
    fn a_truncated_grant_is_refused_at_every_byte() {
        let message = Grant::encode(&keyring(), Path::new("/data/pg"), false).unwrap();
        for len in 0..message.len() {
            assert!(Answer::decode(&message[..len]).is_err());
            let body = message.get(crate::wire::HEAD..len).unwrap_or_default();
            assert!(Grant::decode(body).is_err());
        }
    }
}
