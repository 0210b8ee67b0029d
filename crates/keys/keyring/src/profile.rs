//! A profile: what Tidelock knows of an engine, as TOML. Built in, or given when a directory is
//! made.
//!
//! Read at init and to be shown; what runs is the [`Policy`](tidelock_contract::Policy) compiled
//! from it.

mod amend;
mod compile;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tidelock_format::{Class, Layout};

use crate::error::Error;

pub use amend::{Amendment, needs_a_stop};
pub use compile::ProfileError;

const POSTGRES: &str = include_str!("../profiles/postgres.toml");
const GENERIC: &str = include_str!("../profiles/generic.toml");
const WAL_ARCHIVE: &str = include_str!("../profiles/wal-archive.toml");
const SQLITE: &str = include_str!("../profiles/sqlite.toml");
const REDIS: &str = include_str!("../profiles/redis.toml");
const DUCKDB: &str = include_str!("../profiles/duckdb.toml");
const ROCKSDB: &str = include_str!("../profiles/rocksdb.toml");
const MARIADB: &str = include_str!("../profiles/mariadb.toml");
const MYSQL: &str = include_str!("../profiles/mysql.toml");

/// A profile as it is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Where the data of a file begins on the disk. A multiple of the engine's page keeps each page
    /// where the file system writes it whole; see docs/decisions/0005.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_offset: Option<u32>,
    /// The programs that get keys: names, or absolute paths.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Those of them that may give a new key to a file whose header is lost.
    #[serde(default)]
    pub recovery: Vec<String>,
    /// Globs that stay plain, tried before the last rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plain: Vec<String>,
    /// How tablespaces are recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tablespace: Option<Tablespace>,
    /// The rules; the first that matches decides.
    #[serde(rename = "rule", default)]
    pub rules: Vec<Rule>,
    /// Renames that the engine does.
    #[serde(rename = "rename", default, skip_serializing_if = "Vec::is_empty")]
    pub renames: Vec<Rename>,
}

/// A directory that holds a tablespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tablespace {
    /// Its name, as a glob.
    pub component: String,
    /// Where it is taken to lie.
    pub prefix: String,
}

/// One of `class` and `plain`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which files.
    pub glob: String,
    /// They are sealed in this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// They stay plain for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain: Option<String>,
}

/// A class by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassName {
    /// [`Class::Paged`]
    Paged,
    /// [`Class::Log`]
    Log,
    /// [`Class::Bytes`]
    Bytes,
}

/// Two names of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// Before.
    pub from: String,
    /// After.
    pub to: String,
}

impl Profile {
    /// The names of the built-in profiles.
    pub const BUILTIN: [&'static str; 9] = [
        "postgres",
        "mariadb",
        "mysql",
        "wal-archive",
        "sqlite",
        "redis",
        "duckdb",
        "rocksdb",
        "generic",
    ];

    /// The text of a built-in profile, comments included.
    #[must_use]
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        match name {
            "postgres" => Some(POSTGRES),
            "generic" => Some(GENERIC),
            "wal-archive" => Some(WAL_ARCHIVE),
            "sqlite" => Some(SQLITE),
            "redis" => Some(REDIS),
            "duckdb" => Some(DUCKDB),
            "rocksdb" => Some(ROCKSDB),
            "mariadb" => Some(MARIADB),
            "mysql" => Some(MYSQL),
            _ => None,
        }
    }

    /// A built-in profile.
    ///
    /// # Errors
    /// [`Error::NoProfile`].
    pub fn builtin(name: &str) -> Result<Self, Error> {
        let text =
            Self::builtin_text(name).ok_or_else(|| Error::NoProfile { name: name.into() })?;
        Self::parse(text)
    }

    /// Reads TOML and compiles it, so that everything that could be wrong with it is.
    ///
    /// # Errors
    /// Those of [`Profile::parse`], [`Profile::layout`] and [`Profile::compile`].
    pub fn parse_whole(text: &str) -> Result<Self, Error> {
        let profile = Self::parse(text)?;
        profile.layout()?;
        profile.compile(&[], &[])?;
        Ok(profile)
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// [`Error::ProfileSyntax`], also for a field that no profile has.
    pub fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|why| Error::ProfileSyntax { why: why.to_string() })
    }

    /// The layout of the files of a directory that is made with this profile.
    ///
    /// # Errors
    /// [`Error::ProfileSyntax`] for a data offset that no layout has.
    pub fn layout(&self) -> Result<Layout, Error> {
        self.data_offset
            .map_or(Ok(Layout::DEFAULT), Layout::new)
            .map_err(|why| Error::ProfileSyntax { why: why.to_string() })
    }

    /// Writes TOML.
    ///
    /// # Panics
    /// Never: strings and lists of them can always be written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile is strings and lists of strings")
    }
}

impl From<ClassName> for Class {
    fn from(name: ClassName) -> Self {
        match name {
            ClassName::Paged => Self::Paged,
            ClassName::Log => Self::Log,
            ClassName::Bytes => Self::Bytes,
        }
    }
}

impl From<Class> for ClassName {
    fn from(class: Class) -> Self {
        match class {
            Class::Paged => Self::Paged,
            Class::Log => Self::Log,
            Class::Bytes => Self::Bytes,
        }
    }
}
