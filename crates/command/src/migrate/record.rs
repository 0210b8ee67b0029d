//! `NAME.tidelock-migration` beside the new directory: what a migration has begun, so that another
//! call goes on and `--abort` knows what to take back.
//!
//! It names nothing that root would run or remove: programs and removals are the owner's.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::begun::{Begun, beside};
use crate::error::Result;

/// `NAME.tidelock-migration`
pub(super) const MIGRATION: Begun = Begun { kind: "migration", command: "migrate" };

/// What is being migrated, and how far it has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    /// The replication slot at the source.
    pub(super) slot: String,
    /// The new directory gets no keys.
    pub(super) plain: bool,
    pub(super) stage: Stage,
    /// When the source was told to stop, in milliseconds since 1970.
    #[serde(default)]
    pub(super) stopped_at: u64,
    /// The source's server: port, host, user, options of its last start.
    pub(super) port: u16,
    pub(super) host: PathBuf,
    pub(super) user: String,
    pub(super) options: Vec<String>,
    /// The file that its server writes its log to, if pg_ctl was told one.
    #[serde(default)]
    pub(super) server_log: Option<PathBuf>,
    /// `postgresql@15-main`, if it is one.
    #[serde(default)]
    pub(super) unit: Option<String>,
    /// A configuration file outside of the source.
    #[serde(default)]
    pub(super) config: Option<PathBuf>,
    /// Settings of the source that a standby has to have at least, or must not take over.
    pub(super) at_least: Vec<(String, String)>,
    /// A tablespace's place, and its new one.
    #[serde(default)]
    pub(super) tablespaces: Vec<(PathBuf, PathBuf)>,
    #[serde(default)]
    pub(super) waldir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// What is in the new directory may be thrown away.
    Copying,
    /// The copy is whole; it is or will be a standby.
    Following,
    /// The source was told to stop.
    Switching,
}

impl Record {
    /// That of this new directory.
    ///
    /// # Errors
    /// As [`Begun::read`].
    pub(super) fn read(to: &Path) -> Result<Option<Self>> {
        MIGRATION.read(to)
    }

    /// Writes it, so that it lasts.
    ///
    /// # Errors
    /// As [`Begun::write`].
    pub(super) fn write(&self) -> Result<()> {
        MIGRATION.write(&self.to, self)
    }

    /// It is done, or taken back.
    ///
    /// # Errors
    /// As [`Begun::remove`].
    pub(super) fn remove(&self) -> Result<()> {
        MIGRATION.remove(&self.to)
    }

    /// Where the new server writes its log until it has clients.
    pub(super) fn log(&self) -> PathBuf {
        beside(&self.to, ".migration.log")
    }

    /// Everything that the copy fills: it was empty or absent before.
    pub(super) fn filled(&self) -> Vec<PathBuf> {
        let mut all = vec![self.to.clone()];
        all.extend(self.waldir.clone());
        all.extend(self.tablespaces.iter().map(|(_, new)| new.clone()));
        all
    }
}

/// Of a slot there may be letters, digits and underscores, 63 of them.
pub(super) fn slot_for(to: &Path) -> String {
    let name = to.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let good = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    let name: String = name.chars().map(good).take(40).collect();
    format!("tidelock_migrate_{name}")
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_names_that_the_server_takes() {
        assert_eq!(slot_for(Path::new("/srv/Main-2.x")), "tidelock_migrate_main_2_x");
        assert!(slot_for(Path::new(&format!("/{}", "a".repeat(200)))).len() <= 63);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let to = home.path().canonicalize().unwrap().join("new");
        let record = Record {
            from: "/a".into(),
            to: to.clone(),
            slot: "s".into(),
            plain: false,
            stage: Stage::Switching,
            stopped_at: 17,
            port: 5432,
            host: "/run".into(),
            user: "postgres".into(),
            options: vec!["-p".into(), "5432".into()],
            server_log: None,
            unit: None,
            config: Some("/etc/x".into()),
            at_least: vec![("max_connections".into(), "100".into())],
            tablespaces: vec![("/t".into(), "/u".into())],
            waldir: None,
        };
        assert_eq!(Record::read(&to).unwrap(), None);
        record.write().unwrap();
        assert_eq!(Record::read(&to).unwrap(), Some(record.clone()));
        record.remove().unwrap();
        assert_eq!(Record::read(&to).unwrap(), None);
    }
}
