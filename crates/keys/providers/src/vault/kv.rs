//! A principal key that stands in a KV v2 secret as 64 hexadecimal digits.
//!
//! It leaves Vault at each unlock; the transit engine is better where it can be had.

use std::collections::HashMap;

use serde::Deserialize;
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, Health, PrincipalKey, Purpose, ServiceFault, SlotKind, SlotTerms};
use zeroize::Zeroizing;

use super::session::Session;
use super::{SLOT, fault};
use crate::printed::parse_key;

/// Opens slots with one field of one secret.
pub(super) struct Kv {
    session: Session,
    mount: String,
    path: String,
    field: String,
    version: Option<u32>,
}

#[derive(Deserialize)]
struct Read {
    data: Found,
}

#[derive(Deserialize)]
struct Found {
    data: HashMap<String, Field>,
}

/// Other fields may be anything.
#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Text(Zeroizing<String>),
    Other(serde::de::IgnoredAny),
}

impl Kv {
    pub(super) fn new(
        session: Session,
        mount: &str,
        path: &str,
        field: &str,
        version: Option<u32>,
    ) -> Self {
        let path = path.trim_end_matches('/').into();
        Self { session, mount: mount.into(), path, field: field.into(), version }
    }

    fn refuse(&self, fault_kind: ServiceFault, what: &str) -> Error {
        let place = self.session.place();
        let why = format!("{what} ({place}: {}/{}, field {})", self.mount, self.path, self.field);
        fault(fault_kind, why)
    }
}

impl PrincipalKey for Kv {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("Vault secret {}/{} at {}", self.mount, self.path, self.session.place())
    }

    fn reference(&self) -> String {
        format!("{}/{}#{}", self.mount, self.path, self.field)
    }

    fn warnings(&self) -> Vec<String> {
        self.session.warnings()
    }

    fn principal_key(&self, _: &SlotTerms, purpose: Purpose) -> Result<Secret<32>, Error> {
        let version = self.version.map_or(String::new(), |version| format!("?version={version}"));
        let path = format!("{}/data/{}{version}", self.mount, self.path);
        let Read { data: Found { data } } = self.session.ask(&path, None)?;
        let key = match data.get(&self.field) {
            Some(Field::Text(text)) => parse_key(text.as_bytes()),
            Some(Field::Other(_)) => None,
            None => return Err(self.refuse(ServiceFault::NotFound, "has no such field")),
        };
        if purpose == Purpose::Unlock {
            self.session.tend();
        }
        key.ok_or_else(|| self.refuse(ServiceFault::Protocol, "has no 64 hexadecimal digits there"))
    }

    fn health(&self) -> Health {
        self.session.tend()
    }
}
