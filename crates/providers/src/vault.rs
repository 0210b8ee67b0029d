//! HashiCorp Vault and OpenBao: a key of the transit engine, or one in a KV v2 secret.
//!
//! ```text
//!   VaultChoice --open--> Transit (wraps in Vault) or Kv (gives a principal key)
//!                            |                          |
//!                            +------ Session: token ----+
//!                                        |
//!                                     Client: one HTTPS request, one answer or a fault
//! ```
//!
//! Nothing is asked before the first wrap or unwrap. Tokens are in no error and in no `Debug`.

mod client;
mod kv;
mod session;
mod transit;

use tidelock_keys::{Error, Provider, ServiceFault, SlotKind, VaultChoice, VaultSecret};

use kv::Kv;
use session::Session;
use transit::Transit;

/// The provider that `choice` describes.
///
/// # Errors
/// The file with the authorities cannot be read.
pub(crate) fn open(choice: &VaultChoice) -> Result<Box<dyn Provider>, Error> {
    let session = Session::new(choice)?;
    let mount = choice.mount.trim_end_matches('/');
    Ok(match &choice.secret {
        VaultSecret::Transit { key } => Box::new(Transit::new(session, mount, key)),
        VaultSecret::Kv2 { path, field, version } => {
            Box::new(Kv::new(session, mount, path, field, *version))
        }
    })
}

fn fault(fault: ServiceFault, why: impl Into<String>) -> Error {
    Error::Service { provider: SlotKind::Vault, fault, why: why.into() }
}
