//! One file against everything that the format and the policy promise.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use tidelock_cipher::is_zero;
use tidelock_contract::{Decision, Policy};
use tidelock_format::{
    BLOCK_USIZE, COPY_LEN, Class, DiskSize, END_LEN, Front, HeaderError, PROBE_LEN, Probe,
    SECOND_COPY_AT, UNIT_USIZE, WHOLE_AT, ZeroRule, looks_sealed,
};

use super::open::{Unopened, open};
use crate::sealed::{Content, Fault, Keys, Mac, SealedFile, Wanted};
use crate::walk::{Found, read_at};

/// Read at once.
const CHUNK: usize = 1024 * 1024;

/// Examines files under one keyring.
pub(super) struct Examiner<'k> {
    pub(super) keys: &'k Keys,
    pub(super) policy: &'k Policy,
}

/// Something to say of a file.
#[derive(Serialize)]
pub(crate) struct Finding {
    /// Its path.
    pub(crate) file: String,
    /// For programs; stays the same.
    pub(crate) kind: &'static str,
    /// For people.
    pub(crate) what: String,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Sealed.
    Sealed,
    /// To be sealed by the policy, and not proven to be: no header is right under these keys.
    NotSealed,
    /// Without a byte.
    Empty,
    /// Plain by the policy.
    Plain,
    /// Not under its name any more.
    Gone,
    /// Something else has its name, which was not read.
    Changed,
}

impl Kind {
    /// Nothing was read under this name.
    pub(super) fn is_missing(self) -> bool {
        matches!(self, Self::Gone | Self::Changed)
    }
}

/// What became of a file.
pub(super) struct Outcome {
    pub(super) kind: Kind,
    pub(super) bytes_read: u64,
    pub(super) problems: Vec<Finding>,
    pub(super) notes: Vec<Finding>,
}

impl Outcome {
    /// True if a newer keyring may have other words for it.
    pub(super) fn is_about_keyring(&self) -> bool {
        let kinds =
            ["rolled_back", "unknown_key", "plain_where_sealed", "sealed_where_plain", "policy"];
        self.problems.iter().any(|finding| kinds.contains(&finding.kind))
    }
}

impl Finding {
    /// A file or directory that the system does not let us read.
    pub(super) fn unreadable(path: &Path, why: &io::Error) -> Self {
        let what = format!("it cannot be read: {why}");
        Self { file: path.display().to_string(), kind: "unreadable", what }
    }
}

impl Examiner<'_> {
    /// In which class the policy wants a file sealed; none if it is plain.
    pub(super) fn class(&self, found: &Found) -> Option<Class> {
        match self.policy.decide(found.name_bytes()) {
            Decision::Plain(_) => None,
            Decision::Seal(class) => Some(class),
        }
    }

    /// Everything about one file.
    pub(super) fn examine(&self, found: &Found) -> Outcome {
        let mut look = Look {
            found,
            kind: Kind::Sealed,
            bytes_read: 0,
            problems: Vec::new(),
            notes: Vec::new(),
        };
        let done = match open(found) {
            Ok(file) => match self.class(found) {
                None => look.plain(&file),
                Some(class) => look.sealed(self.keys, file, class),
            },
            Err(Unopened::Gone) => {
                look.kind = Kind::Gone;
                Ok(())
            }
            Err(Unopened::Changed) => {
                look.kind = Kind::Changed;
                Ok(())
            }
            Err(Unopened::Failed(why)) => Err(Fault::Read(why)),
        };
        if let Err(fault) = done {
            if look.kind == Kind::Sealed && !shows_seal(&fault) {
                look.kind = Kind::NotSealed;
            }
            look.problem(kind_of(&fault), fault.to_string());
        }
        let Look { kind, bytes_read, problems, notes, .. } = look;
        Outcome { kind, bytes_read, problems, notes }
    }
}

/// A file while it is examined.
struct Look<'f> {
    found: &'f Found,
    kind: Kind,
    bytes_read: u64,
    problems: Vec<Finding>,
    notes: Vec<Finding>,
}

impl Look<'_> {
    fn problem(&mut self, kind: &'static str, what: impl Into<String>) {
        let file = self.found.path.display().to_string();
        self.problems.push(Finding { file, kind, what: what.into() });
    }

    fn note(&mut self, kind: &'static str, what: impl Into<String>) {
        let file = self.found.path.display().to_string();
        self.notes.push(Finding { file, kind, what: what.into() });
    }

    fn plain(&mut self, file: &File) -> Result<(), Fault> {
        self.kind = Kind::Plain;
        let mut first = [0u8; PROBE_LEN];
        let count = read_at(file, &mut first, 0)?;
        if looks_sealed(first.get(..count).unwrap_or_default()) {
            self.problem(
                "sealed_where_plain",
                "it is sealed, but programs without the library read it",
            );
        }
        Ok(())
    }

    fn sealed(&mut self, keys: &Keys, file: File, class: Class) -> Result<(), Fault> {
        let size = DiskSize(file.metadata()?.len());
        let offset = usize::try_from(keys.layout.data_offset()).unwrap_or(PROBE_LEN);
        let mut head = vec![0u8; offset];
        let count = read_at(&file, &mut head, 0)?;
        head.truncate(count);
        self.bytes_read += count as u64;
        let sealed = match keys.open(file, Wanted::File(class))? {
            Content::Sealed(sealed) => sealed,
            Content::Empty => {
                self.kind = Kind::Empty;
                self.no_header(&head);
                return Ok(());
            }
            Content::Blank(_) => {
                self.bytes_read = size.0;
                if self.no_header(&head) {
                    self.note(
                        "blank",
                        "it is all zeros, header and data: extended in a crash, never written",
                    );
                }
                return Ok(());
            }
        };
        if sealed.header.keyring != keys.id {
            self.note("adopted", format!("it was sealed under keyring {}", sealed.header.keyring));
        }
        self.copies(keys, &head, Mac::of(&sealed.header));
        for fault in sealed.end()? {
            self.problem(fault.kind(), fault.to_string());
        }
        self.body(&sealed, size)
    }

    /// Nothing but zeros may be there before a file gets its header; true if so.
    fn no_header(&mut self, head: &[u8]) -> bool {
        let zero = Probe::is_blank(head);
        if !zero {
            self.problem("header_gap", "bytes where its header would be are not zero");
        }
        zero
    }

    /// One copy is enough to read a file; the other must be the same, or never written.
    fn copies(&mut self, keys: &Keys, head: &[u8], mac: Mac) {
        let probe = Probe::parse(head);
        let front = Front::is_meant(self.found.path.as_os_str().as_bytes(), head);
        for (at, copy) in [(0, &probe.first), (SECOND_COPY_AT, &probe.second)] {
            match copy {
                _ if at == 0 && front => {}
                Ok(copy) => {
                    if let Err(fault) = keys.check(copy) {
                        self.problem("header_copy", format!("header copy at {at}: {fault}"));
                    }
                }
                Err(HeaderError::Zero) => {
                    self.note("header_copy", format!("the header copy at {at} was never written"));
                }
                Err(why) => self.problem("header_copy", format!("header copy at {at}: {why}")),
            }
        }
        let zeros_from = match mac {
            Mac::WholeFile => WHOLE_AT + END_LEN,
            Mac::Header => PROBE_LEN,
        };
        let gaps = [COPY_LEN..SECOND_COPY_AT, zeros_from..head.len()];
        let dirty = |gap: std::ops::Range<usize>| {
            head.get(gap).unwrap_or_default().iter().any(|byte| *byte != 0)
        };
        if gaps.into_iter().any(dirty) {
            self.problem("header_gap", "bytes around its header are not zero");
        }
    }

    fn body(&mut self, sealed: &SealedFile, size: DiskSize) -> Result<(), Fault> {
        let plain = size.plain(sealed.header.layout);
        let (mut at, mut half_holes) = (0u64, 0u64);
        let mut whole = sealed.whole()?;
        let mut chunk = vec![0u8; CHUNK];
        loop {
            let count = sealed.read_sealed(at, &mut chunk)?;
            self.bytes_read += count as u64;
            if let Some(whole) = &mut whole {
                whole.update(chunk.get(..count).unwrap_or_default());
            }
            let here = plain.block_end().saturating_sub(at);
            let body = count.min(usize::try_from(here).unwrap_or(count));
            let body = chunk.get(..body).unwrap_or_default();
            if sealed.header.zero_rule == ZeroRule::Unit {
                half_holes +=
                    body.chunks(UNIT_USIZE).filter(|unit| is_half_hole(unit)).count() as u64;
            }
            if count < CHUNK {
                break;
            }
            at += count as u64;
        }
        if let Some(Err(fault)) = whole.map(|whole| whole.check(plain)) {
            self.problem(fault.kind(), fault.to_string());
        }
        if half_holes > 0 {
            let what =
                format!("{half_holes} units are partly zeros: written when the power failed?");
            self.note("half_hole", what);
        }
        Ok(())
    }
}

/// A block of zeros in a unit that is not all zeros.
fn is_half_hole(unit: &[u8]) -> bool {
    let zero = |block: &[u8; BLOCK_USIZE]| u128::from_ne_bytes(*block) == 0;
    unit.as_chunks::<BLOCK_USIZE>().0.iter().any(zero) && !is_zero(unit)
}

/// True if its header was proven before this was found.
const fn shows_seal(fault: &Fault) -> bool {
    matches!(fault, Fault::Policy { .. } | Fault::Layout { .. } | Fault::Stream)
}

const fn kind_of(fault: &Fault) -> &'static str {
    match fault {
        Fault::NotSealed => "plain_where_sealed",
        Fault::Header(_) => "header",
        Fault::LostHeader { .. } => "lost_header",
        Fault::Mac => "mac",
        Fault::UnknownKey { .. } => "unknown_key",
        Fault::RolledBack { .. } => "rolled_back",
        Fault::TwoHeaders => "two_headers",
        Fault::Policy { .. } | Fault::Layout { .. } => "policy",
        Fault::Stream => "stream",
        Fault::NoRandomness | Fault::Read(_) => "unreadable",
    }
}
