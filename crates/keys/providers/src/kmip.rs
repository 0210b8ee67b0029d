//! A KMIP server: it hands out a principal key over TLS, or wraps with one that never leaves it.
//!
//! ```text
//!   mode = "get"      Get               -> Fetched: the wrapping is done here
//!   mode = "encrypt"  Encrypt, Decrypt  -> Encrypting: the wrapping is done there
//! ```
//!
//! `kmip-ttlv` turns messages into bytes; the connection is rustls on AWS-LC.

mod choice;
mod encrypt;
mod get;
mod message;
mod server;

use std::path::Path;

use tidelock_keyring::{Error, Provider, ServiceFault, SlotKind};

pub(crate) use choice::{KmipChoice, KmipMode};

use crate::descriptor::Descriptor;
use crate::room::{Kind, Room};

const SLOT: SlotKind = SlotKind::new(10, "kmip");

impl Room for KmipChoice {
    fn kind() -> Kind {
        Kind::service(SLOT, "kmip:SERVER/KEY?...").remote()
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(text.and_then(Self::parse))
    }

    fn open(&self, _: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        Ok(match self.mode {
            KmipMode::Get => Box::new(get::Fetched::new(self)),
            KmipMode::Encrypt => Box::new(encrypt::Encrypting::new(self)),
        })
    }
}

fn describe(server: &server::Server) -> String {
    format!("KMIP key {} at {}", server.key(), server.place())
}

fn fault(fault: ServiceFault, why: impl Into<String>) -> Error {
    Error::Service { provider: SLOT, fault, why: why.into() }
}
