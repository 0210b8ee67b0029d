//! PostgreSQL's settings that matter to sealed files, as its files and last command line say.
//!
//! Order as the server has it: postgresql.conf with what it includes, postgresql.auto.conf,
//! options.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::console;
use crate::error::{Error, Result};
use crate::walk::read_small;

/// The configuration of a cluster, in its folder.
pub(crate) const CONFIG: &str = "postgresql.conf";
const DATA_DIRECTORY: &str = "data_directory";
/// The settings that are looked for.
const NAMES: [&str; 8] = [
    "full_page_writes",
    "fsync",
    "io_method",
    DATA_DIRECTORY,
    "archive_mode",
    "archive_command",
    "archive_library",
    "restore_command",
];
/// How deep files may include others (PostgreSQL, CONF_FILE_MAX_DEPTH).
const MAX_DEPTH: u32 = 10;

/// A setting and where its value comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    #[serde(serialize_with = "console::lossy")]
    pub(crate) from: PathBuf,
}

impl Setting {
    /// True for `off` and what the server takes for it.
    pub(crate) fn is_off(&self) -> bool {
        let value = self.value.to_ascii_lowercase();
        value == "0"
            || value.len() > 1 && "off".starts_with(&value)
            || !value.is_empty() && ("false".starts_with(&value) || "no".starts_with(&value))
    }
}

/// Those of `NAMES` that are set; the last value counts.
pub(crate) fn of(dir: &Path) -> Vec<Setting> {
    let mut found = Found(Vec::new());
    let options = dir.join("postmaster.opts");
    let words = words(&read_small(&options).unwrap_or_default());
    let given = options_of(&words);
    let config = given.iter().rev().find(|(name, _)| name == "config_file");
    let config = config.map_or_else(|| dir.join(CONFIG), |(_, path)| path.into());
    found.file(&config, 0);
    found.file(&dir.join("postgresql.auto.conf"), 0);
    for (name, value) in given {
        found.set(&name, value, &options);
    }
    found.0
}

/// The data directory that the configuration of a Debian cluster names, with the file that has the
/// line, which may be one that it includes. postgresql.auto.conf has none: it lies there.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn named_directory(folder: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let file = folder.join(CONFIG);
    // A file that cannot be read has no settings for `Found`.
    fs::read_to_string(&file).map_err(Error::io("read", &file))?;
    let mut found = Found(Vec::new());
    found.file(&file, 0);
    Ok(data_directory_of(found))
}

/// As [`named_directory`], if postgresql.conf had this text.
pub(crate) fn named_directory_in(folder: &Path, text: &str) -> Option<(PathBuf, PathBuf)> {
    let mut found = Found(Vec::new());
    found.text(text, &folder.join(CONFIG), 0);
    data_directory_of(found)
}

fn data_directory_of(found: Found) -> Option<(PathBuf, PathBuf)> {
    let mut all = found.0.into_iter();
    let named = all.find(|it| it.name == DATA_DIRECTORY && !it.value.is_empty());
    named.map(|it| (it.value.into(), it.from))
}

/// True for a line of postgresql.conf that names the data directory.
pub(crate) fn names_directory(text: &str) -> bool {
    line(text).is_some_and(|(name, _)| name == DATA_DIRECTORY)
}

struct Found(Vec<Setting>);

impl Found {
    fn file(&mut self, path: &Path, depth: u32) {
        let Ok(text) = read_small(path) else { return };
        if depth <= MAX_DEPTH {
            self.text(&text, path, depth);
        }
    }

    /// Those of a file at `path` that has this text.
    fn text(&mut self, text: &str, path: &Path, depth: u32) {
        let beside = |name: &str| path.parent().unwrap_or(path).join(name);
        for (name, value) in text.lines().filter_map(line) {
            match name.as_str() {
                "include" | "include_if_exists" => self.file(&beside(&value), depth + 1),
                "include_dir" => self.folder(&beside(&value), depth + 1),
                _ => self.set(&name, value, path),
            }
        }
    }

    fn folder(&mut self, path: &Path, depth: u32) {
        let Ok(entries) = fs::read_dir(path) else { return };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == "conf"));
        files.sort();
        files.iter().for_each(|path| self.file(path, depth));
    }

    fn set(&mut self, name: &str, value: String, from: &Path) {
        if NAMES.contains(&name) {
            self.0.retain(|other| other.name != name);
            self.0.push(Setting { name: name.to_owned(), value, from: from.into() });
        }
    }
}

/// `name = value`, `name value`, `name = 'value'`; a comment begins with `#` outside quotes.
fn line(text: &str) -> Option<(String, String)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c)))?;
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let quoted = rest.strip_prefix('\'');
    let value = match quoted {
        Some(quoted) => quoted.split('\'').next().unwrap_or_default(),
        None => rest.split(|c: char| c == '#' || c.is_whitespace()).next().unwrap_or_default(),
    };
    // '' takes back what stands before.
    (!value.is_empty() || quoted.is_some()).then(|| (name.to_ascii_lowercase(), value.to_owned()))
}

/// The words of postmaster.opts: the first bare, the others in double quotes.
fn words(text: &str) -> Vec<String> {
    text.trim_end().split(" \"").skip(1).map(|word| word.trim_end_matches('"').to_owned()).collect()
}

/// `-c name=value` and `--name=value`, and `-F`, which is `fsync=off`.
fn options_of(words: &[String]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let setting = match word.as_str() {
            "-F" => Some("fsync=off"),
            "-c" => rest.next().map(String::as_str),
            other => other.strip_prefix("-c").or_else(|| other.strip_prefix("--")),
        };
        if let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) {
            found.push((name.trim().replace('-', "_").to_ascii_lowercase(), value.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_server_does() {
        for (text, name, value) in [
            ("full_page_writes = off", "full_page_writes", "off"),
            ("  Fsync=no # really", "fsync", "no"),
            ("io_method 'io_uring'", "io_method", "io_uring"),
            ("archive_library = ''", "archive_library", ""),
        ] {
            assert_eq!(line(text), Some((name.to_owned(), value.to_owned())));
        }
        for text in ["", "# fsync = off", "fsync", "= off"] {
            assert_eq!(line(text), None, "{text}");
        }
    }

    #[test]
    fn the_data_directory_is_read_as_the_server_reads_it() {
        for (text, value) in [
            ("data_directory = '/a b'\t\t# use data in another directory\n", Some("/a b")),
            ("#data_directory = '/no'\n", None),
            ("data_directory '/a'\ndata_directory=/b # c\n", Some("/b")),
            ("Data_Directory = '/a'\ndata_directory_mode = 0700\n", Some("/a")),
        ] {
            let named = named_directory_in(Path::new("/etc"), text);
            assert_eq!(named.map(|(dir, _)| dir), value.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_off_is_known() {
        let is_off = |value: &str| {
            Setting { name: "fsync".into(), value: value.into(), from: "/".into() }.is_off()
        };
        for value in ["off", "OF", "false", "f", "no", "n", "0"] {
            assert!(is_off(value), "{value}");
        }
        for value in ["on", "o", "true", "1", "yes", ""] {
            assert!(!is_off(value), "{value}");
        }
    }

    #[test]
    fn the_last_value_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("conf.d")).unwrap();
        write("postgresql.conf", "full_page_writes = on\ninclude_dir 'conf.d'\n");
        write("conf.d/a.conf", "full_page_writes = off\n");
        let value = |name: &str| {
            let found = of(dir.path()).into_iter().find(|setting| setting.name == name);
            found.map(|setting| setting.value)
        };
        assert_eq!(value("full_page_writes").as_deref(), Some("off"));
        write("postgresql.auto.conf", "full_page_writes = 'on'\n");
        assert_eq!(value("full_page_writes").as_deref(), Some("on"));
        write(
            "postmaster.opts",
            "/bin/postgres \"-D\" \"/d\" \"-c\" \"full_page_writes=off\" \"-F\"\n",
        );
        assert_eq!(value("full_page_writes").as_deref(), Some("off"));
        assert_eq!(value("fsync").as_deref(), Some("off"));
    }
}
