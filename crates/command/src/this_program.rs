//! Where this program is, also while a package replaces it.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::whereabouts::DELETED;

/// The path of this program; after an upgrade that of the new one, which took its place.
///
/// # Errors
/// Its path cannot be read.
pub(crate) fn path() -> Result<PathBuf> {
    let path = std::env::current_exe().map_err(Error::io("find", "/proc/self/exe"))?;
    Ok(replaced(path))
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
