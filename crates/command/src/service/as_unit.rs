//! This program as a unit runs `service unlock`: with what systemd gives it, and nothing of the
//! caller's shell, such as credentials of a key service or another home.

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use tidelock_keyring::{Keyring, SealedKeyring};
use tidelock_providers::{Config, ProviderChoice};

use crate::console;
use crate::error::{Error, Result};
use crate::mysqld;
use crate::profile;
use crate::protected::Protected;
use crate::run_as::run;
use crate::this_program;
use crate::unlock;

/// How the output looks; and the credentials of a service that runs this, which the unit has too.
const KEPT: [&str; 6] = ["LANG", "LC_ALL", "COLUMNS", "NO_COLOR", "TERM", CREDENTIALS];
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Of systemd, where it does not say another.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Open the keyring of a directory, or a new one; run by install and protect as the unit would
#[derive(clap::Args)]
pub(crate) struct Try {
    /// The directory
    dir: PathBuf,
    /// A new keyring, by the provider that standard input names as a file of configuration does
    #[arg(long)]
    new: bool,
}

impl Try {
    /// # Errors
    /// It does not open.
    pub(super) fn run(&self) -> Result<()> {
        if !self.new {
            let protected = Protected::open(&self.dir)?;
            let config = unlock::to_open(&protected.keyring, &protected.path, protected.owner)?;
            return unlock::unattended(&protected, &config).map(drop);
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(Error::io("read", "standard input"))?;
        let config: Config = toml::from_str(&text)
            .map_err(|why| Error::usage(why.to_string(), "name a provider"))?;
        let profile = profile::named("generic")?;
        let policy = profile.compile(&[], &[]).map_err(tidelock_keyring::Error::from)?;
        for choice in &config.providers {
            let provider = choice.open(&self.dir, None)?;
            let keyring = Keyring::create(policy.clone(), profile.layout()?, &[&*provider])?;
            SealedKeyring::parse(&keyring.seal()?)?.unlock(&*provider)?;
        }
        Ok(())
    }
}

/// This program, as the unit would run it.
///
/// # Errors
/// Its path cannot be read.
pub(crate) fn command(unit: &str) -> Result<Command> {
    let mut command = Command::new(this_program::path()?);
    command.env_clear().env("PATH", PATH).stdin(Stdio::null());
    command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let mut given = mysqld::variables(unit);
    // As `service unlock` takes them away.
    for name in ["LD_PRELOAD", "TIDELOCK_AGENT"] {
        given.remove(name);
    }
    if let Some(home) = this_program::missing_home(given.get("HOME").map(OsStr::new)) {
        command.env("HOME", home);
    }
    command.envs(given);
    Ok(command)
}

/// Has the unit's own way open the keyring of `dir`, or with `new` one that is thrown away. A key
/// file that is made later opens what it is made for.
///
/// # Errors
/// [`Error::Refused`]: it does not open.
pub(crate) fn refuse_unopened(unit: &str, dir: &Path, new: Option<&ProviderChoice>) -> Result<()> {
    let is_made_later = |path: &Path| path.symlink_metadata().is_err();
    if new.and_then(|choice| choice.key_file()).is_some_and(is_made_later) {
        return Ok(());
    }
    let mut command = command(unit)?;
    command.args(["service", "try"]).arg(dir);
    if let Some(choice) = new {
        // As it is written: an address of the caller's environment is, a token is not.
        let config = Config { providers: vec![choice.clone()], ..Config::default() };
        let text = toml::to_string(&config)
            .map_err(|why| Error::usage(why.to_string(), "name another provider"))?;
        command.arg("--new").stdin(of_text(&text)?);
    }
    let Err(why) = run(command) else { return Ok(()) };
    let said = match &why {
        Error::Tool { said, .. } => {
            // Behind what a command of the provider says.
            let said = said.rsplit_once("error: ").map_or(&**said, |(_, said)| said);
            said.split_once("; hint: ").map_or(said, |(said, _)| said).to_owned()
        }
        other => other.to_string(),
    };
    Err(Error::refused(
        format!("{unit} would not come back: {said}"),
        format!(
            "systemd gives it nothing of this shell: name files and addresses in the provider, \
             keep what lies in a home in that of root, or set Environment= by `systemctl edit \
             {unit}`"
        ),
    ))
}

/// As [`refuse_unopened`] of a directory that is protected, told as a warning. What only a
/// credential of the unit opens cannot be tried without that.
pub(super) fn warn_unopened(unit: &str, dir: &Path, config: &Config) {
    if !waits_for_a_credential(config)
        && let Err(Error::Refused { what, hint }) = refuse_unopened(unit, dir, None)
    {
        console::warn(what, hint);
    }
}

/// systemd hands a credential to units alone.
pub(super) fn waits_for_a_credential(config: &Config) -> bool {
    let is_one = |choice: &ProviderChoice| choice.kind().slot.name() == "systemd";
    std::env::var_os(CREDENTIALS).is_none() && config.providers.iter().any(is_one)
}

fn of_text(text: &str) -> Result<Stdio> {
    let failed = || Error::io("make", "a file in memory");
    let mut file: std::fs::File = memfd_create("provider", MemfdFlags::CLOEXEC)
        .map_err(|errno| failed()(errno.into()))?
        .into();
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).map_err(failed())?;
    Ok(file.into())
}
