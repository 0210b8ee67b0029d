//! MariaDB's own tests: the same pass with the library as without it, except those that
//! `mtr/differences.toml` lists with a reason. A whole run also passes, without the library, what
//! passed in `mtr/lists`.
//!
//! * `TIDELOCK_BLESS=1` writes `mtr/lists` and the table in docs/engines/mariadb.md again.
//! * `TIDELOCK_MTR_EVERY=N` runs every N-th of each selection only.
//! * `TIDELOCK_MTR_TESTS=innodb.restart,main.merge` runs those of each selection only.
//! * `TIDELOCK_MTR_LOGS=DIR` keeps what the runs wrote.

use std::path::{Path, PathBuf};
use std::{env, fs};

use tidelock_testkit::maria::suite::{
    Known, Outcome, Outcomes, Suite, is_installed, list, no_longer_shown, retried_in_one, run,
    runs_of, too_unsteady,
};
use tidelock_testkit::pg::{Arm, Error, Result, ensure, skip};

const PAGE: &str = "../../docs/engines/mariadb.md";

/// Runs a suite in both arms.
fn sealed_equals_plain(suite: Suite) -> Result<()> {
    if !is_installed() {
        skip::missing("mariadb-test");
        return Ok(());
    }
    let known = Known::read()?;
    let every = env::var("TIDELOCK_MTR_EVERY").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    let only = env::var("TIDELOCK_MTR_TESTS").ok();
    let is_chosen = |test: &str| only.as_ref().is_none_or(|it| it.split(',').any(|it| it == test));
    let tests = suite.tests()?.into_iter().filter(|test| known.runs(test) && is_chosen(test));
    let tests: Vec<String> = tests.step_by(every).collect();
    let plain = run(suite.name, Arm::Plain, &tests)?;
    println!("{}: {} tests; plain {}", suite.name, tests.len(), told(&plain));
    let sealed = run(suite.name, Arm::Sealed, &tests)?;
    println!("{}: sealed {}", suite.name, told(&sealed));
    let passed = plain.values().filter(|it| it.passed()).count();
    ensure(passed > 2 * count(&plain, Outcome::Failed), || "the plain run is no baseline".into())?;
    for line in retried_in_one(&plain, &sealed) {
        println!("{}: passed when tried again: {line}", suite.name);
    }
    let whole = every == 1 && only.is_none();
    if whole && env::var_os("TIDELOCK_BLESS").is_some() {
        fs::write(kept(suite), list(&plain, &sealed)).map_err(Error::io("writing the list"))?;
        let page = page()?;
        let begin = format!("| {} | ", suite.name);
        let old = page.lines().find(|line| line.starts_with(&begin));
        let old = old.ok_or_else(|| Error::Unexpected(format!("no row of {}", suite.name)))?;
        let all = Suite { every: 1, ..suite }.tests()?.len();
        let new = page.replace(old, &format!("{begin}{all} {}", counts(suite)));
        fs::write(at(PAGE), new).map_err(Error::io("writing docs/engines/mariadb.md"))?;
    }
    let mut wrong = known.judge(&plain, &sealed);
    wrong.extend(too_unsteady(&plain, &sealed));
    // A test that fails in both arms shows nothing. A suite that was never run has no list.
    if let Some(kept) = fs::read_to_string(kept(suite)).ok().filter(|_| whole) {
        wrong.extend(no_longer_shown(&kept, &plain));
    }
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

fn count(all: &Outcomes, wanted: Outcome) -> usize {
    all.values().filter(|it| **it == wanted).count()
}

fn told(all: &Outcomes) -> String {
    use Outcome::{Failed, Passed, Retried, Skipped};
    let [passed, retried, failed, skipped] =
        [Passed, Retried, Failed, Skipped].map(|it| count(all, it));
    format!("{passed} passed, {retried} when tried again, {failed} failed, {skipped} skipped")
}

fn at(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The list of a suite's last whole run.
fn kept(suite: Suite) -> PathBuf {
    at("mtr/lists").join(suite.name)
}

fn page() -> Result<String> {
    fs::read_to_string(at(PAGE)).map_err(Error::io("reading docs/engines/mariadb.md"))
}

/// What the page has to say of a suite: which of its tests run, then the runs in its list.
fn counts(suite: Suite) -> String {
    let every = suite.every;
    let Ok(list) = fs::read_to_string(kept(suite)) else {
        return format!("| {every} | not run | | | |");
    };
    let (plain, sealed) = runs_of(&list);
    let both = |ended: fn(Outcome) -> bool| {
        let ended = |all: &Outcomes, name: &String| all.get(name).is_some_and(|it| ended(*it));
        plain.keys().filter(|name| ended(&plain, name) && ended(&sealed, name)).count()
    };
    let failed = both(|it| it == Outcome::Failed);
    let same = [both(Outcome::passed), failed, both(|it| it == Outcome::Skipped)];
    let differ = list.lines().count() - same.iter().sum::<usize>();
    let [passed, failed, skipped] = same;
    format!("| {every} | {passed} | {failed} | {skipped} | {differ} |")
}

#[test]
fn the_table_says_what_the_lists_have() -> Result<()> {
    let page = page()?;
    for suite in SUITES {
        let (begin, counts) = (format!("| {} | ", suite.name), counts(suite));
        let mut rows = page.lines().filter(|line| line.starts_with(&begin));
        ensure(rows.any(|row| row.ends_with(&counts)), || {
            format!("TIDELOCK_BLESS=1 writes the page again: {begin}... {counts}")
        })?;
    }
    Ok(())
}

/// A difference that was mended, or came, would stay in one of the two.
#[test]
fn the_lists_differ_where_a_reason_is_written_down_and_nowhere_else() -> Result<()> {
    let known = Known::read()?;
    for suite in SUITES {
        let list = fs::read_to_string(kept(suite)).map_err(Error::io("reading a list"))?;
        let (plain, sealed) = runs_of(&list);
        ensure(!plain.is_empty(), || format!("{}: an empty list", suite.name))?;
        let wrong = known.judge(&plain, &sealed);
        ensure(wrong.is_empty(), || wrong.join("\n"))?;
    }
    Ok(())
}

/// Some that take a moment, and need one server that need not start often.
#[test]
fn a_few_of_its_tests_pass_with_the_library() -> Result<()> {
    if !is_installed() || !Path::new("/usr/bin/mariadb-backup").exists() {
        skip::missing("mariadb-test or mariadb-backup");
        return Ok(());
    }
    let few: Vec<String> = FEW.iter().map(|it| (*it).to_owned()).collect();
    for arm in [Arm::Plain, Arm::Sealed] {
        let found = run("few", arm, &few)?;
        println!("few, {arm}: {}", told(&found));
        // One more try may be the machine's, where all tests of the project run.
        let is_steady = count(&found, Outcome::Retried) < 2;
        let all_pass = found.len() >= FEW.len() && found.values().all(|it| it.passed());
        ensure(all_pass && is_steady, || format!("{arm}: {found:?}"))?;
    }
    Ok(())
}

const FEW: [&str; 9] = [
    "binlog.binlog_drop_if_exists",
    "main.alter_table_trans",
    "main.ctype_ascii",
    "main.handler_read_last",
    "innodb.innodb_bug53674",
    "innodb.innodb_stats_create_table",
    "maria.alter",
    "mariabackup.extra_lsndir",
    "rpl.rpl_drop_db",
];

macro_rules! suites {
    ($($name:ident: $every:literal),+ $(,)?) => {
        const SUITES: [Suite; [$($every),+].len()] =
            [$(Suite { name: stringify!($name), every: $every }),+];
        $(
            #[test]
            #[ignore = "long: make test-full"]
            fn $name() -> Result<()> {
                sealed_equals_plain(Suite { name: stringify!($name), every: $every })
            }
        )+
    };
}

// All of Aria and of the backups; of the others a part, by name, so that both arms together take
// less than two hours on two cores.
suites! {
    main: 10,
    innodb: 10,
    maria: 1,
    binlog: 4,
    rpl: 20,
    mariabackup: 3,
    galera: 40,
}
