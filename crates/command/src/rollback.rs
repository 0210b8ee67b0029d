//! Is the keyring older than what was already seen? Asked before a server starts on it: a server
//! panics over a file of the log that it cannot read, and says nothing of keys.
//!
//! What is seen: the generation that an agent announced in the directory, and the headers of the
//! files that a server reads first. `key check` looks at all files.

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_format::Generation;
use tidelock_keyring::KeyringDir;

use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::walk;

/// PostgreSQL reads these before anything else.
const FIRST_FILE: &str = "global/pg_control";
const FIRST_FOLDER: &str = "pg_wal";

/// A generation that was seen, and where.
struct Seen {
    generation: Generation,
    file: Option<PathBuf>,
}

/// Refuses a keyring that was put back.
///
/// # Errors
/// [`Error::RolledBack`].
pub(crate) fn refuse(protected: &Protected) -> Result<()> {
    let held = protected.keyring.generation();
    let newer = |seen: &Seen| seen.generation > held;
    let seen =
        announced(&protected.path).filter(newer).or_else(|| in_files(protected).filter(newer));
    let Some(seen) = seen else { return Ok(()) };
    // Another command may have changed it since it was read here, and have told so.
    let now = KeyringDir::open(&protected.path).and_then(|folder| folder.read());
    let now = now.ok().filter(|now| now.id() == protected.keyring.id());
    let have = now.map_or(held, |now| now.generation().max(held));
    if seen.generation <= have {
        return Ok(());
    }
    Err(Error::RolledBack {
        dir: protected.path.clone(),
        have,
        seen: seen.generation,
        file: seen.file,
    })
}

/// What running programs were told last.
fn announced(dir: &Path) -> Option<Seen> {
    let generation = KeyringDir::open(dir).and_then(|folder| folder.announced()).ok()?;
    Some(Seen { generation, file: None })
}

fn in_files(protected: &Protected) -> Option<Seen> {
    let dir = &protected.path;
    let log = fs::read_dir(dir.join(FIRST_FOLDER)).into_iter().flatten().flatten();
    let files = std::iter::once(dir.join(FIRST_FILE)).chain(log.map(|entry| entry.path()));
    let headers = files.filter(|path| path.is_file()).filter_map(|path| {
        let probe = walk::probe(&path).ok()?;
        let mut copies = probe.ranked().map(|copy| copy.outline);
        let own = copies.find(|copy| copy.keyring == protected.keyring.id())?;
        Some(Seen { generation: own.generation, file: Some(path) })
    });
    headers.max_by_key(|seen| seen.generation)
}
