//! Tables whose files a plain directory keeps outside: no conversion of it reaches them.
//!
//! MariaDB writes the path of a table with `DATA DIRECTORY` into a file of its own, `db/t.isl`.
//! MySQL keeps such paths in its data dictionary, so only a server that runs tells them. What a
//! link below the directory leads to belongs to it, if the path goes by that link.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tidelock_format::looks_sealed;

use super::brand::Brand;
use super::settings::is_below;
use crate::error::{Error, Result};
use crate::walk;

/// What files with such a path are called.
const LINK_FILE: &str = "isl";
/// PATH_MAX of Linux: none has more.
const LONGEST: u64 = 4096;

/// Refuses a plain directory of MariaDB with tables outside. Sealed files say nothing here.
///
/// # Errors
/// [`Error::Refused`] with the table and its file; [`Error::Io`].
pub(crate) fn refuse_tables_elsewhere(dir: &Path) -> Result<()> {
    if Brand::of(dir) != Some(Brand::MariaDb) {
        return Ok(());
    }
    // What cannot be listed is for the conversion to tell.
    for found in walk::files(dir, &mut |_, _| {}) {
        if found.name.extension().is_none_or(|it| it != LINK_FILE) {
            continue;
        }
        let text = match begin(&found.path) {
            // A server that runs has removed it meanwhile.
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            text => text.map_err(Error::io("read", &found.path))?,
        };
        let named = Path::new(OsStr::from_bytes(text.trim_ascii()));
        if text.is_empty() || looks_sealed(&text) || is_below(&dir.join(named), &[dir]) {
            continue;
        }
        let table = found.name.with_extension("");
        return Err(outside(&format!("the table {}", table.display()), named, dir));
    }
    Ok(())
}

fn begin(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(text)
}

/// Refuses paths of tablespaces, a line each, as MySQL tells them: what is relative lies below
/// `dir`, unless it leads out.
///
/// # Errors
/// [`Error::Refused`] with the first outside.
pub(crate) fn refuse_files_elsewhere(told: &str, dir: &Path) -> Result<()> {
    let mut files = told.lines().map(|file| dir.join(file));
    match files.find(|file| !is_below(file, &[dir])) {
        Some(file) => {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Err(outside(&format!("the table or tablespace {name}"), &file, dir))
        }
        None => Ok(()),
    }
}

fn outside(table: &str, file: &Path, dir: &Path) -> Error {
    Error::refused(
        format!(
            "{table} lies in {}, outside of {}, and would stay plain",
            file.display(),
            dir.display()
        ),
        "make it without DATA DIRECTORY: CREATE TABLE new LIKE it, without the clause, INSERT ... \
         SELECT, and RENAME; or dump it, drop it, and load the dump without the clause",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_table_of_mariadb_outside_is_refused_by_name_and_one_behind_a_link_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (dir, disk) = (home.path().join("d"), home.path().join("disk"));
        fs::create_dir_all(dir.join("db")).unwrap();
        fs::create_dir(&disk).unwrap();
        fs::create_dir(dir.join("mysql")).unwrap();
        fs::write(dir.join("aria_log_control"), "").unwrap();
        std::os::unix::fs::symlink(&disk, dir.join("link")).unwrap();
        let file = dir.join("db/t.isl");
        let judge = |text: &[u8]| {
            fs::write(&file, text).unwrap();
            refuse_tables_elsewhere(&dir).map_err(|why| (why.exit_code(), why.to_string()))
        };
        for inside in ["db/t.ibd", "other/db/t.ibd", "link/db/t.ibd"] {
            let text = format!("{}\n", dir.join(inside).display());
            assert_eq!(judge(text.as_bytes()), Ok(()), "{inside}");
        }
        assert_eq!(judge(b""), Ok(()));
        let path = disk.join("db/t.ibd").display().to_string();
        let (code, why) = judge(path.as_bytes()).unwrap_err();
        assert!(code == 3 && why.contains("the table db/t ") && why.contains(&path), "{why}");
    }

    #[test]
    fn a_file_of_mysql_outside_is_refused_by_name() {
        let dir = Path::new("/d");
        refuse_files_elsewhere("", dir).unwrap();
        let inside = "./ibdata1\n./undo_001\nibtmp1\n./#innodb_temp/temp_1.ibt\ndb/t.ibd\n\
                      /d/undo/undo_001\n";
        refuse_files_elsewhere(inside, dir).unwrap();
        let why = refuse_files_elsewhere("/d/undo_001\n/x/db/t.ibd\n", dir).unwrap_err();
        assert!(why.to_string().contains("/x/db/t.ibd"), "{why}");
    }

    /// MySQL before 8.0.21 takes `ADD DATAFILE '../ts/ts1.ibd'`.
    #[test]
    fn a_tablespace_of_mysql_outside_by_a_relative_path_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let dir = home.join("d");
        fs::create_dir_all(dir.join("db")).unwrap();
        fs::create_dir(home.join("ts")).unwrap();
        fs::write(home.join("ts/ts1.ibd"), "").unwrap();
        for outside in ["../ts/ts1.ibd", "./../ts/ts1.ibd", "db/../../ts/gone.ibd"] {
            let why = refuse_files_elsewhere(&format!("./ibdata1\n{outside}"), &dir).unwrap_err();
            assert!(why.exit_code() == 3 && why.to_string().contains(outside), "{why}");
        }
        for inside in ["../d/db/t.ibd", "db/../ts1.ibd"] {
            refuse_files_elsewhere(inside, &dir).unwrap();
        }
    }
}
