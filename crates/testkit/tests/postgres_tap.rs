//! PostgreSQL's own TAP suites: with the library every test says what it says without, except those
//! that `tap/differences.toml` lists with a reason.
//!
//! * `TIDELOCK_BLESS=1` writes docs/tap.md again.
//! * `TIDELOCK_TAP_FILES=pg_rewind/t/001` runs the files with that in their names only; a test
//!   that has none fails.
//! * `TIDELOCK_TAP_LOGS=DIR` keeps the logs of files that differ.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use tidelock_testkit::pg::tap::known::Known;
use tidelock_testkit::pg::tap::report::Report;
use tidelock_testkit::pg::tap::{can_run, files, page, run};
use tidelock_testkit::pg::{Arm, Error, Result, ensure};

/// Every suite that runs here; a test below has each.
const SUITES: &[&[&str]] =
    &[QUICK, BACKUPS, RECOVERY, SUBSCRIPTION, TOOLS, UPGRADE, CLIENTS, SERVERS];
const QUICK: &[&str] = &["src/bin/pg_archivecleanup", "src/bin/pg_controldata"];
const BACKUPS: &[&str] = &["src/bin/pg_basebackup", "src/bin/pg_rewind"];
const RECOVERY: &[&str] = &["src/test/recovery"];
const SUBSCRIPTION: &[&str] = &["src/test/subscription"];
const TOOLS: &[&str] = &[
    "src/bin/initdb",
    "src/bin/pg_checksums",
    "src/bin/pg_ctl",
    "src/bin/pg_resetwal",
    "src/bin/pg_verifybackup",
    "src/bin/pg_waldump",
    "src/bin/pg_amcheck",
    "contrib/amcheck",
    "contrib/basebackup_to_shell",
];
const UPGRADE: &[&str] = &["src/bin/pg_upgrade"];
const CLIENTS: &[&str] = &[
    "src/bin/pg_dump",
    "src/bin/pgbench",
    "src/bin/psql",
    "src/bin/scripts",
    "contrib/oid2name",
    "contrib/vacuumlo",
];

const SERVERS: &[&str] = &[
    "contrib/auto_explain",
    "contrib/bloom",
    "contrib/test_decoding",
    "src/test/authentication",
    "src/test/icu",
    "src/test/modules/brin",
    "src/test/modules/commit_ts",
    "src/test/modules/test_misc",
];

/// Runs every file of these suites in both arms.
fn sealed_equals_plain(suites: &[&str]) -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    let known = Known::read()?;
    let (mut compared, mut wrong) = (0, Vec::new());
    for suite in suites {
        for file in files(suite)? {
            let wanted = match env::var("TIDELOCK_TAP_FILES") {
                Ok(only) => file.contains(&only),
                Err(_) => known.compares(&file),
            };
            if !wanted {
                continue;
            }
            compared += 1;
            if let Err(why) = compare(&file, &known) {
                println!("{why}");
                wrong.push(why.to_string());
            }
        }
    }
    ensure(compared > 0, || format!("no file of {suites:?} is compared"))?;
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

fn compare(file: &str, known: &Known) -> Result<()> {
    let plain = run(file, Arm::Plain, known)?;
    let sealed = run(file, Arm::Sealed, known)?;
    println!("{file}: plain {}; sealed {}", plain.told(), sealed.told());
    ensure(plain.is_baseline(), || {
        format!("{file}: no baseline: plain {}\n{}", plain.told(), plain.log)
    })?;
    let found = plain.differences(&sealed);
    let judged = known.judge(file, &found);
    let mut wrong: Vec<String> = judged
        .unexplained
        .iter()
        .map(|it| format!("{file}: {}: {}", it.name, it.what))
        .chain(judged.mended.iter().map(|name| format!("{file}: {name}: listed, but agrees")))
        .collect();
    if !found.is_empty() {
        keep(file, Arm::Plain, &plain)?;
        keep(file, Arm::Sealed, &sealed)?;
    }
    if wrong.is_empty()
        && let Err(why) = page::row(file, &plain, &sealed)
    {
        wrong.push(why.to_string());
    }
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

fn keep(file: &str, arm: Arm, report: &Report) -> Result<()> {
    let Some(dir) = env::var_os("TIDELOCK_TAP_LOGS") else { return Ok(()) };
    let path = Path::new(&dir).join(format!("{}-{arm}.log", file.replace('/', "_")));
    fs::write(&path, &report.log).map_err(Error::io(format!("writing {}", path.display())))
}

#[test]
fn pg_archivecleanup_and_pg_controldata() -> Result<()> {
    sealed_equals_plain(QUICK)
}

#[test]
#[ignore = "long: make test-full"]
fn pg_basebackup_and_pg_rewind() -> Result<()> {
    sealed_equals_plain(BACKUPS)
}

#[test]
#[ignore = "long: make test-full"]
fn recovery() -> Result<()> {
    sealed_equals_plain(RECOVERY)
}

#[test]
#[ignore = "long: make test-full"]
fn subscription() -> Result<()> {
    sealed_equals_plain(SUBSCRIPTION)
}

#[test]
#[ignore = "long: make test-full"]
fn tools_that_open_a_data_directory() -> Result<()> {
    sealed_equals_plain(TOOLS)
}

#[test]
#[ignore = "long: make test-full"]
fn pg_upgrade() -> Result<()> {
    sealed_equals_plain(UPGRADE)
}

#[test]
#[ignore = "long: make test-full"]
fn clients() -> Result<()> {
    sealed_equals_plain(CLIENTS)
}

#[test]
#[ignore = "long: make test-full"]
fn servers() -> Result<()> {
    sealed_equals_plain(SERVERS)
}

#[test]
fn the_page_shows_the_list() -> Result<()> {
    page::lists(&Known::read()?)
}

#[test]
fn the_list_names_files_that_run_and_each_of_them_has_a_row() -> Result<()> {
    if !can_run() {
        return Ok(());
    }
    let mut all = BTreeSet::new();
    for suite in SUITES.iter().copied().flatten() {
        all.extend(files(suite)?);
    }
    let known = Known::read()?;
    let named = known.explained().iter().map(|it| &it.file);
    for file in named.chain(known.dropped_in().iter().map(|it| &it.file)) {
        ensure(all.contains(file), || format!("{file} is listed, and no suite here has it"))?;
    }
    let missing = page::without_row(all.iter().filter(|file| known.compares(file)))?;
    ensure(missing.is_empty(), || format!("docs/tap.md has no row for {missing:?}"))?;
    for start in known.left_out().iter().flat_map(|it| &it.files) {
        let found = all.iter().any(|file| file.starts_with(start.as_str()));
        ensure(found, || format!("{start} is left out, and no suite here has it"))?;
    }
    Ok(())
}
