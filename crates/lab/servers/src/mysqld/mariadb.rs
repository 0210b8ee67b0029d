//! What is MariaDB's alone: how its directory is filled, and its own encryption (data at rest),
//! switched on wherever 10.11 has a switch.
//!
//! Source: MariaDB's documentation, "Data-at-Rest Encryption" and "File Key Management Encryption
//! Plugin".

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use data_encoding::HEXLOWER;

use crate::error::{Error, Result};
use crate::workspace::Workspace;

/// Arguments of mariadb-install-db: `root` without a password, no test database.
pub(super) const INSTALL: [&str; 4] = [
    "--auth-root-authentication-method=normal",
    "--skip-test-db",
    "--skip-name-resolve",
    "--force",
];

/// Everything but the name of the key file. `FORCE` refuses tables that would be plain. One thread
/// encrypts what older settings left plain: nothing, when the directory was installed with these.
pub(super) const ENCRYPTED: [(&str, &str); 10] = [
    ("plugin_load_add", "file_key_management"),
    // The one that MariaDB recommends; AES_CBC is the default.
    ("file_key_management_encryption_algorithm", "AES_CTR"),
    ("innodb_encrypt_tables", "FORCE"),
    ("innodb_encrypt_log", "ON"),
    ("innodb_encrypt_temporary_tables", "ON"),
    ("innodb_encryption_threads", "1"),
    ("aria_encrypt_tables", "ON"),
    ("encrypt_tmp_disk_tables", "ON"),
    ("encrypt_tmp_files", "ON"),
    ("encrypt_binlog", "ON"),
];

/// Writes a key file with key 1, 256 random bits, unless there is one.
pub(super) fn write_key(workspace: &Workspace, path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mut key = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut key))
        .map_err(Error::io("reading /dev/urandom"))?;
    workspace.write_private(path, &format!("1;{}\n", HEXLOWER.encode(&key)))
}
