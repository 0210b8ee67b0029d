//! Which provider opens which keyring: `keyrings/ID.toml` in /etc/tidelock or in the caller's
//! configuration.
//!
//! Never taken from the protected directory: whoever can write the disk must not choose what runs
//! at unlock. Files of /etc must be root's, the caller's own must be readable by nobody else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidelock_format::KeyringId;

use crate::choice::ProviderChoice;
use crate::error::Error;
use crate::ownership::{self, Audience};

/// A configuration file is no longer.
const MAX: u64 = 64 * 1024;

/// What one `ID.toml` says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the protected directory was when this was written; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Listed programs get keys even if the user of the server can replace them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_writable_programs: bool,
    /// Where the audit log is, if not where it is by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditTarget>,
    /// How long a data key should seal new files, in days; `tidelock status` warns after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cryptoperiod_days: Option<u32>,
    /// Tried in this order.
    #[serde(rename = "provider", default)]
    pub providers: Vec<ProviderChoice>,
}

/// `audit = "file:PATH"` or `audit = "journal"`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AuditTarget {
    /// The chain is in this file.
    File(PathBuf),
    /// Each line goes to systemd's journal too.
    Journal,
}

impl TryFrom<String> for AuditTarget {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.strip_prefix("file:").map(PathBuf::from) {
            Some(path) if path.is_absolute() => Ok(Self::File(path)),
            None if text == "journal" => Ok(Self::Journal),
            _ => Err("audit is \"file:PATH\", an absolute path, or \"journal\""),
        }
    }
}

impl From<AuditTarget> for String {
    fn from(target: AuditTarget) -> Self {
        match target {
            AuditTarget::File(path) => format!("file:{}", path.display()),
            AuditTarget::Journal => "journal".to_owned(),
        }
    }
}

/// The two folders that are searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Root's: /etc/tidelock.
    pub system: PathBuf,
    /// The caller's: $XDG_CONFIG_HOME/tidelock or $HOME/.config/tidelock.
    pub own: Option<PathBuf>,
}

impl Places {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let own = absolute("XDG_CONFIG_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".config")))
            .map(|base| base.join("tidelock"));
        Self { system: PathBuf::from("/etc/tidelock"), own }
    }

    /// What is configured for a keyring: root's file, else the caller's own.
    ///
    /// # Errors
    /// [`Error::LooseFile`], [`Error::ConfigSyntax`], [`Error::Io`]; a file that is not there is
    /// none.
    pub fn find(&self, keyring: KeyringId) -> Result<Option<Config>, Error> {
        if let Some(found) = read(&file(&self.system, keyring), Audience::RootWrites)? {
            return Ok(Some(found));
        }
        match &self.own {
            Some(own) => read(&file(own, keyring), Audience::OwnerOnly),
            None => Ok(None),
        }
    }

    /// Adds a provider behind those that are configured for a keyring, in the file that is in force,
    /// unless it is there already; that file. What people wrote into it stays.
    ///
    /// # Errors
    /// As [`Places::find`] and [`Places::write`].
    pub fn add_provider(
        &self,
        keyring: KeyringId,
        choice: &ProviderChoice,
    ) -> Result<PathBuf, Error> {
        let system = file(&self.system, keyring);
        let path = match (read(&system, Audience::RootWrites)?, &self.own) {
            (Some(_), _) => system,
            (None, Some(own)) => file(own, keyring),
            (None, None) => return Err(Error::NoConfigHome),
        };
        let syntax = |why: String| Error::ConfigSyntax { path: path.clone(), why };
        let Some(config) = self.find(keyring)? else {
            let config = Config { providers: vec![choice.clone()], ..Config::default() };
            return self.write(keyring, &config);
        };
        if config.providers.contains(choice) {
            return Ok(path);
        }
        let added = Config { providers: vec![choice.clone()], ..Config::default() };
        let entry = toml::to_string(&added).map_err(|why| syntax(why.to_string()))?;
        let mut text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        text = format!("{}\n\n{entry}", text.trim_end());
        // What cannot be read again must not replace what can.
        let again: Config = toml::from_str(&text).map_err(|why| syntax(why.to_string()))?;
        if again.providers.last() != Some(choice) {
            return Err(syntax("a provider cannot be added behind its last line".into()));
        }
        replace_whole(&path, &text).map_err(Error::io("write", &path))?;
        Ok(path)
    }

    /// Writes the caller's own file for a keyring, mode 0600, and says where.
    ///
    /// # Errors
    /// [`Error::NoConfigHome`], [`Error::Io`].
    pub fn write(&self, keyring: KeyringId, config: &Config) -> Result<PathBuf, Error> {
        let path = file(self.own.as_ref().ok_or(Error::NoConfigHome)?, keyring);
        let text = toml::to_string(config)
            .map_err(|why| Error::ConfigSyntax { path: path.clone(), why: why.to_string() })?;
        let next = path.with_extension("toml.new");
        write_whole(&path, &next, &text).map_err(Error::io("write", &path))?;
        Ok(path)
    }
}

fn file(place: &Path, keyring: KeyringId) -> PathBuf {
    place.join("keyrings").join(format!("{keyring}.toml"))
}

fn read(path: &Path, audience: Audience) -> Result<Option<Config>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        // Root's folder may be closed to others: then it says nothing to them.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { what: "open", path: path.into(), source }),
    };
    ownership::check(&file, path, audience)?;
    for folder in path.ancestors().skip(1).take(2) {
        ownership::check_folder(folder, audience)?;
    }
    let mut text = String::new();
    file.take(MAX + 1).read_to_string(&mut text).map_err(Error::io("read", path))?;
    if text.len() as u64 > MAX {
        // Cut at its end it could mean something else.
        let why = format!("it is longer than {MAX} bytes");
        return Err(Error::ConfigSyntax { path: path.into(), why });
    }
    toml::from_str(&text)
        .map(Some)
        .map_err(|why| Error::ConfigSyntax { path: path.into(), why: why.to_string() })
}

fn write_whole(path: &Path, next: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let text = format!("# Which provider opens this keyring. Written by tidelock.\n{text}");
    write_then_rename(path, next, &text, |_| Ok(()))
}

/// A file that exists, with the same owner and mode.
fn replace_whole(path: &Path, text: &str) -> io::Result<()> {
    let old = fs::metadata(path)?;
    write_then_rename(path, &path.with_extension("toml.new"), text, |file| {
        if rustix::process::geteuid().is_root() {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())
    })
}

fn write_then_rename(
    path: &Path,
    next: &Path,
    text: &str,
    dress: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(next)?;
    file.write_all(text.as_bytes())?;
    dress(&file)?;
    file.sync_all()?;
    fs::rename(next, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ID: KeyringId = KeyringId([7; 16]);

    fn places() -> (tempfile::TempDir, Places) {
        let home = tempfile::tempdir().unwrap();
        let places = Places { system: home.path().join("etc"), own: Some(home.path().join("own")) };
        (home, places)
    }

    fn config() -> Config {
        Config {
            directory: Some("/data/pg".into()),
            allow_writable_programs: false,
            audit: Some(AuditTarget::File("/log/pg".into())),
            cryptoperiod_days: None,
            providers: vec![
                "file:/keys/pg.key".parse().unwrap(),
                "passphrase".parse().unwrap(),
                "command:get-key --for %p".parse().unwrap(),
            ],
        }
    }

    #[test]
    fn what_init_writes_is_found_again() {
        let (_home, places) = places();
        assert_eq!(places.find(ID).unwrap(), None);
        let path = places.write(ID, &config()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(places.find(ID).unwrap(), Some(config()));
        assert_eq!(places.find(KeyringId([8; 16])).unwrap(), None);
    }

    #[test]
    fn a_provider_is_added_behind_what_people_wrote() {
        let (_home, places) = places();
        let path = places.write(ID, &config()).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("# the one in the safe\n");
        fs::write(&path, &text).unwrap();
        let new: ProviderChoice = "file:/keys/new.key".parse().unwrap();
        for _ in 0..2 {
            assert_eq!(places.add_provider(ID, &new).unwrap(), path);
        }
        let found = places.find(ID).unwrap().unwrap();
        assert_eq!(found.providers.len(), config().providers.len() + 1);
        assert_eq!(found.providers.last(), Some(&new));
        assert!(fs::read_to_string(&path).unwrap().starts_with(text.trim_end()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_configuration_that_others_can_change_is_refused() {
        let (_home, places) = places();
        let path = places.write(ID, &config()).unwrap();
        for mode in [0o644, 0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(places.find(ID), Err(Error::LooseFile { .. })), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let folder = path.parent().unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(places.find(ID), Err(Error::LooseFile { .. })));
    }

    #[test]
    fn roots_file_comes_first_and_must_be_roots() {
        let (_home, places) = places();
        places.write(ID, &config()).unwrap();
        let folder = places.system.join("keyrings");
        DirBuilder::new().recursive(true).mode(0o755).create(&folder).unwrap();
        let path = file(&places.system, ID);
        fs::write(&path, "[[provider]]\ntype = \"passphrase\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let found = places.find(ID);
        if rustix::process::geteuid().is_root() {
            assert_eq!(found.unwrap().unwrap().providers, [ProviderChoice::Passphrase {}]);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
            assert!(matches!(places.find(ID), Err(Error::LooseFile { .. })));
        } else {
            assert!(matches!(found, Err(Error::LooseFile { .. })));
        }
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let (_home, places) = places();
        let path = places.write(ID, &config()).unwrap();
        for text in [
            "[[provider]]\ntype = \"file\"\npaht = \"/x\"\n",
            "[[provider]]\ntype = \"vualt\"\n",
            "allow_writable_programs = \"yes\"\n",
            "audit = \"file:relative\"\n",
            "audit = \"jornal\"\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(matches!(places.find(ID), Err(Error::ConfigSyntax { .. })), "{text}");
        }
    }
}
