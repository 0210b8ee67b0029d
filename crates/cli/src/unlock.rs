//! Who opens a keyring: the command line first, else what is configured for its id.
//!
//! Never what the protected directory says. A passphrase is asked once for each keyring.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidelock_keys::{
    Config, Keyring, Places, Provider, ProviderChoice, RecoveryKey, SealedKeyring,
};
use zeroize::Zeroizing;

use crate::audit::trail;
use crate::error::{Error, Result};
use crate::protected::Protected;

/// A recovery key with line ends and blanks is no longer.
const MAX_RECOVERY: u64 = 4096;

/// How to open the keyring, if not as configured.
#[derive(clap::Args, Default)]
pub(crate) struct KeyOptions {
    /// Open the keyring with this provider: file:PATH, passphrase, command:CMD, command (PGDATAKEYWRAPCMD, PGDATAKEYUNWRAPCMD), env:NAME, systemd:NAME, pkcs11:URI, aws-kms:KEY, vault:transit/KEY, vault:kv/PATH, kmip:SERVER/KEY?...
    #[arg(long, value_name = "PROVIDER", help_heading = "Keys")]
    pub(crate) provider: Option<ProviderChoice>,
    /// Open the keyring with the recovery key that this file holds (-: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "provider", help_heading = "Keys")]
    pub(crate) recovery_file: Option<PathBuf>,
    /// Read the passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N", help_heading = "Keys")]
    pub(crate) passphrase_fd: Option<u32>,
}

impl KeyOptions {
    /// Unlocks the keyring of a protected directory.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn unlock(&self, protected: &Protected) -> Result<Keyring> {
        self.unlock_copy(&protected.keyring, &protected.path)
    }

    /// Unlocks a keyring; `place` is the directory, or the file of a copy.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn unlock_copy(&self, keyring: &SealedKeyring, place: &Path) -> Result<Keyring> {
        let opened = self.try_unlock(keyring, place);
        trail::unlocked(keyring, place, self.providers(keyring, place), opened.as_ref());
        opened.map_err(|error| match error {
            Error::Keys(source) => Error::Locked { dir: place.into(), source },
            other => other,
        })
    }

    /// What is configured for a keyring; nothing if the command line names a provider and there is none.
    ///
    /// # Errors
    /// A configuration that cannot be trusted or read.
    pub(crate) fn configured(&self, keyring: &SealedKeyring, place: &Path) -> Result<Config> {
        configured(keyring, place)
    }

    /// The providers that would be asked; none if that cannot be found out.
    pub(crate) fn choices(&self, keyring: &SealedKeyring, place: &Path) -> Vec<ProviderChoice> {
        match &self.provider {
            Some(choice) => vec![choice.clone()],
            None => {
                self.configured(keyring, place).map(|config| config.providers).unwrap_or_default()
            }
        }
    }

    /// The kinds of providers that are asked, for the audit log.
    fn providers(&self, keyring: &SealedKeyring, place: &Path) -> String {
        if self.recovery_file.is_some() {
            return "recovery".to_owned();
        }
        kinds(&self.choices(keyring, place))
    }

    /// Every provider at hand: the recovery key and the provider of the command line, and what is configured.
    ///
    /// # Errors
    /// A recovery key that cannot be read; a configuration that cannot be trusted.
    pub(crate) fn all_providers(
        &self,
        keyring: &SealedKeyring,
        place: &Path,
    ) -> Result<Vec<Box<dyn Provider>>> {
        let mut all: Vec<Box<dyn Provider>> = Vec::new();
        if let Some(file) = &self.recovery_file {
            all.push(Box::new(read_recovery_key(file)?));
        }
        let configured = self.configured(keyring, place)?.providers;
        for choice in self.provider.iter().chain(&configured) {
            all.push(tidelock_providers::open(choice, place, self.passphrase_fd)?);
        }
        Ok(all)
    }

    fn try_unlock(&self, keyring: &SealedKeyring, place: &Path) -> Result<Keyring> {
        if let Some(file) = &self.recovery_file {
            return Ok(keyring.unlock(&read_recovery_key(file)?)?);
        }
        let choices = match &self.provider {
            Some(choice) => vec![choice.clone()],
            None => self.configured(keyring, place)?.providers,
        };
        Ok(open(keyring, place, &choices, self.passphrase_fd)?)
    }
}

/// What is configured for a keyring; nothing if nobody has. `place` is its directory, or the file of a copy.
///
/// # Errors
/// A configuration that cannot be trusted or read.
pub(crate) fn configured(keyring: &SealedKeyring, place: &Path) -> Result<Config> {
    Ok(Places::of_process().find(keyring.id(), place)?.unwrap_or_default())
}

/// Unlocks by the configured providers that need nobody at a terminal.
///
/// # Errors
/// [`Error::Locked`].
pub(crate) fn unattended(protected: &Protected, config: &Config) -> Result<Keyring> {
    let (keyring, dir) = (&protected.keyring, &protected.path);
    let (choices, asking): (Vec<_>, Vec<_>) =
        config.providers.iter().cloned().partition(ProviderChoice::is_unattended);
    let opened = if choices.is_empty() && !asking.is_empty() {
        Err(tidelock_keys::Error::NoPassphrase { why: "there is no terminal to ask for it" })
    } else {
        open(keyring, dir, &choices, None)
    };
    let opened = opened.map_err(|source| Error::Locked { dir: dir.clone(), source });
    trail::unlocked(keyring, dir, kinds(&choices), opened.as_ref());
    opened
}

/// `file, command`.
fn kinds(choices: &[ProviderChoice]) -> String {
    // "file:PATH" and the like: only the kind, whatever else the text may hold.
    let kind = |choice: &ProviderChoice| match serde_json::to_value(choice) {
        Ok(serde_json::Value::Object(fields)) => {
            fields.get("type").and_then(|kind| kind.as_str()).unwrap_or("?").to_owned()
        }
        _ => "?".to_owned(),
    };
    choices.iter().map(kind).collect::<Vec<_>>().join(", ")
}

/// Opens a keyring with the first provider that can.
fn open(
    keyring: &SealedKeyring,
    place: &Path,
    choices: &[ProviderChoice],
    passphrase_fd: Option<u32>,
) -> std::result::Result<Keyring, tidelock_keys::Error> {
    let mut failure = tidelock_keys::Error::NoProvider { keyring: keyring.id() };
    for choice in choices {
        let opened = tidelock_providers::open(choice, place, passphrase_fd).and_then(|provider| {
            let provider: &dyn Provider = &*provider;
            keyring.unlock(provider)
        });
        match opened {
            Ok(keyring) => return Ok(keyring),
            Err(why @ tidelock_keys::Error::Interrupted) => return Err(why),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

fn read_recovery_key(file: &Path) -> Result<RecoveryKey> {
    let mut text = Zeroizing::new(String::new());
    let read = if file == Path::new("-") {
        io::stdin().take(MAX_RECOVERY).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(MAX_RECOVERY).read_to_string(&mut text))
    };
    read.map_err(|source| tidelock_keys::Error::Io {
        what: "read the recovery key from",
        path: file.into(),
        source,
    })?;
    Ok(RecoveryKey::parse(&text)?)
}
