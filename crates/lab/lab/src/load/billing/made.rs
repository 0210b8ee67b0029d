//! Which files of a market's directory this program made: only those are ever replaced or removed.
//!
//! `.tidelock-made` has one name a line, relative to the directory, on the disk before the file is
//! made. A file that is not in it belongs to the user, whatever its name. It is no lock: two
//! engines that make the same file make the same one.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

/// The list of a directory.
#[derive(Debug)]
pub(super) struct Made {
    dir: PathBuf,
    names: BTreeSet<String>,
}

impl Made {
    /// What was made in `dir`; nothing if it has no list.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(LIST);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io(format!("reading {}", path.display()))(e)),
        };
        // A torn last line is not a name yet, and no file was made for it.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let names = whole.lines().filter(|name| !name.ends_with('/')).map(str::to_owned).collect();
        Ok(Self { dir: dir.into(), names })
    }

    /// Notes that these files are about to be made.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when there is one that is not in the list; then none is noted.
    pub(super) fn claim(&mut self, names: &[String]) -> Result<()> {
        let new: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !self.names.contains(*name)).collect();
        for name in &new {
            self.is_free(name)?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let path = self.dir.join(LIST);
        let add = || {
            let mut list = OpenOptions::new().create(true).append(true).open(&path)?;
            // A torn line must not become a name: what follows makes it one that no file has.
            list.write_all(format!("/\n{}\n", new.join("\n")).as_bytes())?;
            list.sync_data()?;
            File::open(&self.dir)?.sync_all()
        };
        add().map_err(Error::io(format!("writing {}", path.display())))?;
        self.names.extend(names.iter().cloned());
        Ok(())
    }

    /// Sees that nothing of the user's has this name.
    ///
    /// # Errors
    /// [`Error::NotOurs`].
    pub(super) fn is_free(&self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io(format!("looking for {}", path.display()))(e)),
            Ok(_) if self.names.contains(name) => Ok(()),
            Ok(_) => Err(Error::NotOurs { path }),
        }
    }

    /// Whether the list has it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Removes the files of an attempt that was cut short, so that another market can take their
    /// place.
    pub(super) fn remove_all(&self) -> Result<()> {
        for name in &self.names {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {}", path.display()))(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives up what the list has: the files stay and are the user's from now on.
    pub(super) fn give_up(self) -> Result<()> {
        let path = self.dir.join(LIST);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io(format!("removing {}", path.display()))(e))
            }
            _ => Ok(()),
        }
    }
}

/// Name of the list.
const LIST: &str = ".tidelock-made";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_is_never_claimed_and_a_torn_name_is_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("theirs"), "words").unwrap();
        let mut made = Made::read(dir.path()).unwrap();
        let error = made.claim(&["theirs".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("theirs"), "{error}");
        made.claim(&["ours".to_owned()]).unwrap();
        fs::write(dir.path().join("ours"), "1").unwrap();
        let list = dir.path().join(LIST);
        let text = fs::read_to_string(&list).unwrap();
        fs::write(&list, text + "the").unwrap();
        let mut made = Made::read(dir.path()).unwrap();
        assert!(made.has("ours") && !made.has("the"));
        fs::write(dir.path().join("the"), "words").unwrap();
        assert!(matches!(made.claim(&["the".to_owned()]), Err(Error::NotOurs { .. })));
        made.claim(&["another".to_owned()]).unwrap();
        let made = Made::read(dir.path()).unwrap();
        assert!(made.has("ours") && made.has("another") && !made.has("the"));
        made.remove_all().unwrap();
        assert!(!dir.path().join("ours").exists() && dir.path().join("theirs").exists());
        made.give_up().unwrap();
        assert!(!Made::read(dir.path()).unwrap().has("ours"));
    }
}
