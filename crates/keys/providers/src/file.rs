//! A key file: 32 random bytes outside the protected directory, readable by its owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tidelock_cipher::Secret;
use tidelock_keyring::{Error, PrincipalKey, Provider, Purpose, SlotKind, SlotTerms};

use crate::descriptor::Descriptor;
use crate::room::{Kind, Room, some};
use crate::trust::{self, Audience};

const SLOT: SlotKind = SlotKind::new(1, "file");

/// `file:PATH`: opens slots with the bytes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProvider {
    /// The key file.
    pub path: PathBuf,
}

impl Room for FileProvider {
    fn kind() -> Kind {
        Kind::one_key(SLOT, "file:PATH")
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(some(text).map(|path| Self { path: path.into() }))
    }

    fn open(&self, _: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn key_file(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

impl FileProvider {
    /// Writes fresh random bytes to a new, empty file that its caller has made, and syncs it.
    ///
    /// # Errors
    /// No randomness, or [`Error::Io`]; `path` is for the message.
    pub fn fill(file: &mut File, path: &Path) -> Result<(), Error> {
        let key = Secret::<32>::random().map_err(|_| Error::Crypto { what: "random bytes" })?;
        let written = file.write_all(key.expose()).and_then(|()| file.sync_all());
        written.map_err(Error::io("write the key file", path))
    }
}

impl PrincipalKey for FileProvider {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("key file {}", self.path.display())
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&self.path)
            .map_err(Error::io("open the key file", &self.path))?;
        trust::check(&file, &self.path, Audience::OwnerOnly)?;
        let length = file.metadata().map_err(Error::io("look at the key file", &self.path))?.len();
        if length != 32 {
            return Err(Error::KeyFileLength { path: self.path.clone(), found: length });
        }
        let mut key = Secret::new([0; 32]);
        file.read_exact(key.expose_mut()).map_err(Error::io("read the key file", &self.path))?;
        Ok(key)
    }
}

/// A key beside its data protects nothing, nor does one that a link leads to.
///
/// # Errors
/// [`Error::InsideDirectory`]; [`Error::Io`] if the folder of `path` is not there.
pub fn refuse_inside(path: &Path, protected: &Path) -> Result<(), Error> {
    let folder = parent(path);
    let folder = fs::canonicalize(folder).map_err(Error::io("find", folder))?;
    let file = fs::canonicalize(path).ok();
    let dir = match fs::canonicalize(protected) {
        Ok(dir) => dir,
        // It does not exist yet; what will be its parent must.
        Err(_) => {
            let above = parent(protected);
            let above = fs::canonicalize(above).map_err(Error::io("find", above))?;
            above.join(protected.file_name().unwrap_or_default())
        }
    };
    if folder.starts_with(&dir) || file.is_some_and(|file| file.starts_with(&dir)) {
        return Err(Error::InsideDirectory { path: path.into(), dir });
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use tidelock_format::KeyringId;
    use tidelock_keyring::SlotId;

    fn provider(path: impl Into<PathBuf>) -> FileProvider {
        FileProvider { path: path.into() }
    }

    fn terms() -> SlotTerms {
        SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT)
    }

    /// A data directory, and a key file beside it.
    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let (dir, key) = (home.path().join("data"), home.path().join("data.key"));
        fs::create_dir(&dir).unwrap();
        let mut file = File::create_new(&key).unwrap();
        FileProvider::fill(&mut file, &key).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        (home, dir, key)
    }

    #[test]
    fn a_world_readable_key_file_is_refused() {
        let (_home, _, key) = place();
        let key_file = provider(&key);
        assert!(key_file.principal_key(&terms(), Purpose::Unlock).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o644] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let found = key_file.principal_key(&terms(), Purpose::Unlock);
            assert!(matches!(found, Err(Error::LooseFile { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_key_file_inside_the_directory_is_refused() {
        let (home, dir, key) = place();
        let inside = refuse_inside(&dir.join("x.key"), &dir);
        assert!(matches!(inside, Err(Error::InsideDirectory { .. })));
        assert!(refuse_inside(&key, &dir).is_ok());
        fs::rename(&key, dir.join("x.key")).unwrap();
        std::os::unix::fs::symlink(dir.join("x.key"), &key).unwrap();
        assert!(matches!(refuse_inside(&key, &dir), Err(Error::InsideDirectory { .. })));
        let later = home.path().join("later");
        assert!(refuse_inside(&home.path().join("later.key"), &later).is_ok());
    }

    #[test]
    fn a_short_key_file_a_pipe_and_a_directory_are_refused() {
        let (_home, dir, key) = place();
        fs::write(&key, [0; 31]).unwrap();
        let found = provider(&key).unwrap(&terms(), &[]);
        assert!(matches!(found, Err(Error::KeyFileLength { found: 31, .. })));
        assert!(provider(&dir).principal_key(&terms(), Purpose::Unlock).is_err());
        assert!(provider("/dev/zero").principal_key(&terms(), Purpose::Unlock).is_err());
    }
}
