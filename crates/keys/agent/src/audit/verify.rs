//! Checks the chain of an audit log: which lines are not what was written, and is the head still
//! there?
//!
//! A cut at the end leaves a whole chain; only a head that was exported before tells it. A line
//! without a MAC proves nothing: whoever can write the file can add one. Nor does a line under a
//! data key that is gone: whoever can write the file can write any MAC there, also that of a line
//! which he removed.

use std::collections::BTreeSet;
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
    /// Lines under a data key that was destroyed, as a later line says. They cannot be checked:
    /// they may have been changed, and others among them removed.
    pub unknown: Vec<u64>,
    /// Lines without a MAC that no writer leaves so: somebody without a key added them.
    pub unproven: Vec<u64>,
    /// Lines of copies and restores without a MAC: written without a key, or added by somebody.
    pub keyless: Vec<u64>,
    /// Lines without their end: the line behind them says that their writer crashed, or there is
    /// none yet. Somebody without a key can leave such a line too.
    pub torn: Vec<u64>,
    /// Whether the head that was asked for is a link of this chain.
    pub head_found: Option<bool>,
    /// It was found, but only among the `unknown` lines: it says nothing of a cut.
    pub head_unchecked: bool,
}

/// A break of the chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Broken {
    /// The line whose MAC is wrong.
    pub line: u64,
    /// The first line that this MAC covers: what happened, happened from there on.
    pub from: u64,
    /// All MACs from there to `line` are under this data key, which the keyring has not, and of
    /// which no later line says that it was destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

impl Broken {
    /// The first line of which nothing is proven.
    #[must_use]
    pub const fn place(&self) -> u64 {
        if self.chain.is_some() { self.from } else { self.line }
    }
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
    let wanted = head.and_then(|head| parse(head.trim().as_bytes()));
    let mut walk = Walk::new(keyring, keys, wanted);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        if walk.step(&line) == Some(Link::Proven) {
            proven(&line);
        }
        line.clear();
    }
    Ok(walk.finish(head.is_some()))
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
    /// The head that is asked for.
    wanted: Option<Mac>,
    report: Verified,
    last: Mac,
    /// Bytes since the last chained line.
    since: Vec<u8>,
    /// The last lines, as far as they are no JSON: torn if what follows says so.
    endless: Vec<u64>,
    /// The last line lacks its line break.
    cut: bool,
    told: Vec<Told>,
    found: bool,
}

/// What a line's MAC is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Proven,
    /// Under a data key that the keyring has not.
    Unknown,
    Broken,
}

/// A line under an unknown data key, or one that says that a data key was destroyed.
struct Told {
    line: u64,
    from: u64,
    /// The unknown data key. Without it the line is proven.
    chain: Option<String>,
    destroyed: Option<String>,
    is_head: bool,
}

impl<'k> Walk<'k> {
    fn new(keyring: KeyringId, keys: &'k [ChainKey], wanted: Option<Mac>) -> Self {
        Self {
            keys,
            wanted,
            report: Verified::default(),
            last: beginning(keyring),
            since: Vec::new(),
            endless: Vec::new(),
            cut: false,
            told: Vec::new(),
            found: false,
        }
    }

    /// The next line, and what its MAC is if it has one.
    fn step(&mut self, line: &[u8]) -> Option<Link> {
        self.report.lines += 1;
        let body = line.strip_suffix(b"\n");
        self.cut = body.is_none();
        let whole = body.and_then(|body| serde_json::from_slice::<Value>(body).ok());
        let Some((covered, mac)) = body.and_then(split) else {
            self.without_mac(whole.as_ref());
            self.report.pending += 1;
            self.since.extend_from_slice(line);
            return None;
        };
        let link = self.link(covered, mac, whole.as_ref());
        self.settle(link != Link::Broken && whole.as_ref().is_some_and(follows_torn));
        // What follows was chained to this line, be it good or not: each break is told once.
        self.last = mac;
        self.report.pending = 0;
        self.report.head = Some(HEXLOWER.encode(&mac));
        self.since.clear();
        Some(link)
    }

    fn link(&mut self, covered: &[u8], mac: Mac, whole: Option<&Value>) -> Link {
        let report = &mut self.report;
        let (line, from) = (report.lines, report.lines - report.pending);
        let destroyed = whole.and_then(destroyed_key);
        let is_head = self.wanted == Some(mac);
        let chain = chain_of(covered).filter(|_| whole.is_some());
        let key = self.keys.iter().find(|key| chain.is_some_and(|chain| key.id() == chain));
        match (key, chain) {
            (Some(key), _) if key.mac(&[&self.last, &self.since, covered]) == mac => {
                report.chained += 1;
                self.found |= is_head;
                if destroyed.is_some() {
                    self.told.push(Told { line, from, chain: None, destroyed, is_head });
                }
                Link::Proven
            }
            (None, Some(chain)) => {
                let chain = Some(chain.to_owned());
                self.told.push(Told { line, from, chain, destroyed, is_head });
                Link::Unknown
            }
            _ => {
                report.broken.push(Broken { line, from, chain: None });
                Link::Broken
            }
        }
    }

    fn without_mac(&mut self, whole: Option<&Value>) {
        let line = self.report.lines;
        let Some(whole) = whole else { return self.endless.push(line) };
        let writer = Writer::of(whole);
        // A failed unlock may be the first that comes after a crash.
        self.settle(!matches!(writer, Writer::Keyholder) && follows_torn(whole));
        match writer {
            Writer::Keyholder => self.report.unproven.push(line),
            Writer::Copier => self.report.keyless.push(line),
            Writer::Anybody => {}
        }
    }

    /// The lines that are no JSON, now that it is known whether a crash left them. Two crashes in a
    /// row leave two: the second takes along what was said of the first.
    fn settle(&mut self, crashed: bool) {
        let report = &mut self.report;
        let lines = if crashed { &mut report.torn } else { &mut report.unproven };
        lines.append(&mut self.endless);
    }

    fn finish(mut self, asked: bool) -> Verified {
        self.settle(self.cut);
        let Self { mut report, told, found, .. } = self;
        let mut destroyed: BTreeSet<String> = BTreeSet::new();
        let mut unchecked = false;
        // From the end: a line tells of keys that chained lines before it. One that cannot be
        // checked itself may tell of an earlier key: whoever can forge it can as well use its key's
        // id for all that comes before.
        for told in told.into_iter().rev() {
            let (line, from) = (told.line, told.from);
            match told.chain {
                Some(chain) if !destroyed.contains(&chain) => {
                    match report.broken.last_mut() {
                        Some(next)
                            if next.chain.as_ref() == Some(&chain) && next.from == line + 1 =>
                        {
                            next.from = from;
                        }
                        _ => report.broken.push(Broken { line, from, chain: Some(chain) }),
                    }
                    continue;
                }
                Some(_) => {
                    report.unknown.push(line);
                    unchecked |= told.is_head;
                }
                None => {}
            }
            destroyed.extend(told.destroyed);
        }
        report.unknown.reverse();
        report.broken.sort_by_key(|broken| broken.line);
        report.head_found = asked.then_some(found || unchecked);
        report.head_unchecked = unchecked && !found;
        report
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

/// The data key that a line names: what stands last before the MAC.
fn chain_of(covered: &[u8]) -> Option<&str> {
    let covered = covered.strip_suffix(b"\"")?;
    let start = covered.windows(CHAIN.len()).rposition(|bytes| bytes == CHAIN)? + CHAIN.len();
    std::str::from_utf8(&covered[start..]).ok()
}

/// The data key that was destroyed, if the line says so.
fn destroyed_key(line: &Value) -> Option<String> {
    let field = |name| line.get(name).and_then(Value::as_str);
    match (field("event"), field("outcome")) {
        (Some("data_key_destroy"), Some("done")) => field("data_key").map(str::to_owned),
        _ => None,
    }
}

/// Its writer found the line before without an end.
fn follows_torn(line: &Value) -> bool {
    line.get("after_torn_line") == Some(&Value::Bool(true))
}

/// What stands before the id of the data key.
const CHAIN: &[u8] = b",\"chain\":\"";
