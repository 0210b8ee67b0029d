//! PostgreSQL's own SQL and isolation suites: sealed fails exactly where plain fails.
//!
//! The source may be a minor version behind the server, so the plain run is the baseline. Set
//! `TIDELOCK_EVIDENCE=DIR` to keep the lists of both runs there.

use std::path::Path;
use std::{env, fs};

use tidelock_testkit::pg::{Arm, Cluster, Error, Outcome, Result, Suite, Workspace, ensure};

fn run(suite: Suite, arm: Arm, tests: &[&str]) -> Result<Outcome> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("max_prepared_transactions", "10")?;
    cluster.set("max_connections", "60")?;
    cluster.set("fsync", "off")?;
    cluster.start()?;
    suite.run(&cluster, tests)
}

fn sealed_equals_plain(suite: Suite, name: &str, tests: &[&str]) -> Result<()> {
    let plain = run(suite, Arm::Plain, tests)?;
    let sealed = run(suite, Arm::Sealed, tests)?;
    if let Some(dir) = env::var_os("TIDELOCK_EVIDENCE") {
        for (arm, outcome) in [(Arm::Plain, &plain), (Arm::Sealed, &sealed)] {
            let path = Path::new(&dir).join(format!("{name}-{arm}.txt"));
            fs::write(&path, outcome.list())
                .map_err(Error::io(format!("writing {}", path.display())))?;
        }
    }
    let only: Vec<_> = sealed.failed.difference(&plain.failed).collect();
    ensure(only.is_empty(), || format!("fail only when sealed: {only:?}"))?;
    // What fails in both, because the source is older than the server, must fail with the same
    // words.
    let other: Vec<_> = plain
        .printed
        .iter()
        .filter(|(test, text)| sealed.printed.get(*test).is_some_and(|sealed| sealed != *text))
        .collect();
    ensure(other.is_empty(), || {
        let names: Vec<_> = other.iter().map(|(test, _)| test).collect();
        format!("fail in both, but differently: {names:?}")
    })?;
    let run = |outcome: &Outcome| outcome.passed.len() + outcome.failed.len();
    ensure(run(&plain) == run(&sealed), || {
        format!("{} tests ran plain, {} sealed", run(&plain), run(&sealed))
    })?;
    ensure(plain.failed.len() * 5 <= plain.passed.len(), || {
        format!("the plain run is no baseline: {:?} failed", plain.failed)
    })
}

#[test]
fn a_subset_of_the_sql_suite() -> Result<()> {
    let tests = [
        "test_setup",
        "boolean",
        "int8",
        "text",
        "copy",
        "copyselect",
        "create_index",
        "vacuum",
        "tablespace",
        "largeobject",
        "prepared_xacts",
        "temp",
        "truncate",
        "cluster",
        "join_hash",
    ];
    sealed_equals_plain(Suite::Sql, "regress-subset", &tests)
}

#[test]
fn a_subset_of_the_isolation_suite() -> Result<()> {
    let tests = ["two-ids", "vacuum-conflict", "truncate-conflict", "prepared-transactions"];
    sealed_equals_plain(Suite::Isolation, "isolation-subset", &tests)
}

#[test]
#[ignore = "long: make test-full"]
fn the_whole_sql_suite() -> Result<()> {
    sealed_equals_plain(Suite::Sql, "regress", &[])
}

#[test]
#[ignore = "long: make test-full"]
fn the_whole_isolation_suite() -> Result<()> {
    sealed_equals_plain(Suite::Isolation, "isolation", &[])
}

/// The baselines alone, so that the suites' set-up is proved even where nothing is sealed.
#[test]
#[ignore = "long: make test-full"]
fn the_plain_suites_are_baselines() -> Result<()> {
    for (suite, least) in [(Suite::Sql, 200), (Suite::Isolation, 100)] {
        let outcome = run(suite, Arm::Plain, &[])?;
        ensure(outcome.passed.len() > least && outcome.failed.len() < 15, || outcome.list())?;
    }
    Ok(())
}
