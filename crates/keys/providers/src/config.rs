//! Which provider opens which keyring: `keyrings/ID.toml` or `NAME.toml`, in /etc/tidelock or in
//! the caller's configuration.
//!
//! ```text
//!   /etc/tidelock/keyrings/ID.toml     by the keyring's id; helpers of NAME.toml are added
//!   /etc/tidelock/NAME.toml            by its directory: named
//!   the caller's keyrings/ID.toml, then the caller's NAME.toml
//! ```
//!
//! Never taken from the protected directory: whoever can write the disk must not choose what runs
//! at unlock. Files of /etc must be root's, the caller's own must be readable by nobody else.

mod named;
mod tables;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidelock_format::KeyringId;
use tidelock_keyring::Error;

use crate::ProviderChoice;
use crate::trust::{self, Audience};
pub use named::Named;

/// A configuration file is no longer.
const MAX: u64 = 64 * 1024;

/// What one `ID.toml` or `NAME.toml` says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Of `NAME.toml`: the protected directory. Of `ID.toml`: where it was when this was written;
    /// for its owner alone root opens the keyring by this file ([`Places::find_for`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Of `NAME.toml` alone, as are the next five: the directory is made by itself, with a fresh
    /// keyring, when it is absent or empty.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_init: bool,
    /// Its profile: a built-in one, or the path of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Its owner when root makes it, by name or number; else the owner of the directory above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where its recovery key is written, as `KEYRING.recovery`; without it, it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_folder: Option<PathBuf>,
    /// Globs that stay plain in it although the profile does not say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plain: Vec<String>,
    /// Programs that get keys in it although the profile does not list them: names, or absolute
    /// paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// Programs, by absolute path, that get keys though the policy does not list them; root's files
    /// alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<PathBuf>,
    /// Listed programs get keys even if the user of the server can replace them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_writable_programs: bool,
    /// Programs that have keys may leave core files, which hold plain pages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub core_dumps: bool,
    /// Where the audit log is, if not where it is by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditTarget>,
    /// How long a data key should seal new files, in days; `tidelock status` warns after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cryptoperiod_days: Option<u32>,
    /// `[keyring]`: what commands that change the keyring do for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyring: Option<KeyringCare>,
    /// Tried in this order.
    #[serde(rename = "provider", default)]
    pub providers: Vec<ProviderChoice>,
}

/// What `[keyring]` says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyringCare {
    /// Where each command that changes the keyring writes a copy of it: an absolute path.
    pub copy: PathBuf,
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

    /// What is configured for a keyring, whose directory is `dir`: root's file for its id, root's
    /// for its directory, the caller's own in the same order. Helpers come from both of root's
    /// files.
    ///
    /// # Errors
    /// [`Error::LooseFile`], [`Error::LooseShared`], [`Error::ConfigSyntax`], [`Error::Io`]; a file
    /// that is not there is none.
    pub fn find(&self, keyring: KeyringId, dir: &Path) -> Result<Option<Config>, Error> {
        Ok(self.in_force(keyring, dir)?.map(|(_, config)| config))
    }

    /// As [`Places::find`], for root, who opens a keyring for the user `owner` of `dir`: the file
    /// must be for that user, by the directory that it records.
    ///
    /// # Errors
    /// As [`Places::find`]; [`Error::ConfigOfAnother`].
    pub fn find_for(
        &self,
        owner: u32,
        keyring: KeyringId,
        dir: &Path,
    ) -> Result<Option<Config>, Error> {
        let Some((path, config)) = self.in_force(keyring, dir)? else { return Ok(None) };
        refuse_for_another(&config, &path, dir, owner)?;
        Ok(Some(config))
    }

    /// What root's configuration says, as far as this user may read it; what cannot be trusted adds
    /// nobody.
    #[must_use]
    pub fn helpers(keyring: KeyringId, dir: &Path) -> Vec<PathBuf> {
        let places = Self { own: None, ..Self::of_process() };
        places.find(keyring, dir).ok().flatten().unwrap_or_default().helpers
    }

    /// The file that is in force, and what it says.
    fn in_force(&self, keyring: KeyringId, dir: &Path) -> Result<Option<(PathBuf, Config)>, Error> {
        let path = file(&self.system, keyring);
        let by_id = read_by_id(&path, Audience::RootWrites)?;
        let named = named::search(&self.system, Audience::RootWrites, dir);
        if let Some(mut config) = by_id {
            // Without the other file there are less helpers: that fails closed.
            if let Ok(Some(named)) = named {
                let more = named.config.helpers.into_iter();
                let more: Vec<_> = more.filter(|it| !config.helpers.contains(it)).collect();
                config.helpers.extend(more);
            }
            return Ok(Some((path, config)));
        }
        if let Some(named) = named? {
            return Ok(Some((named.file, named.config)));
        }
        let Some(own) = &self.own else { return Ok(None) };
        let path = file(own, keyring);
        if let Some(config) = read_by_id(&path, Audience::OwnerOnly)? {
            return Ok(Some((path, config)));
        }
        let named = named::search(own, Audience::OwnerOnly, dir)?;
        Ok(named.map(|named| (named.file, named.config)))
    }

    /// The `NAME.toml` of a directory, which need not exist: root's, else the caller's own.
    ///
    /// # Errors
    /// As [`Places::find`]; two files name it.
    pub fn named(&self, dir: &Path) -> Result<Option<Named>, Error> {
        if let Some(found) = named::search(&self.system, Audience::RootWrites, dir)? {
            return Ok(Some(found));
        }
        match &self.own {
            Some(own) => named::search(own, Audience::OwnerOnly, dir),
            None => Ok(None),
        }
    }

    /// Root's `NAME.toml`.
    ///
    /// # Errors
    /// As [`Places::find`].
    pub fn by_name(&self, name: &str) -> Result<Option<Named>, Error> {
        named::read(&self.system.join(format!("{name}.toml")), Audience::RootWrites)
    }

    /// The variables that hold keys or credentials by any file of configuration, whatever keyring
    /// or directory that is for. A file that cannot be read or trusted names none.
    #[must_use]
    pub fn secret_variables(&self) -> BTreeSet<String> {
        let system = (&self.system, Audience::RootWrites);
        let own = self.own.iter().map(|own| (own, Audience::OwnerOnly));
        let mut all = BTreeSet::new();
        for (place, audience) in std::iter::once(system).chain(own) {
            for (folder, above) in [(place.clone(), 1), (place.join("keyrings"), 2)] {
                for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                    let path = entry.path();
                    let is_one = path.extension().is_some_and(|ending| ending == "toml");
                    let found = is_one.then(|| read(&path, audience, above).ok().flatten());
                    let providers = found.flatten().unwrap_or_default().providers;
                    let names = providers.iter().flat_map(|choice| choice.secret_variables());
                    all.extend(names.map(str::to_owned));
                }
            }
        }
        all
    }

    /// Adds a provider behind those that are configured for a keyring, in the file that is in
    /// force, unless it is there already; that file. What people wrote into it stays.
    ///
    /// # Errors
    /// As [`Places::find`] and [`Places::write`]; [`Error::ConfigClosed`].
    pub fn add_provider(
        &self,
        keyring: KeyringId,
        dir: &Path,
        choice: &ProviderChoice,
    ) -> Result<PathBuf, Error> {
        let Some((path, config)) = self.in_force(keyring, dir)? else {
            let directory = Some(named::real(dir));
            let providers = vec![choice.clone()];
            return self.write(keyring, &Config { directory, providers, ..Config::default() });
        };
        let syntax = |why: String| Error::ConfigSyntax { path: path.clone(), why };
        let written = |providers: &[ProviderChoice]| {
            let config = Config { providers: providers.to_vec(), ..Config::default() };
            toml::to_string(&config).map_err(|why| syntax(why.to_string()))
        };
        // As they are written: a token of the caller's environment, say, is not.
        let entry = written(std::slice::from_ref(choice))?;
        for known in &config.providers {
            if written(std::slice::from_ref(known))? == entry {
                return Ok(path);
            }
        }
        let mut text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        text = format!("{}\n\n{entry}", text.trim_end());
        // What cannot be read again must not replace what can.
        let again = toml::from_str::<Config>(&text).map(|again| again.providers);
        let added = again.is_ok_and(|all| {
            all.last()
                .map(std::slice::from_ref)
                .is_some_and(|last| written(last).is_ok_and(|last| last == entry))
        });
        if !added {
            return Err(Error::ConfigClosed { path, entry: entry.trim().replace('\n', "; ") });
        }
        replace_whole(&path, &text).map_err(Error::io("write", &path))?;
        Ok(path)
    }

    /// Takes a provider out of the keyring's own file, if it is there and that file is in force;
    /// which file. What people wrote into it stays, and so does what is configured for a directory:
    /// the next keyring of that may be made with it.
    ///
    /// # Errors
    /// As [`Places::find`]; [`Error::Io`].
    pub fn remove_provider(
        &self,
        keyring: KeyringId,
        dir: &Path,
        choice: &ProviderChoice,
    ) -> Result<Option<PathBuf>, Error> {
        let Some((path, config)) = self.in_force(keyring, dir)? else { return Ok(None) };
        if !is_by_id(&path) || !config.providers.contains(choice) {
            return Ok(None);
        }
        let syntax = |why: String| Error::ConfigSyntax { path: path.clone(), why };
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let without = tables::without(&text, choice);
        // What cannot be read again must not replace what can.
        let mut must: Config = toml::from_str(&text).map_err(|why| syntax(said(&text, &why)))?;
        must.providers.retain(|other| other != choice);
        if toml::from_str(&without).ok().as_ref() != Some(&must) {
            return Err(syntax("a provider cannot be taken out of it; take it out by hand".into()));
        }
        replace_whole(&path, &without).map_err(Error::io("write", &path))?;
        Ok(Some(path))
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

/// True of `keyrings/ID.toml`, false of `NAME.toml`.
fn is_by_id(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("keyrings"))
}

/// Refuses the file `path`, by which root would open the keyring of `dir` for a user whose it is
/// not.
///
/// The id comes from `dir`, and its owner can put any keyring there of which they have a copy. Root
/// would then open that of another server, and the server that starts in `dir` would get the keys.
/// So the file is for the owner of the directory that it records, and for nobody else. A copy of
/// the directory that the same user has, say a standby beside it, goes by the same file. `dir`
/// itself is not looked at: who owns the folder above it may exchange it at any moment. For that
/// reason a `NAME.toml` has to pass too: it was found by that path, which may have been a link to
/// another's directory just then.
///
/// # Errors
/// [`Error::ConfigOfAnother`]: the recorded directory is another user's, is gone, or is not
/// recorded.
fn refuse_for_another(config: &Config, path: &Path, dir: &Path, owner: u32) -> Result<(), Error> {
    let recorded = config.directory.as_deref().filter(|recorded| recorded.is_absolute());
    let found = recorded.and_then(|recorded| fs::metadata(recorded).ok());
    if found.as_ref().is_some_and(|found| found.uid() == owner) {
        return Ok(());
    }
    Err(Error::ConfigOfAnother {
        path: path.into(),
        recorded: recorded.map(Box::from),
        gone: recorded.is_some() && found.is_none(),
        dir: dir.into(),
    })
}

/// `keyrings/ID.toml`; of a directory that is there.
fn read_by_id(path: &Path, audience: Audience) -> Result<Option<Config>, Error> {
    let Some(config) = read(path, audience, 2)? else { return Ok(None) };
    let making = Config {
        auto_init: config.auto_init,
        profile: config.profile.clone(),
        owner: config.owner.clone(),
        recovery_folder: config.recovery_folder.clone(),
        plain: config.plain.clone(),
        programs: config.programs.clone(),
        ..Config::default()
    };
    if making != Config::default() {
        let why = "auto_init, profile, owner, recovery_folder, plain and programs belong in \
                   NAME.toml, one folder above";
        return Err(Error::ConfigSyntax { path: path.into(), why: why.to_owned() });
    }
    Ok(Some(config))
}

/// `folders`: how many above the file must be as trustworthy.
fn read(path: &Path, audience: Audience, folders: usize) -> Result<Option<Config>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        // Root's folder may be closed to others: then it says nothing to them.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { what: "open", path: path.into(), source }),
    };
    trust::check(&file, path, audience)?;
    for folder in path.ancestors().skip(1).take(folders) {
        trust::check_folder(folder, audience)?;
    }
    let mut text = String::new();
    file.take(MAX + 1).read_to_string(&mut text).map_err(Error::io("read", path))?;
    let syntax = |why: String| Error::ConfigSyntax { path: path.into(), why };
    if text.len() as u64 > MAX {
        // Cut at its end it could mean something else.
        return Err(syntax(format!("it is longer than {MAX} bytes")));
    }
    let config: Config = toml::from_str(&text).map_err(|why| syntax(said(&text, &why)))?;
    if audience != Audience::RootWrites && !config.helpers.is_empty() {
        return Err(syntax("helpers are root's to name, in /etc/tidelock".to_owned()));
    }
    if config.keyring.as_ref().is_some_and(|keyring| !keyring.copy.is_absolute()) {
        return Err(syntax("`copy` of [keyring] is not an absolute path".to_owned()));
    }
    if let Some(bad) = config.helpers.iter().find(|path| !is_plain_path(path)) {
        let why = format!("the helper {} is not an absolute path without links", bad.display());
        return Err(syntax(why));
    }
    Ok(Some(config))
}

/// Where a file is wrong, and how, without what it says there: a PIN or a token may have been
/// written into it by mistake.
fn said(text: &str, why: &toml::de::Error) -> String {
    let message = why.message();
    let message = ["unknown variant", "invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|begin| {
            let rest = message.strip_prefix(begin)?;
            let expected = rest.rfind(", expected ").map_or("", |at| rest.split_at(at).1);
            // The kind of the value, which stands before it.
            let kind = rest.split(['`', '"']).next().unwrap_or_default().trim_end();
            let kind = if begin.ends_with(' ') { kind } else { "" };
            Some(format!("{begin}{kind}{expected}"))
        })
        .unwrap_or_else(|| message.to_owned());
    let before = why.span().and_then(|span| text.get(..span.start));
    match before {
        None => message,
        Some(before) => {
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            format!("line {line}, column {column}: {message}")
        }
    }
}

/// Absolute, in one line, without `.` and `..`.
fn is_plain_path(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    let names = text.split(|byte| *byte == b'/').skip(1);
    path.is_absolute()
        && !text.contains(&b'\n')
        && names.clone().all(|name| !matches!(name, b"" | b"." | b".."))
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
    // What a crash has left; never through a link that lies there.
    match fs::remove_file(next) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(next)?;
    file.write_all(text.as_bytes())?;
    dress(&file)?;
    file.sync_all()?;
    fs::rename(next, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
