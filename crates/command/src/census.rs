//! How many files and bytes are sealed under which data key, and what stays plain and why.
//!
//! Proves nothing. A file counts under each data key that a copy of its header names: one that is
//! damaged may name another, and a key that any file needs must not go.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidelock_contract::{Decision, Origin, Policy};
use tidelock_ffi::Shown;
use tidelock_format::{DataKeyId, DiskSize, Probe};

use crate::walk;

/// Names shown of each rule.
const EXAMPLES: usize = 3;

/// The files of a protected directory, counted by their headers.
#[derive(Serialize, Default)]
pub(crate) struct Census {
    pub(crate) sealed: Tally,
    pub(crate) empty: u64,
    pub(crate) plain: Vec<PlainRule>,
    /// Without a header where one must be, the other way round, or with copies of the header that
    /// do not agree: `verify` names them.
    pub(crate) doubtful: u64,
    /// Not listed or not read.
    pub(crate) unreadable: u64,
    #[serde(skip)]
    pub(crate) under: BTreeMap<DataKeyId, Under>,
}

/// What is sealed under one data key.
#[derive(Default)]
pub(crate) struct Under {
    pub(crate) tally: Tally,
    /// Relative to the directory, sorted.
    pub(crate) names: Vec<PathBuf>,
}

/// Files and their plain bytes.
#[derive(Clone, Copy, Serialize, Default)]
pub(crate) struct Tally {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// A rule that keeps files plain, and how many it keeps.
#[derive(Serialize)]
pub(crate) struct PlainRule {
    pub(crate) glob: String,
    pub(crate) reason: String,
    /// Named by the owner, not by the profile.
    pub(crate) own: bool,
    pub(crate) files: u64,
    pub(crate) examples: Vec<String>,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl Census {
    /// Looks at the header of each file.
    pub(crate) fn take(dir: &Path, policy: &Policy) -> Self {
        let mut census = Self::default();
        let mut rules: BTreeMap<u16, PlainRule> = BTreeMap::new();
        let mut unreadable = 0;
        for found in walk::files(dir, &mut |_, _| unreadable += 1) {
            match policy.decide(found.name_bytes()) {
                Decision::Plain(index) => {
                    let rule = rules.entry(index.0).or_insert_with(|| PlainRule {
                        glob: glob(policy, index.0),
                        reason: policy.reason(index).unwrap_or_default().to_owned(),
                        own: own(policy, index.0),
                        files: 0,
                        examples: Vec::new(),
                    });
                    rule.files += 1;
                    if rule.examples.len() < EXAMPLES {
                        rule.examples.push(found.name.display().to_string());
                    }
                    let sealed = walk::probe(&found.path);
                    let sealed = sealed.is_ok_and(|probe| probe.copies().next().is_some());
                    census.doubtful += u64::from(sealed);
                }
                Decision::Seal(_) if found.metadata.len() == 0 => census.empty += 1,
                Decision::Seal(_) => match walk::probe(&found.path) {
                    // Made longer in a crash, and never written: no key is in it.
                    Ok(probe)
                        if probe.copies().next().is_none()
                            && walk::is_all_zeros(&found.path).unwrap_or(false) =>
                    {
                        census.empty += 1;
                    }
                    Ok(probe) => census.sealed(found.name, found.metadata.len(), &probe),
                    Err(_) => census.doubtful += 1,
                },
            }
        }
        census.unreadable = unreadable;
        census.plain = rules.into_values().collect();
        census
    }

    /// Counts a file that must be sealed. The size of one whose layout is not known counts nothing.
    fn sealed(&mut self, name: PathBuf, size: u64, probe: &Probe) {
        let ids: BTreeSet<_> = probe.copies().map(|copy| copy.outline.data_key).collect();
        let all_known = probe.copies().all(|copy| copy.fields.is_ok());
        if ids.len() != 1 || !all_known {
            self.doubtful += 1;
        }
        let header = probe.ranked().find_map(|copy| copy.fields.as_ref().ok());
        let plain = header.map_or(0, |header| DiskSize(size).plain(header.layout).0);
        if header.is_some() {
            self.sealed.add(plain);
        }
        for id in ids {
            let under = self.under.entry(id).or_default();
            under.tally.add(plain);
            under.names.push(name.clone());
        }
    }

    /// The files that are sealed under a data key, by their names in the directory.
    pub(crate) fn names_under(&self, id: DataKeyId) -> Vec<String> {
        self.first_under(id, usize::MAX)
    }

    /// The first `most` of them.
    pub(crate) fn first_under(&self, id: DataKeyId, most: usize) -> Vec<String> {
        let names = self.under.get(&id).map_or(&[][..], |under| &under.names);
        let shown = |name: &PathBuf| Shown(name.as_os_str().as_bytes()).to_string();
        names.iter().take(most).map(shown).collect()
    }

    /// How many there are.
    pub(crate) fn files_under(&self, id: DataKeyId) -> usize {
        self.under.get(&id).map_or(0, |under| under.names.len())
    }

    /// How many files have a key that is not known.
    pub(crate) fn untold(&self) -> usize {
        usize::try_from(self.doubtful + self.unreadable).unwrap_or(usize::MAX)
    }
}

fn glob(policy: &Policy, index: u16) -> String {
    let rule = policy.rules().get(usize::from(index));
    rule.map_or_else(String::new, |rule| String::from_utf8_lossy(rule.glob.bytes()).into_owned())
}

fn own(policy: &Policy, index: u16) -> bool {
    policy.rules().get(usize::from(index)).is_some_and(|rule| rule.origin == Origin::Owner)
}
