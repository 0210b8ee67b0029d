//! Redis's own tests: what they say of a server in a protected directory is what they say of a
//! plain one.
//!
//! The whole suite runs, once in each arm: `TIDELOCK_REDIS=unit/aofrw,integration/rdb` runs a part;
//! one of integration/rdb and the like belongs to it, or no dump is there to look at.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

/// `/usr/bin/tclsh` is of another package.
const TCLSH: &str = "/usr/bin/tclsh8.6";
const PROGRAMS: [&str; 5] =
    ["redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"];
/// Programs that the tests start to copy and read files of a server.
const HELPERS: [&str; 5] = ["cp", "cat", "head", "tail", "redis-cli"];
/// The tests themselves hand these files to programs as standard input or output.
const HANDED_ON: &str = r#"
[[rule]]
glob = "**/stdout"
plain = "output of a server"

[[rule]]
glob = "**/stderr"
plain = "output of a server"

[[rule]]
glob = "cli*"
plain = "input of redis-cli"

[[rule]]
glob = "**/user.acl*"
plain = "echo appends to it"

[[rule]]
glob = "redis.conf.*"
plain = "configuration"
"#;
const SUITE: Duration = Duration::from_secs(3000);

#[test]
#[ignore = "long: make test-full"]
fn the_suite_of_redis_says_the_same_as_without_the_library() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/redis");
    let Ok(source) = source.canonicalize() else {
        skip::missing("build/redis (ci/redis-tests)");
        return;
    };
    for program in [TCLSH, "/usr/bin/redis-server"] {
        if !Path::new(program).exists() {
            skip::missing(program);
            return;
        }
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("redis-suite").unwrap();
    let plain = {
        let dir = place.plain().join("suite");
        prepare(&dir, &source);
        fs::create_dir(dir.join("tests/tmp")).unwrap();
        run(Command::new(TCLSH), &dir)
    };
    let dir = place.programs().join("suite");
    prepare(&dir, &source);
    let made = dir.join("tests/tmp");
    let shown = place.command(&product).args(["profile", "show", "redis"]).finish().unwrap();
    let profile = String::from_utf8(shown.stdout).unwrap();
    let profile = profile.replacen("[[rule]]", &format!("{}\n[[rule]]", HANDED_ON.trim()), 1);
    fs::write(dir.join("suite.toml"), profile).unwrap();
    let mut init = place.command(&product);
    init.arg("init").arg(&made).arg("--no-recovery").arg("--profile").arg(dir.join("suite.toml"));
    init.arg("--provider").arg(format!("file:{}", dir.join("key").display()));
    for helper in HELPERS {
        init.args(["--program", helper]);
    }
    let done = init.finish().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut exec = place.command(&product);
    exec.arg("exec").arg("-D").arg(&made).arg("--").arg(TCLSH);
    let sealed = run(exec, &dir);
    let count = |all: &BTreeMap<String, u32>| all.values().sum::<u32>();
    println!("redis: {} lines plain, {} sealed", count(&plain), count(&sealed));
    let differ: Vec<_> = plain
        .keys()
        .chain(sealed.keys())
        .filter(|test| plain.get(*test) != sealed.get(*test))
        .collect();
    assert!(differ.is_empty(), "these differ: {differ:#?}");
    let passed = plain.iter().filter(|(test, _)| test.starts_with("[ok]")).count();
    assert!(passed > 10 && passed > 50 * (plain.len() - passed), "{passed} passed: {plain:?}");
    let data = files(&made).into_iter().filter(|path| is_data(path));
    let begins_plain = |path: &PathBuf| fs::read(path).unwrap().starts_with(b"REDIS");
    let (plain, sealed): (Vec<_>, Vec<_>) = data.partition(begins_plain);
    assert!(plain.is_empty() && !sealed.is_empty(), "{} sealed, and {plain:?}", sealed.len());
    place.verify(&product, &made).unwrap_or_else(|error| panic!("{error}"));
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// Dumps of a server, alone or before its log of appends.
fn is_data(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "rdb")
        && fs::metadata(path).is_ok_and(|found| found.len() > 0)
}

/// A directory from which the suite runs: its files, and the installed programs where it looks for
/// built ones.
fn prepare(dir: &Path, source: &Path) {
    for folder in ["tests", "src"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    symlink(source.join("redis.conf"), dir.join("redis.conf")).unwrap();
    for entry in fs::read_dir(source.join("tests")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "tmp" {
            symlink(entry.path(), dir.join("tests").join(entry.file_name())).unwrap();
        }
    }
    for program in PROGRAMS {
        symlink(Path::new("/usr/bin").join(program), dir.join("src").join(program)).unwrap();
    }
}

/// Runs the suite; how often each line about a test was said, without its time.
fn run(mut command: Command, dir: &Path) -> BTreeMap<String, u32> {
    command.args(["tests/test_helper.tcl", "--dont-clean", "--clients", "4"]).current_dir(dir);
    // It looks for free ports itself, from here on; another run begins elsewhere.
    let first = 12_000 + std::process::id() % 8 * 2000;
    command.args(["--baseport", &first.to_string(), "--portcount", "1900"]);
    for part in env::var("TIDELOCK_REDIS").iter().flat_map(|parts| parts.split(',')) {
        command.args(["--single", part]);
    }
    let done = command.finish_within(SUITE).unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let all = told(&said);
    let last: Vec<&str> = said.lines().rev().take(60).collect();
    assert!(said.contains("The End"), "{}: it did not end: {last:#?}", done.status);
    all
}

/// `[ok]: NAME (12 ms)` and other verdicts, in colours.
fn told(said: &str) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for line in said.lines() {
        let mut words = String::new();
        let mut pieces = line.split('\u{1b}');
        words.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            words.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
        }
        let is_verdict = ["[ok]: ", "[err]: ", "[ignore]: ", "[skip]: ", "[exception]: "]
            .iter()
            .any(|verdict| words.starts_with(verdict));
        if is_verdict {
            let name = words.rsplit_once(" (").map_or(words.as_str(), |(name, _)| name);
            // Its steps are drawn by chance, and named by numbers.
            if !name.starts_with("[ok]: PSYNC2") {
                *all.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    all
}

#[test]
fn the_verdicts_of_a_run_are_read() {
    let said = "\u{1b}[ok\u{1b}[0m\n[\u{1b}[0;32;49mok\u{1b}[0m]: A (b) (12 ms)\n[ok]: A (b) (3 ms)\n\
                Testing unit/x\n[\u{1b}[0;31;49merr\u{1b}[0m]: C in tests/x.tcl\n";
    let all = told(said);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((all["[ok]: A (b)"], all["[err]: C in tests/x.tcl"]), (2, 1));
}
