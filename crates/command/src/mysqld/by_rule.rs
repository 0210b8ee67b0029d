//! Files below a protected directory that a setting names, and that a rule of the profile leaves
//! plain.
//!
//! Such rules go by names that people and scripts use (`*.cnf`, mariadb-upgrade's statements in
//! `sql` and six letters). A log or a tablespace under one would be plain. What SQL names while the
//! server runs is not seen.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tidelock_contract::control::FOLDER;
use tidelock_contract::{Decision, Origin, Policy};
use tidelock_keyring::Profile;

use super::brand::Brand;
use super::settings::{Settings, Stray};
use crate::console;
use crate::error::{Error, Result};
use crate::exec::notice;
use crate::links::{goes_up, without_links};

/// The rules of protected directories, as far as they are known before keys are there.
pub(super) struct Rules(Vec<(PathBuf, Policy)>);

impl Rules {
    /// Of the directories whose agents listen at `sockets`.
    pub(super) fn beside(sockets: &[PathBuf]) -> Self {
        let notices = sockets.iter().filter_map(|socket| notice(socket));
        Self(notices.map(|notice| (notice.directory, notice.policy)).collect())
    }

    /// Of one that is to be sealed. The keyring of a sealed one has its rules, and is not open.
    ///
    /// # Errors
    /// The profile does not compile.
    pub(super) fn to_be(dir: &Path, brand: Brand) -> Result<Self> {
        if dir.join(FOLDER).symlink_metadata().is_ok() {
            return Ok(Self(Vec::new()));
        }
        let policy = Profile::builtin(brand.profile())?.compile(&[], &[]);
        let policy = policy.map_err(tidelock_keyring::Error::from)?;
        Ok(Self(vec![(dir.to_path_buf(), policy)]))
    }

    /// Why a file is plain, if a rule says so that its owner has not written.
    fn reason(&self, path: &Path) -> Option<&str> {
        let places = [Some(path.to_path_buf()), without_links(path).ok()];
        places.into_iter().flatten().filter(|path| !goes_up(path)).find_map(|path| {
            self.0.iter().find_map(|(dir, policy)| {
                // Without `.` and doubled slashes.
                let below: PathBuf = path.strip_prefix(dir).ok()?.components().collect();
                let Decision::Plain(index) = policy.decide(below.as_os_str().as_bytes()) else {
                    return None;
                };
                let rule = policy.rules().get(usize::from(index.0))?;
                policy.reason(index).filter(|_| rule.origin == Origin::Profile)
            })
        })
    }
}

/// Refuses rows in such a file, and tells of logs.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn judge(settings: &Settings, datadir: &Path, rules: &Rules) -> Result<()> {
    for Stray { setting, path, rows } in settings.files(datadir) {
        let Some(reason) = rules.reason(&path) else { continue };
        let why = format!(
            "{setting} is {}, and a rule of the profile leaves that name plain ({reason})",
            path.display()
        );
        let hint = "give it another name; `tidelock profile show` has the rules";
        if rows {
            return Err(Error::refused(format!("{why}: rows would lie there plain"), hint));
        }
        console::warn(format!("{why}: what it gets is plain too"), hint);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use tidelock_contract::Notice;
    use tidelock_contract::control::notice_beside;
    use tidelock_format::Layout;

    use super::*;

    fn settings(option: &str) -> Settings {
        Settings::of(&[OsString::from(option)])
    }

    /// The settings that name a plain file, with whether it would have rows.
    fn plain(option: &str, rules: &Rules) -> Vec<(&'static str, bool)> {
        let files = settings(option).files(Path::new("/d"));
        let plain = files.iter().filter(|it| rules.reason(&it.path).is_some());
        plain.map(|it| (it.setting, it.rows)).collect()
    }

    #[test]
    fn a_log_or_a_tablespace_under_a_plain_name_is_told() {
        let rules = Rules::to_be(Path::new("/d"), Brand::MariaDb).unwrap();
        for (option, setting, rows) in [
            ("--general-log-file=sqlerrors", "general_log_file", false),
            ("--general-log-file=/d/sqlerrors", "general_log_file", false),
            ("--general-log-file=/d/.//sqlerrors", "general_log_file", false),
            ("--log-slow-query-file=slow.cnf", "slow_query_log_file", false),
            ("--log-error=host.pid", "log_error", false),
            ("--server-audit-file-path=audit.key", "server_audit_file_path", false),
            ("--innodb-data-file-path=ibdata1:12M;sqldata02:12M", "innodb_data_file_path", true),
            ("--log-isam=myisam.index", "log_isam", true),
            ("--master-info-file=sqlmaster", "master_info_file", true),
        ] {
            assert_eq!(plain(option, &rules), [(setting, rows)], "{option}");
            let judged = judge(&settings(option), Path::new("/d"), &rules);
            assert_eq!(judged.is_err(), rows, "{option}");
        }
        for option in [
            "--general-log-file=sql.log",
            "--general-log-file=sqlerrors2",
            "--general-log-file=d/sqlerrors",
            "--general-log-file=/e/sqlerrors",
            // The server adds .err to a name without an ending.
            "--log-error=sqlerrors",
            "--log-error",
            "--log-isam",
            "--innodb-data-file-path=ibdata1:12M:autoextend",
            // The first part of names, a directory, and a map that no rows are in.
            "--rocksdb-log-dir=sqllogdir",
            "--log-bin=sqlbinary",
            "--log-tc=tc.log",
        ] {
            assert!(plain(option, &rules).is_empty(), "{option}");
        }
        let mysql = Rules::to_be(Path::new("/d"), Brand::MySql).unwrap();
        assert!(plain("--general-log-file=sqlerrors", &mysql).is_empty());
        assert_eq!(plain("--general-log-file=a.cnf", &mysql), [("general_log_file", false)]);
    }

    #[test]
    fn the_rules_of_an_agents_directory_count_and_what_its_owner_wants_plain_may_be() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("m.sock");
        let profile = Profile::builtin("mariadb").unwrap();
        let policy = profile.compile(&["mine".to_owned()], &[]).unwrap();
        let notice = Notice::encode(Path::new("/d"), Layout::DEFAULT, &policy);
        std::fs::write(notice_beside(&socket), notice).unwrap();
        let rules = Rules::beside(&[home.path().join("none.sock"), socket]);
        assert!(plain("--general-log-file=mine", &rules).is_empty());
        assert_eq!(plain("--general-log-file=sqlerrors", &rules), [("general_log_file", false)]);
        // A sealed one, whose keyring is not open.
        std::fs::create_dir(home.path().join(FOLDER)).unwrap();
        assert!(Rules::to_be(home.path(), Brand::MariaDb).unwrap().0.is_empty());
    }
}
