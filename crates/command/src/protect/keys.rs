//! The options of a new keyring, handed on to `tidelock encrypt` and `tidelock migrate` as they
//! were typed; and how a keyring is opened, for `tidelock decrypt`.

use std::io::{PipeReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_providers::{Descriptor, ProviderChoice};

use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::init::refuse_to_print_into_logs;
use crate::service;
use crate::unlock::{KeyOptions, descriptor, opens_by_itself};

/// Files in it are gone after a restart (statfs(2)).
const TMPFS: i64 = 0x0102_1994;
/// No keyring of a few slots and keys is larger.
const SAMPLE: usize = 64 << 10;

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
    #[arg(long, value_name = "N", value_parser = descriptor)]
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
    pub(super) fn check(&self, dir: &Path, unit: Option<&str>) -> Result<()> {
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
        if let (Some(copy), Some(recovery)) = (&self.keyring_copy, &self.recovery_file)
            && real(copy)? == real(recovery)?
        {
            return Err(Error::refused(
                format!("{} is named for the keyring and for the recovery key", copy.display()),
                "name two files: the copy of the keyring is written when all is sealed",
            ));
        }
        if let Some(file) = &self.keyring_copy {
            try_place(file)?;
        }
        let Some(choice) = self.choice() else { return Ok(()) };
        let passing = choice.kind().slot.name() == "env";
        if !passing {
            refuse_of_this_shell(&choice)?;
        }
        if let Some(unit) = unit {
            refuse_for_units(&choice, unit, dir)?;
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

    /// A server of MariaDB or MySQL that this command starts has no terminal, and would stay down.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_persons(&self) -> Result<()> {
        match self.choice() {
            Some(choice) if choice.kind().slot.name() != "env" && !choice.is_unattended() => {
                Err(Error::refused(
                    "a server of MariaDB or MySQL that this command starts cannot ask a person for \
                     a passphrase",
                    "name a provider that opens by itself: file, command, systemd, vault ... \
                     (docs/keys.md); or stop the server first, and start it by `tidelock exec`",
                ))
            }
            _ => Ok(()),
        }
    }

    /// What the first call makes would take the place of what is another keyring's.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_existing(&self) -> Result<()> {
        let mut files = self.recovery_file.iter().chain(&self.keyring_copy);
        files.try_for_each(|file| refuse_taken(file))
    }

    /// Where a call that goes on writes the second copy, if it says so: the place that was named
    /// `before` may be gone.
    ///
    /// # Errors
    /// As [`Keys::check`] and [`Keys::refuse_existing`], for another place than before.
    pub(super) fn copy_instead(
        &self,
        before: Option<PathBuf>,
        dir: &Path,
    ) -> Result<Option<PathBuf>> {
        let Some(file) = &self.keyring_copy else {
            return Ok(before.filter(|_| !self.no_keyring_copy));
        };
        let file = absolute(file)?;
        if before.as_ref() != Some(&file) {
            refuse_inside(&file, dir)?;
            refuse_taken(&file)?;
            try_place(&file)?;
        }
        Ok(Some(file))
    }

    /// What cannot change once there is a keyring, as it is passed on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn words(&self) -> Result<Vec<String>> {
        let mut command = Command::new("tidelock");
        self.pass(&mut command)?;
        Ok(command.get_args().map(|word| word.to_string_lossy().into_owned()).collect())
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

/// Refuses a provider with which the server of a unit on `dir` would not come back after a restart
/// of the machine.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_for_units(choice: &ProviderChoice, unit: &str, dir: &Path) -> Result<()> {
    if choice.kind().slot.name() != "env" {
        refuse_of_this_shell(choice)?;
    }
    if !opens_by_itself(choice) {
        return Err(Error::refused(
            "this provider needs a person, or what only this shell has: the server would not \
             come back after a restart of the machine",
            "name one that opens by itself: file, command, systemd, vault ... (docs/keys.md)",
        ));
    }
    refuse_in_memory(choice)?;
    service::refuse_unopened(unit, dir, Some(choice))
}

/// The configuration keeps no token: the server would be sealed, and would not start.
fn refuse_of_this_shell(choice: &ProviderChoice) -> Result<()> {
    if !choice.is_of_this_shell() {
        return Ok(());
    }
    Err(Error::refused(
        "this provider opens with VAULT_TOKEN of this shell, which no configuration keeps: the \
         server would be sealed, and would not start",
        "have the token in ~/.vault-token of the server's user and VAULT_TOKEN unset, or name \
         `token_file` or `approle` in the configuration (docs/keys.md)",
    ))
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
    let file = real(file)?;
    if file.starts_with(dir) {
        return Err(Error::refused(
            format!("{} lies inside the directory", file.display()),
            "name a file on another disk",
        ));
    }
    Ok(())
}

/// The path of a file that is to be made, without links above it. The folder must be there, and a
/// link in the file's own place is not followed: it is in the way (`refuse_taken`).
fn real(file: &Path) -> Result<PathBuf> {
    let file = absolute(file)?;
    let folder = file.parent().unwrap_or(&file);
    let folder = folder.canonicalize().map_err(Error::io("find", folder))?;
    Ok(file.file_name().map_or_else(|| folder.clone(), |name| folder.join(name)))
}

fn refuse_taken(file: &Path) -> Result<()> {
    match file.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => Err(Error::refused(
            format!("{} is there already", file.display()),
            "name a new file: what another keyring needs is never overwritten",
        )),
    }
}

/// Writes as much as a keyring may need where its copy goes, and takes it away: the copy itself is
/// written when all is sealed, and the server is down.
fn try_place(file: &Path) -> Result<()> {
    let entry = Entry::of(&absolute(file)?)?;
    if entry.exists()? {
        return Ok(());
    }
    let written = entry.create_whole(|made| {
        made.write_all(&[0; SAMPLE]).map_err(Error::io("write", entry.path()))
    });
    written.and_then(|()| entry.remove())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn keys(copy: Option<&Path>, recovery: Option<&Path>) -> Keys {
        Keys {
            provider: None,
            weak_passphrase: false,
            recovery_file: recovery.map(Path::to_path_buf),
            no_recovery: recovery.is_none(),
            print_recovery: false,
            keyring_copy: copy.map(Path::to_path_buf),
            no_keyring_copy: copy.is_none(),
            plain: Vec::new(),
            program: Vec::new(),
        }
    }

    #[test]
    fn a_place_where_no_copy_can_be_written_is_found_before_the_server_stops() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap();
        let (data, media) = (dir.join("data"), dir.join("media"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&media).unwrap();
        let check = |copy: &Path, recovery: Option<&Path>| {
            let judged = keys(Some(copy), recovery).check(&data, None);
            judged.map_err(|why| why.to_string())
        };
        assert_eq!(check(&media.join("copy"), None), Ok(()));
        assert_eq!(fs::read_dir(&media).unwrap().count(), 0);
        for nowhere in ["/proc/tidelock-copy", "/proc/self/no/copy"] {
            assert!(check(Path::new(nowhere), None).is_err(), "{nowhere}");
        }
        std::os::unix::fs::symlink(&media, dir.join("link")).unwrap();
        let (copy, recovery) = (media.join("one"), dir.join("link/one"));
        let why = check(&copy, Some(&recovery)).unwrap_err();
        assert!(why.contains("is named for the keyring and for the recovery key"), "{why}");
        assert_eq!(check(&copy, Some(&media.join("two"))), Ok(()));
    }

    /// It would be started without a terminal, when all is sealed.
    #[test]
    fn a_provider_that_asks_a_person_is_refused_where_the_server_could_not_be_started() {
        let of = |provider: &str| Keys { provider: Some(provider.into()), ..keys(None, None) };
        let why = of("passphrase").refuse_persons().unwrap_err();
        assert!(why.exit_code() == 3 && why.to_string().contains("cannot ask a person"), "{why}");
        for alone in ["file:/srv/key", "env:NAME"] {
            of(alone).refuse_persons().unwrap();
        }
        keys(None, None).refuse_persons().unwrap();
    }

    #[test]
    fn the_second_copy_goes_where_the_last_call_says() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap();
        let (data, old, new) = (dir.join("data"), dir.join("no/old"), dir.join("new"));
        fs::create_dir(&data).unwrap();
        let instead = |typed: &Keys| typed.copy_instead(Some(old.clone()), &data);
        assert_eq!(instead(&keys(Some(&new), None)).unwrap(), Some(new.clone()));
        // The first call's own copy may be there.
        assert_eq!(instead(&keys(Some(&old), None)).unwrap(), Some(old.clone()));
        assert_eq!(instead(&keys(None, None)).unwrap(), None);
        let says_nothing = Keys { no_keyring_copy: false, ..keys(None, None) };
        assert_eq!(instead(&says_nothing).unwrap(), Some(old.clone()));
        fs::write(&new, "another keyring's").unwrap();
        assert!(matches!(instead(&keys(Some(&new), None)), Err(Error::Refused { .. })));
        assert!(matches!(instead(&keys(Some(&data.join("x")), None)), Err(Error::Refused { .. })));
    }
}
