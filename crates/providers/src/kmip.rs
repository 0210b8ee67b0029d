//! A KMIP server: it hands out a principal key over TLS, or wraps with one that never leaves it.
//!
//! ```text
//!   mode = "get"      Get               -> Fetched: the wrapping is done here
//!   mode = "encrypt"  Encrypt, Decrypt  -> Encrypting: the wrapping is done there
//! ```
//!
//! `kmip-ttlv` turns messages into bytes; the connection is rustls on AWS-LC.

mod encrypt;
mod get;
mod message;
mod server;

use tidelock_keys::{Error, KmipChoice, KmipMode, Provider, ServiceFault, SlotKind};

/// The provider of that mode.
pub(crate) fn open(choice: &KmipChoice) -> Box<dyn Provider> {
    match choice.mode {
        KmipMode::Get => Box::new(get::Fetched::new(choice)),
        KmipMode::Encrypt => Box::new(encrypt::Encrypting::new(choice)),
    }
}

fn describe(server: &server::Server) -> String {
    format!("KMIP key {} at {}", server.key(), server.place())
}

fn fault(fault: ServiceFault, why: impl Into<String>) -> Error {
    Error::Service { provider: SlotKind::Kmip, fault, why: why.into() }
}
