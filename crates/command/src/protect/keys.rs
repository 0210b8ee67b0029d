//! The options of a new keyring, handed on to `tidelock encrypt` and `tidelock migrate` as they
//! were typed; and how a keyring is opened, for `tidelock decrypt`.

use std::io::PipeReader;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_providers::{Descriptor, ProviderChoice};

use crate::error::{Error, Result};
use crate::init::refuse_to_print_into_logs;
use crate::unlock::{KeyOptions, opens_by_itself};

/// Files in it are gone after a restart (statfs(2)).
const TMPFS: i64 = 0x0102_1994;

/// The keys of the protected directory
#[derive(clap::Args)]
#[command(next_help_heading = "Keys")]
pub(super) struct Keys {
    #[arg(long, value_name = "PROVIDER", value_parser = checked, help = format!(
        "Where the principal key lives: {}. A key file that does not exist is made \
         [default: a key file in the caller's configuration]",
        ProviderChoice::usage()
    ))]
    provider: Option<String>,
    /// Take a passphrase although it is easy to guess
    #[arg(long)]
    weak_passphrase: bool,
    /// Write the recovery key to this file instead of printing it
    #[arg(long, value_name = "FILE", conflicts_with = "no_recovery")]
    pub(super) recovery_file: Option<PathBuf>,
    /// Make no recovery key
    #[arg(long)]
    no_recovery: bool,
    /// Print the recovery key although standard output is a pipe or a log, not a terminal
    #[arg(long, conflicts_with_all = ["no_recovery", "recovery_file"])]
    print_recovery: bool,
    /// Where the second copy of the keyring goes: on another disk, or on its way to one
    #[arg(long, value_name = "FILE")]
    pub(super) keyring_copy: Option<PathBuf>,
    /// Make no second copy of the keyring now
    #[arg(long, conflicts_with = "keyring_copy")]
    no_keyring_copy: bool,
    /// A file that stays plain although the profile does not say so; may be given several times
    #[arg(long, value_name = "GLOB")]
    plain: Vec<String>,
    /// A program that gets keys besides those of the profile; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// How to open the keyring, if not as configured
#[derive(clap::Args)]
#[command(next_help_heading = "Keys")]
pub(super) struct Opening {
    #[arg(long, value_name = "PROVIDER", value_parser = checked, help = format!(
        "Open the keyring with this provider: {}", ProviderChoice::usage()
    ))]
    provider: Option<String>,
    /// Open the keyring with the recovery key that this file holds
    #[arg(long, value_name = "FILE", conflicts_with = "provider")]
    recovery_file: Option<PathBuf>,
    /// Read the passphrase from this open descriptor instead of the terminal; several passphrases,
    /// a line each
    #[arg(long, value_name = "N")]
    passphrase_fd: Option<Descriptor>,
    /// Where a copy of the keyring goes, which opens sealed backups and archives still [default:
    /// beside the configuration of the keyring]
    #[arg(long, value_name = "FILE")]
    pub(super) keep_keyring: Option<PathBuf>,
}

fn checked(text: &str) -> std::result::Result<String, String> {
    let parsed: std::result::Result<ProviderChoice, _> = text.parse();
    parsed.map(|_| text.to_owned()).map_err(|why| why.to_string())
}

impl Keys {
    /// Whatever would refuse later, or leave a server that does not come back.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn check(&self, dir: &Path, unit: bool) -> Result<()> {
        if !self.no_recovery && self.recovery_file.is_none() {
            refuse_to_print_into_logs(
                self.print_recovery,
                "write it to a file with --recovery-file FILE, make none with --no-recovery, or \
                 say --print-recovery",
            )?;
        }
        match &self.keyring_copy {
            None if !self.no_keyring_copy => {
                return Err(Error::refused(
                    "no second copy of the keyring is named: when DIR/.tidelock is lost, the data \
                     is lost",
                    "name a file on another disk with --keyring-copy FILE, or say \
                     --no-keyring-copy",
                ));
            }
            Some(file) => refuse_inside(file, dir)?,
            None => {}
        }
        if let Some(file) = &self.recovery_file {
            refuse_inside(file, dir)?;
        }
        let Some(choice) = self.choice() else { return Ok(()) };
        let passing = choice.kind().slot.name() == "env";
        if unit {
            refuse_for_units(&choice)?;
        }
        if !passing && !choice.is_unattended() && !tidelock_providers::has_terminal() {
            return Err(Error::refused(
                "this provider needs a person, and there is no terminal to ask on: the server \
                 would be stopped, and nothing sealed",
                "run it on a terminal, or name a provider that opens by itself: file, command, \
                 systemd, vault ... (docs/keys.md)",
            ));
        }
        refuse_in_memory(&choice)
    }

    /// What the first call makes would take the place of what is another keyring's.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_existing(&self) -> Result<()> {
        let mut files = self.recovery_file.iter().chain(&self.keyring_copy);
        match files.find(|file| file.symlink_metadata().is_ok()) {
            None => Ok(()),
            Some(file) => Err(Error::refused(
                format!("{} is there already", file.display()),
                "name a new file: what another keyring needs is never overwritten",
            )),
        }
    }

    /// True if somebody has to open the keyring at each start.
    pub(super) fn need_a_person(&self) -> bool {
        self.choice().is_some_and(|choice| !choice.is_unattended())
    }

    fn choice(&self) -> Option<ProviderChoice> {
        self.provider.as_deref().and_then(|text| text.parse().ok())
    }

    /// As they were typed.
    pub(super) fn pass(&self, command: &mut Command) -> Result<()> {
        if let Some(provider) = &self.provider {
            command.args(["--provider", provider]);
        }
        if let Some(file) = &self.recovery_file {
            command.arg("--recovery-file").arg(absolute(file)?);
        }
        for (said, option) in [
            (self.no_recovery, "--no-recovery"),
            (self.print_recovery, "--print-recovery"),
            (self.weak_passphrase, "--weak-passphrase"),
        ] {
            if said {
                command.arg(option);
            }
        }
        for glob in &self.plain {
            command.args(["--plain", glob]);
        }
        for program in &self.program {
            command.args(["--program", program]);
        }
        Ok(())
    }
}

impl Opening {
    /// For this process.
    ///
    /// # Errors
    /// [`Error::Usage`] for standard input, which is read twice.
    pub(super) fn options(&self) -> Result<KeyOptions> {
        if self.recovery_file.as_deref() == Some(Path::new("-")) {
            return Err(Error::usage(
                "the recovery key is read twice, and standard input gives it once",
                "name a file with --recovery-file FILE",
            ));
        }
        Ok(KeyOptions {
            provider: self.provider.as_deref().and_then(|text| text.parse().ok()),
            recovery_file: self.recovery_file.clone(),
            passphrase_fd: self.passphrase_fd.clone(),
            ..KeyOptions::default()
        })
    }

    /// As they were typed; the pipe has the passphrase, and is kept until the command has ended.
    pub(super) fn pass(&self, command: &mut Command) -> Result<Option<PipeReader>> {
        if let Some(provider) = &self.provider {
            command.args(["--provider", provider]);
        }
        if let Some(file) = &self.recovery_file {
            command.arg("--recovery-file").arg(absolute(file)?);
        }
        if let Some(file) = &self.keep_keyring {
            command.arg("--keep-keyring").arg(absolute(file)?);
        }
        let pipe = self.passphrase_fd.as_ref().map(Descriptor::hand_on).transpose()?;
        if let Some(pipe) = &pipe {
            command.args(["--passphrase-fd", &pipe.as_raw_fd().to_string()]);
        }
        Ok(pipe)
    }
}

/// Refuses a provider with which the server of a unit would not come back after a restart of the
/// machine.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_for_units(choice: &ProviderChoice) -> Result<()> {
    if !opens_by_itself(choice) {
        return Err(Error::refused(
            "this provider needs a person, or what only this shell has: the server would not \
             come back after a restart of the machine",
            "name one that opens by itself: file, command, systemd, vault ... (docs/keys.md)",
        ));
    }
    refuse_in_memory(choice)
}

fn refuse_in_memory(choice: &ProviderChoice) -> Result<()> {
    let Some(file) = choice.key_file() else { return Ok(()) };
    let file = absolute(file)?;
    let folder = file.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let found =
        rustix::fs::statfs(folder).map_err(|errno| Error::io("look at", folder)(errno.into()))?;
    if found.f_type != TMPFS {
        return Ok(());
    }
    Err(Error::refused(
        format!("{} lies in memory: it is gone after a restart", file.display()),
        "name a key file on a disk that is not the data's",
    ))
}

/// As it is found from any directory.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io("find", path))
}

fn refuse_inside(file: &Path, dir: &Path) -> Result<()> {
    let file = std::path::absolute(file).map_err(Error::io("find", file))?;
    let folder = file.parent().unwrap_or(&file);
    let folder = folder.canonicalize().map_err(Error::io("find", folder))?;
    if folder.starts_with(dir) {
        return Err(Error::refused(
            format!("{} lies inside the directory", file.display()),
            "name a file on another disk",
        ));
    }
    Ok(())
}
