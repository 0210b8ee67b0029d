//! Who opens a keyring: the command line first, else what is configured for its id.
//!
//! Never what the protected directory says. A passphrase is asked once for each keyring. Root opens
//! a keyring of another user's directory only by what is configured for that user. Whose it is was
//! asked of the directory when that was opened, and what a path leads to is never asked again: its
//! owner may put something else there at any moment.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::num::ParseIntError;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tidelock_format::KeyringId;
use tidelock_keyring::{Failures, Keyring, Provider, SealedKeyring, Slot};
use tidelock_providers::{Config, Descriptor, Places, ProviderChoice, RecoveryKey};
use zeroize::Zeroizing;

use crate::audit::trail;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::protected::Protected;

/// A recovery key with line ends and blanks is no longer.
const MAX_RECOVERY: u64 = 4096;
const STANDARD_INPUT: &str = "-";

/// How to open the keyring, if not as configured.
#[derive(clap::Args, Default)]
pub(crate) struct KeyOptions {
    #[arg(long, value_name = "PROVIDER", help_heading = "Keys", help = format!(
        "Open the keyring with this provider: {}", ProviderChoice::usage()
    ))]
    pub(crate) provider: Option<ProviderChoice>,
    /// Open the keyring with the recovery key that this file holds (-: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "provider", help_heading = "Keys")]
    pub(crate) recovery_file: Option<PathBuf>,
    /// Read the passphrase from this open descriptor instead of the terminal; several passphrases,
    /// a line each
    #[arg(long, value_name = "N", value_parser = descriptor, help_heading = "Keys")]
    pub(crate) passphrase_fd: Option<Descriptor>,
    /// What standard input had: it has that only once, whoever asks and how often.
    #[arg(skip)]
    pub(crate) standard_input: OnceLock<Zeroizing<String>>,
}

impl KeyOptions {
    /// True if the command line says how to open the keyring.
    pub(crate) const fn is_used(&self) -> bool {
        self.provider.is_some() || self.recovery_file.is_some() || self.passphrase_fd.is_some()
    }

    /// Unlocks the keyring of a protected directory.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn unlock(&self, protected: &Protected) -> Result<Keyring> {
        self.unlock_with_opener(protected).map(|(keyring, _)| keyring)
    }

    /// Unlocks a copy of a keyring, whose file is `file`. No server starts there, so it may be
    /// whoever's.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub(crate) fn unlock_copy(&self, keyring: &SealedKeyring, file: &Path) -> Result<Keyring> {
        self.unlock_of(keyring, file, None).map(|(keyring, _)| keyring)
    }

    /// As [`KeyOptions::unlock`], and the provider that did it, which has asked for what it needs.
    ///
    /// # Errors
    /// [`Error::Locked`]; [`Error::Refused`], as [`to_open`].
    pub(crate) fn unlock_with_opener(
        &self,
        protected: &Protected,
    ) -> Result<(Keyring, Box<dyn Provider>)> {
        self.unlock_of(&protected.keyring, &protected.path, Some(protected.owner))
    }

    /// `owner` is whose the directory `place` is; `None` of the file of a copy.
    fn unlock_of(
        &self,
        keyring: &SealedKeyring,
        place: &Path,
        owner: Option<Owner>,
    ) -> Result<(Keyring, Box<dyn Provider>)> {
        let opened = self.try_unlock(keyring, place, owner);
        // Nothing was tried then, and the log of that keyring is not that of this directory.
        if !matches!(opened, Err(Error::Refused { .. })) {
            let told = opened.as_ref().map(|(keyring, _)| keyring);
            trail::unlocked(keyring, place, self.providers(keyring, place, owner), told);
        }
        opened.map_err(|error| match error {
            Error::Keys(source) => self.locked(place, source),
            other => other,
        })
    }

    /// The keyring of `place` does not open with these, for this reason.
    pub(crate) fn locked(&self, place: &Path, source: tidelock_keyring::Error) -> Error {
        use tidelock_keyring::Error as E;
        let dir = place.into();
        match source {
            source @ E::Io { .. } if self.recovery_file.is_some() => {
                Error::NoRecoveryKey { dir, source }
            }
            source @ E::WrongKey { .. } if self.recovery_file.is_some() => {
                Error::OtherRecoveryKey { dir, source }
            }
            source => Error::Locked { dir, source },
        }
    }

    /// What is configured for a keyring; nothing if the command line names a provider and there is
    /// none.
    ///
    /// # Errors
    /// A configuration that cannot be trusted or read.
    pub(crate) fn configured(&self, keyring: &SealedKeyring, place: &Path) -> Result<Config> {
        configured(keyring, place)
    }

    /// As [`to_open`], unless the command line names what opens the keyring: then whoever runs the
    /// command has said that it is to be opened here.
    ///
    /// # Errors
    /// As [`to_open`].
    pub(crate) fn to_open(
        &self,
        keyring: &SealedKeyring,
        place: &Path,
        owner: Owner,
    ) -> Result<Config> {
        match self.provider.is_some() || self.recovery_file.is_some() {
            true => configured(keyring, place),
            false => to_open(keyring, place, owner),
        }
    }

    /// The providers that would be asked for the keyring of a directory; none if that cannot be
    /// found out.
    pub(crate) fn choices(&self, keyring: &SealedKeyring, place: &Path) -> Vec<ProviderChoice> {
        match Owner::of(place) {
            Ok(owner) => self.choices_of(keyring, place, Some(owner)),
            Err(_) => self.provider.iter().cloned().collect(),
        }
    }

    fn choices_of(
        &self,
        keyring: &SealedKeyring,
        place: &Path,
        owner: Option<Owner>,
    ) -> Vec<ProviderChoice> {
        match &self.provider {
            Some(choice) => vec![choice.clone()],
            None => {
                let config = self.config_of(keyring, place, owner);
                config.map(|config| config.providers).unwrap_or_default()
            }
        }
    }

    fn config_of(
        &self,
        keyring: &SealedKeyring,
        place: &Path,
        owner: Option<Owner>,
    ) -> Result<Config> {
        match owner {
            Some(owner) => self.to_open(keyring, place, owner),
            None => configured(keyring, place),
        }
    }

    /// The kinds of providers that are asked, for the audit log.
    fn providers(&self, keyring: &SealedKeyring, place: &Path, owner: Option<Owner>) -> String {
        if self.recovery_file.is_some() {
            return "recovery".to_owned();
        }
        kinds(&self.choices_of(keyring, place, owner))
    }

    /// Every provider at hand for these slots: the recovery key and the provider of the command
    /// line, and what is configured. A person is asked for each slot by its name.
    ///
    /// # Errors
    /// A recovery key that cannot be read; a configuration that cannot be trusted.
    pub(crate) fn all_providers(
        &self,
        protected: &Protected,
        slots: &[Slot],
    ) -> Result<Vec<Box<dyn Provider>>> {
        let Protected { path, keyring, owner } = protected;
        let mut all: Vec<Box<dyn Provider>> = Vec::new();
        if let Some(file) = &self.recovery_file {
            all.push(Box::new(self.read_recovery_key(file)?));
        }
        let configured = self.to_open(keyring, path, *owner)?.providers;
        for choice in self.provider.iter().chain(&configured) {
            let (kind, given) = (choice.kind(), self.passphrase_fd.as_ref());
            if !kind.is_a_persons {
                all.push(choice.open(path, given)?);
                continue;
            }
            for slot in slots.iter().filter(|slot| slot.terms.kind == kind.slot) {
                all.push(choice.open_slot(slot.terms.id, path, given)?);
            }
        }
        Ok(all)
    }

    /// Unlocks a keyring of the directory `place`, for a caller that writes a line of its own to
    /// the audit log.
    ///
    /// # Errors
    /// What the provider says.
    pub(crate) fn open_quietly(&self, keyring: &SealedKeyring, place: &Path) -> Result<Keyring> {
        Ok(self.try_unlock(keyring, place, Some(Owner::of(place)?))?.0)
    }

    fn try_unlock(
        &self,
        keyring: &SealedKeyring,
        place: &Path,
        owner: Option<Owner>,
    ) -> Result<(Keyring, Box<dyn Provider>)> {
        if let Some(file) = &self.recovery_file {
            let key = self.read_recovery_key(file)?;
            return Ok((keyring.unlock(&key)?, Box::new(key)));
        }
        let choices = match &self.provider {
            Some(choice) => vec![choice.clone()],
            None => self.config_of(keyring, place, owner)?.providers,
        };
        Ok(open(keyring, place, &choices, self.passphrase_fd.as_ref())?)
    }

    fn read_recovery_key(&self, file: &Path) -> Result<RecoveryKey> {
        let failed = |source| tidelock_keyring::Error::Io {
            what: "read the recovery key from",
            path: file.into(),
            source,
        };
        if file != Path::new(STANDARD_INPUT) {
            let text = File::open(file).and_then(text_of).map_err(failed)?;
            return Ok(RecoveryKey::parse(&text)?);
        }
        let text = match self.standard_input.get() {
            Some(text) => text,
            None => {
                let text = text_of(io::stdin()).map_err(failed)?;
                self.standard_input.get_or_init(|| text)
            }
        };
        Ok(RecoveryKey::parse(text)?)
    }

    /// True if standard input was given as a file that has a key or a passphrase, and a program
    /// that inherits it could read it again.
    pub(crate) fn have_standard_input(&self) -> bool {
        let recovery = self.recovery_file.as_deref() == Some(Path::new(STANDARD_INPUT));
        let passphrase = self.passphrase_fd.as_ref().is_some_and(|given| given.number() == 0);
        (recovery || passphrase) && !io::stdin().is_terminal()
    }
}

/// What is configured for a keyring; nothing if nobody has. `place` is its directory, or the file
/// of a copy.
///
/// # Errors
/// A configuration that cannot be trusted or read.
pub(crate) fn configured(keyring: &SealedKeyring, place: &Path) -> Result<Config> {
    Ok(Places::of_process().find(keyring.id(), place)?.unwrap_or_default())
}

/// As [`configured`], for whoever will open the keyring of the directory `place`. `owner` is whose
/// it is: root opens the keyring of another user's directory only by what is configured for that
/// user ([`Places::find_for`]), since its id is that user's to choose.
///
/// # Errors
/// As [`configured`]; [`Error::Refused`].
pub(crate) fn to_open(keyring: &SealedKeyring, place: &Path, owner: Owner) -> Result<Config> {
    Ok(find_to_open(&Places::of_process(), keyring.id(), place, owner)?.unwrap_or_default())
}

/// As [`to_open`], in these places.
///
/// # Errors
/// As [`to_open`].
pub(crate) fn find_to_open(
    places: &Places,
    keyring: KeyringId,
    place: &Path,
    owner: Owner,
) -> Result<Option<Config>> {
    if Owner::caller().uid != 0 || owner.uid == 0 {
        return Ok(places.find(keyring, place)?);
    }
    // A unit with `User=` has that user's home, also in the commands that it runs as root. What
    // opens a keyring there may be a command of that user's.
    let roots = |own: &PathBuf| std::fs::metadata(own).is_ok_and(|found| found.uid() == 0);
    let places = Places { own: places.own.clone().filter(roots), ..places.clone() };
    places.find_for(owner.uid, keyring, place).map_err(|why| match why {
        tidelock_keyring::Error::ConfigOfAnother { ref path, .. } => {
            let hint = format!(
                "set directory = \"{}\" in {} if this keyring is meant to be opened here, or name \
                 the provider with --provider",
                place.display(),
                path.display()
            );
            Error::refused(why.to_string(), hint)
        }
        other => other.into(),
    })
}

/// False if this opens no slot: none is of its kind, or its key file is that of a slot which is
/// gone. Asks no service.
pub(crate) fn may_open(choice: &ProviderChoice, protected: &Protected) -> bool {
    let slots = protected.keyring.slots().iter();
    let mut slots = slots.filter(|slot| slot.terms.kind == choice.kind().slot).peekable();
    if choice.key_file().is_none() {
        return slots.peek().is_some();
    }
    choice.open(&protected.path, None).is_ok_and(|provider| {
        slots.any(|slot| !slot.check(&*provider).is_err_and(|why| why.is_wrong_key()))
    })
}

/// True if a unit of systemd can open a keyring with it: no person is asked, and nothing is needed
/// that only a shell has.
pub(crate) fn opens_by_itself(choice: &ProviderChoice) -> bool {
    choice.is_unattended() && !choice.is_of_this_shell()
}

/// Unlocks by the configured providers that need nobody at a terminal.
///
/// # Errors
/// [`Error::Locked`].
pub(crate) fn unattended(protected: &Protected, config: &Config) -> Result<Keyring> {
    let (keyring, dir) = (&protected.keyring, &protected.path);
    let (choices, asking): (Vec<_>, Vec<_>) = config
        .providers
        .iter()
        .cloned()
        .partition(|choice: &ProviderChoice| choice.is_unattended());
    let opened = if choices.is_empty() && !asking.is_empty() {
        Err(tidelock_keyring::Error::no_passphrase("there is no terminal to ask for it"))
    } else {
        open(keyring, dir, &choices, None).map(|(keyring, _)| keyring)
    };
    let opened = opened.map_err(|source| Error::Locked { dir: dir.clone(), source });
    trail::unlocked(keyring, dir, kinds(&choices), opened.as_ref());
    opened
}

/// `file, command`.
fn kinds(choices: &[ProviderChoice]) -> String {
    choices.iter().map(|choice| choice.kind().slot.name()).collect::<Vec<_>>().join(", ")
}

/// Opens a keyring with the first provider that can; if none does, each says why.
fn open(
    keyring: &SealedKeyring,
    place: &Path,
    choices: &[ProviderChoice],
    passphrase_fd: Option<&Descriptor>,
) -> std::result::Result<(Keyring, Box<dyn Provider>), tidelock_keyring::Error> {
    let mut failures = Vec::new();
    for choice in choices {
        let opened = choice
            .open(place, passphrase_fd)
            .and_then(|provider| Ok((keyring.unlock(&*provider)?, provider)));
        match opened {
            Ok(opened) => return Ok(opened),
            Err(why @ tidelock_keyring::Error::Interrupted) => return Err(why),
            Err(why) => failures.push(why),
        }
    }
    Err(Failures::of(failures)
        .unwrap_or(tidelock_keyring::Error::NoProvider { keyring: keyring.id() }))
}

/// An open descriptor that none of the programs gets which this one starts or becomes: a file gives
/// its text again to whoever opens it. Each of them gets its own first three.
///
/// # Errors
/// It is no number.
pub(crate) fn descriptor(text: &str) -> std::result::Result<Descriptor, ParseIntError> {
    let given: Descriptor = text.parse()?;
    if given.number() > 2 {
        tidelock_ffi::close_on_exec(given.number());
    }
    Ok(given)
}

fn text_of(from: impl Read) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    from.take(MAX_RECOVERY).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tidelock_servers::skip;

    use super::*;

    /// Its owner owns the folder above it too, and swaps the two at any moment.
    #[test]
    fn a_file_in_place_of_another_users_directory_opens_no_more_than_the_directory() {
        if skip::unless_root("the configuration of another user's directory") {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (recorded, swapped) = (home.path().join("recorded"), home.path().join("swapped"));
        fs::create_dir(&recorded).unwrap();
        fs::write(&swapped, "").unwrap();
        let places = Places { system: home.path().join("etc"), own: None };
        let id = KeyringId([7; 16]);
        let folder = places.system.join("keyrings");
        fs::create_dir_all(&folder).unwrap();
        for place in [&places.system, &folder] {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let text = format!("directory = \"{}\"\n", recorded.display());
        fs::write(folder.join(format!("{id}.toml")), text).unwrap();
        // An account that every Debian has; what is recorded is root's.
        let other: Owner = "daemon".parse().unwrap();
        let refused = find_to_open(&places, id, &swapped, other);
        assert!(matches!(&refused, Err(Error::Refused { .. })), "{refused:?}");
        let found = find_to_open(&places, id, &recorded, Owner { uid: 0, gid: 0 });
        assert!(found.unwrap().is_some());
    }

    /// systemd gives the home of `User=` to what a unit runs as root, too.
    #[test]
    fn root_takes_no_command_from_the_home_of_the_directorys_owner() {
        if skip::unless_root("the configuration of another user's directory") {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let other: Owner = "daemon".parse().unwrap();
        let own = home.path().join("own");
        fs::create_dir(&own).unwrap();
        let (dir, file) = (home.path().join("data"), own.join("data.toml"));
        fs::create_dir(&dir).unwrap();
        let provider = "[[provider]]\ntype = \"command\"\ncommand = \"id\"\n";
        fs::write(&file, format!("directory = \"{}\"\n{provider}", dir.display())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&dir, Some(other.uid), None).unwrap();
        let places = Places { system: home.path().join("etc"), own: Some(own.clone()) };
        let find = || find_to_open(&places, KeyringId([7; 16]), &dir, other).unwrap();
        assert!(find().is_some());
        std::os::unix::fs::chown(&own, Some(other.uid), None).unwrap();
        assert!(find().is_none());
    }
}
