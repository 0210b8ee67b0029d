//! The body of the keyring: data keys, layout, policy, conversion state.
//!
//! Always inside AES-256-GCM, so its bytes are what a Tidelock wrote; a later version is refused.

use tidelock_cipher::{DataKey, Secret};
use tidelock_contract::wire::KeyState;
use tidelock_contract::{MAX_POLICY, Policy, Writer};
use tidelock_format::{DataKeyId, Layout, Reader, Truncated};

use super::{DataKeyEntry, Keyring, MAX_DATA_KEYS};
use crate::conversion::Conversion;
use crate::error::Error;

const VERSION: u16 = 1;
/// Bytes before the data keys.
const FIXED: usize = 32;
/// Bytes of a data key.
const ENTRY: usize = 80;
/// The conversion state is no longer.
const MAX_CONVERSION: usize = 64 * 1024;

/// What the body holds.
pub(super) struct Body {
    pub(super) layout: Layout,
    pub(super) data_keys: Vec<DataKeyEntry>,
    pub(super) policy: Policy,
    pub(super) conversion: Option<Conversion>,
}

impl Keyring {
    /// The body, with room for `extra` bytes behind it.
    pub(super) fn encode_body(&self, extra: usize) -> Writer {
        let policy = self.policy.encode();
        let conversion = self.conversion.map(Conversion::encode).unwrap_or_default();
        let keys = ENTRY * self.data_keys.len();
        let len = FIXED + keys + 4 + policy.len() + 4 + conversion.len();
        let mut out = Writer::with_capacity(len + extra);
        out.u16(VERSION);
        out.count(self.data_keys.len());
        out.u32(self.layout.data_offset());
        out.u64(0);
        out.bytes(&self.current().id.0);
        for entry in &self.data_keys {
            out.bytes(&entry.id.0);
            out.bytes(entry.key.secret().expose());
            out.u64(entry.created);
            out.u64(entry.retired.unwrap_or(0));
            out.u8(entry.state as u8);
            out.bytes(&[0; 15]);
        }
        for part in [&policy, &conversion] {
            out.u32(u32::try_from(part.len()).expect("parts are checked against their limits"));
            out.bytes(part);
        }
        out
    }
}

impl Body {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let short = |_: Truncated| damaged("the body ends early");
        let mut from = Reader::new(bytes);
        let version = from.u16().map_err(short)?;
        if version != VERSION {
            return Err(Error::Version { found: version });
        }
        let count = from.u16().map_err(short)?;
        if usize::from(count) > MAX_DATA_KEYS {
            return Err(Error::TooMany { what: "data keys", most: MAX_DATA_KEYS });
        }
        let data_offset = from.u32().map_err(short)?;
        let layout = Layout::new(data_offset).map_err(|_| damaged("the data offset is unknown"))?;
        if from.u64().map_err(short)? != 0 {
            return Err(damaged("a reserved byte of the body is not zero"));
        }
        let current = DataKeyId(from.array().map_err(short)?);
        // All at once, so that no key is left behind by growing.
        let mut data_keys = Vec::with_capacity(count.into());
        for _ in 0..count {
            data_keys.push(data_key(&mut from)?);
        }
        check_current(&data_keys, current)?;
        let policy = Policy::decode(part(&mut from, MAX_POLICY)?)?;
        let conversion = Conversion::decode(part(&mut from, MAX_CONVERSION)?)?;
        if !from.rest().is_empty() {
            return Err(damaged("bytes follow the body"));
        }
        Ok(Self { layout, data_keys, policy, conversion })
    }
}

fn check_current(data_keys: &[DataKeyEntry], current: DataKeyId) -> Result<(), Error> {
    let mut currents = data_keys.iter().filter(|entry| entry.state == KeyState::Current);
    let named = currents.next().is_some_and(|entry| entry.id == current);
    if !named || currents.next().is_some() {
        return Err(damaged("it does not have exactly one current data key"));
    }
    Ok(())
}

fn data_key(from: &mut Reader<'_>) -> Result<DataKeyEntry, Error> {
    let short = |_: Truncated| damaged("the body ends inside a data key");
    let id = DataKeyId(from.array().map_err(short)?);
    let mut key = Secret::new([0; 32]);
    key.expose_mut().copy_from_slice(from.bytes(32).map_err(short)?);
    let created = from.u64().map_err(short)?;
    let retired = from.u64().map_err(short)?;
    let state = from.u8().map_err(short)?;
    let state = KeyState::from_number(state).ok_or(damaged("a data key has an unknown state"))?;
    if from.bytes(15).map_err(short)?.iter().any(|byte| *byte != 0) {
        return Err(damaged("a reserved byte of a data key is not zero"));
    }
    let retired = Some(retired).filter(|at| *at != 0);
    Ok(DataKeyEntry { id, key: DataKey::new(key), state, created, retired })
}

fn part<'a>(from: &mut Reader<'a>, most: usize) -> Result<&'a [u8], Error> {
    let short = |_: Truncated| damaged("the body ends inside a part");
    let len = usize::try_from(from.u32().map_err(short)?).unwrap_or(usize::MAX);
    if len > most {
        return Err(damaged("a part of the body is too long"));
    }
    from.bytes(len).map_err(short)
}

const fn damaged(what: &'static str) -> Error {
    Error::Damaged { what }
}
