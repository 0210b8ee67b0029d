//! How long a conversion in place will take, by what the disk does now.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::folder::Folder;

/// Written to try it.
const SAMPLE: usize = 32 << 20;
const SMALL_FILES: u32 = 32;
const SMALL: usize = 16 << 10;
/// New files are read back and compared: about half as long again.
const COMPARING: f64 = 1.5;

/// Seconds for so many bytes in so many files. Files without a name are written in the directory,
/// synced, and gone. Nothing where a file system has none, as NFS.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn seconds(dir: &Path, bytes: u64, files: usize) -> Result<Option<f64>> {
    let folder = Folder::open(dir)?;
    // Not zeros: some disks do not write them.
    let block: Vec<u8> = (0..SMALL).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    let start = Instant::now();
    let Some(mut file) = nameless(&folder)? else { return Ok(None) };
    for _ in 0..SAMPLE / SMALL {
        file.write_all(&block).map_err(Error::io("write to", dir))?;
    }
    file.sync_data().map_err(Error::io("sync", dir))?;
    let each_byte = start.elapsed().as_secs_f64() / count(SAMPLE as u64);
    drop(file);
    let start = Instant::now();
    let mut last = None;
    for _ in 0..SMALL_FILES {
        let Some(mut file) = nameless(&folder)? else { return Ok(None) };
        file.write_all(&block).map_err(Error::io("write to", dir))?;
        last = Some(file);
    }
    if let Some(file) = last {
        file.sync_data().map_err(Error::io("sync", dir))?;
    }
    let each_file = start.elapsed().as_secs_f64() / f64::from(SMALL_FILES);
    Ok(Some((each_byte * count(bytes) + each_file * count(files as u64)) * COMPARING))
}

fn nameless(folder: &Folder) -> Result<Option<std::fs::File>> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(folder, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(errno) => Err(Error::io("write to", folder.path())(errno.into())),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_take_longer_and_nothing_is_left() {
        let home = tempfile::tempdir().unwrap();
        let little = seconds(home.path(), 1 << 20, 1).unwrap().unwrap();
        let much = seconds(home.path(), 1 << 34, 1000).unwrap().unwrap();
        assert!(little > 0.0 && much > little);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_system_without_nameless_files_leaves_the_time_unknown() {
        if tidelock_servers::skip::unless_root("to make files in /proc") {
            return;
        }
        assert_eq!(seconds(Path::new("/proc"), 1 << 20, 1).unwrap(), None);
    }
}
