//! A key in a variable of the environment, as the first patch for PostgreSQL took PGENCRYPTIONKEY.
//!
//! For laboratories: whoever may read /proc/PID/environ of the same user has the key.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, PrincipalKey, Provider, Purpose, ServiceFault, SlotKind, SlotTerms};
use zeroize::Zeroizing;

use crate::descriptor::Descriptor;
use crate::printed::parse_key;
use crate::room::{Kind, Room, some};

const SLOT: SlotKind = SlotKind::new(5, "env");

/// `env:VARIABLE`: opens slots with 64 hexadecimal digits that the environment holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvProvider {
    /// The variable.
    pub variable: String,
}

impl Room for EnvProvider {
    fn kind() -> Kind {
        Kind { is_for_laboratories: true, ..Kind::one_key(SLOT, "env:NAME") }
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(some(text).map(|name| Self { variable: name.into() }))
    }

    fn open(&self, _: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn is_of_this_shell(&self) -> bool {
        true
    }

    fn secret_variables(&self) -> Vec<&str> {
        vec![&self.variable]
    }
}

impl EnvProvider {
    fn refuse(&self, fault: ServiceFault, why: &str) -> Error {
        let why = format!("{why} ({})", self.variable);
        Error::Service { provider: SLOT, fault, why }
    }
}

impl PrincipalKey for EnvProvider {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("environment variable {}", self.variable)
    }

    fn warnings(&self) -> Vec<String> {
        vec![format!(
            "the key is in the environment ({}), where processes of the same user read it: not \
             for production",
            self.variable
        )]
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let value = std::env::var_os(&self.variable)
            .ok_or_else(|| self.refuse(ServiceFault::NotFound, "is not set"))?;
        let value = Zeroizing::new(value.as_bytes().to_vec());
        parse_key(&value)
            .ok_or_else(|| self.refuse(ServiceFault::Protocol, "is not 64 hexadecimal digits"))
    }
}
