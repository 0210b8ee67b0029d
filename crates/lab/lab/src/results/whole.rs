//! Files that are there as a whole or not at all, whatever ends the lab or fills the disk.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// What becomes of a file that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and that is an error.
    Refused,
    /// The new one takes its place.
    Replaced,
}

/// Writes a file under another name, waits until it is on the disk, and gives it its name.
pub(crate) fn whole(dir: &Path, name: &str, bytes: &[u8], existing: Existing) -> Result<()> {
    let path = dir.join(name);
    let file = written(dir, name, bytes)?;
    let named = match existing {
        Existing::Refused => file.persist_noclobber(&path),
        Existing::Replaced => file.persist(&path),
    };
    named.map_err(|error| failed(&path)(error.error))?;
    sync(dir)
}

/// Replaces files that belong together: none gets its name before all are on the disk.
pub(crate) fn replaced(dir: &Path, files: &[(&str, String)]) -> Result<()> {
    let all: Vec<NamedTempFile> = files
        .iter()
        .map(|(name, text)| written(dir, name, text.as_bytes()))
        .collect::<Result<_>>()?;
    for (file, (name, _)) in all.into_iter().zip(files) {
        let path = dir.join(name);
        file.persist(&path).map_err(|error| failed(&path)(error.error))?;
    }
    sync(dir)
}

/// Waits until the names in a directory are on the disk.
pub(super) fn sync(dir: &Path) -> Result<()> {
    let failed = Error::io(format!("writing the directory {}", dir.display()));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// A file on the disk under another name, which is removed if it never gets its own.
fn written(dir: &Path, name: &str, bytes: &[u8]) -> Result<NamedTempFile> {
    let path = dir.join(name);
    // As any other file is made: the umask takes away.
    let mode = fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .prefix(&format!(".{name}-"))
        .permissions(mode)
        .tempfile_in(dir)
        .map_err(failed(&path))?;
    let written = file.write_all(bytes).and_then(|()| file.as_file().sync_all());
    written.map_err(failed(&path))?;
    Ok(file)
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    Error::io(format!("writing {}", path.display()))
}
