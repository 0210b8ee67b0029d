//! `/etc/tidelock/UNIT.toml`: what was installed for a unit, to run it, to undo it exactly, and to see
//! whether a person has changed it since.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::service::plan::{Unit, below};

const BEGIN: &str = "# tidelock: begin (`tidelock service remove` takes this away)\n";
const END: &str = "# tidelock: end\n";

/// What was installed for a unit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// The protected directory.
    pub(super) directory: PathBuf,
    /// Where its agent listens.
    pub(super) socket: PathBuf,
    /// The files.
    pub(super) written: Vec<Written>,
}

/// A file, or a block of one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    /// A block between two marks; the rest is somebody else's.
    pub(super) block: bool,
    pub(super) text: String,
}

impl Record {
    /// That of an installed unit.
    ///
    /// # Errors
    /// [`Error::Refused`] if somebody else may have written it, or it is no record; [`Error::Io`].
    pub(super) fn read(unit: &Unit, root: &Path) -> Result<Option<Self>> {
        let path = place(unit, root);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(Error::io("look at", &path)(why)),
        };
        let me = rustix::process::geteuid().as_raw();
        if !found.is_file() || found.mode() & 0o022 != 0 || ![0, me].contains(&found.uid()) {
            let what = format!("{}: others than root may have written it", path.display());
            return Err(Error::refused(what, "look at it, then chown root and chmod 644"));
        }
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        toml::from_str(&text).map(Some).map_err(|why| {
            let hint = "remove it and the files that it names, then install again";
            Error::refused(format!("{} cannot be read: {why}", path.display()), hint)
        })
    }

    /// Writes all that is not there yet, this record first; which files.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is written if a person has changed one; [`Error::Io`].
    pub(super) fn write(
        &self,
        old: Option<&Self>,
        unit: &Unit,
        root: &Path,
    ) -> Result<Vec<PathBuf>> {
        let mut changes = Vec::new();
        for new in &self.written {
            let before = old.and_then(|old| old.written.iter().find(|it| it.path == new.path));
            changes.extend(new.change(before, root)?.map(|text| (below(root, &new.path), text)));
        }
        // What an earlier version wrote elsewhere.
        for gone in old.iter().flat_map(|old| &old.written) {
            if self.written.iter().all(|it| it.path != gone.path) {
                gone.take_away(root)?;
            }
        }
        if old != Some(self) {
            let path = place(unit, root);
            let text = toml::to_string(self)
                .map_err(|why| Error::io("write", &path)(io::Error::other(why)))?;
            let head = format!("# What `tidelock service install {unit}` did.\n");
            changes.insert(0, (path, head + &text));
        }
        for (path, text) in &changes {
            replace(path, text)?;
        }
        Ok(changes.into_iter().map(|(path, _)| path).collect())
    }

    /// Takes all away, this record last; which files.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is removed if a person has changed one; [`Error::Io`].
    pub(super) fn remove(&self, unit: &Unit, root: &Path) -> Result<Vec<PathBuf>> {
        for written in &self.written {
            written.rest(root)?;
        }
        let mut removed = Vec::new();
        for written in &self.written {
            if written.take_away(root)? {
                removed.push(below(root, &written.path));
            }
        }
        let path = place(unit, root);
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        removed.push(path);
        Ok(removed)
    }
}

impl Written {
    /// The file's new text; `None` if it is as it should be. `before` is what we wrote last time.
    fn change(&self, before: Option<&Self>, root: &Path) -> Result<Option<String>> {
        let path = below(root, &self.path);
        let found = read(&path)?;
        if !self.block {
            return match found {
                Some(found) if found == self.text => Ok(None),
                Some(found) if before.is_none_or(|before| before.text != found) => {
                    Err(changed(&path))
                }
                _ => Ok(Some(self.text.clone())),
            };
        }
        let found = found.unwrap_or_default();
        let mut rest = match before {
            Some(before) => before.rest(root)?.unwrap_or_default(),
            None => found.clone(),
        };
        if rest.contains("LD_PRELOAD") || rest.contains("TIDELOCK_AGENT") || rest.contains(BEGIN) {
            return Err(changed(&path));
        }
        if !rest.is_empty() && !rest.ends_with('\n') {
            rest.push('\n');
        }
        let text = format!("{rest}{}", self.marked());
        Ok((text != found).then_some(text))
    }

    fn marked(&self) -> String {
        format!("{BEGIN}{}{END}", self.text)
    }

    /// What stays of the file when ours is taken out; `None` if nothing does.
    fn rest(&self, root: &Path) -> Result<Option<String>> {
        let path = below(root, &self.path);
        match read(&path)? {
            None => Ok(None),
            Some(found) if !self.block && found == self.text => Ok(None),
            Some(found) if self.block && found.contains(&self.marked()) => {
                let rest = found.replacen(&self.marked(), "", 1);
                Ok((!rest.is_empty()).then_some(rest))
            }
            // Taken out already.
            Some(found) if self.block && !found.contains(BEGIN) => Ok(Some(found)),
            Some(_) => Err(changed(&path)),
        }
    }

    fn take_away(&self, root: &Path) -> Result<bool> {
        let path = below(root, &self.path);
        match self.rest(root)? {
            Some(rest) => replace(&path, &rest)?,
            None if path.symlink_metadata().is_ok() => {
                fs::remove_file(&path).map_err(Error::io("remove", &path))?;
                // The folder of drop-ins, if it was ours alone.
                if !self.block
                    && let Some(folder) = path.parent()
                {
                    let _ = fs::remove_dir(folder);
                }
            }
            None => return Ok(false),
        }
        Ok(true)
    }
}

fn place(unit: &Unit, root: &Path) -> PathBuf {
    below(root, Path::new("/etc/tidelock")).join(format!("{unit}.toml"))
}

fn changed(path: &Path) -> Error {
    Error::refused(
        format!("{} was changed by somebody else", path.display()),
        "take the lines about LD_PRELOAD and Tidelock out of it, or move it away, and run it again",
    )
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Error::io("read", path)(why)),
    }
}

/// Replaces a file whole, with the owner and mode that it had; a new one is for all to read.
fn replace(path: &Path, text: &str) -> Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".tidelock-new");
    let next = PathBuf::from(next);
    let write = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        let _ = fs::remove_file(&next);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&next)?;
        file.write_all(text.as_bytes())?;
        let mode = match fs::metadata(path) {
            Ok(old) => {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
                old.mode() & 0o777
            }
            Err(_) => 0o644,
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&next, path)
    };
    write().map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = "# the cluster's own\nTZ = 'UTC'\n";

    fn record(value: &str) -> Record {
        let written = |path: &str, block| Written {
            path: path.into(),
            block,
            text: format!("LD_PRELOAD = '{value}'\n"),
        };
        Record {
            directory: "/data".into(),
            socket: "/run/x.sock".into(),
            written: vec![
                written("/etc/pg/environment", true),
                written("/etc/unit.d/t.conf", false),
            ],
        }
    }

    struct World {
        home: tempfile::TempDir,
        unit: Unit,
    }

    impl World {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            fs::create_dir_all(home.path().join("etc/pg")).unwrap();
            let world = Self { home, unit: "pg".parse().unwrap() };
            world.put("etc/pg/environment", FOUND);
            world
        }

        fn put(&self, path: &str, text: &str) {
            fs::write(self.home.path().join(path), text).unwrap();
        }

        fn text(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.home.path().join(path)).ok()
        }

        fn install(&self, value: &str) -> Result<usize> {
            let root = self.home.path();
            let old = Record::read(&self.unit, root)?;
            record(value).write(old.as_ref(), &self.unit, root).map(|wrote| wrote.len())
        }

        fn remove(&self) -> Result<()> {
            let root = self.home.path();
            Record::read(&self.unit, root)?.unwrap().remove(&self.unit, root).map(drop)
        }
    }

    #[test]
    fn it_is_idempotent_and_removing_undoes_exactly() {
        let world = World::new();
        assert_eq!(world.install("a").unwrap(), 3);
        assert_eq!(world.install("a").unwrap(), 0);
        let text = world.text("etc/pg/environment").unwrap();
        assert!(text.starts_with(FOUND) && text.contains("LD_PRELOAD = 'a'\n"), "{text}");
        assert_eq!(world.install("b").unwrap(), 3);
        let text = world.text("etc/pg/environment").unwrap();
        assert!(!text.contains("'a'") && text.matches("LD_PRELOAD").count() == 1, "{text}");
        world.remove().unwrap();
        assert_eq!(world.text("etc/pg/environment").as_deref(), Some(FOUND));
        for gone in ["etc/unit.d", "etc/tidelock/pg.toml"] {
            assert!(!world.home.path().join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn what_a_person_changed_is_neither_overwritten_nor_removed() {
        for path in ["etc/pg/environment", "etc/unit.d/t.conf"] {
            let world = World::new();
            world.install("a").unwrap();
            let edited = world.text(path).unwrap().replace("'a'", "'mine'");
            world.put(path, &edited);
            assert!(matches!(world.install("b"), Err(Error::Refused { .. })), "{path}");
            assert!(matches!(world.remove(), Err(Error::Refused { .. })), "{path}");
            assert_eq!(world.text(path), Some(edited));
        }
        // A library that was there before us.
        let world = World::new();
        world.put("etc/pg/environment", "LD_PRELOAD = '/other.so'\n");
        assert!(matches!(world.install("a"), Err(Error::Refused { .. })));
        assert_eq!(world.text("etc/tidelock/pg.toml"), None);
    }

    #[test]
    fn lines_beside_the_block_stay() {
        let world = World::new();
        world.install("a").unwrap();
        let text = world.text("etc/pg/environment").unwrap() + "LANG = 'C'\n";
        world.put("etc/pg/environment", &text);
        world.install("b").unwrap();
        world.remove().unwrap();
        let text = world.text("etc/pg/environment").unwrap();
        assert_eq!(text, format!("{FOUND}LANG = 'C'\n"));
    }
}
