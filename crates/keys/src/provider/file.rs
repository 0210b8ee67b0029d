//! A key file: 32 random bytes outside the protected directory, readable by its owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tidelock_cipher::Secret;

use super::{PrincipalKey, Purpose};
use crate::error::Error;
use crate::ownership::{self, Audience};
use crate::slot::{SlotKind, SlotTerms};

/// Opens slots with the bytes of a file.
#[derive(Clone, Debug)]
pub struct FileProvider {
    path: PathBuf,
}

impl FileProvider {
    /// The key file at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Makes a key file with fresh random bytes, mode 0600, synced.
    ///
    /// # Errors
    /// [`Error::InsideDirectory`] if it would lie inside `protected`; [`Error::Io`], also if it
    /// exists.
    pub fn create(path: impl Into<PathBuf>, protected: &Path) -> Result<Self, Error> {
        let path = path.into();
        refuse_inside(&path, protected)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("create the key file", &path))?;
        write_random(&mut file)
            .and_then(|()| File::open(parent(&path))?.sync_all())
            .map_err(Error::io("write the key file", &path))?;
        Ok(Self { path })
    }

    /// Writes fresh random bytes to a new, empty file that its caller has made, and syncs it.
    ///
    /// # Errors
    /// No randomness, or [`Error::Io`]; `path` is for the message.
    pub fn fill(file: &mut File, path: &Path) -> Result<(), Error> {
        write_random(file).map_err(Error::io("write the key file", path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl PrincipalKey for FileProvider {
    fn kind(&self) -> SlotKind {
        SlotKind::File
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
        ownership::check(&file, &self.path, Audience::OwnerOnly)?;
        let length = file.metadata().map_err(Error::io("look at the key file", &self.path))?.len();
        if length != 32 {
            return Err(Error::KeyFileLength { path: self.path.clone(), found: length });
        }
        let mut key = Secret::new([0; 32]);
        file.read_exact(key.expose_mut()).map_err(Error::io("read the key file", &self.path))?;
        Ok(key)
    }
}

fn write_random(file: &mut File) -> std::io::Result<()> {
    let key = Secret::<32>::random().map_err(|_| std::io::Error::other("no random bytes"))?;
    file.write_all(key.expose())?;
    file.sync_all()
}

/// A key beside its data protects nothing.
pub fn refuse_inside(path: &Path, protected: &Path) -> Result<(), Error> {
    let folder = parent(path);
    let folder = fs::canonicalize(folder).map_err(Error::io("find", folder))?;
    let dir = match fs::canonicalize(protected) {
        Ok(dir) => dir,
        // It does not exist yet; what will be its parent must.
        Err(_) => {
            let above = parent(protected);
            let above = fs::canonicalize(above).map_err(Error::io("find", above))?;
            above.join(protected.file_name().unwrap_or_default())
        }
    };
    if folder.starts_with(&dir) {
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
    use crate::provider::Provider;
    use crate::slot::{SlotId, SlotTerms};
    use tidelock_format::KeyringId;

    fn terms() -> SlotTerms {
        SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SlotKind::File)
    }

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        fs::create_dir(&dir).unwrap();
        let key = home.path().join("data.key");
        (home, dir, key)
    }

    #[test]
    fn a_world_readable_key_file_is_refused() {
        let (_home, dir, key) = place();
        let provider = FileProvider::create(&key, &dir).unwrap();
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(provider.principal_key(&terms(), Purpose::Unlock).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o644] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                matches!(
                    provider.principal_key(&terms(), Purpose::Unlock),
                    Err(Error::LooseFile { .. })
                ),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn a_key_file_inside_the_directory_is_refused() {
        let (home, dir, _) = place();
        let inside = dir.join("x.key");
        assert!(matches!(FileProvider::create(&inside, &dir), Err(Error::InsideDirectory { .. })));
        let later = home.path().join("later");
        assert!(FileProvider::create(home.path().join("later.key"), &later).is_ok());
        assert!(!inside.exists());
    }

    #[test]
    fn an_existing_key_file_is_never_overwritten() {
        let (_home, dir, key) = place();
        FileProvider::create(&key, &dir).unwrap();
        let before = fs::read(&key).unwrap();
        assert!(FileProvider::create(&key, &dir).is_err());
        assert_eq!(fs::read(&key).unwrap(), before);
    }

    #[test]
    fn a_short_key_file_a_pipe_and_a_directory_are_refused() {
        let (_home, dir, key) = place();
        let provider = FileProvider::create(&key, &dir).unwrap();
        fs::write(&key, [0; 31]).unwrap();
        let found = provider.unwrap(&terms(), &[]);
        assert!(matches!(found, Err(Error::KeyFileLength { found: 31, .. })));
        assert!(FileProvider::new(&dir).principal_key(&terms(), Purpose::Unlock).is_err());
        assert!(FileProvider::new("/dev/zero").principal_key(&terms(), Purpose::Unlock).is_err());
    }
}
