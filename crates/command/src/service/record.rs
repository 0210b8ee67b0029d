//! `/etc/tidelock/installed/UNIT.toml`: what was installed for a unit, to run it, to undo it
//! exactly, and to see whether a person has changed it since.
//!
//! The folder of a Debian cluster is the server's: all is read and written by opened folders, so
//! that no link there leads root elsewhere. Each file is replaced whole, and lasts when the next is
//! begun.

mod file;

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::service::before;
use crate::service::plan::{Unit, below};

pub(crate) use file::{edit, text_of};
use file::{is_program, open, read, replace, take};

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
    /// What they replace: only while they are written, so that one that was interrupted is told
    /// from a person's change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) replaced: Vec<Written>,
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
        let Some(mut file) = open(&path)? else { return Ok(None) };
        let found = file.metadata().map_err(Error::io("look at", &path))?;
        let me = Owner::caller().uid;
        if found.mode() & 0o022 != 0 || ![0, me].contains(&found.uid()) {
            let what = format!("{}: users other than root may have written it", path.display());
            return Err(Error::refused(what, "look at it, then chown root and chmod 644"));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(Error::io("read", &path))?;
        toml::from_str(&text).map(Some).map_err(|why| {
            let hint = "remove it and the files that it names, then install again";
            Error::refused(format!("{} cannot be read: {why}", path.display()), hint)
        })
    }

    /// The units of this machine that can be read, and theirs.
    pub(super) fn all() -> Vec<(Unit, Self)> {
        let folder = std::fs::read_dir("/etc/tidelock/installed");
        let names = folder.into_iter().flatten().flatten().filter_map(|entry| {
            let unit: Unit = entry.path().file_stem()?.to_str()?.parse().ok()?;
            let record = Self::read(&unit, Path::new("/")).ok().flatten()?;
            Some((unit, record))
        });
        names.collect()
    }

    /// Writes all that is not there yet, which files. The record comes first, with what it
    /// replaces, and without that when all is done: wherever this is cut off, another install or
    /// remove knows every text that can be in a file.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is written if a person has changed one; [`Error::Io`].
    pub(super) fn write(
        &self,
        old: Option<&Self>,
        unit: &Unit,
        root: &Path,
    ) -> Result<Vec<PathBuf>> {
        let before = self.may_be_there(old, unit, root)?;
        let changes = self.changes(&before, root)?;
        if changes.is_empty() && old == Some(self) {
            return Ok(Vec::new());
        }
        let path = place(unit, root);
        let replaced = before.iter().filter(|it| !self.written.contains(it)).cloned().collect();
        let begun = Self { replaced, ..self.clone() };
        begun.save(&path, unit)?;
        for (path, text) in &changes {
            replace(path, text)?;
        }
        // What an earlier version wrote elsewhere.
        for it in self.gone(&before) {
            it.take_away(&before, root)?;
        }
        if begun != *self {
            self.save(&path, unit)?;
        }
        Ok(std::iter::once(path).chain(changes.into_iter().map(|(path, _)| path)).collect())
    }

    /// What [`Record::write`] would refuse, without writing.
    ///
    /// # Errors
    /// As [`Record::write`].
    pub(super) fn refuse_write(&self, old: Option<&Self>, unit: &Unit, root: &Path) -> Result<()> {
        self.changes(&self.may_be_there(old, unit, root)?, root).map(drop)
    }

    /// What may be in the files: what was installed for the unit, and in those that other units
    /// share, what an install of these has written.
    fn may_be_there(&self, old: Option<&Self>, unit: &Unit, root: &Path) -> Result<Vec<Written>> {
        let is_shared =
            |it: &Written| !it.block && self.written.iter().any(|own| own.path == it.path);
        let own = old.iter().flat_map(|old| old.ours()).cloned();
        Ok(own.chain(others(unit, root)?.into_iter().filter(is_shared)).collect())
    }

    /// The files that are to be written, and their texts. What a person has changed is found here,
    /// also in what an earlier version wrote elsewhere.
    fn changes(&self, before: &[Written], root: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut changes = Vec::new();
        for new in &self.written {
            let text = new.change(before, root)?;
            changes.extend(text.map(|text| (below(root, &new.path), text)));
        }
        for it in self.gone(before) {
            it.rest(before, root)?;
        }
        Ok(changes)
    }

    fn gone<'b>(&self, before: &'b [Written]) -> Vec<&'b Written> {
        let gone = |it: &&Written| self.written.iter().all(|new| new.path != it.path);
        before.iter().filter(gone).collect()
    }

    /// The library that the server is started with.
    pub(super) fn library(&self) -> Option<PathBuf> {
        // Not in the unit's own commands, which are repeated there.
        let own = |it: &&Written| it.path.file_name() != Some(before::FILE.as_ref());
        let mut written = self.written.iter().filter(own);
        let after = written.find_map(|it| it.text.split_once("LD_PRELOAD"))?.1;
        let mut words = after.split([' ', '=', '\'', '\n']).filter(|word| !word.is_empty());
        words.next().map(PathBuf::from)
    }

    /// The same, if a drop-in names it: systemd lets a file of variables come before that.
    pub(super) fn library_of_drop_in(&self) -> Option<PathBuf> {
        let named = |it: &Written| !it.block && it.text.contains("Environment=LD_PRELOAD=");
        self.written.iter().any(named).then(|| self.library()).flatten()
    }

    /// True if a drop-in says `Environment=` with this word.
    pub(super) fn has_assigned(&self, word: &str) -> bool {
        let has = |line: &str| {
            let words = line.strip_prefix("Environment=");
            words.is_some_and(|words| words.split(' ').any(|it| it == word))
        };
        self.ours().any(|it| !it.block && it.text.lines().any(has))
    }

    /// All texts that may be in a file.
    fn ours(&self) -> impl Iterator<Item = &Written> {
        self.written.iter().chain(&self.replaced)
    }

    fn save(&self, path: &Path, unit: &Unit) -> Result<()> {
        let text =
            toml::to_string(self).map_err(|why| Error::io("write", path)(io::Error::other(why)))?;
        replace(path, &format!("# What `tidelock service install {unit}` did.\n{text}"))
    }

    /// What [`Record::remove`] would refuse, without removing.
    ///
    /// # Errors
    /// As [`Record::remove`].
    pub(super) fn refuse_remove(&self, unit: &Unit, root: &Path) -> Result<()> {
        let ours: Vec<Written> = self.ours().cloned().collect();
        let alone = self.alone(unit, root)?;
        alone.iter().try_for_each(|written| written.rest(&ours, root).map(drop))
    }

    /// What no other unit shares.
    fn alone(&self, unit: &Unit, root: &Path) -> Result<Vec<&Written>> {
        let others = others(unit, root)?;
        let alone = |it: &&Written| others.iter().all(|other| other.path != it.path);
        Ok(self.ours().filter(alone).collect())
    }

    /// Takes all away, this record last; which files.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is removed if a person has changed one; [`Error::Io`].
    pub(super) fn remove(&self, unit: &Unit, root: &Path) -> Result<Vec<PathBuf>> {
        self.refuse_remove(unit, root)?;
        let ours: Vec<Written> = self.ours().cloned().collect();
        let mut removed = Vec::new();
        for written in self.alone(unit, root)? {
            if written.take_away(&ours, root)? {
                removed.push(below(root, &written.path));
            }
        }
        let path = place(unit, root);
        take(&path, true)?;
        removed.push(path);
        Ok(removed)
    }
}

impl Written {
    /// The file's new text; `None` if it is as it should be. `before` is what we may have written.
    fn change(&self, before: &[Self], root: &Path) -> Result<Option<String>> {
        let path = below(root, &self.path);
        let found = read(&path)?;
        if !self.block {
            return match found {
                Some(found) if found == self.text => Ok(None),
                Some(found) if !self.versions(before).any(|it| it.text == found) => {
                    Err(changed(&path))
                }
                _ => Ok(Some(self.text.clone())),
            };
        }
        let mut rest = self.rest(before, root)?.unwrap_or_default();
        if rest.contains("LD_PRELOAD") || rest.contains("TIDELOCK_AGENT") {
            return Err(changed(&path));
        }
        if !rest.is_empty() && !rest.ends_with('\n') {
            rest.push('\n');
        }
        let text = format!("{rest}{}", self.marked());
        Ok((Some(&text) != found.as_ref()).then_some(text))
    }

    /// What we may have written into the same file.
    fn versions<'a>(&'a self, before: &'a [Self]) -> impl Iterator<Item = &'a Self> {
        before.iter().filter(|it| it.path == self.path && it.block == self.block)
    }

    fn marked(&self) -> String {
        format!("{BEGIN}{}{END}", self.text)
    }

    /// What stays of the file when ours is taken out; `None` if nothing does.
    fn rest(&self, before: &[Self], root: &Path) -> Result<Option<String>> {
        let path = below(root, &self.path);
        let Some(found) = read(&path)? else { return Ok(None) };
        if !self.block {
            let ours = self.versions(before).any(|it| it.text == found);
            return if ours { Ok(None) } else { Err(changed(&path)) };
        }
        // Taken out already, or never in it.
        if !found.contains(BEGIN) {
            return Ok(Some(found));
        }
        let marked = self.versions(before).map(Self::marked).find(|text| found.contains(text));
        let rest = found.replacen(&marked.ok_or_else(|| changed(&path))?, "", 1);
        if rest.contains(BEGIN) {
            return Err(changed(&path));
        }
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn take_away(&self, before: &[Self], root: &Path) -> Result<bool> {
        let path = below(root, &self.path);
        match self.rest(before, root)? {
            Some(rest) if read(&path)?.as_ref() == Some(&rest) => return Ok(false),
            Some(rest) => replace(&path, &rest)?,
            None if path.symlink_metadata().is_ok() => {
                // With the folder of drop-ins, if it was ours alone.
                take(&path, !self.block && !is_program(&self.text))?;
            }
            None => return Ok(false),
        }
        Ok(true)
    }
}

/// What the records of other units name: what they share stays until the last is removed.
fn others(unit: &Unit, root: &Path) -> Result<Vec<Written>> {
    let own = place(unit, root);
    let folder = own.parent().unwrap_or(&own);
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(folder) {
        // Nothing is installed yet.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.map_err(Error::io("list", folder))?,
    };
    for entry in entries {
        let path = entry.map_err(Error::io("list", folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(Ok(other)) = name.strip_suffix(".toml").map(str::parse::<Unit>)
            && path != own
            && let Some(record) = Record::read(&other, root)?
        {
            found.extend(record.ours().cloned());
        }
    }
    Ok(found)
}

fn place(unit: &Unit, root: &Path) -> PathBuf {
    below(root, Path::new("/etc/tidelock/installed")).join(format!("{unit}.toml"))
}

fn changed(path: &Path) -> Error {
    Error::refused(
        format!("{} was changed by somebody else", path.display()),
        "remove the lines about LD_PRELOAD and Tidelock from it, or move it away, and run it again",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

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
            replaced: Vec::new(),
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

        /// What an install, or a removal, would refuse.
        fn refuse(&self, value: &str) -> Result<()> {
            let root = self.home.path();
            let old = Record::read(&self.unit, root)?;
            record(value).refuse_write(old.as_ref(), &self.unit, root)?;
            old.map_or(Ok(()), |old| old.refuse_remove(&self.unit, root))
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
        for gone in ["etc/unit.d", "etc/tidelock/installed/pg.toml"] {
            assert!(!world.home.path().join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn what_a_person_changed_is_neither_overwritten_nor_removed() {
        for path in ["etc/pg/environment", "etc/unit.d/t.conf"] {
            let world = World::new();
            world.install("a").unwrap();
            let edited = world.text(path).unwrap().replace("'a'", "'mine'");
            assert!(world.refuse("b").is_ok());
            world.put(path, &edited);
            // Told beforehand too, by what writes nothing.
            assert!(matches!(world.refuse("b"), Err(Error::Refused { .. })), "{path}");
            assert!(matches!(world.install("b"), Err(Error::Refused { .. })), "{path}");
            assert!(matches!(world.remove(), Err(Error::Refused { .. })), "{path}");
            assert_eq!(world.text(path), Some(edited));
        }
        // A library that was there before us.
        let world = World::new();
        world.put("etc/pg/environment", "LD_PRELOAD = '/other.so'\n");
        assert!(matches!(world.refuse("a"), Err(Error::Refused { .. })));
        assert!(matches!(world.install("a"), Err(Error::Refused { .. })));
        assert_eq!(world.text("etc/tidelock/installed/pg.toml"), None);
    }

    /// A step is a file that was replaced or removed: after each of them the machine may stop.
    #[test]
    fn an_install_that_was_cut_off_is_repaired_by_another_and_can_be_removed() {
        let files = ["etc/tidelock/installed/pg.toml", "etc/pg/environment", "etc/unit.d/t.conf"];
        let texts = |world: &World| files.map(|path| world.text(path));
        let (before, after) = (World::new(), World::new());
        before.install("a").unwrap();
        after.install("a").unwrap();
        after.install("b").unwrap();
        let begun = Record { replaced: record("a").written, ..record("b") };
        for done in 0..=2 {
            for (value, remove) in [("b", false), ("a", false), ("c", false), ("", true)] {
                let world = World::new();
                world.install("a").unwrap();
                begun.save(&world.home.path().join(files[0]), &world.unit).unwrap();
                for path in files.iter().skip(1).take(done) {
                    world.put(path, &after.text(path).unwrap());
                }
                if remove {
                    world.remove().unwrap();
                    assert_eq!(texts(&world), [None, Some(FOUND.to_owned()), None]);
                    continue;
                }
                world.install(value).unwrap();
                assert_eq!(world.install(value).unwrap(), 0);
                if value == "b" {
                    assert_eq!(texts(&world), texts(&after));
                }
                if value == "a" {
                    assert_eq!(texts(&world), texts(&before));
                }
                // A person's change is still told from ours.
                world.put(files[2], "LD_PRELOAD = 'mine'\n");
                assert!(world.install(value).is_err());
            }
        }
        // The first one, cut off behind its record.
        let world = World::new();
        fs::create_dir_all(world.home.path().join("etc/tidelock/installed")).unwrap();
        record("a").save(&world.home.path().join(files[0]), &world.unit).unwrap();
        world.install("a").unwrap();
        assert_eq!(texts(&world), texts(&before));
    }

    #[test]
    fn a_file_that_units_share_is_known_by_what_either_has_written() {
        let world = World::new();
        let root = world.home.path();
        let (one, two): (Unit, Unit) = ("one".parse().unwrap(), "two".parse().unwrap());
        let shared = |text: &str| {
            let written = Written { path: "/bin/tool".into(), block: false, text: text.to_owned() };
            Record { written: vec![written], ..record("a") }
        };
        let write = |unit: &Unit, text: &str| {
            let old = Record::read(unit, root)?;
            shared(text).refuse_write(old.as_ref(), unit, root)?;
            shared(text).write(old.as_ref(), unit, root)
        };
        for unit in [&one, &two] {
            write(unit, "first\n").unwrap();
        }
        // An upgrade of the package, and installs of both by it.
        write(&one, "second\n").unwrap();
        write(&two, "second\n").unwrap();
        // Of another one, after which the record of the second unit names an older text.
        write(&one, "third\n").unwrap();
        write(&two, "fourth\n").unwrap();
        write(&one, "fifth\n").unwrap();
        let record = Record::read(&two, root).unwrap().unwrap();
        record.refuse_remove(&two, root).unwrap();
        record.remove(&two, root).unwrap();
        assert_eq!(world.text("bin/tool").as_deref(), Some("fifth\n"));
        let record = Record::read(&one, root).unwrap().unwrap();
        record.remove(&one, root).unwrap();
        assert_eq!(world.text("bin/tool"), None);
        // A person's change is still told from either's.
        write(&one, "first\n").unwrap();
        world.put("bin/tool", "mine\n");
        assert!(write(&two, "first\n").is_err());
    }

    #[test]
    fn a_drop_in_is_known_by_its_variables() {
        let text = "[Service]\nEnvironment=LD_PRELOAD=/a.so TIDELOCK_AGENT=/x\n".to_owned();
        let written = vec![Written { path: "/d/t.conf".into(), block: false, text }];
        let record = Record { written, ..record("a") };
        assert!(record.has_assigned("LD_PRELOAD=/a.so"));
        assert!(!record.has_assigned("LD_PRELOAD=/a") && !record.has_assigned("TMPDIR=/d"));
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

    #[test]
    fn a_link_in_place_of_a_file_is_neither_read_nor_followed() {
        for path in ["etc/pg/environment", "etc/unit.d/t.conf", "etc/tidelock/installed/pg.toml"] {
            let world = World::new();
            world.put("secret", "elsewhere\n");
            let place = world.home.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&place);
            symlink(world.home.path().join("secret"), &place).unwrap();
            assert!(matches!(world.install("a"), Err(Error::Refused { .. })), "{path}");
            assert_eq!(world.text("secret").as_deref(), Some("elsewhere\n"));
            assert!(place.symlink_metadata().unwrap().is_symlink());
            // The same by a hard link.
            fs::remove_file(&place).unwrap();
            fs::hard_link(world.home.path().join("secret"), &place).unwrap();
            assert!(matches!(world.install("a"), Err(Error::Keys(_))), "{path}");
        }
    }

    #[test]
    fn a_configuration_behind_a_link_is_neither_read_nor_written_on() {
        let world = World::new();
        world.put("secret", "elsewhere\n");
        let conf = world.home.path().join("postgresql.conf");
        symlink(world.home.path().join("secret"), &conf).unwrap();
        let change = |_: &str| panic!("it was read");
        assert!(matches!(edit(&conf, change), Err(Error::Refused { .. })));
        assert!(matches!(text_of(&conf), Err(Error::Refused { .. })));
        fs::remove_file(&conf).unwrap();
        fs::write(&conf, "port = 1\n").unwrap();
        edit(&conf, |text| text.replace('1', "2")).unwrap();
        assert_eq!(text_of(&conf).unwrap(), "port = 2\n");
    }

    #[test]
    fn what_lies_where_the_next_file_is_written_is_replaced_and_not_written_through() {
        let world = World::new();
        world.put("secret", "elsewhere\n");
        let next = world.home.path().join("etc/pg/environment.tidelock-new");
        symlink(world.home.path().join("secret"), &next).unwrap();
        world.install("a").unwrap();
        assert_eq!(world.text("secret").as_deref(), Some("elsewhere\n"));
        assert!(next.symlink_metadata().is_err());
    }
}
