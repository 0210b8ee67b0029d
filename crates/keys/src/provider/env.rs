//! A key in a variable of the environment, as the first patch for PostgreSQL took PGENCRYPTIONKEY.
//!
//! For laboratories: whoever may read /proc/PID/environ of the same user has the key.

use std::os::unix::ffi::OsStrExt;

use tidelock_cipher::Secret;

use super::printed::parse_key;
use super::{PrincipalKey, Purpose};
use crate::error::{Error, ServiceFault};
use crate::slot::{SlotKind, SlotTerms};

/// Opens slots with 64 hexadecimal digits that the environment holds.
#[derive(Clone, Debug)]
pub struct EnvProvider {
    variable: String,
}

impl EnvProvider {
    /// The key is in `variable`.
    #[must_use]
    pub fn new(variable: impl Into<String>) -> Self {
        Self { variable: variable.into() }
    }

    fn refuse(&self, fault: ServiceFault, why: &str) -> Error {
        let why = format!("{why} ({})", self.variable);
        Error::Service { provider: SlotKind::Env, fault, why }
    }
}

impl PrincipalKey for EnvProvider {
    fn kind(&self) -> SlotKind {
        SlotKind::Env
    }

    fn describe(&self) -> String {
        format!("environment variable {}", self.variable)
    }

    fn warnings(&self) -> Vec<String> {
        vec![format!(
            "the key is in the environment ({}), where processes of the same user read it: not for production",
            self.variable
        )]
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let value = std::env::var_os(&self.variable)
            .ok_or_else(|| self.refuse(ServiceFault::NotFound, "is not set"))?;
        let value = zeroize::Zeroizing::new(value.as_bytes().to_vec());
        parse_key(&value)
            .ok_or_else(|| self.refuse(ServiceFault::Protocol, "is not 64 hexadecimal digits"))
    }
}
