//! What lies around a directory that shall be protected: data directories below it, a protected one
//! above it.
//!
//! The names of a policy begin at the data directory. Protecting a directory above several of them,
//! as /var/lib/postgresql is, would seal every file as mere bytes: PG_VERSION and the configuration
//! too, which other programs must read. Looks at names only, a few levels down.

use std::path::{Path, PathBuf};

use tidelock_contract::control::FOLDER;

use crate::error::{Error, Result};

/// Data directories lie so deep below what packages call their home: VERSION/NAME, and one more.
const LEVELS: u32 = 3;
/// No more entries than that are looked at.
const MOST: usize = 10_000;
/// What a data directory has.
const SIGNS: &[&str] = &["PG_VERSION", "global/pg_control", "ibdata1", FOLDER];
/// Below these, packages keep their data directories.
const HOMES: &[&str] = &["/var/lib/postgresql", "/var/lib/pgsql"];

/// Refuses a directory that lies in a protected one, and one that packages keep data directories
/// in, though it may be empty still.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_wrong_level(dir: &Path, profile: &str) -> Result<()> {
    let mut above = dir.ancestors().skip(1);
    if let Some(above) = above.find(|above| is_there(&above.join(FOLDER))) {
        return Err(Error::refused(
            format!("{} lies in another protected directory, {}", dir.display(), above.display()),
            "a file has the keys of one directory: choose one outside, or use that one",
        ));
    }
    if profile == "postgres" && is_home(dir) {
        let is_top = HOMES.iter().any(|home| dir == Path::new(home));
        let example = dir.join(if is_top { "15/main" } else { "main" });
        return Err(Error::refused(
            format!(
                "{} holds the data directories of packages, and is not one itself",
                dir.display()
            ),
            format!("protect the data directory itself, for example {}", example.display()),
        ));
    }
    Ok(())
}

/// A data directory below `dir`, if there is one and `dir` is not one itself.
pub(super) fn data_directory_below(dir: &Path) -> Option<PathBuf> {
    // A cluster's databases have a PG_VERSION too.
    if SIGNS.iter().any(|sign| is_there(&dir.join(sign))) {
        return None;
    }
    let mut left = MOST;
    search(dir, LEVELS, &mut left)
}

fn search(dir: &Path, levels: u32, left: &mut usize) -> Option<PathBuf> {
    let mut deeper = Vec::new();
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        *left = left.checked_sub(1)?;
        // Not through links: what they lead to does not lie here.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if SIGNS.iter().any(|sign| is_there(&path.join(sign))) {
            return Some(path);
        }
        deeper.push(path);
    }
    let levels = levels.checked_sub(1).filter(|levels| *levels > 0)?;
    deeper.iter().find_map(|path| search(path, levels, left))
}

/// /var/lib/postgresql, /var/lib/postgresql/15.
fn is_home(dir: &Path) -> bool {
    let is_version = |name: &std::ffi::OsStr| {
        name.to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    };
    HOMES.iter().map(Path::new).any(|home| match dir.strip_prefix(home) {
        Ok(rest) => rest.components().count() < 2 && is_version(rest.as_os_str()),
        Err(_) => false,
    })
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_homes_of_packages_are_no_data_directories() {
        for home in ["/var/lib/postgresql", "/var/lib/postgresql/15", "/var/lib/pgsql/9.6"] {
            assert!(is_home(Path::new(home)), "{home}");
        }
        for other in [
            "/var/lib/postgresql/15/main",
            "/var/lib/postgresql/data",
            "/var/lib/pgsql/15/data",
            "/srv/15",
        ] {
            assert!(!is_home(Path::new(other)), "{other}");
        }
    }
}
