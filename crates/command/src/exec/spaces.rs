//! Folders in tablespaces that several clusters of one run could have: the library is told whose.
//!
//! ```text
//!   pg_upgrade   SPACE/PG_15_202209061  the old cluster's
//!                SPACE/PG_17_202406281  the new one's, which its server makes
//!   -T OLD=NEW   NEW/PG_17_202406281    the target's of pg_basebackup, pg_combinebackup
//! ```
//!
//! A folder is named for the major version and the version of the catalogs. The major one tells
//! whose it is: pg_upgrade refuses tablespaces between clusters of the same one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use tidelock_contract::postgres::TABLESPACES;

use super::arguments::Spelling;
use super::target::BASE_BACKUP;
use crate::error::{Error, Result};
use crate::links::without_links;
use crate::protected::Protected;

/// What tells the library: for each folder its cluster, empty for a plain one, and how its path
/// begins, a line each.
pub(super) const VARIABLE: &str = "TIDELOCK_SPACES";
/// Programs that map tablespaces with -T, and the option that names their target.
const MAPPING: &[(&str, &Spelling, &str)] =
    &[("pg_basebackup", &BASE_BACKUP, "pgdata"), ("pg_combinebackup", &COMBINE, "output")];
const COMBINE: Spelling = Spelling {
    short: b"oT",
    long: &["manifest-checksums", "output", "sync-method", "tablespace-mapping"],
    bare: &[
        "clone",
        "copy",
        "copy-file-range",
        "debug",
        "dry-run",
        "help",
        "link",
        "no-manifest",
        "no-sync",
        "version",
    ],
    alike: &[(b'o', "output"), (b'T', "tablespace-mapping")],
};
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

/// The lines for pg_upgrade.
///
/// # Errors
/// [`Error::Refused`] for two clusters of one major version, and for paths that cannot be found.
pub(super) fn upgraded(old: Cluster<'_>, new: Cluster<'_>) -> Result<OsString> {
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
            let dir = if cluster.protected { cluster.dir } else { Path::new("") };
            add(&mut lines, dir, &space.join(format!("PG_{version}_")))?;
        }
    }
    Ok(lines)
}

/// The lines for a program that copies a cluster, into a protected directory or to outside, and its
/// tablespaces to the places that -T names.
///
/// # Errors
/// [`Error::Refused`] for paths that cannot be found.
pub(super) fn mapped(
    program: &Path,
    arguments: &[OsString],
    run: &[Protected],
) -> Result<OsString> {
    let mut lines = OsString::new();
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((_, options, target)) = MAPPING.iter().find(|(known, _, _)| *known == name) else {
        return Ok(lines);
    };
    let target = options.values(target, arguments).pop().map(|dir| without_links(Path::new(dir)));
    let Some(Ok(target)) = target else { return Ok(lines) };
    let owner = match run.iter().find(|it| target.starts_with(&it.path)) {
        // Outside, the copy is plain, and so are its tablespaces.
        None => Path::new(""),
        Some(it) if it.path == target => &*target,
        Some(_) => return Ok(lines),
    };
    for mapping in options.values("tablespace-mapping", arguments) {
        if let Some(place) = mapped_to(mapping).and_then(|place| without_links(&place).ok()) {
            add(&mut lines, owner, &place.join("PG_"))?;
        }
    }
    // What is read: the tablespaces of plain backups.
    for argument in arguments.iter().filter(|_| name == "pg_combinebackup") {
        let Ok(backup) = fs::canonicalize(argument) else { continue };
        if run.iter().all(|it| it.path != backup) && backup.join(TABLESPACES).is_dir() {
            for space in tablespaces(&backup)? {
                add(&mut lines, Path::new(""), &space.join("PG_"))?;
            }
        }
    }
    Ok(lines)
}

/// NEW of `OLD=NEW`; a backslash before an equals sign makes it a part of the path.
fn mapped_to(mapping: &OsStr) -> Option<PathBuf> {
    let (mut parts, mut bytes) = (vec![Vec::new()], mapping.as_bytes().iter().peekable());
    while let Some(&byte) = bytes.next() {
        if byte == b'\\' && bytes.peek() == Some(&&b'=') {
            parts.last_mut()?.extend(bytes.next());
        } else if byte == b'=' {
            parts.push(Vec::new());
        } else {
            parts.last_mut()?.push(byte);
        }
    }
    // Other numbers of parts are for the program to refuse.
    let [_, new] = <[_; 2]>::try_from(parts).ok()?;
    Some(PathBuf::from(OsString::from_vec(new)))
}

fn add(lines: &mut OsString, dir: &Path, stem: &Path) -> Result<()> {
    for line in [one_line(dir)?, one_line(stem)?] {
        lines.push(line);
        lines.push("\n");
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_says_where_a_tablespace_goes() {
        let arguments = ["-vPT", "/a=/b", "-T/c=/d\\=e", "--tablespace=/f=/g", "-PRD", "/x"];
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let mapped = BASE_BACKUP.values("tablespace-mapping", &arguments);
        let mapped: Vec<_> = mapped.into_iter().filter_map(mapped_to).collect();
        assert_eq!(mapped, ["/b", "/d=e", "/g"].map(PathBuf::from));
        assert_eq!(BASE_BACKUP.values("pgdata", &arguments), ["/x"]);
        assert_eq!(mapped_to(OsStr::new("/a")), None);
    }

    #[test]
    fn tablespaces_of_a_copy_outside_are_nobodys() {
        for line in [
            "-D /nowhere/copy -T /a=/nowhere/space",
            "-PRD /nowhere/copy -vPT/a=/nowhere/space",
            "--tablespace=/a=/nowhere/space -PRD/nowhere/copy",
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let lines = mapped(Path::new("/bin/pg_basebackup"), &arguments, &[]).unwrap();
            assert_eq!(lines, "\n/nowhere/space/PG_\n", "{line}");
        }
    }
}
