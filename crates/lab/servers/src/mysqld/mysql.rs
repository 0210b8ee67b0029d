//! What is MySQL's alone: how its directory is filled, its own encryption, what it has no
//! statement for.
//!
//! Source: MySQL's manual, "InnoDB Data-at-Rest Encryption", "Keyring Component Installation" and
//! "Encrypting Binary Log Files and Relay Log Files".

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{Brand, Mysqld, program_of};
use crate::error::{Error, Result, ensure};
use crate::unlinked;

/// Settings of every private server.
pub(super) const SETTINGS: [(&str, &str); 3] = [
    // A second protocol, with a port and a socket of its own.
    ("loose_mysqlx", "OFF"),
    // Debian's default is a directory that its package of the server alone does not make.
    ("secure_file_priv", "NULL"),
    // MariaDB's clients know no other. Later versions have dropped it, and have clients.
    ("loose_default_authentication_plugin", "mysql_native_password"),
];

/// Its own encryption, switched on wherever 8.0.24 has a switch.
pub(super) const ENCRYPTED: [(&str, &str); 4] = [
    ("default_table_encryption", "ON"),
    ("innodb_redo_log_encrypt", "ON"),
    ("innodb_undo_log_encrypt", "ON"),
    ("binlog_encryption", "ON"),
];

/// Makes a server that has the component with its keys: a copy, since the server reads beside
/// itself which components it has, and an installed one stays as it is.
pub(super) fn with_keyring(mysqld: &mut Mysqld<'_>) -> Result<()> {
    let installed = mysqld.server_program(Brand::MySql.server())?;
    let lacks = || Error::Unexpected(format!("{} has no {COMPONENT}", installed.display()));
    let component = component_of(&installed).ok_or_else(lacks)?;
    let beside = mysqld.workspace.make_dir(&format!("own-{}", mysqld.name))?;
    let server = beside.join(Brand::MySql.server());
    let what = |from: &Path| Error::io(format!("putting {} beside it", from.display()));
    unlinked::copy_program(&installed, &server).map_err(what(&installed))?;
    symlink(&component, beside.join(COMPONENT)).map_err(what(&component))?;
    let keys = mysqld.workspace.join(&format!("home/{}.mysql-keys", mysqld.name));
    let files = [
        ("mysqld.my", "{ \"components\": \"file://component_keyring_file\" }".to_owned()),
        (
            "component_keyring_file.cnf",
            format!("{{ \"path\": \"{}\", \"read_only\": false }}", keys.display()),
        ),
    ];
    for (name, text) in files {
        mysqld.workspace.write(&beside.join(name), &text)?;
    }
    mysqld.set("plugin_dir", &beside.display().to_string())?;
    mysqld.own_server = Some(server);
    Ok(())
}

/// Whether the server that would run can encrypt by itself.
///
/// # Errors
/// The reason, as a sentence.
pub(super) fn own_is_possible(bin: Option<&Path>) -> std::result::Result<(), String> {
    let name = Brand::MySql.server();
    let server = match bin {
        Some(bin) => program_of(bin, name),
        None => Brand::MySql.find(None, name),
    };
    match server.as_deref().and_then(component_of) {
        Some(_) => Ok(()),
        None => Err(format!("this MySQL has no {COMPONENT}, which is part of 8.0.24 and later")),
    }
}

/// The component that keeps keys in a file, of the installation that this server belongs to.
fn component_of(server: &Path) -> Option<PathBuf> {
    let base = base_of(server);
    let dirs = ["lib/plugin", "lib/mysql/plugin", "lib64/mysql/plugin"];
    dirs.iter().map(|dir| base.join(dir).join(COMPONENT)).find(|path| path.is_file())
}

/// The directory of an installation, above the server's `bin` or `sbin`.
pub(super) fn base_of(server: &Path) -> PathBuf {
    server.ancestors().nth(2).unwrap_or(server).to_path_buf()
}

/// Waits until InnoDB holds no changed page: releases have no switch for a checkpoint. It is told
/// to write as fast as it can, and then set back.
pub(super) fn write_out(mysqld: &Mysqld<'_>) -> Result<()> {
    let names = ["innodb_max_dirty_pages_pct_lwm", "innodb_max_dirty_pages_pct"];
    let names = || names.iter().chain(&["innodb_io_capacity", "innodb_io_capacity_max"]);
    let asked: Vec<String> = names().map(|name| format!("@@{name}")).collect();
    let were = mysqld.sql(&format!("SELECT {}", asked.join(", ")))?;
    let set = |values: [&str; 4], order: [usize; 4]| -> Result<()> {
        let names: Vec<_> = names().zip(values).collect();
        let one = |at: usize| format!("SET GLOBAL {} = {};", names[at].0, names[at].1);
        mysqld.sql(&order.map(one).join(" ")).map(drop)
    };
    let broken = || Error::Unexpected(format!("the server's settings cannot be read: {were}"));
    let before: Vec<&str> = were.split('\t').collect();
    let before: [&str; 4] = before.try_into().map_err(|_| broken())?;
    // Neither of two may pass the other on the way.
    set(["0", "0", "100000", "100000"], [0, 1, 3, 2])?;
    let begin = Instant::now();
    let clean = loop {
        let told = mysqld.sql("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")?;
        if told.ends_with("\t0") || begin.elapsed() > WRITE_OUT {
            break told.ends_with("\t0");
        }
        thread::sleep(Duration::from_millis(10));
    };
    set(before, [1, 0, 2, 3])?;
    ensure(clean, || format!("changed pages are left after {} s", WRITE_OUT.as_secs()))
}

/// The statement that empties the binary log; 8.2 has given it another name.
pub(super) fn empties_binary_log(version: &str) -> &'static str {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let series = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if series < (8, 2) { "RESET MASTER" } else { "RESET BINARY LOGS AND GTIDS" }
}

const COMPONENT: &str = "component_keyring_file.so";
/// The longest time to write everything out: on a slow volume it takes minutes.
const WRITE_OUT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_binary_log_is_emptied_by_the_statement_of_the_version() {
        for version in ["8.0.15", "8.0.45-0ubuntu0.24.04.1", "8.1.0"] {
            assert_eq!(empties_binary_log(version), "RESET MASTER");
        }
        for version in ["8.2.0", "8.4.3", "9.7.4-1", "10.0.0"] {
            assert_eq!(empties_binary_log(version), "RESET BINARY LOGS AND GTIDS");
        }
    }

    #[test]
    fn a_tree_without_the_component_cannot_encrypt_by_itself() {
        let base = tempfile::tempdir().unwrap();
        let bin = base.path().join("bin");
        let plugins = base.path().join("lib/plugin");
        for dir in [&bin, &plugins] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(bin.join("mysqld"), "").unwrap();
        let why = own_is_possible(Some(&bin)).unwrap_err();
        assert!(why.contains("no component_keyring_file.so"), "{why}");
        fs::write(plugins.join(COMPONENT), "").unwrap();
        own_is_possible(Some(&bin)).unwrap();
    }
}
