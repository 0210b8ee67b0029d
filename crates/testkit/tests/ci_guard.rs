//! `ci/guard` runs a test that failed once more, alone. A crash, a hang and what a race broke fail
//! at once, also if a second run would pass. `ci/skipped` names what CI must not skip.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tidelock_servers::{Bounded as _, alone};

fn ours(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Guards a program of this name that does `first` in its first run, and passes in every other one;
/// the exit code, how often it ran, and what was said.
fn guarded(name: &str, first: &str) -> (Option<i32>, usize, String) {
    let dir = tempfile::tempdir().unwrap();
    let (program, script) = (dir.path().join(format!("{name}-1")), dir.path().join("script"));
    // A shell by the program's name: a file that was just written may be busy.
    symlink("/bin/sh", &program).unwrap();
    let text = format!(
        "case $* in *--list*) exit 0 ;; esac\necho run >> \"$0.runs\"\n\
         if [ \"$(wc -l < \"$0.runs\")\" = 1 ]; then {first}; fi\n"
    );
    fs::write(&script, text).unwrap();
    let mut command = alone(ours("ci/guard"));
    command.arg(&program).arg(&script).current_dir(dir.path());
    let ended = command.env("TIDELOCK_TEST_LIMIT", "5").finish().unwrap();
    let runs = fs::read_to_string(dir.path().join("script.runs")).unwrap().lines().count();
    (ended.status.code(), runs, String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[test]
fn a_program_that_crashed_gets_no_second_run() {
    let (code, runs, said) = guarded("crashes", "ulimit -c 0; kill -SEGV $$");
    assert_eq!((code, runs), (Some(1), 1), "{said}");
}

#[test]
fn a_program_that_hung_gets_no_second_run() {
    let (code, runs, said) = guarded("hangs", "exec sleep 600");
    assert_eq!((code, runs), (Some(1), 1), "{said}");
    assert!(said.contains("did not end within 5 s"), "{said}");
}

#[test]
fn a_program_of_kills_and_races_gets_no_second_run() {
    for name in ["torture", "powercut", "postgres_life", "twins"] {
        let (code, runs, said) = guarded(name, "exit 101");
        assert_eq!((code, runs), (Some(101), 1), "{name}: {said}");
    }
}

/// What a kill, a power cut or a drawn case broke need not come again, so the list must have every
/// program that has one of them.
#[test]
fn every_program_that_kills_or_draws_gets_no_second_run() {
    let guard = fs::read_to_string(ours("ci/guard")).unwrap();
    let (_, list) = guard.split_once("DRAWN = frozenset(\n    \"\"\"").unwrap();
    let (list, _) = list.split_once("\"\"\"").unwrap();
    let listed: BTreeSet<&str> = list.split_whitespace().collect();
    let (mut programs, mut kill) = (BTreeSet::new(), BTreeSet::new());
    // This one has the signs themselves.
    for (program, source) in sources().into_iter().filter(|(program, _)| program != "ci_guard") {
        let text = fs::read_to_string(&source).unwrap();
        let signs = if is_of_tests(&source) { &SIGNS[..] } else { &SIGNS_OF_UNITS };
        if signs.iter().any(|sign| text.contains(sign)) {
            let spared = CLEANUP.iter().any(|(name, _)| *name == program);
            let known = spared || listed.contains(&*program);
            assert!(known, "{}: not in DRAWN", source.display());
            kill.insert(program.clone());
        }
        programs.insert(program);
    }
    let gone: Vec<_> = listed.iter().filter(|name| !programs.contains(**name)).collect();
    assert!(gone.is_empty(), "no such programs: {gone:?}");
    let needless = |name: &str| !kill.contains(name) || listed.contains(name);
    let needless: Vec<_> = CLEANUP.iter().filter(|(name, _)| needless(name)).collect();
    assert!(needless.is_empty(), "need not be spared: {needless:?}");
}

/// What shows in the source of a program that draws its cases, kills, or cuts the power.
const SIGNS: [&str; 10] = [
    ".kill_nine()",
    ".kill()",
    "Signal::KILL",
    "SIGKILL",
    "signal=KILL",
    "each_step(",
    "kill_after(",
    ".cut()",
    "cut_after(",
    "proptest!",
];
/// The same in what a crate is made of, which may also kill where no test does.
const SIGNS_OF_UNITS: [&str; 2] = ["proptest!", "volume.cut()"];

/// Programs that kill nothing but what is over, and what for.
const CLEANUP: [(&str, &str); 4] = [
    ("host", "sleepers and loops that were counted, or spared"),
    ("mariadb_unit", "a server that the test leaves"),
    ("report", "the browser behind its pages"),
    ("vault", "the server of the provider's tests"),
];

/// The name in a crate's Cargo.toml.
fn package(folder: &Path) -> String {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    name.unwrap().trim_matches('"').to_owned()
}

/// Not those that a crate has below `src`, which are a part of its own program.
fn is_of_tests(source: &Path) -> bool {
    let below = source.strip_prefix(ours("crates")).unwrap();
    below.iter().take_while(|part| *part != "src").any(|part| part == "tests")
}

/// Each source below `crates`, sessions of the command too, with the name of the test program that
/// it is a part of.
fn sources() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let crates = ours("crates");
    let mut dirs = vec![crates.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|it| it == "rs" || it == "session") {
                // What follows `tests` is the program, or the directory of its modules.
                let below = path.strip_prefix(&crates).unwrap();
                let part = |at: usize| below.iter().nth(at).and_then(|part| part.to_str());
                let first = below.iter().position(|part| part == "src" || part == "tests");
                let Some(first) = first else { continue };
                let program = if part(first) == Some("src") {
                    let above: PathBuf = below.iter().take(first).collect();
                    package(&crates.join(above)).replace('-', "_")
                } else {
                    let program = part(first + 1).unwrap().trim_end_matches(".rs");
                    if program == "cmd" { "cases" } else { program }.to_owned()
                };
                found.push((program, path.clone()));
            }
        }
    }
    found
}

#[test]
fn another_program_that_failed_runs_once_more_and_is_called_unsteady() {
    let (code, runs, said) = guarded("other", "exit 101");
    assert_eq!((code, runs), (Some(0), 2), "{said}");
    assert!(said.contains("UNSTEADY: other-1: all of it"), "{said}");
}

/// What `ci/skipped` says of these lines, and its exit code.
fn skipped(lines: &str) -> (Option<i32>, String) {
    skipped_of(&[], lines)
}

/// The same with options.
fn skipped_of(options: &[&str], lines: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("skipped");
    fs::write(&file, lines).unwrap();
    let ended = alone(ours("ci/skipped")).args(options).arg(&file).finish().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[test]
fn a_test_that_ci_may_not_skip_is_named() {
    let cores = "skipped: crates/testkit/tests/no_key_in_core_files.rs";
    let listed = format!(
        "{cores}: a_key_is_found_in_no_core_file: a part, since gcore is refused: ptrace: no\n\
         {cores}: main: no core file can be made here\n\
         skipped: crates/lab/lab/src/run/warm_up.rs: run::warm_up::tests::files_of_all_servers_are\
         _in_the_page_cache_before_a_block: nothing leaves the page cache\n"
    );
    assert_eq!(skipped(&listed), (Some(0), String::new()));
    for line in [
        "skipped: crates/command/tests/wal.rs: one: no volume can be mounted here: mount: no",
        "skipped: crates/command/tests/wal.rs: main: a volume of one's own needs root",
        "skipped: crates/testkit/tests/no_key_in_core_files.rs: another: no core file",
        "skipped: crates/command/tests/credentials.rs: an_encrypted_credential_opens_the_keyring\
         _and_another_does_not: the secret of this machine needs root",
    ] {
        let (code, said) = skipped(&format!("{listed}{line}\n"));
        assert_eq!((code, said), (Some(1), format!("this has to run: {line}\n")));
    }
}

/// `make test-full` would end with 0 although it has shown less than it promises.
#[test]
fn a_test_that_the_long_run_may_not_skip_is_named() {
    let long = |lines: &str| skipped_of(&["--long"], lines);
    let walg = "skipped: crates/testkit/tests/postgres_walg.rs: walg_of_a_standby_copies_its_sealed\
                _files: WAL-G is not here\n";
    assert_eq!(long(walg), (Some(0), String::new()));
    for line in [
        "skipped: crates/testkit/src/volume.rs: sealed: a volume of one's own needs root",
        "skipped: crates/testkit/tests/engines.rs: main: redis is missing: ci/packages test",
        "skipped: crates/testkit/src/mysql.rs: debian: build/mysql/root is missing: ci/mysql",
        // The list of the quick ones says nothing here.
        "skipped: crates/testkit/tests/postgres_cores.rs: a_crash_leaves_no_core_file_unless_it_is\
         _allowed: no core file",
    ] {
        let (code, said) = long(&format!("{walg}{line}\n"));
        assert_eq!((code, said), (Some(1), format!("this has to run: {line}\n")));
    }
    let makefile = fs::read_to_string(ours("Makefile")).unwrap();
    let (_, verb) = makefile.split_once("\ntest-full:").unwrap();
    let (verb, _) = verb.split_once("\n\n").unwrap();
    for judged in ["ci/skipped $(SKIPPED)", "ci/skipped --long $(SKIPPED)"] {
        assert!(verb.contains(judged), "{judged}: {verb}");
    }
}

/// One that was renamed would be skipped for ever, or fail where it may be skipped.
#[test]
fn each_test_that_ci_may_skip_is_there() {
    for list in ["ci/may-skip", "ci/may-skip-long"] {
        let mut text = String::new();
        let list = fs::read_to_string(ours(list)).unwrap();
        for line in list.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("    ") {
                Some(test) => assert!(text.contains(&format!("fn {test}(")), "{test} is not there"),
                None => text = fs::read_to_string(ours(line)).unwrap(),
            }
        }
        assert!(!text.is_empty(), "the list is empty");
    }
}
