//! Phase 1: lines of a file into the database, a batch a transaction.

use std::fs;
use std::path::{Path, PathBuf};

use csv_core::Reader;

use super::Phase;
use super::crew::Tally;
use super::error::{Error, Result};
use super::lines::{Line, Lines};
use super::record::{self, HEADER};
use super::rejects;
use super::store::{Batch, File, Rejected, Store};

/// A market file and what the database knows of it.
#[derive(Debug)]
pub(super) struct Market {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) file: File,
}

/// The market files of `dir` in the order of their names, each entered and with its reject file as
/// the database has it.
///
/// # Errors
/// When there is none, one starts with another line than the header, or was changed since it was
/// first seen.
pub(super) fn files(store: &mut impl Store, dir: &Path) -> Result<Vec<Market>> {
    let what = || Error::io(format!("reading the directory {}", dir.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(what())? {
        let path = entry.map_err(what())?.path();
        if path.extension().is_some_and(|ending| ending == "csv") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(Error::Order(format!("{} has no files *.csv", dir.display())));
    }
    let mut markets = Vec::with_capacity(paths.len());
    for path in &paths {
        check_header(path)?;
    }
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let what = || Error::io(format!("reading {}", path.display()));
        let bytes = fs::metadata(&path).map_err(what())?.len();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let file = store.file(&name, bytes)?;
        if file.bytes != bytes {
            return Err(Error::Order(format!(
                "{} has {bytes} bytes, but had {} when its loading began; give changed data \
                 another name",
                path.display(),
                file.bytes
            )));
        }
        rejects::write(&path, &store.rejected(file.id)?)?;
        markets.push(Market { path, name, file });
    }
    Ok(markets)
}

fn check_header(path: &Path) -> Result<()> {
    let what = || Error::io(format!("reading {}", path.display()));
    let mut lines = Lines::open(path, 0, 0).map_err(what())?;
    let line = lines.next().map_err(what())?;
    let first = line.map(|line| line.bytes.to_vec()).unwrap_or_default();
    if first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&first) == HEADER.as_bytes() {
        return Ok(());
    }
    let why = format!("{:?} instead of {HEADER:?}", String::from_utf8_lossy(&first));
    Err(Error::File { path: path.into(), line: 1, why })
}

/// Loads the rest of one file.
pub(super) fn load(
    store: &mut impl Store,
    market: &Market,
    size: usize,
    tally: &Tally<'_>,
) -> Result<()> {
    let what = || Error::io(format!("reading {}", market.path.display()));
    let File { id, line, offset, .. } = market.file;
    let mut lines = Lines::open(&market.path, line, offset).map_err(what())?;
    if line == 0 {
        lines.next().map_err(what())?;
    }
    let mut finished = false;
    while !finished && !tally.must_end() {
        let batch = read(&mut lines, id, size).map_err(what())?;
        finished = batch.finishes;
        let place = || match batch.records.first().map(|(line, ..)| *line) {
            Some(line) => format!("{}, line {line}", market.name),
            None => format!("{}, line {}", market.name, batch.first),
        };
        let duplicates = store.load(&batch).map_err(|t| t.at(Phase::Load, place()))?;
        let loaded = batch.records.len() - duplicates.len();
        tally.add(loaded, batch.rejected.len() + duplicates.len(), loaded);
    }
    let place = || format!("{}, line {}", market.name, lines.number());
    let rejected = store.rejected(id).map_err(|t| t.at(Phase::Load, place()))?;
    rejects::write(&market.path, &rejected)
}

/// The next `size` lines, good and bad.
fn read(lines: &mut Lines, file: i32, size: usize) -> std::io::Result<Batch> {
    let mut batch = Batch {
        file,
        first: lines.number() + 1,
        last: 0,
        offset: 0,
        finishes: false,
        records: Vec::with_capacity(size),
        rejected: Vec::new(),
    };
    let mut reader = Reader::new();
    while batch.records.len() + batch.rejected.len() < size {
        let Some(line) = lines.next()? else {
            batch.finishes = true;
            break;
        };
        let Line { number, bytes, .. } = line;
        match record::parse(&mut reader, &line) {
            Ok(record) => batch.records.push((number, record, bytes.to_vec())),
            Err(reason) => {
                batch.rejected.push(Rejected { line: number, reason, bytes: bytes.to_vec() });
            }
        }
    }
    batch.last = lines.number();
    batch.offset = lines.offset();
    Ok(batch)
}
