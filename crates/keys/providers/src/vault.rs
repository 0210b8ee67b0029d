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

mod choice;
mod client;
mod kv;
mod session;
mod transit;

use std::path::Path;

use tidelock_keyring::{Error, Provider, ServiceFault, SlotKind};

pub(crate) use choice::{VaultAppRole, VaultChoice, VaultLogin, VaultSecret};

use crate::descriptor::Descriptor;
use crate::room::{Kind, Room};
use kv::Kv;
use session::Session;
use transit::Transit;

const SLOT: SlotKind = SlotKind::new(7, "vault");
/// What Vault's own programs read.
const SECRETS: [&str; 1] = ["VAULT_TOKEN"];

impl Room for VaultChoice {
    fn kind() -> Kind {
        Kind::service(SLOT, "vault:transit/KEY, vault:kv/PATH").remote().with_secrets(&SECRETS)
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(text.and_then(|text| Self::parse(text, |name| std::env::var_os(name))))
    }

    fn open(&self, _: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        let session = Session::new(self)?;
        let mount = self.mount.trim_end_matches('/');
        Ok(match &self.secret {
            VaultSecret::Transit { key } => Box::new(Transit::new(session, mount, key)),
            VaultSecret::Kv2 { path, field, version } => {
                Box::new(Kv::new(session, mount, path, field, *version))
            }
        })
    }

    fn is_of_this_shell(&self) -> bool {
        matches!(self.login, VaultLogin::Caller)
    }

    fn secret_variables(&self) -> Vec<&str> {
        SECRETS.to_vec()
    }
}

fn fault(fault: ServiceFault, why: impl Into<String>) -> Error {
    Error::Service { provider: SLOT, fault, why: why.into() }
}
