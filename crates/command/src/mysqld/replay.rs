//! A binary log that is played back by `mariadb-binlog | mariadb`.
//!
//! Of LOAD DATA in statement format the log has the loaded rows. The tool writes them to files in
//! TMPDIR, and the client reads those: below the protected directory they are sealed, and it has no
//! keys.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::Path;

use crate::console;

/// Programs that print a binary log as statements.
const PRINTERS: [&str; 2] = ["mariadb-binlog", "mysqlbinlog"];

/// Warns if what `program` prints is kept or piped, and nobody has said where such rows go.
pub(super) fn warn_of_loads(program: &Path, arguments: &[OsString]) {
    let printed = std::io::stdout().is_terminal();
    if printed || !keeps_loads_sealed(program, arguments) {
        return;
    }
    console::warn(
        "rows of LOAD DATA in statement format go to sealed files, which a client without keys \
         cannot load",
        "make a directory of mode 0700 in /dev/shm and name it with --local-load=DIR",
    );
}

fn keeps_loads_sealed(program: &Path, arguments: &[OsString]) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let says_where = |word: &OsString| {
        let word = word.as_encoded_bytes();
        word.starts_with(b"-l") || word.starts_with(b"--local")
    };
    PRINTERS.contains(&name) && !arguments.iter().any(says_where)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_printer_of_logs_without_a_place_for_rows_is_told_of() {
        for (program, words, told) in [
            ("/usr/bin/mariadb-binlog", &["-v", "binlog.000001"][..], true),
            ("/usr/bin/mysqlbinlog", &[], true),
            ("/usr/bin/mysqlbinlog", &["-l/dev/shm/x", "b"], false),
            ("/usr/bin/mariadb-binlog", &["--local-load=/x"], false),
            ("/usr/bin/mariadb-binlog", &["--local_load", "/x"], false),
            ("/usr/sbin/mariadbd", &[], false),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(keeps_loads_sealed(Path::new(program), &words), told, "{program} {words:?}");
        }
    }
}
