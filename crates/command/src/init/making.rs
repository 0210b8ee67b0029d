//! A keyring for a directory: whose key opens it, what is sealed, and what the user is told.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use tidelock_contract::Policy;
use tidelock_format::Layout;
use tidelock_keyring::{Conversion, Keyring, KeyringDir, Provider, SealedKeyring};
use tidelock_providers::{Descriptor, New, ProviderChoice, RecoveryKey};

use super::place::NewDirectory;
use super::undo::Undo;
use super::{make_key_file, nearby, refuse_to_print_into_logs, write_config, write_recovery_key};
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::unlock;

/// What is asked of the keyring that is made.
#[derive(clap::Args)]
pub(crate) struct Making {
    #[arg(long, value_name = "PROVIDER", help = format!(
        "Where the principal key lives: {}. A key file that does not exist is made \
         [default: a key file in the caller's configuration]",
        ProviderChoice::usage()
    ))]
    pub(crate) provider: Option<ProviderChoice>,
    /// Read the passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N", value_parser = unlock::descriptor)]
    pub(crate) passphrase_fd: Option<Descriptor>,
    /// Take a passphrase although it is easy to guess
    #[arg(long)]
    weak_passphrase: bool,
    /// Write the recovery key to this file instead of printing it
    #[arg(long, value_name = "FILE", conflicts_with = "no_recovery")]
    recovery_file: Option<PathBuf>,
    /// Make no recovery key
    #[arg(long)]
    no_recovery: bool,
    /// Print the recovery key although standard output is a pipe or a log, not a terminal
    #[arg(long, conflicts_with_all = ["no_recovery", "recovery_file"])]
    print_recovery: bool,
    /// A file that stays plain although the profile does not say so; may be given several times
    #[arg(long, value_name = "GLOB")]
    plain: Vec<String>,
    /// A program that gets keys besides those of the profile; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// A keyring that was made, and what to say of it.
pub(crate) struct Made<'m> {
    pub(crate) keyring: Keyring,
    pub(crate) folder: KeyringDir,
    making: &'m Making,
    path: PathBuf,
    choice: ProviderChoice,
    provider: Box<dyn Provider>,
    recovery: Option<RecoveryKey>,
    config: PathBuf,
}

impl Making {
    /// Everything that may refuse, before anything is made.
    ///
    /// # Errors
    /// The file is no profile; a recovery key would go into a log.
    pub(crate) fn check(&self, place: &NewDirectory, name: &str) -> Result<(Policy, Layout)> {
        let profile = crate::profile::named(name)?;
        nearby::refuse_wrong_level(&place.path, &profile.name)?;
        let layout = profile.layout()?;
        let policy =
            profile.compile(&self.plain, &self.program).map_err(tidelock_keyring::Error::from)?;
        if self.prints_recovery() {
            refuse_to_print_into_logs(
                self.print_recovery,
                "write it to a file with --recovery-file FILE, make none with --no-recovery, or \
                 say --print-recovery",
            )?;
        }
        Ok((policy, layout))
    }

    /// True if a recovery key is made, and goes into no file.
    pub(crate) const fn prints_recovery(&self) -> bool {
        !self.no_recovery && self.recovery_file.is_none()
    }

    /// Has the provider open a keyring that is thrown away. A person's passphrase cannot be wrong
    /// when it is new, and a key file that is made later opens what it is made for.
    ///
    /// # Errors
    /// What the provider says.
    pub(crate) fn try_provider(
        &self,
        place: &NewDirectory,
        policy: Policy,
        layout: Layout,
    ) -> Result<()> {
        let Some(choice) = &self.provider else { return Ok(()) };
        let is_made_later = |path: &Path| path.symlink_metadata().is_err();
        if choice.kind().is_a_persons || choice.key_file().is_some_and(is_made_later) {
            return Ok(());
        }
        let provider = choice.open_new(&place.path, &self.new_passphrase())?;
        let keyring = Keyring::create(policy, layout, &[&*provider])?;
        SealedKeyring::parse(&keyring.seal()?)?.unlock(&*provider)?;
        Ok(())
    }

    /// Makes the directory a protected one under the profile `name`. What it is being made into
    /// is recorded in the keyring from the beginning.
    ///
    /// # Errors
    /// As [`Making::check`]; a provider refuses. Nothing is left behind.
    pub(crate) fn make(
        &self,
        place: &NewDirectory,
        name: &str,
        conversion: Option<Conversion>,
    ) -> Result<Made<'_>> {
        let (policy, layout) = self.check(place, name)?;
        let mut undo = Undo::default();
        let choice = self.choice(place, &mut undo)?;
        let recovery = if self.no_recovery { None } else { Some(RecoveryKey::random()?) };
        let provider = choice.open_new(&place.path, &self.new_passphrase())?;
        let mut providers: Vec<&dyn Provider> = vec![&*provider];
        providers.extend(recovery.as_ref().map(|key| -> &dyn Provider { key }));
        let mut keyring = Keyring::create(policy, layout, &providers)?;
        keyring.set_conversion(conversion);
        if let (Some(file), Some(key)) = (&self.recovery_file, &recovery) {
            place.refuse_inside(file)?;
            undo.file(write_recovery_key(file, key).map_err(|why| in_the_way(file, why))?);
        }
        let directory = place.make(&mut undo)?;
        let config = write_config(place, &keyring, &choice)?;
        if let Ok(config) = Entry::of(&config) {
            undo.file(config);
        }
        let folder = KeyringDir::create_in(&directory, &place.path)?;
        if let (None, Some(key)) = (&self.recovery_file, &recovery) {
            // Before there is a keyring that it opens: nobody else has it.
            show(key)?;
        }
        folder.write_first(&keyring)?;
        undo.forget();
        let path = place.path.clone();
        Ok(Made { keyring, folder, making: self, path, choice, provider, recovery, config })
    }

    fn new_passphrase(&self) -> New<'_> {
        New {
            descriptor: self.passphrase_fd.as_ref(),
            option: "--passphrase-fd",
            line: 0,
            instead_of: None,
            accept_weak: self.weak_passphrase,
        }
    }

    /// The provider; a key file that does not exist is made.
    fn choice(&self, place: &NewDirectory, undo: &mut Undo) -> Result<ProviderChoice> {
        let given = match &self.provider {
            Some(choice) => match choice.key_file() {
                Some(path) => std::path::absolute(path).map_err(Error::io("find", path))?,
                None => return Ok(choice.clone()),
            },
            None => place.default_key_file()?,
        };
        place.refuse_inside(&given)?;
        if given.symlink_metadata().is_err() {
            let owner = place.for_another().then_some(place.owner);
            undo.file(make_key_file(&given, owner)?);
        }
        Ok(ProviderChoice::file(given))
    }
}

/// The recovery key's file is made before the keyring, and is nobody's until that is there.
fn in_the_way(file: &Path, why: Error) -> Error {
    if !why.is(io::ErrorKind::AlreadyExists) {
        return why;
    }
    Error::refused(
        format!("the recovery key's file {} is there already", file.display()),
        "name another one; if a call that was cut off has left it, there is no keyring that it \
         opens: remove it",
    )
}

/// Whoever cannot see it gets no keyring.
fn show(key: &RecoveryKey) -> Result<()> {
    let text = zeroize::Zeroizing::new(format!(
        "recovery key  {}\n{:14}Write it down now: it is not shown again, and it opens the \
         keyring when the\n{:14}key is lost.\n",
        &*key.to_text(),
        "",
        ""
    ));
    console::print_for_sure(&text)
}

impl Made<'_> {
    /// What was made and what to keep; `next` is the command that comes next.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn tell(&self, next: &str) -> Result<()> {
        let dir = self.path.display();
        let mut text = String::new();
        let mut line = |label: &str, words: &dyn std::fmt::Display| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:<14}{words}");
        };
        line("protected", &dir);
        line("profile", &self.keyring.policy().profile());
        line("keyring", &self.keyring.id());
        self.tell_key(&mut line);
        line("provider in", &self.config.display());
        if let Some(file) = &self.making.recovery_file {
            line("recovery key", &file.display());
            line("", &"Take it off this machine: it opens the keyring when the key is lost.");
        }
        line("next", &next);
        line("", &format!("tidelock keyring backup -D {dir} FILE"));
        console::print(&text)?;
        for warning in self.provider.warnings() {
            console::warn(&warning, "docs/keys.md lists the providers");
        }
        if self.recovery.is_none() {
            console::warn(
                "there is no recovery key: when the key is lost, the data is lost",
                "keep a second copy of the key, on another machine",
            );
        }
        Ok(())
    }

    fn tell_key(&self, line: &mut dyn FnMut(&str, &dyn std::fmt::Display)) {
        match self.choice.key_file() {
            Some(path) => {
                let path: &Path = path;
                line("key file", &path.display());
                line(
                    "",
                    &"Copy it to a safe place that is not this disk: whoever has it and the disk",
                );
                line(
                    "",
                    &"reads the data, and without it only the recovery key opens the keyring.",
                );
            }
            None => {
                let key = self.choice.key_in_words().unwrap_or_else(|| self.provider.describe());
                line("key", &key);
            }
        }
    }
}
