//! Options of a server as its parser takes them, and the places that they name.
//!
//! The last one counts; `-` and `_` are one letter; a name may be cut where it is still clear
//! ("Option Prefixes", MariaDB's manual). Pure but for the links on the way to a place.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::links::{goes_up, without_links};

/// What a setting's value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// A directory, the first part of file names, or `log_tc`, a map without rows.
    Place,
    /// A file.
    File,
    /// Several, with colons between them.
    Places,
    /// Several, with semicolons between them.
    Listed,
    /// `label:directory;label:directory`
    Labelled,
    /// InnoDB's `file:size:autoextend;file:size`, below innodb_data_home_dir.
    Tablespaces,
}

impl Value {
    fn names_files(self) -> bool {
        matches!(self, Self::File | Self::Tablespaces)
    }
}

/// Settings that name places for rows, and statements with rows in them: MariaDB's and MySQL's.
const ROWS: [(&str, Value); 28] = [
    ("tmpdir", Value::Places),
    ("innodb_tmpdir", Value::Place),
    ("slave_load_tmpdir", Value::Place),
    ("innodb_data_home_dir", Value::Place),
    ("innodb_data_file_path", Value::Tablespaces),
    ("innodb_temp_data_file_path", Value::Tablespaces),
    ("innodb_log_group_home_dir", Value::Place),
    ("innodb_undo_directory", Value::Place),
    ("aria_log_dir_path", Value::Place),
    (BINARY_LOG, Value::Place),
    ("relay_log", Value::Place),
    // With the password of the replication user.
    ("master_info_file", Value::File),
    ("relay_log_info_file", Value::File),
    ("log_tc", Value::Place),
    // All logs begin with it.
    (ALL_LOGS, Value::Place),
    // Statements that change tables.
    ("log_ddl_recovery", Value::Place),
    ("wsrep_data_home_dir", Value::Place),
    // MyRocks.
    ("rocksdb_datadir", Value::Place),
    ("rocksdb_wal_dir", Value::Place),
    ("rocksdb_tmpdir", Value::Place),
    ("rocksdb_persistent_cache_path", Value::Place),
    ("mroonga_database_path_prefix", Value::Place),
    // What MyISAM changes, row by row.
    (MYISAM_LOG, Value::File),
    // MySQL's own.
    ("innodb_directories", Value::Listed),
    ("replica_load_tmpdir", Value::Place),
    ("innodb_doublewrite_dir", Value::Place),
    ("innodb_temp_tablespaces_dir", Value::Place),
    (ARCHIVES, Value::Labelled),
];
/// Logs that people and their tools read: they hold statements.
const LOGS: [&str; 9] = [
    "general_log_file",
    SLOW_LOG.1,
    "server_audit_file_path",
    "sql_error_log_filename",
    LOG_FOLDER,
    "mroonga_log_file",
    "mroonga_query_log_file",
    // MySQL's plugin.
    "audit_log_file",
    ERROR_LOG,
];
/// Without a value, and in MySQL as `stderr`, it names no place outside.
pub(super) const ERROR_LOG: &str = "log_error";
const MYISAM_LOG: &str = "log_isam";
const LOG_FOLDER: &str = "rocksdb_log_dir";
/// Where MySQL archives its redo log while a backup runs.
const ARCHIVES: &str = "innodb_redo_log_archive_dirs";
/// `file`, or `syslog`, which has no place of its own.
const AUDIT_OUTPUT: &str = "server_audit_output_type";
const DIRECTORY: &str = "datadir";
const BINARY_LOG: &str = "log_bin";
const BINARY_LOG_INDEX: &str = "log_bin_index";
const ALL_LOGS: &str = "log_basename";
/// Galera, and how it brings a node up to date.
const GALERA: &str = "wsrep_on";
const TRANSFER: &str = "wsrep_sst_method";
const PROVIDER: &str = "wsrep_provider_options";
/// Options of the provider that name places for write sets.
const PROVIDER_PLACES: [&str; 2] = [RING_DIRECTORY, BASE_DIRECTORY];
const RING_DIRECTORY: &str = "gcache.dir";
const BASE_DIRECTORY: &str = "base_dir";
/// The ring's file: below the directory of the ring, or anywhere.
pub(super) const RING: &str = "gcache.name";
/// Since MariaDB 10.11 the slow log has this name; what it had before is another name for it.
const SLOW_LOG: (&str, &str) = ("log_slow_query_file", "slow_query_log_file");
/// Options that may be written with one letter.
const LETTERS: [(&[u8], &str); 2] = [(b"-h", DIRECTORY), (b"-t", "tmpdir")];

/// The settings that matter here: name and last value.
pub(super) struct Settings(Vec<(&'static str, OsString)>);

/// A place outside, or a file.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Stray {
    /// By which setting.
    pub(super) setting: &'static str,
    /// Where.
    pub(super) path: PathBuf,
    /// Rows, not only statements.
    pub(super) rows: bool,
}

impl Settings {
    /// Of all options in their order.
    pub(super) fn of(options: &[OsString]) -> Self {
        let mut found: Vec<(&'static str, OsString)> = Vec::new();
        let mut rest = options.iter().map(|option| option.as_bytes()).peekable();
        while let Some(option) = rest.next() {
            if let Some(off) = switched_off(option) {
                found.retain(|(name, _)| *name != off);
                continue;
            }
            let Some((setting, value)) = parse(option) else { continue };
            // `--tmpdir PLACE`; a log alone has a default below the directory.
            let value = match (value, setting) {
                (Some(value), _) => value,
                (None, BINARY_LOG | GALERA | MYISAM_LOG | ERROR_LOG) => b"",
                // Some take none either, and go on with the next option: no place begins so.
                (None, _) => rest.next_if(|word| !word.starts_with(b"-")).unwrap_or_default(),
            };
            let value = OsString::from_vec(value.to_vec());
            found.retain(|(name, _)| *name != setting);
            found.push((setting, value));
        }
        Self(found)
    }

    fn value(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find(|(setting, _)| *setting == name).map(|(_, value)| &**value)
    }

    /// The data directory.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        self.value(DIRECTORY).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// How nodes of a cluster get all data of another one, if this is a node: `rsync` by default.
    pub(super) fn transfer(&self) -> Option<&str> {
        let on = self.value(GALERA).is_some_and(|value| {
            ["", "1", "on", "true"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
        });
        on.then(|| self.value(TRANSFER).and_then(OsStr::to_str).unwrap_or("rsync"))
    }

    /// The places where the provider of a node keeps write sets, by its options.
    pub(super) fn provider_places(&self) -> Vec<(&'static str, PathBuf)> {
        let given = self.value(PROVIDER).unwrap_or_default().as_bytes();
        let place = |pair: &[u8]| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let name = pair.get(..at)?.trim_ascii();
            let value = pair.get(at + 1..)?.trim_ascii();
            let mut options = PROVIDER_PLACES.into_iter().chain([RING]);
            let option = options.find(|it| it.as_bytes() == name)?;
            Some((option, PathBuf::from(OsStr::from_bytes(value))))
        };
        let mut found: Vec<(&'static str, PathBuf)> =
            given.split(|byte| *byte == b';').filter_map(place).collect();
        // A name with a directory of its own goes round that of the ring.
        let of = |option| found.iter().rfind(|(it, _)| *it == option).map(|(_, place)| place);
        let below = of(RING_DIRECTORY).or_else(|| of(BASE_DIRECTORY)).cloned().unwrap_or_default();
        for (_, place) in found.iter_mut().filter(|(option, _)| *option == RING) {
            *place = below.join(&*place);
        }
        found
    }

    /// True if the server writes one.
    pub(super) fn has_binary_log(&self) -> bool {
        self.value(BINARY_LOG).is_some()
    }

    /// Where it lies, and its index, if settings say so.
    pub(super) fn binary_logs(&self) -> impl Iterator<Item = &OsStr> {
        let has = self.has_binary_log();
        [BINARY_LOG, BINARY_LOG_INDEX, ALL_LOGS]
            .into_iter()
            .filter(move |_| has)
            .filter_map(|it| self.value(it))
    }

    /// True if MariaDB's audit plugin tells syslog, and not a file.
    pub(super) fn audits_to_syslog(&self) -> bool {
        self.value(AUDIT_OUTPUT).is_some_and(|value| value.eq_ignore_ascii_case("syslog"))
    }

    /// Where temporary files go, if a setting says so.
    pub(super) fn tmpdir(&self) -> Option<&OsStr> {
        self.value("tmpdir").filter(|value| !value.is_empty())
    }

    /// Every place that is neither below `roots` nor reached by a link there. What is relative lies
    /// below `datadir`.
    pub(super) fn outside(&self, datadir: &Path, roots: &[&Path]) -> Vec<Stray> {
        let mut strays = Vec::new();
        for (setting, value) in ROWS {
            let Some(given) = self.value(setting) else { continue };
            for place in self.places(given, value) {
                let path = datadir.join(place);
                if !is_below(&path, roots) {
                    strays.push(Stray { setting, path, rows: true });
                }
            }
        }
        for setting in LOGS {
            let Some(given) = self.value(setting) else { continue };
            let path = datadir.join(given);
            if !is_below(&path, roots) {
                strays.push(Stray { setting, path, rows: false });
            }
        }
        strays
    }

    /// Every file that is named, wherever it lies. What is relative lies below `datadir`.
    pub(super) fn files(&self, datadir: &Path) -> Vec<Stray> {
        let with_rows = ROWS.iter().filter(|(_, value)| value.names_files());
        let named = with_rows.flat_map(|(setting, value)| {
            let given = self.value(setting).map(|given| self.places(given, *value));
            given.unwrap_or_default().into_iter().map(move |place| (*setting, place, true))
        });
        let logs = LOGS.iter().filter(|setting| **setting != LOG_FOLDER).filter_map(|setting| {
            let mut place = PathBuf::from(self.value(setting)?);
            if *setting == ERROR_LOG && place.extension().is_none() {
                place.set_extension("err");
            }
            Some((*setting, place, false))
        });
        let stray = |(setting, place, rows)| Stray { setting, path: datadir.join(place), rows };
        let is_named = |(_, place, _): &(_, PathBuf, _)| !place.as_os_str().is_empty();
        named.chain(logs).filter(is_named).map(stray).collect()
    }

    fn places(&self, given: &OsStr, value: Value) -> Vec<PathBuf> {
        let pieces = |by: u8| given.as_bytes().split(move |byte| *byte == by);
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        match value {
            Value::Place | Value::File => vec![PathBuf::from(given)],
            Value::Places => pieces(b':').map(path).collect(),
            Value::Listed => pieces(b';').map(path).collect(),
            Value::Labelled => {
                let dir = |piece: &[u8]| {
                    let at = piece.iter().position(|byte| *byte == b':')?;
                    piece.get(at + 1..).filter(|dir| !dir.is_empty()).map(path)
                };
                pieces(b';').filter_map(dir).collect()
            }
            Value::Tablespaces => {
                let home = PathBuf::from(self.value("innodb_data_home_dir").unwrap_or_default());
                let file = |piece: &[u8]| path(piece.split(|byte| *byte == b':').next()?).into();
                let files = pieces(b';').filter_map(file);
                files.map(|file: PathBuf| home.join(file)).collect()
            }
        }
    }
}

/// The setting that an option names, and its value if that stands in the same word.
fn parse(option: &[u8]) -> Option<(&'static str, Option<&[u8]>)> {
    if let Some((letter, setting)) = LETTERS.iter().find(|(it, _)| option.starts_with(it)) {
        let value = option.get(letter.len()..).filter(|value| !value.is_empty());
        return Some((setting, value));
    }
    let option = option.strip_prefix(b"--")?;
    let (name, value) = match option.iter().position(|byte| *byte == b'=') {
        Some(at) => (option.get(..at)?, option.get(at + 1..)),
        None => (option, None),
    };
    let name = name_of(name);
    let known = || ROWS.iter().map(|(it, _)| *it).chain(LOGS).chain(OTHER).chain([SLOW_LOG.0]);
    let exact = known().find(|setting| setting.as_bytes() == name);
    let cut = || known().find(|setting| name.len() >= SHORTEST && is_cut(setting, &name));
    let setting = exact.or_else(cut)?;
    Some((if setting == SLOW_LOG.0 { SLOW_LOG.1 } else { setting }, value))
}

/// What `--skip-NAME` or `--disable-NAME` takes back, of what may be on or off.
fn switched_off(option: &[u8]) -> Option<&'static str> {
    let name = name_of(option.strip_prefix(b"--")?);
    let name = name.strip_prefix(b"skip_").or_else(|| name.strip_prefix(b"disable_"))?;
    [BINARY_LOG, GALERA].into_iter().find(|setting| setting.as_bytes() == name)
}

/// A name with one letter for `-` and `_`. Each option of a plugin has a second name that begins
/// with `plugin_` (`construct_options` in sql_plugin.cc).
fn name_of(text: &[u8]) -> Vec<u8> {
    let name: Vec<u8> = text.iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect();
    let bare = name.strip_prefix(b"loose_").unwrap_or(&name);
    bare.strip_prefix(b"plugin_").unwrap_or(bare).to_vec()
}

/// The rest that matters.
const OTHER: [&str; 6] = [DIRECTORY, GALERA, TRANSFER, PROVIDER, BINARY_LOG_INDEX, AUDIT_OUTPUT];
/// No setting of these can be named by fewer letters.
const SHORTEST: usize = 4;
/// Names of other settings that are the beginning of ours, those that switch a plugin on included.
const OTHERS: [&[u8]; 11] = [
    b"slow_query_log",
    b"log_slow_query",
    b"general_log",
    b"wsrep_provider",
    b"innodb",
    b"aria",
    b"rocksdb",
    b"mroonga",
    b"server_audit",
    b"audit_log",
    b"sql_error_log",
];

fn is_cut(setting: &str, name: &[u8]) -> bool {
    setting.as_bytes().starts_with(name) && !OTHERS.contains(&name)
}

/// What to do about a setting that leads rows out of the directories that `shown` names.
pub(super) fn instead(setting: &str, shown: &str) -> String {
    if setting == ARCHIVES {
        // ER_INNODB_REDO_LOG_ARCHIVE_DIR_CLASH, 3845.
        return format!(
            "leave {setting} away, or name a directory of another protected one \
             (`tidelock exec -D DIR -D ARCHIVE`): MySQL takes none in, under or above its own"
        );
    }
    format!(
        "leave {setting} away, or name a place below {shown}; a symbolic link there may lead to \
         another disk"
    )
}

/// True if the path lies below one of the directories, as it is written or as links lead.
pub(super) fn is_below(path: &Path, roots: &[&Path]) -> bool {
    let below = |path: &Path| !goes_up(path) && roots.iter().any(|root| path.starts_with(root));
    below(path) || without_links(path).is_ok_and(|real| below(&real))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(options: &[&str]) -> Settings {
        Settings::of(&options.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn outside(options: &[&str]) -> Vec<String> {
        let strays = settings(options).outside(Path::new("/d"), &[Path::new("/d")]);
        strays.iter().map(|it| format!("{} {}", it.setting, it.path.display())).collect()
    }

    #[test]
    fn the_last_option_counts_however_it_is_written() {
        for options in [
            &["--tmpdir=/x"][..],
            &["--tmpdir", "/x"],
            &["--tmpdi=/x"],
            &["--loose-tmpdir=/x"],
            &["--tmpdir=/d/tmp", "-t/x"],
            &["--tmpdir=/d/tmp", "-t", "/x"],
            &["--tmpdir=/d/tmp:/x"],
            // What needs no value takes no option for one.
            &["--innodb-tmpdir", "--tmpdir=/x"],
            &["--innodb-tmpdir", "-t/x"],
        ] {
            assert_eq!(outside(options), ["tmpdir /x"], "{options:?}");
        }
        for options in [
            &["--rocksdb_wal_dir=/x"][..],
            &["--plugin-rocksdb-wal-dir=/x"],
            &["--loose-plugin-rocksdb_wal_dir", "/x"],
            // What switches the plugin on is no place, and takes no word behind it.
            &["--rocksdb-wal-dir=/x", "--rocksdb=ON", "--plugin-rocksdb=FORCE"],
            &["--rocksdb", "--rocksdb-wal-dir=/x", "--plugin-dir=/usr/lib/plugin"],
        ] {
            assert_eq!(outside(options), ["rocksdb_wal_dir /x"], "{options:?}");
        }
        assert!(outside(&["--tmpdir=/x", "--tmpdir=/d/tmp"]).is_empty());
        assert_eq!(settings(&["--data-dir=/no", "-h/a"]).directory(), Some("/a".into()));
        assert_eq!(settings(&["--datadir", "/a", "--datadir="]).directory(), None);
    }

    #[test]
    fn what_is_relative_or_below_the_directory_is_inside() {
        for options in [
            &["--log-bin"][..],
            &["--log-bin", "--tmpdir=/d"],
            &["--log-bin=mysql-bin", "--relay-log=relay"],
            &["--innodb-log-group-home-dir=./"],
            &["--slow-query-log=1", "--general-log=1"],
            &["--innodb-data-file-path=ibdata1:12M:autoextend"],
            &["--innodb-data-home-dir=", "--innodb-data-file-path=/d/ibdata1:12M"],
            &["--character-set-server=utf8mb4", "--tmp-table-size=64M"],
            &["--rocksdb-datadir=./#rocksdb", "--rocksdb-wal-dir="],
            &["--innodb-directories=/d/a;/d/b;", "--rocksdb-tmpdir="],
            // These need no value, and take no word behind them.
            &["--log-error", "--log-isam", "--log-error=stderr", "/x"],
        ] {
            assert_eq!(outside(options), [""; 0], "{options:?}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_tells_how_it_gets_its_state() {
        assert_eq!(settings(&["--wsrep-sst-method=mariabackup"]).transfer(), None);
        assert_eq!(settings(&["--wsrep-on=OFF"]).transfer(), None);
        assert_eq!(settings(&["--wsrep-on=ON"]).transfer(), Some("rsync"));
        let both = ["--wsrep_on", "--wsrep-sst-method=mariabackup"];
        assert_eq!(settings(&both).transfer(), Some("mariabackup"));
    }

    #[test]
    fn every_setting_that_leads_rows_out_is_named() {
        for (setting, value) in ROWS {
            let stray = match value {
                Value::Tablespaces => "ibdata1:12M;/x/ibdata2:12M:autoextend",
                Value::Labelled => "a:/d/redo;b:/x/ibdata2",
                Value::Listed => "/d/tables;/x/ibdata2",
                _ => "/x/ibdata2",
            };
            let option = format!("--{}={stray}", setting.replace('_', "-"));
            assert_eq!(outside(&[&option]), [format!("{setting} /x/ibdata2")]);
        }
        assert_eq!(outside(&["--log-bin=/d/../x/bin"]), ["log_bin /d/../x/bin"]);
        for option in ["log-basename", "log-ddl-recovery", "mroonga-database-path-prefix"] {
            let stray = format!("{} /x/it", option.replace('-', "_"));
            assert_eq!(outside(&[&format!("--{option}=/x/it"), "--mroonga=ON"]), [stray]);
        }
        for option in ["mroonga-query-log-file", "mroonga-log-file", "rocksdb-log-dir"] {
            assert_eq!(outside(&[&format!("--{option}=/x/it")]).len(), 1, "{option}");
        }
        for setting in LOGS {
            let logs = settings(&[&format!("--{}=/var/log/x.log", setting.replace('_', "-"))]);
            let strays = logs.outside(Path::new("/d"), &[Path::new("/d")]);
            assert!(strays.len() == 1 && strays[0].setting == setting && !strays[0].rows);
        }
        let (audit, errors) = ("--server-audit-file-path=/x", "--sql_error_log_filename=/x");
        for on in ["--server-audit=FORCE_PLUS_PERMANENT", "--sql-error-log=ON"] {
            assert_eq!(outside(&[audit, errors, on]).len(), 2, "{on}");
        }
        let own = ["--audit-log-file=/x", "--audit-log=FORCE_PLUS_PERMANENT"];
        assert_eq!(outside(&own), ["audit_log_file /x"]);
        for (output, is) in [("SYSLOG", true), ("file", false)] {
            let option = format!("--server-audit-output-type={output}");
            assert_eq!(settings(&[&option]).audits_to_syslog(), is, "{option}");
        }
    }

    /// MySQL refuses an archive of the redo log in, under or above its own directories.
    #[test]
    fn the_archive_of_the_redo_log_is_led_to_another_protected_directory() {
        let archive = ["--innodb-redo-log-archive-dirs=a:/archive"];
        assert_eq!(outside(&archive), ["innodb_redo_log_archive_dirs /archive"]);
        let roots = [Path::new("/d"), Path::new("/archive")];
        assert!(settings(&archive).outside(Path::new("/d"), &roots).is_empty());
        assert!(instead(ARCHIVES, "/d").contains("-D ARCHIVE"));
        assert!(instead(BINARY_LOG, "/d").contains("a place below /d;"));
    }

    #[test]
    fn a_link_below_the_directory_may_lead_to_another_disk() {
        let place = tempfile::tempdir().unwrap();
        let (dir, disk) = (place.path().join("d"), place.path().join("disk"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&disk).unwrap();
        std::os::unix::fs::symlink(&disk, dir.join("binlog")).unwrap();
        assert!(is_below(&dir.join("binlog/b"), &[&dir]));
        assert!(!is_below(&disk.join("b"), &[&dir]));
        std::os::unix::fs::symlink(&dir, place.path().join("link")).unwrap();
        assert!(is_below(&place.path().join("link/b"), &[&dir]));
    }
}
