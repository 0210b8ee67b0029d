//! docs/tap.md: what each file of the suites said in both arms, and the kept list.
//!
//! The rows of files are written by the tests that run them (`TIDELOCK_BLESS=1`); what follows from
//! the list is compared whole.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tidelock_servers::{Error, Result, ensure};

use super::known::Known;
use super::report::{END, Outcome, Report};

const FILES: (&str, &str) =
    ("<!-- files: written by tests/postgres_tap.rs -->\n", "<!-- end -->\n");
const LISTS: (&str, &str) =
    ("<!-- lists: from tap/differences.toml -->\n", "<!-- end of lists -->\n");
const HEAD: &str = "| file | pass without | fail without | skipped | pass with | differ |\n\
                    | --- | --- | --- | --- | --- | --- |\n";

/// Compares the row of one file with the page, or writes it. What passes depends on the machine and
/// on the server's minor version; how many differ does not, and where as many pass without the
/// library as on the page, as many must pass with it.
///
/// # Errors
/// When the page has no row of this file, or one with other numbers.
pub fn row(file: &str, plain: &Report, sealed: &Report) -> Result<()> {
    let found = plain.differences(sealed);
    // The end of the file differs too where a test fails.
    let names = found.iter().filter(|it| it.name != END).count();
    let differ = names.max(usize::from(!found.is_empty()));
    let key = format!("| {file} |");
    if std::env::var_os("TIDELOCK_BLESS").is_some() {
        let row = format!(
            "{key} {} | {} | {} | {} | {differ} |\n",
            plain.count(Outcome::Passed),
            plain.count(Outcome::Failed) + plain.count(Outcome::Known),
            skipped(plain),
            sealed.count(Outcome::Passed),
        );
        return rewrite(FILES, |rows| {
            let body = rows.strip_prefix(HEAD).unwrap_or(rows);
            let mut lines: Vec<&str> =
                body.split_inclusive('\n').filter(|line| !line.starts_with(&key)).collect();
            lines.push(&row);
            lines.sort_unstable();
            [HEAD, &lines.concat()].concat()
        });
    }
    let page = read()?;
    let told = page.lines().find(|line| line.starts_with(&key));
    let passed = [plain.count(Outcome::Passed), sealed.count(Outcome::Passed)];
    ensure(told.is_some_and(|line| agrees(line, &key, passed, differ)), || {
        let [without, with] = passed;
        format!(
            "docs/tap.md is old, TIDELOCK_BLESS=1 writes it again: {file}: {without} pass without, \
             {with} with, {differ} differ"
        )
    })
}

/// Whether a row that begins with `key` tells these numbers.
fn agrees(row: &str, key: &str, [without, with]: [usize; 2], differ: usize) -> bool {
    match row.starts_with(&format!("{key} {without} |")) {
        true => row.ends_with(&format!("| {with} | {differ} |")),
        false => row.ends_with(&format!("| {differ} |")),
    }
}

/// Those of these files that the page has no row for.
///
/// # Errors
/// When the page cannot be read.
pub fn without_row<'f>(files: impl Iterator<Item = &'f String>) -> Result<Vec<&'f String>> {
    let page = read()?;
    Ok(files.filter(|file| !page.contains(&format!("\n| {file} |"))).collect())
}

/// Compares what follows from the list with the page, or writes it.
///
/// # Errors
/// When the page says something else.
pub fn lists(known: &Known) -> Result<()> {
    let text = told(known);
    if std::env::var_os("TIDELOCK_BLESS").is_some() {
        return rewrite(LISTS, |_| text.clone());
    }
    let page = read()?;
    let part = between(&page, LISTS)?.1;
    ensure(part == text, || {
        "docs/tap.md is not what tap/differences.toml says: TIDELOCK_BLESS=1 writes it again".into()
    })
}

fn skipped(report: &Report) -> String {
    match &report.skipped {
        Some(why) => format!("all: {why}"),
        None => report.count(Outcome::Skipped).to_string(),
    }
}

fn told(known: &Known) -> String {
    let mut text = String::from("| file | tests | why they differ |\n| --- | --- | --- |\n");
    for it in known.explained() {
        let mut names: Vec<String> = it.tests.iter().map(|name| cell(name)).collect();
        if it.and_what_follows {
            names.push("and what follows".to_owned());
        }
        let _ = writeln!(text, "| {} | {} | {} |", it.file, names.join("; "), cell(&it.reason));
    }
    text +=
        "\n| file | `tidelock init --plain` | what the test puts there |\n| --- | --- | --- |\n";
    for it in known.dropped_in() {
        let globs: Vec<String> = it.plain.iter().map(|glob| format!("`{glob}`")).collect();
        let _ = writeln!(text, "| {} | {} | {} |", it.file, globs.join(", "), cell(&it.reason));
    }
    text += "\n| not compared | why |\n| --- | --- |\n";
    for it in known.left_out() {
        let _ = writeln!(text, "| {} | {} |", it.files.join(", "), cell(&it.reason));
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tap.md")
}

fn read() -> Result<String> {
    fs::read_to_string(path()).map_err(Error::io("reading docs/tap.md"))
}

fn between<'p>(page: &'p str, marks: (&str, &str)) -> Result<(&'p str, &'p str, &'p str)> {
    let split = page.split_once(marks.0).and_then(|(before, rest)| {
        let (part, after) = rest.split_once(marks.1)?;
        Some((before, part, after))
    });
    split.ok_or_else(|| Error::Unexpected(format!("docs/tap.md has lost its mark {}", marks.0)))
}

fn rewrite(marks: (&str, &str), change: impl FnOnce(&str) -> String) -> Result<()> {
    let path = path();
    let lock = fs::File::open(&path).map_err(Error::io("opening docs/tap.md"))?;
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| Error::io("locking docs/tap.md")(errno.into()))?;
    let page = read()?;
    let (before, part, after) = between(&page, marks)?;
    let text = [before, marks.0, &change(part), marks.1, after].concat();
    // In place: the lock is on this file.
    fs::write(&path, text).map_err(Error::io("writing docs/tap.md"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_passes_with_the_library_than_on_the_page_are_no_agreement() {
        let (row, key) = ("| a.pl | 12 | 0 | all: no server | 11 | 1 |", "| a.pl |");
        assert!(agrees(row, key, [12, 11], 1));
        assert!(!agrees(row, key, [12, 10], 1));
        assert!(!agrees(row, key, [12, 11], 2));
        // Of another minor version.
        assert!(agrees(row, key, [13, 12], 1));
        assert!(!agrees(row, key, [1, 1], 0));
    }
}
