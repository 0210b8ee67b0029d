//! A credential that systemd hands to a service (LoadCredential, LoadCredentialEncrypted), or to
//! `systemd-run`: a file below $CREDENTIALS_DIRECTORY.
//!
//! systemd owns that directory and lets nobody but the service read it; the file has mode 0400. An
//! encrypted credential is bound to the machine's TPM or its secret.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use tidelock_cipher::Secret;
use zeroize::Zeroizing;

use super::printed::parse_key;
use super::{PrincipalKey, Purpose};
use crate::error::{Error, ServiceFault};
use crate::ownership::{self, Audience};
use crate::slot::{SlotKind, SlotTerms};

/// More is no key.
const MAX: u64 = 128;

/// Opens slots with a credential: 32 bytes, or 64 hexadecimal digits.
#[derive(Clone, Debug)]
pub struct SystemdProvider {
    credential: String,
    directory: Option<PathBuf>,
}

impl SystemdProvider {
    /// The credential of this name, in the `$CREDENTIALS_DIRECTORY` of this process.
    #[must_use]
    pub fn new(credential: impl Into<String>) -> Self {
        let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self { credential: credential.into(), directory }
    }

    fn refuse(&self, fault: ServiceFault, why: &str) -> Error {
        let why = format!("{why} ({})", self.credential);
        Error::Service { provider: SlotKind::Systemd, fault, why }
    }
}

impl PrincipalKey for SystemdProvider {
    fn kind(&self) -> SlotKind {
        SlotKind::Systemd
    }

    fn describe(&self) -> String {
        format!("systemd credential {}", self.credential)
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        if self.credential.contains('/') || self.credential.starts_with('.') {
            return Err(self.refuse(ServiceFault::NotFound, "has no credential with such a name"));
        }
        let Some(directory) = &self.directory else {
            let why = "gave this process no credentials: CREDENTIALS_DIRECTORY is not set";
            return Err(self.refuse(ServiceFault::Credentials, why));
        };
        let path = directory.join(&self.credential);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        ownership::check(&file, &path, Audience::OwnerOnly)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(128));
        file.take(MAX).read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
        let why = "is neither 32 bytes nor 64 hexadecimal digits";
        parse_key(&bytes).ok_or_else(|| self.refuse(ServiceFault::Protocol, why))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::provider::Provider;
    use crate::slot::{Payload, SlotId};
    use tidelock_format::KeyringId;

    fn terms() -> SlotTerms {
        SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SlotKind::Systemd)
    }

    fn provider(directory: Option<PathBuf>, credential: &str) -> SystemdProvider {
        SystemdProvider { credential: credential.into(), directory }
    }

    #[test]
    fn a_credential_opens_what_it_wrapped_and_another_does_not() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8], mode| {
            fs::write(home.path().join(name), bytes).unwrap();
            fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
            provider(Some(home.path().into()), name)
        };
        let (terms, payload) = (terms(), Payload::from_secret(Secret::new([9; 64])));
        let one = write("one", &[7; 32], 0o400);
        let wrapped = one.wrap(&terms, &payload).unwrap();
        assert_eq!(one.unwrap(&terms, &wrapped).unwrap().expose(), payload.expose());
        let other = write("other", &[8; 32], 0o400);
        assert!(matches!(other.unwrap(&terms, &wrapped), Err(Error::WrongKey { .. })));
        let loose = write("loose", &[7; 32], 0o444);
        assert!(matches!(loose.unwrap(&terms, &wrapped), Err(Error::LooseFile { .. })));
        let short = write("short", &[7; 31], 0o400);
        assert!(matches!(short.unwrap(&terms, &wrapped), Err(Error::Service { .. })));
        for missing in [provider(None, "one"), provider(Some(home.path().into()), "../one")] {
            assert!(matches!(missing.unwrap(&terms, &wrapped), Err(Error::Service { .. })));
        }
    }
}
