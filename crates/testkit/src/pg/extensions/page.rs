//! docs/extensions.md: what each suite said in both arms, written by the tests that ran it
//! (`TIDELOCK_BLESS=1`).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tidelock_servers::{Error, Result, ensure};

use super::{Extension, Tried};

const BEGIN: &str = "<!-- rows: written by tests/postgres_extensions.rs -->\n";
const END: &str = "<!-- end of rows -->\n";
const HEAD: &str = "| extension | version | from | tests | pass without | pass with | differ |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n";

/// Compares the row of one extension with the page, or writes it. How many pass depends on the
/// machine and on the server's minor version; how many differ does not.
///
/// # Errors
/// When the page has no row of this extension, or one with another number of differences.
pub fn row(extension: &Extension, plain: &Tried, sealed: &Tried) -> Result<()> {
    let differ = plain.outcome.differs(&sealed.outcome).len();
    let key = format!("| {} |", extension.name);
    if std::env::var_os("TIDELOCK_BLESS").is_some() {
        let passed = [plain, sealed].map(|it| it.outcome.passed.len());
        let tests = passed[0] + plain.outcome.failed.len();
        let row = format!(
            "{key} {} | {} | {tests} | {} | {} | {differ} |\n",
            plain.version, extension.from, passed[0], passed[1]
        );
        return bless(&key, &row);
    }
    let page = fs::read_to_string(path()).map_err(Error::io("reading docs/extensions.md"))?;
    let told = page.lines().find(|line| line.starts_with(&key));
    ensure(told.is_some_and(|line| line.ends_with(&format!("| {differ} |"))), || {
        let name = extension.name;
        format!("docs/extensions.md is old, TIDELOCK_BLESS=1 writes it again: {name}: {differ}")
    })
}

fn bless(key: &str, row: &str) -> Result<()> {
    let lock = fs::File::open(path()).map_err(Error::io("opening docs/extensions.md"))?;
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| Error::io("locking docs/extensions.md")(errno.into()))?;
    let page = fs::read_to_string(path()).map_err(Error::io("reading docs/extensions.md"))?;
    let split = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (rows, after) = rest.split_once(END)?;
        Some((before, rows, after))
    });
    let (before, rows, after) = split.ok_or_else(|| {
        Error::Unexpected("docs/extensions.md has lost the marks of its rows".into())
    })?;
    let body = rows.strip_prefix(HEAD).unwrap_or(rows).split_inclusive('\n');
    let mut lines: Vec<&str> = body.filter(|line| !line.starts_with(key)).collect();
    lines.push(row);
    lines.sort_unstable();
    let text = [before, BEGIN, HEAD, &lines.concat(), END, after].concat();
    // In place: the lock is on this file.
    fs::write(path(), text).map_err(Error::io("writing docs/extensions.md"))
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/extensions.md")
}
