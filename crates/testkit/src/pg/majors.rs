//! PostgreSQL of other majors than the installed one: ready binaries (`ci/pg-majors`), which have
//! a server and initdb, and whole builds with all tools (`ci/pg-build`).

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_servers::{Error, Result, skip};

/// The ready binaries that are here, the oldest first: major and folder of programs.
///
/// # Errors
/// When the folder cannot be listed.
pub fn ready() -> Result<Vec<(u32, PathBuf)>> {
    listed("postgresql")
}

/// The whole build of a major; `None`, and it is said, where `ci/pg-build` has not made it.
#[must_use]
pub fn built(major: u32) -> Option<PathBuf> {
    let found = listed("postgresql-built").ok()?.into_iter().find(|(known, _)| *known == major);
    if found.is_none() {
        skip::because(format_args!("a whole PostgreSQL {major} is missing: ci/pg-build"));
    }
    found.map(|(_, bin)| bin)
}

/// `build/FOLDER/VERSION/bin`, wherever there is a server in it.
fn listed(folder: &str) -> Result<Vec<(u32, PathBuf)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build").join(folder);
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io("listing the majors"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let major = name.split('.').next().and_then(|major| major.parse().ok());
        if let Some(major) = major.filter(|_| path.join("bin/postgres").is_file()) {
            let bin = path.join("bin").canonicalize().map_err(Error::io("finding a major"))?;
            found.push((major, bin));
        }
    }
    found.sort();
    Ok(found)
}
