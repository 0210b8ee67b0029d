//! Operation Get: the server hands out a raw key of 256 bits, at each unlock; the wrapping is done
//! here.

use kmip_protocol::types::common::{KeyMaterial, ObjectType, Operation};
use kmip_protocol::types::response::{GetResponsePayload, ManagedObject};
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, Health, PrincipalKey, Purpose, ServiceFault, SlotKind, SlotTerms};
use zeroize::Zeroizing;

use super::message::Get;
use super::server::Server;
use super::{KmipChoice, SLOT, describe, fault};
use crate::printed::parse_key;

/// Opens slots with one key of one server.
pub(super) struct Fetched {
    server: Server,
}

impl Fetched {
    pub(super) fn new(choice: &KmipChoice) -> Self {
        Self { server: Server::new(choice) }
    }
}

impl PrincipalKey for Fetched {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        describe(&self.server)
    }

    fn reference(&self) -> String {
        self.server.key().into()
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let got = self.server.ask(0, Operation::Get, Get(self.server.identifier()))?;
        let got = got.map_err(|why| self.server.refused(&why))?;
        raw(got).and_then(|key| parse_key(&key)).ok_or_else(|| {
            let why =
                format!("has no raw symmetric key of 256 bits there ({})", self.server.place());
            fault(ServiceFault::Protocol, why)
        })
    }

    fn health(&self) -> Health {
        self.server.health()
    }
}

/// The bytes of a raw symmetric key.
fn raw(got: GetResponsePayload) -> Option<Zeroizing<Vec<u8>>> {
    let ManagedObject::SymmetricKey(key) = got.cryptographic_object else { return None };
    let KeyMaterial::Bytes(bytes) = key.key_block.key_value.key_material else { return None };
    let bytes = Zeroizing::new(bytes);
    (got.object_type == ObjectType::SymmetricKey && bytes.len() == 32).then_some(bytes)
}
