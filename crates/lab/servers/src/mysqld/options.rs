//! The option file of a private server: what keeps it private, and lines for settings.
//!
//! The format is that of both brands ("Option files"): groups, `name = "value"`, backslash escapes.

use std::path::Path;

use crate::error::{Error, Result};

/// The file of a server that nobody else can reach. Clients read the same file; settings of the
/// server may be appended, since its group comes last.
pub(super) fn private(socket: &Path, scratch: &Path, log: &Path) -> String {
    format!(
        "[client]\nsocket = \"{socket}\"\nuser = root\n\n[mysqld]\nsocket = \"{socket}\"\n\
         skip_networking = ON\npid_file = \"{scratch}/pid\"\nlog_error = \"{log}\"\n",
        socket = socket.display(),
        scratch = scratch.display(),
        log = log.display(),
    )
}

/// One line of the server's group.
pub(super) fn line(name: &str, value: &str) -> Result<String> {
    if value.contains(['\n', '\r', '"']) {
        return Err(Error::Unexpected(format!("{name}: {value:?} cannot stand in an option file")));
    }
    Ok(match (name, value.to_ascii_lowercase().as_str()) {
        // Any value of log_bin is the name of the log, `off` as well.
        ("log_bin" | "log-bin", "on") => "log_bin = \"binlog\"\n".into(),
        ("log_bin" | "log-bin", "off") => "skip_log_bin\n".into(),
        _ => format!("{name} = \"{}\"\n", value.replace('\\', "\\\\")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_log_can_be_off() {
        assert_eq!(line("log_bin", "off").unwrap(), "skip_log_bin\n");
        assert_eq!(line("log_bin", "on").unwrap(), "log_bin = \"binlog\"\n");
        assert_eq!(line("log_bin", "changes").unwrap(), "log_bin = \"changes\"\n");
    }

    #[test]
    fn a_value_stays_one_value() {
        assert_eq!(line("sql_mode", "A#B").unwrap(), "sql_mode = \"A#B\"\n");
        assert_eq!(line("init_connect", r"a\b").unwrap(), "init_connect = \"a\\\\b\"\n");
        assert!(line("init_connect", "a\n[client]").is_err());
    }
}
