//! A credential that systemd hands to a service (LoadCredential, LoadCredentialEncrypted), or to
//! `systemd-run`: a file below $CREDENTIALS_DIRECTORY.
//!
//! systemd owns that directory and lets nobody but the service read it; the file has mode 0400. An
//! encrypted credential is bound to the machine's TPM or its secret.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, PrincipalKey, Provider, Purpose, ServiceFault, SlotKind, SlotTerms};
use zeroize::Zeroizing;

use crate::descriptor::Descriptor;
use crate::printed::parse_key;
use crate::room::{Kind, Room, some};
use crate::trust::{self, Audience};

const SLOT: SlotKind = SlotKind::new(6, "systemd");
/// More is no key.
const MAX: u64 = 128;

/// `systemd:NAME`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemdChoice {
    /// The name of the credential.
    pub credential: String,
}

impl Room for SystemdChoice {
    fn kind() -> Kind {
        Kind::one_key(SLOT, "systemd:NAME")
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(some(text).map(|name| Self { credential: name.into() }))
    }

    fn open(&self, _: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Ok(Box::new(SystemdProvider { credential: self.credential.clone(), directory }))
    }

    fn credential(&self) -> Option<&str> {
        Some(&self.credential)
    }
}

/// Opens slots with a credential: 32 bytes, or 64 hexadecimal digits.
struct SystemdProvider {
    credential: String,
    directory: Option<PathBuf>,
}

impl SystemdProvider {
    fn refuse(&self, fault: ServiceFault, why: &str) -> Error {
        let why = format!("{why} ({})", self.credential);
        Error::Service { provider: SLOT, fault, why }
    }
}

impl PrincipalKey for SystemdProvider {
    fn kind(&self) -> SlotKind {
        SLOT
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
            return Err(self.refuse(ServiceFault::NotHanded, why));
        };
        let path = directory.join(&self.credential);
        let file = match File::open(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                let why = "gave this process no such credential";
                return Err(self.refuse(ServiceFault::NotHanded, why));
            }
            opened => opened.map_err(Error::io("open", &path))?,
        };
        trust::check(&file, &path, Audience::Credential)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(128));
        file.take(MAX).read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
        let why = "is neither 32 bytes nor 64 hexadecimal digits";
        parse_key(&bytes).ok_or_else(|| self.refuse(ServiceFault::Protocol, why))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use tidelock_format::KeyringId;
    use tidelock_keyring::{Payload, SlotId};

    fn terms() -> SlotTerms {
        SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT)
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
        let (terms, payload) = (terms(), Payload::from_slice(&[9; 64]).unwrap());
        let one = write("one", &[7; 32], 0o400);
        let wrapped = one.wrap(&terms, &payload).unwrap();
        assert_eq!(one.unwrap(&terms, &wrapped).unwrap().expose(), payload.expose());
        let other = write("other", &[8; 32], 0o400);
        assert!(matches!(other.unwrap(&terms, &wrapped), Err(Error::WrongKey { .. })));
        let loose = write("loose", &[7; 32], 0o444);
        assert!(matches!(loose.unwrap(&terms, &wrapped), Err(Error::LooseFile { .. })));
        // As systemd 254 lets the user of a unit read it.
        let listed = write("listed", &[7; 32], 0o440);
        let roots = std::fs::metadata(home.path().join("listed")).unwrap();
        assert_eq!(listed.unwrap(&terms, &wrapped).is_ok(), (roots.uid(), roots.gid()) == (0, 0));
        let short = write("short", &[7; 31], 0o400);
        assert!(matches!(short.unwrap(&terms, &wrapped), Err(Error::Service { .. })));
        let here = |name| provider(Some(home.path().into()), name);
        for missing in [provider(None, "one"), here("../one"), here("none")] {
            assert!(matches!(missing.unwrap(&terms, &wrapped), Err(Error::Service { .. })));
        }
    }
}
