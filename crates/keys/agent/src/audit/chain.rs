//! The chain: what a line's MAC covers, and appending a line behind the last one.
//!
//! ```text
//!   ... {chained, mac M1}\n {no mac}\n {no mac}\n {chained ,"mac":"M2"}\n
//!                          ^------------------------------^
//!   M2 = HMAC-SHA-256(audit key, M1 || these bytes);   before the first: M0 = keyring id || zeros
//! ```
//!
//! A crash may leave a line without its end. The next writer ends it; like every line without a MAC
//! it is covered from then on.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use aws_lc_rs::hmac;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tidelock_contract::wire::KeyState;
use tidelock_format::{DataKeyId, KeyringId};
use tidelock_keyring::Keyring;
use zeroize::Zeroizing;

use super::place::Log;
use crate::error::Error;
use crate::memory::LockedBytes;

/// A link of the chain.
pub type Mac = [u8; 32];

/// What stands before the MAC of a line, and behind it.
const BEFORE: &[u8] = b",\"mac\":\"";
const BEHIND: &[u8] = b"\"}";
/// Hexadecimal digits of a MAC.
const DIGITS: usize = 64;
/// How much is read from the end at first.
const CHUNK: u64 = 16 * 1024;
/// How long another writer may hold the log.
const PATIENCE: Duration = Duration::from_secs(5);

/// The key of the chain: of the oldest data key that is this keyring's own, so that neither another
/// slot, nor another keyring key, nor another current data key begins another chain.
pub struct ChainKey {
    id: DataKeyId,
    key: Box<dyn LockedBytes>,
}

impl ChainKey {
    /// The key with which a keyring's lines are chained.
    ///
    /// # Panics
    /// Never: a keyring has a data key of its own.
    #[must_use]
    pub fn of(keyring: &Keyring, lock: fn(Zeroizing<Vec<u8>>) -> Box<dyn LockedBytes>) -> Self {
        Self::all_of(keyring, lock).swap_remove(0)
    }

    /// Those that may have chained lines: of all data keys of its own, the oldest first.
    #[must_use]
    pub fn all_of(
        keyring: &Keyring,
        lock: fn(Zeroizing<Vec<u8>>) -> Box<dyn LockedBytes>,
    ) -> Vec<Self> {
        let own = keyring.data_keys().iter().filter(|entry| entry.state != KeyState::Adopted);
        own.map(|entry| Self {
            id: entry.id,
            key: lock(Zeroizing::new(entry.key.audit_key().expose().to_vec())),
        })
        .collect()
    }

    pub(super) fn id(&self) -> String {
        self.id.to_string()
    }

    /// The MAC over `parts`, one behind the other.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> Mac {
        let mut context =
            hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, self.key.bytes()));
        parts.iter().for_each(|part| context.update(part));
        let mut mac = [0; 32];
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }
}

/// What stands before the first chained line.
pub(super) fn beginning(keyring: KeyringId) -> Mac {
    let mut mac = [0; 32];
    mac[..16].copy_from_slice(&keyring.0);
    mac
}

/// The MAC of a line without its line break, and what of the line it covers.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], Mac)> {
    let rest = line.strip_suffix(BEHIND)?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(DIGITS)?)?;
    Some((rest.strip_suffix(BEFORE)?, parse(digits)?))
}

/// The last link of a log: the head to export. `None` if nothing is chained.
///
/// # Errors
/// [`Error::Io`].
pub fn last_mac(path: &Path) -> Result<Option<Mac>, Error> {
    let failed = |source| Error::Io { what: "read the audit log", path: path.into(), source };
    let mut file = File::open(path).map_err(failed)?;
    flock(&file, FlockOperation::LockShared).map_err(|errno| failed(errno.into()))?;
    Ok(Tail::of(&mut file).map_err(failed)?.mac)
}

/// Appends a line, a JSON object; chained if there is a key. The line as it was written.
pub(super) fn append(
    log: &Log,
    keyring: KeyringId,
    key: Option<&ChainKey>,
    mut line: String,
    lasting: bool,
) -> Result<String, Error> {
    let failed =
        |source| Error::Io { what: "write to the audit log", path: log.file.clone(), source };
    let mut file = log.open()?;
    lock(&file).map_err(|errno| failed(errno.into()))?;
    let tail = Tail::of(&mut file).map_err(failed)?;
    let torn = tail.since.last().is_some_and(|byte| *byte != b'\n');
    let ending: &[u8] = if torn { b"\n" } else { b"" };
    // Without the closing brace: more fields follow.
    let object = line.pop();
    debug_assert_eq!(object, Some('}'));
    if torn {
        line.push_str(",\"after_torn_line\":true");
    }
    match key {
        Some(key) => {
            line.push_str(&format!(",\"chain\":\"{}\"", key.id()));
            let before = tail.mac.unwrap_or_else(|| beginning(keyring));
            let mac = key.mac(&[&before, &tail.since, ending, line.as_bytes()]);
            line.push_str(&format!(",\"mac\":\"{}\"}}", HEXLOWER.encode(&mac)));
        }
        None => line.push('}'),
    }
    let whole = [ending, line.as_bytes(), b"\n"].concat();
    if let Err(why) = file.write_all(&whole) {
        // The lock is held: what was written is ours.
        let _ = file.set_len(tail.end);
        return Err(failed(why));
    }
    if lasting {
        // Others need not wait for the disk, the agent's one thread least of all. They chain to
        // this line as they do to one that is never synced, and whoever syncs a later line syncs
        // this one too: it stands before it in the same file.
        let _ = flock(&file, FlockOperation::Unlock);
        file.sync_data().map_err(failed)?;
    }
    Ok(line)
}

/// Commands and agents write at once.
fn lock(file: &File) -> Result<(), Errno> {
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if waited < PATIENCE => {
                sleep(step);
                waited += step;
            }
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// The end of a log.
struct Tail {
    /// Of the last chained line.
    mac: Option<Mac>,
    /// What stands behind it.
    since: Vec<u8>,
    /// The length of the file.
    end: u64,
}

impl Tail {
    fn of(file: &mut File) -> std::io::Result<Self> {
        let end = file.seek(SeekFrom::End(0))?;
        let mut reach = CHUNK;
        loop {
            let from = end.saturating_sub(reach);
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(end - from).read_to_end(&mut bytes)?;
            if let Some((mac, at)) = last_link(&bytes, from == 0) {
                return Ok(Self { mac: Some(mac), since: bytes.split_off(at), end });
            }
            if from == 0 {
                return Ok(Self { mac: None, since: bytes, end });
            }
            reach = reach.saturating_mul(4);
        }
    }
}

/// The MAC of the last chained line, and where the bytes behind it begin. The first line counts
/// only if it is `whole`.
fn last_link(bytes: &[u8], whole: bool) -> Option<(Mac, usize)> {
    let mut end = bytes.iter().rposition(|byte| *byte == b'\n')?;
    loop {
        let start = bytes[..end].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        if (start.is_some() || whole)
            && let Some((_, mac)) = split(&bytes[start.unwrap_or(0)..end])
        {
            return Some((mac, end + 1));
        }
        end = start?.checked_sub(1)?;
    }
}

/// From 64 hexadecimal digits.
pub(super) fn parse(digits: &[u8]) -> Option<Mac> {
    HEXLOWER_PERMISSIVE.decode(digits).ok()?.try_into().ok()
}
