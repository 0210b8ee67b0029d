//! Whether a pgBackRest that gets keys writes its repositories encrypted: it reads plain pages, and
//! its default is to store them as they are.
//!
//! Reads the configuration that its manual describes, and the options of the archive and restore
//! commands. The environment and the command line of somebody's cron job are not seen.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::postgres::settings::Setting;
use crate::protected::is_protected;
use crate::walk::read_small;

/// The name of the program.
pub(super) const PROGRAM: &str = "pgbackrest";
/// Where Debian's and PGDG's packages have the configuration (pgBackRest 2.45, config/parse.c).
const CONFIG: &str = "/etc/pgbackrest/pgbackrest.conf";
/// Read only if the former is absent.
const OLD_CONFIG: &str = "/etc/pgbackrest.conf";
const INCLUDED: &str = "/etc/pgbackrest/conf.d";
/// `repo1-path` where nothing is said.
const DEFAULT_PATH: &str = "/var/lib/pgbackrest";

/// What should be otherwise, or is not seen from here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// A repository is neither encrypted nor in a protected directory.
    Plain { repository: u32, place: String, from: PathBuf },
    /// The host of the repository decides.
    Elsewhere { repository: u32, host: String },
    /// A configuration file cannot be read.
    Unread { file: PathBuf, why: String },
}

/// What is doubtful of the repositories of the server on `dir`.
pub(super) fn doubts(dir: &Path, settings: &[Setting]) -> Vec<Doubt> {
    let commands = ["archive_command", "restore_command"];
    let commands = settings.iter().filter(|setting| commands.contains(&setting.name.as_str()));
    let options: Vec<(String, String)> =
        commands.flat_map(|setting| options_of(&setting.value)).collect();
    match Config::read(options) {
        Ok(config) => config.doubts(dir),
        Err(doubt) => vec![doubt],
    }
}

/// All that is set, by section; options of command lines have none, and come first.
struct Config {
    options: Vec<(String, String)>,
    lines: Vec<Line>,
    /// Where most of it stands, for messages.
    from: PathBuf,
}

struct Line {
    section: String,
    key: String,
    value: String,
}

impl Config {
    fn read(options: Vec<(String, String)>) -> Result<Self, Doubt> {
        let option = |name: &str| find(&options, name).map(PathBuf::from);
        let folder = option("config-path");
        let named = option("config");
        let mut lines = Vec::new();
        let from = match (&named, &folder) {
            (Some(file), _) => file.clone(),
            (None, Some(folder)) => folder.join("pgbackrest.conf"),
            (None, None) if is_absent(CONFIG.as_ref()) => OLD_CONFIG.into(),
            (None, None) => CONFIG.into(),
        };
        take(&from, &mut lines)?;
        // A file that is named stands alone, unless a folder is named too.
        let included = option("config-include-path")
            .or_else(|| folder.map(|folder| folder.join("conf.d")))
            .or_else(|| named.is_none().then(|| INCLUDED.into()));
        for file in included.iter().flat_map(|folder| configurations(folder)) {
            take(&file, &mut lines)?;
        }
        Ok(Self { options, lines, from })
    }

    fn doubts(&self, dir: &Path) -> Vec<Doubt> {
        let mut found = Vec::new();
        for stanza in self.stanzas(dir) {
            for repository in self.repositories() {
                let doubt = self.doubt(&stanza, repository);
                found.extend(doubt.filter(|doubt| !found.contains(doubt)));
            }
        }
        found
    }

    /// The stanza that the archive command names, or those that have this directory.
    fn stanzas(&self, dir: &Path) -> Vec<String> {
        if let Some(stanza) = find(&self.options, "stanza") {
            return vec![stanza.to_owned()];
        }
        let is_here = |line: &&Line| {
            let number = line.key.strip_prefix("pg").and_then(|key| key.strip_suffix("-path"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
                && fs::canonicalize(&line.value).is_ok_and(|path| path == dir)
        };
        let sections = self.lines.iter().filter(is_here).map(|line| line.section.clone());
        let mut found: Vec<String> = sections.collect();
        found.dedup();
        // What applies to all of them.
        if found.is_empty() { vec!["global".to_owned()] } else { found }
    }

    /// The numbers of all repositories that something is said of; the first is always there.
    fn repositories(&self) -> Vec<u32> {
        let keys = self.lines.iter().map(|line| &line.key);
        let keys = keys.chain(self.options.iter().map(|(key, _)| key));
        let number = |key: &String| key.strip_prefix("repo")?.split_once('-')?.0.parse().ok();
        let mut found: Vec<u32> = keys.filter_map(number).chain([1]).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn doubt(&self, stanza: &str, repository: u32) -> Option<Doubt> {
        let value = |name: &str| self.value(stanza, &format!("repo{repository}-{name}"));
        if value("cipher-type").is_some_and(|cipher| cipher != "none") {
            return None;
        }
        if let Some(host) = value("host") {
            return Some(Doubt::Elsewhere { repository, host: host.to_owned() });
        }
        let path = value("path").unwrap_or(DEFAULT_PATH);
        let kind = value("type").unwrap_or("posix");
        let is_here = matches!(kind, "posix" | "cifs");
        if is_here && lies_protected(path.as_ref()) {
            return None;
        }
        let place = if is_here { path.to_owned() } else { format!("{kind}: {path}") };
        Some(Doubt::Plain { repository, place, from: self.from.clone() })
    }

    /// As pgBackRest looks for it: the command line, the stanza, all stanzas; a section for one
    /// command before the others.
    fn value(&self, stanza: &str, key: &str) -> Option<&str> {
        let of_push = |section: &str| format!("{section}:archive-push");
        let sections = [of_push(stanza), stanza.into(), of_push("global"), "global".into()];
        let in_section = |section: &String| {
            let mut lines = self.lines.iter();
            lines.find(|line| line.section == *section && line.key == key).map(|line| &*line.value)
        };
        find(&self.options, key).or_else(|| sections.iter().find_map(in_section))
    }
}

/// `--name=value` and `--name value` of a command line of pgBackRest.
fn options_of(command: &str) -> Vec<(String, String)> {
    let mut words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    if !words.any(|word| word.rsplit('/').next() == Some(PROGRAM)) {
        return Vec::new();
    }
    let mut words = words.peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else { continue };
        if let Some((name, value)) = option.split_once('=') {
            found.push((name.to_owned(), value.trim_matches(['"', '\'']).to_owned()));
        } else if let Some(value) = words.next_if(|next| !next.starts_with("--")) {
            found.push((option.to_owned(), value.to_owned()));
        }
    }
    found
}

fn find<'a>(options: &'a [(String, String)], name: &str) -> Option<&'a str> {
    options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Adds the lines of a file; an absent one has none.
fn take(file: &Path, lines: &mut Vec<Line>) -> Result<(), Doubt> {
    let text = match read_small(file) {
        Ok(text) => text,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(Doubt::Unread { file: file.into(), why: why.to_string() }),
    };
    let mut section = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            lines.push(Line { section: section.clone(), key, value });
        }
    }
    Ok(())
}

fn configurations(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "conf"));
    files.sort();
    files
}

fn is_absent(file: &Path) -> bool {
    fs::metadata(file).is_err_and(|why| why.kind() == ErrorKind::NotFound)
}

/// True if a keyring lies above it, or in it.
fn lies_protected(path: &Path) -> bool {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    real.ancestors().any(is_protected)
}

#[cfg(test)]
mod tests {
    use tidelock_keyring::KEYRING;

    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// What is doubtful with this configuration and these options.
        fn doubts(&self, text: &str, options: &str) -> Vec<Doubt> {
            let file = self.path("pgbackrest.conf");
            fs::write(&file, text).unwrap();
            let value = format!("exec /usr/bin/pgbackrest --config={} {options}", file.display());
            let setting = |name: &str, value| Setting {
                name: name.into(),
                value,
                from: "/postgresql.conf".into(),
            };
            doubts(self.0.path(), &[setting("archive_command", value)])
        }

        fn plain(&self, repository: u32, place: &str) -> Doubt {
            let (place, from) = (place.to_owned(), self.path("pgbackrest.conf"));
            Doubt::Plain { repository, place, from }
        }
    }

    #[test]
    fn a_repository_without_a_cipher_is_doubtful_and_one_with_a_cipher_is_not() {
        let world = World::new();
        let push = "--stanza=main archive-push %p";
        let plain = "[global]\nrepo1-path = /r\n# repo1-cipher-type=aes-256-cbc\n";
        assert_eq!(world.doubts(plain, push), [world.plain(1, "/r")]);
        assert_eq!(world.doubts("", push), [world.plain(1, "/var/lib/pgbackrest")]);
        let none = "[global]\nrepo1-path=/r\nrepo1-cipher-type=none\n";
        assert_eq!(world.doubts(none, push), [world.plain(1, "/r")]);
        let sealed = "[global]\nrepo1-path=/r\nrepo1-cipher-type=aes-256-cbc\n";
        assert_eq!(world.doubts(sealed, push), []);
        assert_eq!(world.doubts(plain, &format!("--repo1-cipher-type=aes-256-cbc {push}")), []);
    }

    #[test]
    fn every_repository_of_the_stanza_is_looked_at_and_no_other() {
        let world = World::new();
        let text = format!(
            "[global]\nrepo1-cipher-type=aes-256-cbc\nrepo2-type=s3\nrepo2-path=/b\n\
             repo3-host=vault\n[main]\npg1-path={}\n[other]\nrepo1-cipher-type=none\n",
            world.0.path().display()
        );
        let elsewhere = Doubt::Elsewhere { repository: 3, host: "vault".into() };
        let expected = [world.plain(2, "s3: /b"), elsewhere];
        assert_eq!(world.doubts(&text, "--stanza main archive-push %p"), expected);
        // Without a name, the stanza is the one that has the directory.
        assert_eq!(world.doubts(&text, "archive-push %p"), expected);
        let other = world.doubts(&text, "--stanza=other archive-push %p");
        assert_eq!(other.first(), Some(&world.plain(1, DEFAULT_PATH)));
    }

    #[test]
    fn a_repository_in_a_protected_directory_is_sealed() {
        let world = World::new();
        fs::create_dir_all(world.path("safe/.tidelock")).unwrap();
        fs::create_dir_all(world.path("safe/repository")).unwrap();
        let text = format!("[global]\nrepo1-path={}\n", world.path("safe/repository").display());
        let push = "--stanza=main archive-push %p";
        assert_ne!(world.doubts(&text, push), []);
        fs::write(world.path("safe/.tidelock").join(KEYRING), "").unwrap();
        assert_eq!(world.doubts(&text, push), []);
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_named() {
        let world = World::new();
        let setting = Setting {
            name: "archive_command".into(),
            value: format!("pgbackrest --config={} archive-push %p", world.0.path().display()),
            from: "/postgresql.conf".into(),
        };
        let found = doubts(world.0.path(), &[setting]);
        assert!(matches!(&found[..], [Doubt::Unread { file, .. }] if file == world.0.path()));
    }
}
