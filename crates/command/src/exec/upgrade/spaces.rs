//! Tablespaces that the old cluster and the new one share: each has a folder of its own there.
//!
//! ```text
//!   SPACE/PG_15_202209061   the old cluster's
//!   SPACE/PG_17_202406281   the new one's, which pg_upgrade lets its server make
//! ```
//!
//! A folder is named for the major version and the version of the catalogs. The major one tells
//! whose it is: pg_upgrade refuses tablespaces between clusters of the same one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tidelock_contract::postgres::TABLESPACES;

use crate::error::{Error, Result};

/// As many as the library can hold, two folders each.
const MOST: usize = 128;

/// One of the two clusters.
#[derive(Clone, Copy)]
pub(super) struct Cluster<'p> {
    /// Its data directory, canonical.
    pub(super) dir: &'p Path,
    /// This run has its keys.
    pub(super) protected: bool,
}

/// What the library is told: for each folder its cluster, empty for a plain one, and how its path
/// begins, a line each.
///
/// # Errors
/// [`Error::Refused`] for two clusters of one major version, and for paths that cannot be told.
pub(super) fn share(old: Cluster<'_>, new: Cluster<'_>) -> Result<OsString> {
    let mut lines = OsString::new();
    let spaces = tablespaces(old.dir)?;
    if spaces.is_empty() {
        return Ok(lines);
    }
    let (from, to) = (major(old.dir)?, major(new.dir)?);
    if from == to {
        return Err(Error::refused(
            format!(
                "{} has tablespaces, and both clusters have version {to}: pg_upgrade brings \
                 tablespaces to another version only",
                old.dir.display()
            ),
            "make the new cluster with initdb of the version that you upgrade to",
        ));
    }
    if spaces.len() > MOST {
        return Err(Error::refused(
            format!(
                "{} has {} tablespaces, and {MOST} are followed at most",
                old.dir.display(),
                spaces.len()
            ),
            "move some to pg_default (ALTER DATABASE, ALTER TABLE ... SET TABLESPACE), drop them",
        ));
    }
    for space in spaces {
        for (cluster, version) in [(old, &from), (new, &to)] {
            if cluster.protected {
                lines.push(one_line(cluster.dir)?);
            }
            lines.push("\n");
            lines.push(one_line(&space.join(format!("PG_{version}_")))?);
            lines.push("\n");
        }
    }
    Ok(lines)
}

/// Where the links lead; a tablespace within the data directory has none.
fn tablespaces(dir: &Path) -> Result<Vec<PathBuf>> {
    let links = dir.join(TABLESPACES);
    let mut found = Vec::new();
    for entry in fs::read_dir(&links).map_err(Error::io("list", &links))? {
        let link = entry.map_err(Error::io("list", &links))?.path();
        if link.is_symlink() {
            found.push(fs::canonicalize(&link).map_err(Error::io("follow", &link))?);
        }
    }
    found.sort();
    Ok(found)
}

/// The major version of a cluster.
fn major(dir: &Path) -> Result<String> {
    let path = dir.join("PG_VERSION");
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    Ok(text.trim().to_owned())
}

fn one_line(path: &Path) -> Result<&Path> {
    if path.as_os_str().as_bytes().contains(&b'\n') {
        return Err(Error::refused(
            format!("{:?} has a line break in its name", path.display().to_string()),
            "rename it, or move its files to pg_default",
        ));
    }
    Ok(path)
}
