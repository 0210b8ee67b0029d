//! What the files of a directory need of its keyring, by their headers: the data keys, and a
//! generation that is not older.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Serialize;
use tidelock_contract::Decision;
use tidelock_keyring::Keyring;

use crate::console;
use crate::error::{Error, Result};
use crate::sealed::{Content, Fault, Keys, Wanted};
use crate::walk;

/// Counted; of the bad ones the first is named.
#[derive(Serialize, Default)]
pub(super) struct Files {
    /// Their keys are in the keyring.
    good: usize,
    /// Their data key is not.
    without_key: usize,
    /// They were sealed under a later generation than the keyring has.
    newer: usize,
    first: Option<PathBuf>,
    /// What is wrong with it.
    why: Option<String>,
    /// They have no good header: not a matter of keys.
    pub(super) doubtful: usize,
    /// Not listed or not read, by this user.
    unreadable: usize,
}

impl Files {
    /// Looks at the header of each file that must be sealed.
    ///
    /// # Errors
    /// The keyring has more data keys than can be held.
    pub(super) fn look(dir: &Path, keyring: &Keyring) -> Result<Self> {
        let keys = Keys::install(keyring)?;
        let mut files = Self::default();
        let mut unlisted = 0;
        let all = walk::files(dir, &mut |path, why| {
            unlisted += 1;
            if why.kind() == std::io::ErrorKind::NotFound {
                console::warn(
                    format!("{} is not looked at: {why}", path.display()),
                    "mount the disk, then run this again",
                );
            }
        });
        for found in all {
            if !matches!(keyring.policy().decide(found.name_bytes()), Decision::Seal(_)) {
                continue;
            }
            let opened = walk::open_file(&found.path, OFlags::RDONLY).map_err(Fault::from);
            match opened.and_then(|file| keys.open(file, Wanted::Any)) {
                Ok(Content::Empty) => {}
                Ok(_) => files.good += 1,
                Err(why @ Fault::UnknownKey { .. }) => {
                    files.without_key += 1;
                    files.name(found.path, &why);
                }
                Err(why @ Fault::RolledBack { .. }) => {
                    files.newer += 1;
                    files.name(found.path, &why);
                }
                Err(Fault::Read(why)) if why.kind() == std::io::ErrorKind::NotFound => {}
                Err(Fault::Read(_)) => files.unreadable += 1,
                Err(_) => files.doubtful += 1,
            }
        }
        files.unreadable += unlisted;
        Ok(files)
    }

    fn name(&mut self, path: PathBuf, why: &Fault) {
        if self.first.is_none() {
            self.first = Some(path);
            self.why = Some(why.to_string());
        }
    }

    /// Would a server read them all?
    ///
    /// # Errors
    /// [`Error::BadKey`] if not; [`Error::Unread`] if some could not be looked at.
    pub(super) fn verdict(&self, dir: &Path) -> Result<()> {
        if let (Some(first), Some(why)) = (&self.first, &self.why) {
            let bad = console::count(self.without_key + self.newer, "file");
            return Err(Error::BadKey {
                what: format!("{bad} would not open, {} first: {why}", first.display()),
                hint: "restore the newest copy of the keyring, or adopt the keys of the node that \
                       the files came from: `tidelock keyring restore`, `tidelock key adopt`"
                    .to_owned(),
            });
        }
        match self.unreadable {
            0 => Ok(()),
            count => Err(Error::Unread { count, dir: dir.into() }),
        }
    }

    /// A warning.
    pub(super) fn doubt(&self) -> String {
        format!("{} without a good header", console::count(self.doubtful, "file"))
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (good, bad) = (self.good, self.without_key + self.newer);
        write!(f, "{} whose key is here", console::count(good, "file"))?;
        if bad > 0 {
            write!(f, ", {bad} WHOSE KEY IS NOT")?;
        }
        if self.unreadable > 0 {
            write!(f, ", {} not looked at", self.unreadable)?;
        }
        Ok(())
    }
}
