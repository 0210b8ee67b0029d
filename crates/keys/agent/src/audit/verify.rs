//! Checks the chain of an audit log: which lines are not what was written, and is the head still
//! there?
//!
//! A cut at the end leaves a whole chain; only a head that was exported before tells it. A line
//! without a MAC proves nothing: whoever can write the file can add one.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde_json::Value;
use tidelock_format::KeyringId;

use super::chain::{ChainKey, Mac, beginning, parse, split};
use crate::error::Error;

/// What a check found. Lines count from 1.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Verified {
    /// Lines of the log.
    pub lines: u64,
    /// Those whose MAC is right.
    pub chained: u64,
    /// Lines at the end that no MAC covers yet.
    pub pending: u64,
    /// The last link: the head to export.
    pub head: Option<String>,
    /// What is not as it was written.
    pub broken: Vec<Broken>,
    /// The first lines, chained under a data key that this keyring has not any more: cannot be
    /// checked.
    pub unknown: Vec<u64>,
    /// Lines without a MAC that only a holder of the keys writes: somebody without one added them.
    pub unproven: Vec<u64>,
    /// Lines of copies and restores without a MAC: written without a key, or added by somebody.
    pub keyless: Vec<u64>,
    /// Lines that a crash left without their end.
    pub torn: Vec<u64>,
    /// Whether the head that was asked for is a link of this chain.
    pub head_found: Option<bool>,
}

/// A break of the chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Broken {
    /// The line whose MAC is wrong.
    pub line: u64,
    /// The first line that this MAC covers: what happened, happened from there on.
    pub from: u64,
}

/// Reads a log and checks it with the keys that may have chained it.
///
/// # Errors
/// [`Error::Io`].
pub fn verify(
    path: &Path,
    keyring: KeyringId,
    keys: &[ChainKey],
    head: Option<&str>,
) -> Result<Verified, Error> {
    verify_each(path, keyring, keys, head, &mut |_| {})
}

/// The same, and shows `proven` each line whose MAC is right.
///
/// # Errors
/// [`Error::Io`].
pub fn verify_each(
    path: &Path,
    keyring: KeyringId,
    keys: &[ChainKey],
    head: Option<&str>,
    proven: &mut dyn FnMut(&[u8]),
) -> Result<Verified, Error> {
    let failed = |source| Error::Io { what: "read the audit log", path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    let length = settled(&file).map_err(failed)?;
    let mut from = BufReader::new(file.take(length));
    let wanted = head.map(|head| parse(head.trim().as_bytes()));
    let mut walk = Walk::new(keyring, keys);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        walk.step(&line);
        if walk.just_seen.is_some() {
            proven(&line);
        }
        if let (Some(Some(wanted)), Some(mac)) = (wanted, walk.just_seen) {
            walk.found |= wanted == mac;
        }
        line.clear();
    }
    Ok(walk.finish(wanted.is_some()))
}

/// So many bytes no writer changes any more. The log only grows, so the lock is not held while it
/// is read: writers wait for seconds only, and a long log takes longer.
fn settled(file: &File) -> std::io::Result<u64> {
    flock(file, FlockOperation::LockShared)?;
    let length = file.metadata()?.len();
    flock(file, FlockOperation::Unlock)?;
    Ok(length)
}

struct Walk<'k> {
    keys: &'k [ChainKey],
    report: Verified,
    last: Mac,
    /// Bytes since the last chained line.
    since: Vec<u8>,
    just_seen: Option<Mac>,
    found: bool,
}

impl<'k> Walk<'k> {
    fn new(keyring: KeyringId, keys: &'k [ChainKey]) -> Self {
        let (report, last) = (Verified::default(), beginning(keyring));
        Self { keys, report, last, since: Vec::new(), just_seen: None, found: false }
    }

    fn step(&mut self, line: &[u8]) {
        let report = &mut self.report;
        report.lines += 1;
        self.just_seen = None;
        let body = line.strip_suffix(b"\n");
        let whole = body.and_then(|body| serde_json::from_slice::<Value>(body).ok());
        if whole.is_none() {
            report.torn.push(report.lines);
        }
        let Some((covered, mac)) = body.and_then(split) else {
            match whole.as_ref().map(Writer::of) {
                Some(Writer::Keyholder) => report.unproven.push(report.lines),
                Some(Writer::Copier) => report.keyless.push(report.lines),
                Some(Writer::Anybody) | None => {}
            }
            report.pending += 1;
            return self.since.extend_from_slice(line);
        };
        let from = report.lines - report.pending;
        match self.keys.iter().find(|key| covered.ends_with(chain_field(key).as_bytes())) {
            // The key of the first lines may have been destroyed, no other can be missing.
            None if report.chained == 0 && report.broken.is_empty() => {
                report.unknown.push(report.lines);
            }
            Some(key) if key.mac(&[&self.last, &self.since, covered]) == mac => {
                report.chained += 1;
                self.just_seen = Some(mac);
            }
            _ => report.broken.push(Broken { line: report.lines, from }),
        }
        // What follows was chained to this line, be it good or not: each break is told once.
        self.last = mac;
        report.pending = 0;
        report.head = Some(HEXLOWER.encode(&mac));
        self.since.clear();
    }

    fn finish(mut self, asked: bool) -> Verified {
        self.report.head_found = asked.then_some(self.found);
        self.report
    }
}

/// Who writes such a line.
enum Writer {
    /// It says that something failed.
    Anybody,
    /// A keyring may be copied and restored where no key is at hand, or by proof of the agent.
    Copier,
    /// Everybody else has the keys, and chains the line.
    Keyholder,
}

impl Writer {
    fn of(line: &Value) -> Self {
        let field = |name| line.get(name).and_then(Value::as_str);
        match (field("outcome"), field("event")) {
            (Some("failed"), _) => Self::Anybody,
            (Some("done"), Some("keyring_backup" | "keyring_restore")) => Self::Copier,
            _ => Self::Keyholder,
        }
    }
}

/// What stands last before the MAC.
fn chain_field(key: &ChainKey) -> String {
    format!(",\"chain\":\"{}\"", key.id())
}
