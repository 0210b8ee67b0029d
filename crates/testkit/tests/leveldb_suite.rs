//! LevelDB's own tests: each that passes on a plain directory passes in a protected one.
//!
//! They are built with a limit of no maps (`ci/leveldb-tests`): LevelDB maps tables shared, which
//! no sealed file can be. `TIDELOCK_LEVELDB=db_test,env_test` runs a part.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

/// It takes the first four files to be mapped, and counts the descriptors of the others.
const COUNTS_MAPS: &str = "env_posix_test: EnvPosixTest.TestCloseOnExecRandomAccessFile";
/// It races with a compaction, without the library too. Only it is tried again.
const RACES: &str = "db_test: DBTest.HiddenValuesAreRemoved";
/// A program of them all, on a machine that does many other things.
const PROGRAM: Duration = Duration::from_secs(1200);

/// Whether each test passed.
type Verdicts = BTreeMap<String, bool>;

#[test]
#[ignore = "long: make test-full"]
fn the_suite_of_leveldb_says_the_same_as_without_the_library() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/leveldb");
    let Ok(built) = built.canonicalize() else {
        skip::missing("build/leveldb (ci/leveldb-tests)");
        return;
    };
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("leveldb").unwrap();
    let sealed = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let (mut without, mut with) = (Verdicts::new(), Verdicts::new());
    for program in programs(&built) {
        let plain = || Command::new(&program);
        let exec = || {
            let mut exec = place.command(&product);
            exec.arg("exec").arg("-D").arg(&sealed).arg("--").arg(&program);
            exec
        };
        without.extend(run(plain, &program, &place.plain()));
        with.extend(run(exec, &program, &sealed));
    }
    let passed = without.values().filter(|passed| **passed).count();
    println!("leveldb: {passed} of {} pass on a plain directory", without.len());
    assert!(passed > 1, "the plain run is no baseline: {without:#?}");
    let differ: Vec<_> = without
        .iter()
        .chain(&with)
        .filter(|(test, _)| without.get(*test) != with.get(*test))
        .collect();
    assert!(differ.is_empty(), "these differ: {differ:#?}");
    let failed: Vec<&String> =
        with.iter().filter(|(_, passed)| !**passed).map(|(test, _)| test).collect();
    assert!(failed.iter().all(|test| *test == COUNTS_MAPS), "these fail in both: {failed:#?}");
    let left = fs::read_dir(&sealed).unwrap().count();
    assert!(left > 1, "they left nothing beside .tidelock to look at");
    place.verify(&product, &sealed).unwrap_or_else(|error| panic!("{error}"));
}

/// The programs of the suite.
fn programs(built: &Path) -> Vec<PathBuf> {
    let part = env::var("TIDELOCK_LEVELDB").ok();
    let is_chosen = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        part.as_ref().is_none_or(|part| part.split(',').any(|chosen| name == chosen))
    };
    let mut found: Vec<_> =
        fs::read_dir(built).unwrap().map(|entry| entry.unwrap().path()).filter(is_chosen).collect();
    found.sort();
    found
}

/// Runs a program of the suite, whose databases lie below `dir`.
fn run(command: impl Fn() -> Command, program: &Path, dir: &Path) -> Verdicts {
    let name = program.file_name().unwrap().to_string_lossy();
    let start = |arguments: &[String]| {
        let mut command = command();
        // GoogleTest puts the names of files right behind it.
        command.args(arguments).env("TEST_TMPDIR", format!("{}/", dir.display())).current_dir(dir);
        let done = command.finish_within(PROGRAM).unwrap();
        let verdicts = told(&name, &String::from_utf8_lossy(&done.stdout));
        (done, verdicts)
    };
    let (done, mut verdicts) = start(&[]);
    // GoogleTest ends with 1 where a test failed.
    let failed = verdicts.values().any(|passed| !*passed);
    let ended_well = done.status.success() || failed && done.status.code() == Some(1);
    // c_test is without GoogleTest; others may crash.
    if verdicts.is_empty() || !ended_well {
        verdicts.insert(name.clone().into_owned(), ended_well);
    }
    if let Some(passed) = verdicts.get_mut(RACES).filter(|passed| !**passed) {
        println!("{RACES} failed in {}, and is tried again", dir.display());
        let (_, alone) = RACES.split_once(": ").unwrap();
        let (done, again) = start(&[format!("--gtest_filter={alone}")]);
        *passed = done.status.success() && again.get(RACES) == Some(&true);
    }
    verdicts
}

/// `[       OK ] SUITE.TEST (12 ms)` and `[  FAILED  ] SUITE.TEST (3 ms)`; a list without times
/// follows.
fn told(program: &str, said: &str) -> Verdicts {
    let verdict = |line: &str| {
        let (word, test) = line.strip_prefix('[')?.split_once("] ")?;
        let passed = match word.trim() {
            "OK" => true,
            "FAILED" => false,
            _ => return None,
        };
        let (test, _) = test.split_once(" (")?;
        Some((format!("{program}: {test}"), passed))
    };
    said.lines().filter_map(verdict).collect()
}

#[test]
fn the_verdicts_of_a_run_are_read() {
    let said = "[==========] Running 2 tests from 1 test suite.\n[ RUN      ] DBTest.Empty\n\
                [       OK ] DBTest.Empty (12 ms)\n[ RUN      ] DBTest.Get\nx.cc:1: Failure\n\
                [  FAILED  ] DBTest.Get (3 ms)\n[==========] 2 tests ran. (15 ms total)\n\
                [  FAILED  ] 1 test, listed below:\n[  FAILED  ] DBTest.Get\n";
    let all: Vec<_> = told("db_test", said).into_iter().collect();
    let pairs = [("db_test: DBTest.Empty", true), ("db_test: DBTest.Get", false)];
    assert_eq!(all, pairs.map(|(test, passed)| (test.to_owned(), passed)));
}
