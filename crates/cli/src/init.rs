//! `tidelock init`: makes an absent or empty directory a protected one.
//!
//! The keyring is written last: whatever fails before leaves nothing behind. Converting data that
//! exists is not this command's work.

mod auto;
mod nearby;
mod place;
mod undo;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use tidelock_keys::{
    CommandChoice, Config, FileProvider, Keyring, KeyringDir, Places, Policy, Profile, Provider,
    ProviderChoice, RecoveryKey,
};

pub(crate) use auto::{configured_owner, open_or_make};

use crate::console;
use crate::error::{Error, Result};
use crate::folder::{self, Entry};
use crate::init::place::Place;
use crate::init::undo::Undo;
use crate::owner::Owner;

/// Make an absent or empty directory a protected one, with a fresh keyring
#[derive(clap::Args)]
pub(crate) struct Init {
    /// The directory
    dir: PathBuf,
    /// What is sealed and how: postgres, generic, or the path of a profile
    #[arg(long, value_name = "PROFILE", default_value = "postgres")]
    profile: String,
    /// Where the principal key lives: file:PATH (made if it does not exist), passphrase, command:CMD, command (PGDATAKEYWRAPCMD, PGDATAKEYUNWRAPCMD), env:NAME, systemd:NAME, pkcs11:URI, aws-kms:KEY, vault:transit/KEY, vault:kv/PATH, kmip:SERVER/KEY?...
    /// [default: a key file in the caller's configuration]
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<ProviderChoice>,
    /// Read the passphrase from this open descriptor instead of the terminal
    #[arg(long, value_name = "N")]
    passphrase_fd: Option<u32>,
    /// Write the recovery key to this file instead of printing it
    #[arg(long, value_name = "FILE", conflicts_with = "no_recovery")]
    recovery_file: Option<PathBuf>,
    /// Make no recovery key
    #[arg(long)]
    no_recovery: bool,
    /// Print the recovery key though standard output is no terminal, but a pipe or a log
    #[arg(long, conflicts_with_all = ["no_recovery", "recovery_file"])]
    print_recovery: bool,
    /// A file that stays plain although the profile does not say so; may be given several times
    #[arg(long, value_name = "GLOB")]
    plain: Vec<String>,
    /// A program that gets keys besides those of the profile; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    program: Vec<String>,
    /// Whose directory it is, when root makes it [default: the owner of DIR, or of its parent]
    #[arg(long, value_name = "USER")]
    owner: Option<Owner>,
}

impl Init {
    /// # Errors
    /// DIR has something in it, the profile is none, a provider refuses.
    pub(crate) fn run(self) -> Result<()> {
        let _alone = place::lock(&self.dir)?;
        let place = Place::check(&self.dir, self.owner)?;
        let profile = profile(&self.profile)?;
        nearby::refuse_wrong_level(&place.path, &profile.name)?;
        let layout = profile.layout()?;
        let policy = Policy::compile(&profile, &self.plain, &self.program)
            .map_err(tidelock_keys::Error::from)?;
        if !self.no_recovery && self.recovery_file.is_none() {
            refuse_to_print_into_logs(
                self.print_recovery,
                "write it to a file with --recovery-file FILE, make none with --no-recovery, or say --print-recovery",
            )?;
        }
        let mut undo = Undo::default();
        let choice = self.choice(&place, &mut undo)?;
        let recovery = if self.no_recovery { None } else { Some(RecoveryKey::random()?) };
        let provider = tidelock_providers::open(&choice, &place.path, self.passphrase_fd)?;
        let mut providers: Vec<&dyn Provider> = vec![&*provider];
        providers.extend(recovery.as_ref().map(|key| -> &dyn Provider { key }));
        let keyring = Keyring::create(policy, layout, &providers)?;
        if let (Some(file), Some(key)) = (&self.recovery_file, &recovery) {
            place.refuse_inside(file)?;
            undo.file(write_recovery_key(file, key)?);
        }
        let directory = place.make(&mut undo)?;
        let config = write_config(&place, &keyring, &choice)?;
        if let Ok(config) = Entry::of(&config) {
            undo.file(config);
        }
        KeyringDir::create_in(&directory, &place.path)?.write_first(&keyring)?;
        undo.forget();
        self.tell(&place, &keyring, (&choice, &*provider), &config, recovery.as_ref())
    }

    /// The provider; a key file that does not exist is made.
    fn choice(&self, place: &Place, undo: &mut Undo) -> Result<ProviderChoice> {
        let given = match &self.provider {
            Some(ProviderChoice::File { path }) => {
                std::path::absolute(path).map_err(Error::io("find", path))?
            }
            Some(other) => return Ok(other.clone()),
            None => place.default_key_file()?,
        };
        place.refuse_inside(&given)?;
        if given.symlink_metadata().is_err() {
            let owner = place.for_another().then_some(place.owner);
            undo.file(make_key_file(&given, owner)?);
        }
        Ok(ProviderChoice::File { path: given })
    }

    fn tell(
        &self,
        place: &Place,
        keyring: &Keyring,
        (choice, provider): (&ProviderChoice, &dyn Provider),
        config: &Path,
        recovery: Option<&RecoveryKey>,
    ) -> Result<()> {
        let dir = place.path.display();
        let mut text = String::new();
        let mut line = |label: &str, words: &dyn std::fmt::Display| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:<14}{words}");
        };
        line("protected", &dir);
        line("profile", &keyring.policy().profile());
        line("keyring", &keyring.id());
        match choice {
            ProviderChoice::File { path } => {
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
            ProviderChoice::Passphrase {} => line("key", &"the passphrase"),
            ProviderChoice::Command(CommandChoice::Prints(command)) => {
                line("key", &format!("what `{command}` prints"))
            }
            _ => line("key", &provider.describe()),
        }
        line("provider in", &config.display());
        match (recovery, &self.recovery_file) {
            (Some(_), Some(file)) => {
                line("recovery key", &file.display());
                line("", &"Take it off this machine: it opens the keyring when the key is lost.");
            }
            (Some(key), None) => {
                line("recovery key", &*key.to_text());
                line(
                    "",
                    &"Write it down now: it is not shown again, and it opens the keyring when the",
                );
                line("", &"key is lost.");
            }
            (None, _) => {}
        }
        if keyring.policy().profile() == "postgres" {
            line("next", &format!("tidelock exec -D {dir} -- initdb -D {dir}"));
        } else {
            line("next", &format!("tidelock exec -D {dir} -- PROGRAM"));
        }
        line("", &format!("tidelock keyring backup -D {dir} FILE"));
        console::print(&text)?;
        drop(zeroize::Zeroizing::new(text));
        for warning in provider.warnings() {
            console::warn(&warning, "docs/keys.md lists the providers");
        }
        if recovery.is_none() {
            console::warn(
                "there is no recovery key: when the key is lost, the data is lost",
                "keep a second copy of the key, on another machine",
            );
        }
        Ok(())
    }
}

/// A recovery key opens the keyring for ever: it is not left in the log of a pipeline or of a unit by accident.
///
/// # Errors
/// [`Error::Refused`] unless standard output is a terminal, or `asked` says that it may be anything.
pub(crate) fn refuse_to_print_into_logs(asked: bool, hint: &str) -> Result<()> {
    if asked || std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Error::refused("the recovery key is printed on a terminal only, and there is none", hint))
}

/// A built-in profile, or the path of one, with a slash in it.
fn profile(name: &str) -> Result<Profile> {
    if !name.contains('/') {
        return Ok(Profile::builtin(name)?);
    }
    let text = std::fs::read_to_string(name).map_err(Error::io("read the profile", name))?;
    Ok(Profile::parse(&text)?)
}

/// Root, who makes it for another user, configures the machine; everybody else their own account.
fn write_config(place: &Place, keyring: &Keyring, choice: &ProviderChoice) -> Result<PathBuf> {
    let config = Config {
        directory: Some(place.path.clone()),
        providers: vec![choice.clone()],
        ..Config::default()
    };
    let mut places = Places::of_process();
    if place.for_another() {
        place::make_machine_folder(&places.system.join("keyrings"))?;
        places.own = Some(places.system.clone());
    }
    let path = places.write(keyring.id(), &config)?;
    if place.for_another() {
        place::open_to_all(&path, 0o644)?;
    }
    Ok(path)
}

/// Makes a key file, mode 0600, for `owner` if that is another user.
///
/// # Errors
/// [`Error::Io`], also if it exists; no randomness.
pub(crate) fn make_key_file(path: &Path, owner: Option<Owner>) -> Result<Entry> {
    let entry = Entry::of(path).map_err(named("create the key file", path))?;
    let mut file = entry.create().map_err(named("create the key file", path))?;
    let mut fill = || {
        FileProvider::fill(&mut file, path)?;
        if let Some(owner) = owner {
            folder::give(&file, owner).map_err(Error::io("chown", path))?;
        }
        entry.folder().sync()
    };
    let filled = fill();
    or_remove(entry, filled)
}

/// Writes a recovery key to a new file, mode 0600.
///
/// # Errors
/// [`Error::Io`], also if it exists.
pub(crate) fn write_recovery_key(path: &Path, key: &RecoveryKey) -> Result<Entry> {
    let entry = Entry::of(path).map_err(named("create the recovery key's file", path))?;
    let mut file = entry.create().map_err(named("create the recovery key's file", path))?;
    let written = file
        .write_all(key.to_text().as_bytes())
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .map_err(Error::io("write the recovery key to", path));
    let written = written.and_then(|()| entry.folder().sync());
    or_remove(entry, written)
}

fn or_remove(entry: Entry, written: Result<()>) -> Result<Entry> {
    match written {
        Ok(()) => Ok(entry),
        Err(why) => {
            let _ = entry.remove();
            Err(why)
        }
    }
}

/// The system's reason, told of the path as it was typed.
fn named(what: &'static str, path: &Path) -> impl FnOnce(Error) -> Error {
    let path = path.to_path_buf();
    move |why| match why {
        Error::Io { source, .. } => Error::Io { what, path, source },
        other => other,
    }
}
