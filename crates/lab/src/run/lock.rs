//! One lab at a time: two would measure each other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::error::{Error, Result};

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Only {
    _file: File,
}

/// Takes the lock of `work`.
///
/// # Errors
/// [`Error::Busy`] while another lab holds it.
pub(super) fn take(work: &Path) -> Result<Only> {
    let path = work.join("tidelock-lab.lock");
    let failed = || Error::io(format!("locking {}", path.display()));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed())?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(Error::Busy { path, holder: holder.trim().to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(failed()(error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed())?;
    Ok(Only { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lab_is_told_who_runs() {
        let dir = tempfile::tempdir().unwrap();
        let held = take(dir.path()).unwrap();
        let error = take(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(held);
        take(dir.path()).unwrap();
    }
}
