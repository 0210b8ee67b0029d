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
use zeroize::Zeroizing;

use super::{GRANT, MAX_ANSWER, WireError, bounded, head};
use crate::policy::Policy;

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

/// What a data key may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KeyState {
    /// New files use it; there is exactly one.
    Current = 1,
    /// An earlier one: its files stay readable and writable.
    Older = 2,
    /// Another node's: its files are readable.
    Adopted = 3,
}

impl KeyState {
    /// The state with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Current),
            2 => Some(Self::Older),
            3 => Some(Self::Adopted),
            _ => None,
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Older => "older",
            Self::Adopted => "adopted",
        }
    }
}

/// What a grant says beside its keys.
pub struct Terms<'k> {
    /// The protected directory, canonical.
    pub directory: &'k Path,
    /// The keyring.
    pub keyring: KeyringId,
    /// Its generation.
    pub generation: Generation,
    /// Where the units of its files begin.
    pub layout: Layout,
    /// The data key of new files.
    pub current: DataKeyId,
    /// Programs may leave core files.
    pub core_dumps: bool,
    /// Which files are sealed.
    pub policy: &'k Policy,
}

impl Grant {
    /// The message with these keys; `None` if it is too long for one.
    #[must_use]
    pub fn encode(
        terms: &Terms<'_>,
        keys: &[(DataKeyId, &DataKey, KeyState)],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let directory = bounded(terms.directory, 4096);
        let policy = terms.policy.encode();
        let len = 48 + 2 + directory.len() + 2 + 49 * keys.len() + 4 + policy.len();
        let policy_len = u32::try_from(policy.len()).ok()?;
        if super::HEAD + len > MAX_ANSWER {
            return None;
        }
        let mut out = head(GRANT, len);
        out.bytes(&terms.keyring.0);
        out.u64(terms.generation.0);
        out.u32(terms.layout.data_offset());
        out.u32(if terms.core_dumps { CORE_DUMPS } else { 0 });
        out.bytes(&terms.current.0);
        out.text(directory);
        out.count(keys.len());
        for (id, key, state) in keys {
            out.bytes(&id.0);
            out.bytes(key.secret().expose());
            out.u8(*state as u8);
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
        // All at once, so that no key is left behind by growing.
        let mut keys = Vec::with_capacity(count.into());
        for _ in 0..count {
            keys.push(key(&mut from)?);
        }
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
    use crate::policy::{Action, Glob, Origin, Rule};
    use crate::wire::{Answer, HEAD};
    use tidelock_format::Class;

    const KEYRING: KeyringId = KeyringId([1; 16]);
    const IDS: [DataKeyId; 2] = [DataKeyId([2; 16]), DataKeyId([3; 16])];
    const STATES: [KeyState; 2] = [KeyState::Older, KeyState::Current];

    fn policy() -> Policy {
        let glob = Glob::new(b"**").unwrap();
        let rule = Rule { glob, action: Action::Seal(Class::Bytes), origin: Origin::Profile };
        Policy::new("test".into(), vec!["postgres".into()], Vec::new(), None, vec![rule]).unwrap()
    }

    fn message(core_dumps: bool) -> Zeroizing<Vec<u8>> {
        let keys = [7, 8].map(|byte| DataKey::new(Secret::new([byte; 32])));
        let terms = Terms {
            directory: Path::new("/data/pg"),
            keyring: KEYRING,
            generation: Generation(5),
            layout: Layout::DEFAULT,
            current: IDS[1],
            core_dumps,
            policy: &policy(),
        };
        let keys = [(IDS[0], &keys[0], STATES[0]), (IDS[1], &keys[1], STATES[1])];
        Grant::encode(&terms, &keys).unwrap()
    }

    #[test]
    fn a_grant_survives_its_encoding() {
        let sent = message(true);
        let Answer::Grant(body) = Answer::decode(&sent).unwrap() else { panic!("no grant") };
        let grant = Grant::decode(body).unwrap();
        assert_eq!(
            (grant.keyring, grant.generation, grant.current),
            (KEYRING, Generation(5), IDS[1])
        );
        assert_eq!(
            (grant.directory.as_path(), grant.layout),
            (Path::new("/data/pg"), Layout::DEFAULT)
        );
        assert_eq!(grant.policy, policy());
        assert!(grant.core_dumps);
        assert!(!Grant::decode(&message(false)[HEAD..]).unwrap().core_dumps);
        for (byte, (index, granted)) in [7, 8].into_iter().zip(grant.keys.iter().enumerate()) {
            assert!(granted.key.secret().equals(&[byte; 32]));
            assert_eq!((granted.id, granted.state), (IDS[index], STATES[index]));
        }
        assert_eq!(grant.keys.len(), 2);
    }

    #[test]
    fn a_truncated_grant_is_refused_at_every_byte() {
        let message = message(false);
        for len in 0..message.len() {
            assert!(Answer::decode(&message[..len]).is_err());
            let body = message.get(HEAD..len).unwrap_or_default();
            assert!(Grant::decode(body).is_err());
        }
    }
}
