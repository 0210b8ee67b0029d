//! Folders outside of a directory that a conversion takes along, since links lead there.
//!
//! The links of a copy lead to the places of the original, whose files would be converted. Nobody
//! can see that for sure, so a person says that the places are this directory's.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use tidelock_contract::Policy;
use tidelock_contract::postgres::TABLESPACES;
use tidelock_runtime::MOST_LINKS;

use super::How;
use super::scan::Scan;
use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::running::{Found, Programs};

impl Scan {
    /// Links to folders outside with files that are to be converted, and where they lead.
    pub(super) fn places(&self) -> Vec<&(PathBuf, PathBuf)> {
        self.linked.iter().filter(|(link, _)| self.has_files(link)).collect()
    }

    /// True if there are files behind the link that are to be converted.
    pub(super) fn has_files(&self, link: &Path) -> bool {
        let mut names = self.items.iter().flat_map(|item| &item.names);
        names.any(|name| name.starts_with(link))
    }

    /// Refuses more links than the library can know, before files are sealed that no server could
    /// open.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_too_many_links(&self, dir: &Path, policy: &Policy) -> Result<()> {
        let spaces = policy.tablespace().map(|_| dir.join(TABLESPACES));
        let counts = |link: &Path| spaces.is_none() || link.parent() != spaces.as_deref();
        let count = self.linked.iter().filter(|(link, _)| counts(link)).count();
        if count <= MOST_LINKS {
            return Ok(());
        }
        Err(Error::refused(
            format!("{count} links lead out of {}: no server would start on it", dir.display()),
            format!(
                "about {MOST_LINKS} can be known, tablespaces aside: let one link lead to a \
                 directory above all that they lead to (`ln -s /dir/above/all DIR/+above`)"
            ),
        ))
    }

    /// Names the places, and asks whether they are this directory's unless `--outside` says so.
    ///
    /// # Errors
    /// [`Error::Refused`] if nobody says so.
    pub(super) fn agree_to_places(&self, dir: &Path, how: &How) -> Result<()> {
        let places = self.places();
        let (Some((link, target)), count) = (places.first(), places.len()) else { return Ok(()) };
        let is_here = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let is_asked = !how.outside && !how.json && is_here;
        if how.outside || is_asked {
            for (link, target) in &places {
                console::tell(
                    "note: ",
                    "36",
                    format!("{} leads to {}, converted too", link.display(), target.display()),
                );
            }
        }
        if is_asked {
            console::tell("note: ", "36", "is this a copy? then they are the original's");
            return console::agree(false);
        }
        if how.outside {
            return Ok(());
        }
        let more = match count {
            1 => String::new(),
            2 => ", and 1 other link leads out too".into(),
            _ => format!(", and {} other links lead out too", count - 1),
        };
        Err(Error::refused(
            format!(
                "{} leads to {}, which would be converted{more}",
                link.display(),
                target.display()
            ),
            format!(
                "if {} is a copy, lead its links to places of its own first: these are the \
                 original's; else say --outside (--dry-run without --json names them all)",
                dir.display()
            ),
        ))
    }

    /// Refuses a place that another directory with the same keyring, whose programs run, has too.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_shared(&self, protected: &Protected) -> Result<()> {
        let (dir, id) = (&protected.path, protected.keyring.id());
        for found in Found::of_keyring(dir, id, &Programs::of(dir)) {
            let Found::Answers(agent) = found else { continue };
            if agent.serves(dir) {
                continue;
            }
            let other = agent.directory.as_path();
            let theirs = links_of(other);
            let is_shared = |(_, target): &&&(PathBuf, PathBuf)| theirs.contains(target);
            if let Some((link, target)) = self.places().iter().find(is_shared) {
                return Err(Error::refused(
                    format!(
                        "{} leads to {}, and so does a link of {}, on which programs run",
                        link.display(),
                        target.display(),
                        other.display()
                    ),
                    "lead the links of a copy to places of its own before it is converted",
                ));
            }
        }
        Ok(())
    }
}

/// Where links of a directory lead.
fn links_of(dir: &Path) -> Vec<PathBuf> {
    let folders = [dir.to_path_buf(), dir.join(TABLESPACES)];
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.filter_map(|link| fs::canonicalize(link.path()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tidelock_keyring::Profile;

    use super::super::scan::scan;
    use super::*;

    #[test]
    fn more_links_than_can_be_known_are_refused_and_tablespaces_do_not_count() {
        let home = tempfile::tempdir().unwrap();
        let [dir, far] = ["dir", "far"].map(|name| home.path().join(name));
        fs::create_dir_all(dir.join(TABLESPACES)).unwrap();
        for number in 0..=MOST_LINKS {
            let space = far.join(number.to_string());
            fs::create_dir_all(space.join("PG_15_202209061")).unwrap();
            symlink(&space, dir.join(TABLESPACES).join(number.to_string())).unwrap();
        }
        let policy = Profile::builtin("postgres").unwrap().compile(&[], &[]).unwrap();
        scan(&dir, &policy, false).unwrap().refuse_too_many_links(&dir, &policy).unwrap();
        fs::rename(dir.join(TABLESPACES), dir.join("others")).unwrap();
        let found = scan(&dir, &policy, false).unwrap();
        let why = found.refuse_too_many_links(&dir, &policy).unwrap_err().to_string();
        assert!(why.contains("links lead out"), "{why}");
    }

    #[test]
    fn places_outside_are_converted_only_if_somebody_says_so() {
        let home = tempfile::tempdir().unwrap();
        let [dir, far] = ["dir", "far"].map(|name| home.path().join(name));
        for folder in [&dir, &far] {
            fs::create_dir(folder).unwrap();
        }
        symlink(&far, dir.join("pg_wal")).unwrap();
        let policy = Profile::builtin("postgres").unwrap().compile(&[], &[]).unwrap();
        let how = How { json: true, ..How::default() };
        let agree = |how: &How| scan(&dir, &policy, false).unwrap().agree_to_places(&dir, how);
        agree(&how).unwrap();
        fs::write(far.join("000000010000000000000001"), "wal").unwrap();
        let why = agree(&how).unwrap_err().to_string();
        assert!(why.contains("pg_wal") && why.contains("far"), "{why}");
        agree(&How { outside: true, ..how }).unwrap();
        assert_eq!(links_of(&dir), [fs::canonicalize(&far).unwrap()]);
    }
}
