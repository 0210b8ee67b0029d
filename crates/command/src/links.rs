//! Paths without links, also those of files that are still to be made: what decides what is inside
//! a directory goes by these.
//!
//! By text and by what is there now: nothing is kept open, so nothing here guards a file that is
//! written. `folder` does.

use std::io;
use std::path::{Component, Path, PathBuf};

/// An absolute path without links, as far as it is there. What is not there is added as it is
/// written, `..` too ([`goes_up`]), and a link that leads nowhere keeps its own name.
///
/// # Errors
/// The path is empty; it is relative, and there is no current directory.
pub(crate) fn without_links(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|it| Some((it.canonicalize().ok()?, it)));
    let Some((real, above)) = there else { return Ok(path) };
    Ok(match path.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        // For a path that is there, nothing is left to add.
        _ => real,
    })
}

/// True for a path with a `..`: behind a link or a directory that is still to be made, its text
/// does not say where it leads.
pub(crate) fn goes_up(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_as_far_as_the_path_exists() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        fs::create_dir(home.join("disk")).unwrap();
        symlink("disk", home.join("link")).unwrap();
        symlink("no-disk", home.join("dangling")).unwrap();
        for (path, real) in [
            ("disk", "disk"),
            ("link", "disk"),
            ("link/", "disk"),
            ("link/new/file", "disk/new/file"),
            ("new/file", "new/file"),
            ("link/../link/new", "disk/new"),
            ("link/new/../../file", "disk/new/../../file"),
            ("dangling", "dangling"),
            ("dangling/file", "dangling/file"),
        ] {
            let found = without_links(&home.join(path)).unwrap();
            assert_eq!(found.as_os_str(), home.join(real).as_os_str(), "{path}");
            assert_eq!(goes_up(&found), real.contains(".."), "{path}");
        }
        assert_eq!(without_links(Path::new("/")).unwrap(), Path::new("/"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(without_links(Path::new("no-such-file")).unwrap(), here.join("no-such-file"));
        assert!(without_links(Path::new("")).is_err());
    }

    #[test]
    fn only_a_whole_part_of_a_path_goes_up() {
        for (path, up) in [("/d/../x", true), ("..", true), ("/d/..x", false), ("/d/x..", false)] {
            assert_eq!(goes_up(Path::new(path)), up, "{path}");
        }
    }
}
