//! Older copies beside a copy: `FILE.generation-N`; and `FILE.replaced-N`, which are no copies.
//!
//! A copy that is replaced is not gone: what replaced it may turn out to be damaged, or to open
//! with no key that is left.

use std::ffi::OsString;
use std::path::PathBuf;

use tidelock_format::KeyringId;
use tidelock_keyring::{REPLACED, SealedKeyring};

use super::MAX;
use crate::error::Result;
use crate::folder::{Entry, Folder};

/// As many stay.
const KEPT: usize = 8;
const MARK: &str = ".generation-";

/// Keeps `present`, which is in `file`, beside it before something else is written there; where.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io): then nothing must be replaced.
pub(crate) fn keep(file: &Entry, present: &[u8], keyring: &SealedKeyring) -> Result<PathBuf> {
    let base = format!("{MARK}{}", keyring.generation().0);
    for number in 1u32.. {
        // Two keyrings of one generation: one of them is damaged, or came from a copy.
        let mark = if number == 1 { base.clone() } else { format!("{base}.{number}") };
        let beside = beside(file, &mark);
        match beside.read(MAX)? {
            Some(there) if there == present => return Ok(beside.path()),
            Some(_) => {}
            None => {
                beside.replace(present, 0o600, None)?;
                forget_oldest(file, keyring.id())?;
                return Ok(beside.path());
            }
        }
    }
    Ok(file.path())
}

/// Keeps, beside `file`, the keyrings that were replaced in a directory: they go with it, and may
/// have a data key that no other has.
///
/// # Errors
/// As [`keep`].
pub(crate) fn keep_replaced(control: &Folder, file: &Entry) -> Result<()> {
    for name in control.names()? {
        let number = name.to_str().and_then(|name| name.strip_prefix(REPLACED));
        let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) else { continue };
        let Some(bytes) = control.entry(name).read(MAX)? else { continue };
        for again in 1u32.. {
            let more = if again == 1 { String::new() } else { format!(".{again}") };
            let beside = beside(file, &format!(".replaced-{number}{more}"));
            match beside.read(MAX)? {
                Some(there) if there == bytes => break,
                Some(_) => {}
                None => {
                    beside.replace(&bytes, 0o600, None)?;
                    break;
                }
            }
        }
    }
    Ok(())
}

fn beside(file: &Entry, mark: &str) -> Entry {
    let mut name = file.name().to_owned();
    name.push(mark);
    file.folder().entry(name)
}

/// Removes the oldest of this keyring's, and nothing else.
fn forget_oldest(file: &Entry, id: KeyringId) -> Result<()> {
    let mut start = file.name().to_owned();
    start.push(MARK);
    let mut found = Vec::new();
    for name in file.folder().names()? {
        let Some(order) = order(&start, &name) else { continue };
        let entry = file.folder().entry(name);
        let bytes = entry.read(MAX).ok().flatten().unwrap_or_default();
        if SealedKeyring::parse(&bytes).is_ok_and(|keyring| keyring.id() == id) {
            found.push((order, entry));
        }
    }
    found.sort_by_key(|(order, _)| *order);
    let many = found.len().saturating_sub(KEPT);
    found.into_iter().take(many).try_for_each(|(_, entry)| entry.remove())
}

/// Generation, and which of that generation.
fn order(start: &OsString, name: &OsString) -> Option<(u64, u32)> {
    let rest = name.to_str()?.strip_prefix(start.to_str()?)?;
    match rest.split_once('.') {
        Some((generation, number)) => Some((generation.parse().ok()?, number.parse().ok()?)),
        None => Some((rest.parse().ok()?, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_count_as_numbers() {
        let start = OsString::from("kept.generation-");
        let order = |name: &str| order(&start, &name.into());
        assert_eq!(order("kept.generation-9"), Some((9, 1)));
        assert_eq!(order("kept.generation-10.2"), Some((10, 2)));
        for other in ["kept", "kept.generation-", "kept.generation-x", "other.generation-1"] {
            assert_eq!(order(other), None, "{other}");
        }
    }
}
