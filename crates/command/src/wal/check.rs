//! `tidelock wal check`: is every file of an archive what its name says, and is a segment missing?

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;

use serde::Serialize;
use tidelock_contract::control::FOLDER;
use tidelock_format::{PROBE_LEN, looks_sealed};

use crate::console;
use crate::error::{Error, Result};
use crate::wal::lineage::Lineage;
use crate::wal::name::{Kind, SegmentName, WalName};
use crate::wal::place::{Archive, ArchiveOptions, Form, Want};
use crate::wal::segment::{FirstPage, HEAD};
use crate::wal::source::{CHUNK, Source, damaged};

/// Read every file of an archive, and name what is damaged, plain, missing or foreign
#[derive(clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    archive: ArchiveOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Output {
    directory: String,
    segments: u64,
    others: u64,
    /// Those of both that are proven by a MAC over all of their bytes.
    proven: u64,
    bytes_read: u64,
    timelines: Vec<Timeline>,
    problems: Vec<Finding>,
    notes: Vec<Finding>,
}

#[derive(Serialize)]
struct Timeline {
    timeline: u32,
    first: String,
    last: String,
    /// First and last segment of each gap, those on the way from the timelines before included.
    missing: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Finding {
    file: String,
    /// For programs; stays the same.
    kind: &'static str,
    what: String,
}

/// The segments of the archive, by timeline, and how long they are.
#[derive(Default)]
struct Found {
    segments: BTreeMap<u32, Vec<SegmentName>>,
    /// Where timelines come from; none if the file is there and cannot be used.
    lineages: BTreeMap<u32, Option<Lineage>>,
    size: Option<u64>,
    system: Option<u64>,
}

impl Check {
    /// # Errors
    /// It is no archive, its keyring does not open, or a file is not as it must be.
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.archive.through.is_some() {
            return Err(Error::usage(
                "an archive behind a command cannot be listed",
                "restore each file with `tidelock wal get --through`",
            ));
        }
        let archive = Archive::open(&self.archive, None)?;
        let mut report =
            Output { directory: archive.folder.path().display().to_string(), ..Output::default() };
        let mut found = Found::default();
        let mut names = archive.folder.names()?;
        names.retain(|name| name != FOLDER);
        names.sort();
        for name in names {
            report.look(&archive, &name, &mut found);
        }
        if matches!(archive.form, Form::Plain) && report.is_empty() {
            // Without a keyring nothing else tells an archive from an empty mount point.
            return Err(Error::refused(
                format!("{} has no WAL", report.directory),
                "is it mounted? an archive that is in use has some",
            ));
        }
        report.gaps(&found);
        if self.json {
            console::print_json("wal check", &report)?;
        } else {
            report.tell()?;
        }
        report.verdict()
    }
}

impl Output {
    const fn is_empty(&self) -> bool {
        self.segments == 0 && self.others == 0
    }

    fn look(&mut self, archive: &Archive, file: &OsStr, found: &mut Found) {
        let shown = file.display().to_string();
        let Some(name) = WalName::parse(file) else {
            self.look_at_foreign(archive, file, shown);
            return;
        };
        match self.read(archive, &name, found) {
            Ok(true) => {}
            // Removed meanwhile, as pg_archivecleanup does.
            Ok(false) => return,
            Err(why) => {
                if let Some(timeline) = name.history() {
                    found.lineages.insert(timeline, None);
                }
                let kind = match &why {
                    Error::BadKey { .. } => "unknown_key",
                    Error::Io { .. } => "unreadable",
                    _ => "damaged",
                };
                self.problems.push(Finding { file: shown, kind, what: why.to_string() });
            }
        }
        match name.kind() {
            Kind::Segment(segment) => {
                self.segments += 1;
                found.segments.entry(segment.timeline).or_default().push(segment);
            }
            _ => self.others += 1,
        }
    }

    /// Nobody restores it, but what is plain there may be WAL under another name.
    fn look_at_foreign(&mut self, archive: &Archive, file: &OsStr, shown: String) {
        let foreign = "it does not have the name of a file of WAL";
        let is_sealed = matches!(archive.want(&file.to_string_lossy(), None), Want::Sealed(..));
        let mut begins = Vec::new();
        let read = match archive.folder.entry(file).open() {
            Ok(Some(file)) => file.take(PROBE_LEN as u64).read_to_end(&mut begins).is_ok(),
            Ok(None) => return,
            Err(_) => false,
        };
        let what = match read {
            true if !is_sealed || begins.is_empty() || looks_sealed(&begins) => foreign.to_owned(),
            true => {
                let what = format!("{foreign}, and is plain");
                self.problems.push(Finding { file: shown, kind: "plain_where_sealed", what });
                return;
            }
            false => format!("{foreign}, and was not looked into: `tidelock verify` does"),
        };
        self.notes.push(Finding { file: shown, kind: "foreign", what });
    }

    fn read(&mut self, archive: &Archive, name: &WalName, found: &mut Found) -> Result<bool> {
        let want = archive.want(name.as_str(), None);
        let Some(mut source) = Source::open_in(&archive.folder, name.as_str(), want)? else {
            return Ok(false);
        };
        source.refuse_unless_wal(name)?;
        let whole = source.is_whole();
        let mut chunk = vec![0u8; CHUNK];
        let mut first = true;
        let mut text = Vec::new();
        loop {
            let count = source.next(&mut chunk)?;
            if count == 0 {
                break;
            }
            self.bytes_read += count as u64;
            if name.history().is_some() {
                text.extend_from_slice(chunk.get(..count).unwrap_or_default());
            }
            if std::mem::take(&mut first)
                && let (Kind::Segment(_), Some(page)) =
                    (name.kind(), FirstPage::parse(chunk.get(..HEAD).unwrap_or_default()))
            {
                self.same_cluster(name, page, found);
            }
        }
        if let Some(timeline) = name.history() {
            let lineage = std::str::from_utf8(&text).ok();
            let lineage = lineage.and_then(|text| Lineage::parse(timeline, text));
            let unclear = || damaged(source.path(), "it does not say where its timeline begins");
            found.lineages.insert(timeline, Some(lineage.ok_or_else(unclear)?));
        }
        self.proven += u64::from(whole);
        if !whole && !source.is_plain() {
            let what = "its content is not proven: it was not written by `tidelock wal put`";
            let file = name.to_string();
            self.notes.push(Finding { file, kind: "not_proven", what: what.to_owned() });
        }
        Ok(true)
    }

    fn same_cluster(&mut self, name: &WalName, page: FirstPage, found: &mut Found) {
        let size = *found.size.get_or_insert(page.size);
        let system = *found.system.get_or_insert(page.system);
        if (size, system) != (page.size, page.system) {
            let what = "it is of another cluster than the first segment here".to_owned();
            self.problems.push(Finding { file: name.to_string(), kind: "other_cluster", what });
        }
    }

    fn gaps(&mut self, found: &Found) {
        let Some(size) = found.size else { return };
        for (timeline, segments) in &found.segments {
            let (Some(first), Some(last)) = (segments.first(), segments.last()) else { continue };
            let number = |segment: &SegmentName| segment.number(size);
            let shown = |number| {
                SegmentName::of(*timeline, number, size)
                    .map(|it| it.to_string())
                    .unwrap_or_default()
            };
            let pairs = segments.windows(2).filter_map(|pair| match pair {
                [a, b] => Some((number(a)?, number(b)?)),
                _ => None,
            });
            let own = pairs.filter(|(a, b)| a + 1 < *b).map(|(a, b)| (shown(a + 1), shown(b - 1)));
            let before = self.before(*timeline, found, size).into_iter();
            let before = before.map(|(a, b)| (a.to_string(), b.to_string()));
            let missing: Vec<_> = before.chain(own).collect();
            for (from, to) in &missing {
                let what = match from == to {
                    true => "it is missing".to_owned(),
                    false => format!("it and all up to {to} are missing"),
                };
                self.problems.push(Finding { file: from.clone(), kind: "missing", what });
            }
            self.timelines.push(Timeline {
                timeline: *timeline,
                first: first.to_string(),
                last: last.to_string(),
                missing,
            });
        }
    }

    /// What is missing on the way from the timelines before to this one.
    fn before(
        &mut self,
        timeline: u32,
        found: &Found,
        size: u64,
    ) -> Vec<(SegmentName, SegmentName)> {
        match found.lineages.get(&timeline) {
            Some(Some(lineage)) => lineage.missing(timeline, &found.segments, size),
            // That was told with the file.
            Some(None) => Vec::new(),
            // An archive may begin at any place.
            None if found.segments.range(..timeline).next().is_none() => Vec::new(),
            None => {
                let what = "it is missing: whether segments are missing before this timeline is \
                            unknown; servers keep the file in pg_wal"
                    .to_owned();
                let file = format!("{timeline:08X}.history");
                self.problems.push(Finding { file, kind: "no_history", what });
                Vec::new()
            }
        }
    }

    fn tell(&self) -> Result<()> {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for Finding { file, what, .. } in &self.problems {
            let _ = writeln!(text, "{}: {what}", tidelock_ffi::Shown(file.as_bytes()));
        }
        for Finding { file, what, .. } in &self.notes {
            let _ = writeln!(text, "{}: note: {what}", tidelock_ffi::Shown(file.as_bytes()));
        }
        for Timeline { timeline, first, last, .. } in &self.timelines {
            let _ = writeln!(text, "timeline {timeline}: {first} to {last}");
        }
        let _ = writeln!(
            text,
            "{}, {}, {} proven; {} read; {}, {}",
            console::count(usize::try_from(self.segments).unwrap_or(usize::MAX), "segment"),
            console::count(usize::try_from(self.others).unwrap_or(usize::MAX), "other file"),
            self.proven,
            console::bytes(self.bytes_read),
            console::count(self.problems.len(), "problem"),
            console::count(self.notes.len(), "note"),
        );
        console::print(text)
    }

    fn verdict(&self) -> Result<ExitCode> {
        if self.problems.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Error::Verification {
            what: format!(
                "the archive {} has {}",
                self.directory,
                console::count(self.problems.len(), "problem")
            ),
            hint: "take a new base backup, unless another copy of the archive has these files"
                .to_owned(),
        })
    }
}
