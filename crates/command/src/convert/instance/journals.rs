//! What a program that did not end in order has left beside a database of SQLite or DuckDB: a
//! journal, or a log.
//!
//! The two belong together, and a conversion takes one file after the other. Cut off between them,
//! it leaves one plain and one sealed, and a bare program that comes then takes the journal or log
//! for one without content, and removes it. Knows how such files begin, nothing else of them. What
//! cannot be read is for the conversion to name.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tidelock_format::UNIT_USIZE;

use crate::error::{Error, Result};
use crate::sealed::{Content, Fault, Keys, Wanted};
use crate::walk;

/// What lies beside a database.
#[derive(Clone, Copy)]
enum Kind {
    /// SQLite's rollback journal.
    Journal,
    /// SQLite's write-ahead log.
    Log,
    /// DuckDB's write-ahead log.
    DuckDb,
}

/// How names of such files end, behind that of the database.
const ENDINGS: [(&str, Kind); 5] = [
    ("-journal", Kind::Journal),
    ("-wal", Kind::Log),
    (".checkpoint.wal", Kind::DuckDb),
    (".wal", Kind::DuckDb),
    (".wal.checkpoint", Kind::DuckDb),
];
/// How a journal begins that is not over: SQLite empties it, removes it or puts zeros there
/// ("Database File Format", sqlite.org, 3.0).
const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// How a log begins, but for a byte that says how its sums are made (the same, 4.1). The last
/// program to close the database removes it.
const LOG: [u8; 3] = [0x37, 0x7f, 0x06];
/// What a database of DuckDB has behind its first sum.
const DUCK: &[u8] = b"DUCK";
const DUCK_AT: usize = 8;

/// Refuses a directory with a journal or log that the database beside it still needs. `keys` are
/// those of a sealed one.
///
/// # Errors
/// [`Error::Refused`] with the first of them.
pub(super) fn refuse_left(dir: &Path, keys: Option<&Keys>) -> Result<()> {
    for found in walk::files(dir, &mut |_, _| {}) {
        let Some((database, kind)) = of_database(&found.path) else { continue };
        if !database.is_file() || !kind.is_needed(&found.path, &database, keys) {
            continue;
        }
        let name = found.path.file_name().unwrap_or_default().to_string_lossy();
        let with_keys = match keys {
            Some(_) => format!("tidelock exec -D {} -- ", dir.display()),
            None => String::new(),
        };
        let database = database.display();
        return Err(Error::refused(
            format!("{database} was not closed in order: its program has left {name}"),
            match kind {
                Kind::Journal | Kind::Log => format!(
                    "open it once and close it: {with_keys}sqlite3 {database} 'SELECT count(*) \
                     FROM sqlite_master'"
                ),
                Kind::DuckDb => {
                    format!("open it once and close it: {with_keys}duckdb {database} CHECKPOINT")
                }
            },
        ));
    }
    Ok(())
}

/// The database to which a file belongs by its name.
fn of_database(path: &Path) -> Option<(PathBuf, Kind)> {
    let name = path.file_name()?.as_bytes();
    ENDINGS.iter().find_map(|(end, kind)| {
        let database = name.strip_suffix(end.as_bytes()).filter(|it| !it.is_empty())?;
        Some((path.with_file_name(OsStr::from_bytes(database)), *kind))
    })
}

impl Kind {
    fn is_needed(self, left: &Path, database: &Path, keys: Option<&Keys>) -> bool {
        let left = begin(left, keys).unwrap_or_default();
        match self {
            Self::Journal => left.starts_with(&JOURNAL),
            Self::Log => left.starts_with(&LOG),
            Self::DuckDb => {
                let begin = begin(database, keys).unwrap_or_default();
                !left.is_empty() && begin.get(DUCK_AT..).is_some_and(|it| it.starts_with(DUCK))
            }
        }
    }
}

/// The first plain bytes of a file, whichever form it has: nothing of one whose header is not good.
fn begin(path: &Path, keys: Option<&Keys>) -> io::Result<Vec<u8>> {
    let plain =
        |into: &mut [u8]| -> io::Result<usize> { walk::read_first(&File::open(path)?, into) };
    let mut bytes = vec![0u8; UNIT_USIZE];
    let count = match keys.map(|keys| (keys, File::open(path))) {
        None => plain(&mut bytes)?,
        Some((keys, file)) => match keys.open(file?, Wanted::Any) {
            Ok(Content::Sealed(sealed)) => {
                let size = sealed.plain_size()?;
                sealed.read_plain(0, size, &mut bytes)?
            }
            Err(Fault::NotSealed) => plain(&mut bytes)?,
            _ => 0,
        },
    };
    bytes.truncate(count);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_journal_or_log_that_a_database_still_needs_is_refused_by_name() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        for (name, bytes) in [("app.db", &b"SQLite format 3\0"[..]), ("duck", b"01234567DUCK")] {
            fs::write(dir.join(name), bytes).unwrap();
        }
        let judge = |name: &str, bytes: &[u8]| {
            fs::write(dir.join(name), bytes).unwrap();
            let judged = refuse_left(dir, None);
            fs::remove_file(dir.join(name)).unwrap();
            judged.map_err(|why| (why.exit_code(), why.to_string(), why.hint()))
        };
        let log = [0x37, 0x7f, 0x06, 0x82, 0, 0];
        for (name, bytes, with) in [
            ("app.db-journal", &JOURNAL[..], "sqlite3"),
            ("app.db-wal", &log, "sqlite3"),
            ("duck.wal", b"x", "duckdb"),
            ("duck.wal.checkpoint", b"x", "duckdb"),
        ] {
            let (code, why, hint) = judge(name, bytes).unwrap_err();
            assert!(code == 3 && why.ends_with(&format!("has left {name}")), "{why}");
            assert!(hint.contains(&format!(": {with} ")), "{hint}");
        }
        // Zeros in mode persist, nothing in mode truncate; no database beside it; another engine's.
        for (name, bytes) in [
            ("app.db-journal", &[0u8; 512][..]),
            ("app.db-journal", b""),
            ("app.db-wal", b""),
            ("app.db-wal", b"words"),
            ("gone.db-wal", &log),
            ("app.db.wal", b"x"),
            ("duck.wal", b""),
            ("-wal", &log),
        ] {
            assert_eq!(judge(name, bytes), Ok(()), "{name}");
        }
    }
}
