//! Is PostgreSQL recovering from an unclean stop? Only then may a lost header get a new key.

use std::sync::OnceLock;

use tidelock_engine::{Descriptor, Fd, PathBuffer};

use crate::process;

const ROOTS: usize = 8;
/// `DBState state` in `ControlFileData` (src/include/catalog/pg_control.h).
const STATE_AT: usize = 16;
const DB_IN_CRASH_RECOVERY: u32 = 4;
const DB_IN_ARCHIVE_RECOVERY: u32 = 5;

static CONTROL_FILES: [OnceLock<PathBuffer>; ROOTS] = [const { OnceLock::new() }; ROOTS];

/// Remembers where the control file of a directory is.
pub(crate) fn watch(root: u8, control_file: PathBuffer) {
    if let Some(place) = CONTROL_FILES.get(usize::from(root)) {
        // The first one stays; there is one for each directory.
        let _ = place.set(control_file);
    }
}

/// True if the directory's pg_control says that the server recovers.
pub(crate) fn is_under_way(root: u8) -> bool {
    matches!(state(root), Some(DB_IN_CRASH_RECOVERY | DB_IN_ARCHIVE_RECOVERY))
}

fn state(root: u8) -> Option<u32> {
    let path = CONTROL_FILES.get(usize::from(root))?.get()?;
    let process = process::process()?;
    let fd = process.open(Fd::CWD, path.as_c(), libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let mut first = [0u8; STATE_AT + 4];
    let count = match process.descriptor(fd) {
        Descriptor::Sealed(file) => file.pread(&mut first, 0),
        _ => Ok(0),
    };
    process.close(fd).ok()?;
    (count == Ok(first.len()))
        .then(|| first.last_chunk().map(|state| u32::from_le_bytes(*state)))?
}
