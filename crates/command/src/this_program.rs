//! Where this program is, also while a package replaces it; and how it begins again.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::whereabouts::DELETED;

/// The path of this program; after an upgrade that of the new one, which took its place.
///
/// # Errors
/// Its path cannot be read.
pub(crate) fn path() -> Result<PathBuf> {
    let path = std::env::current_exe().map_err(Error::io("find", "/proc/self/exe"))?;
    Ok(replaced(path))
}

/// Begins again without these variables, if one is set, and with the home of root's account where
/// root has none: systemd gives none to a service of root, and configuration and credentials may
/// lie there.
///
/// # Errors
/// This program cannot be run.
pub(crate) fn begin_again(without: &[&str]) -> Result<()> {
    let home = missing_home(std::env::var_os("HOME").as_deref());
    let is_set = |name: &&str| std::env::var_os(name).is_some();
    if home.is_none() && !without.iter().any(is_set) {
        return Ok(());
    }
    let program = path()?;
    let mut again = Command::new(&program);
    again.args(std::env::args_os().skip(1)).envs(home.map(|home| ("HOME", home)));
    for name in without {
        again.env_remove(name);
    }
    Err(Error::io("run", program)(again.exec()))
}

/// The home of root's account, for root whose HOME is `given`, where that is none.
pub(crate) fn missing_home(given: Option<&OsStr>) -> Option<PathBuf> {
    let caller = Owner::caller();
    let is_home = |given: &OsStr| Path::new(given).is_absolute();
    if caller.uid != 0 || given.is_some_and(is_home) { None } else { caller.home() }
}

fn replaced(path: PathBuf) -> PathBuf {
    let now = path.to_str().and_then(|path| path.strip_suffix(DELETED)).map(PathBuf::from);
    now.filter(|now| now.is_file() && !path.exists()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_a_package_replaced_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (new, gone) = (folder.path().join("tidelock"), folder.path().join("gone"));
        std::fs::write(&new, "").unwrap();
        let told = |path: &std::path::Path| PathBuf::from(format!("{}{DELETED}", path.display()));
        assert_eq!(replaced(told(&new)), new);
        assert_eq!(replaced(told(&gone)), told(&gone));
        // A file that has such a name.
        std::fs::write(told(&new), "").unwrap();
        assert_eq!(replaced(told(&new)), told(&new));
    }
}
