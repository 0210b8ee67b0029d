//! SQLite under the library, by sqlite3 and Python: journal modes, links, locks, demo, its own
//! suite; kills and power cuts are in `kills`, what a killed program leaves in `left`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "sqlite/kills.rs"]
mod kills;
#[path = "sqlite/left.rs"]
mod left;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::twins::{Product, Workspace};

/// A protected directory of profile sqlite, and what runs there.
struct Place {
    product: Product,
    place: Workspace,
    dir: PathBuf,
}

impl Place {
    /// `None` without sqlite3 or Python.
    fn new() -> Option<Self> {
        for program in ["/usr/bin/sqlite3", PYTHON] {
            if !Path::new(program).exists() {
                skip::missing(program);
                return None;
            }
        }
        let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
        let place = Workspace::new("sqlite").unwrap();
        let dir = place.protect(&product, "sqlite").unwrap_or_else(|error| panic!("{error}"));
        Some(Self { product, place, dir })
    }

    fn database(&self) -> String {
        self.dir.join("app.db").display().to_string()
    }

    /// `tidelock exec -D DIR -- PROGRAM`.
    fn exec(&self, program: &str) -> Command {
        let mut command = self.place.command(&self.product);
        command.arg("exec").arg("-D").arg(&self.dir).args(["--", program]);
        command
    }

    /// The output of sqlite3, which has to succeed.
    fn sql(&self, statements: &str) -> String {
        let database = self.database();
        ended_well(self.exec("sqlite3").args(["-batch", "-bail", &database, statements]))
    }

    fn python(&self, script: &str) -> Command {
        let mut python = self.exec(PYTHON);
        python.arg(engine(script));
        python
    }

    /// No file has the marker, and each is what it must be.
    fn nothing_leaks(&self, marker: &Marker) {
        let seen = marker.search(&[&self.dir]).unwrap();
        assert!(seen.files > 0 && seen.findings.is_empty(), "{seen:?}");
        self.place.verify(&self.product, &self.dir).unwrap_or_else(|error| panic!("{error}"));
    }
}

const PYTHON: &str = "/usr/bin/python3";

fn engine(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("engines").join(script)
}

fn run(command: &mut Command) -> Output {
    command.finish().unwrap()
}

fn ended_well(command: &mut Command) -> String {
    let done = run(command);
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{told}", done.status);
    String::from_utf8(done.stdout).unwrap()
}

/// Lines of a script of sqlite3: which files are in `dir`, how many bytes of `files` a shell
/// without keys reads, and which files of `dir` have the text.
fn looks(dir: &Path, files: &str, text: &str) -> String {
    let dir = dir.display();
    format!(
        ".shell ls {dir}\n.shell echo read=$(cat {files} | wc -c)\n\
         .shell echo in=$(grep -a -l {text} {dir}/*)\n"
    )
}

/// A line of such a script: how large the database is.
const SIZE: &str =
    "SELECT 'size=' || (page_count * page_size) FROM pragma_page_count, pragma_page_size;";

/// What a script has printed behind `name=`, each time.
fn printed<'s>(said: &'s str, name: &str) -> Vec<&'s str> {
    said.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// Each search of a script has read more than the database, and found the text nowhere; that of the
/// control, where the file `within` is.
fn judge_looks(said: &str, within: Option<&str>) {
    let numbers = |name| printed(said, name).into_iter().map(|it| it.parse::<u64>().unwrap());
    let size = numbers("size").next().unwrap();
    assert!(size > 0, "{said}");
    let found = printed(said, "in");
    assert!(!found.is_empty(), "{said}");
    match within {
        Some(file) => {
            let has_it = |names: &&str| names.split(' ').any(|name| name == file);
            assert!(found.iter().all(has_it), "not in {file}: {said}");
        }
        None => {
            assert!(numbers("read").all(|read| read > size), "not all was read: {said}");
            assert!(found.iter().all(|names| names.is_empty()), "the marker was there: {said}");
        }
    }
    assert_eq!(numbers("read").count(), found.len(), "{said}");
}

#[test]
fn rows_of_all_journal_modes_are_sealed_while_the_database_is_open_and_after() {
    let Some(place) = Place::new() else { return };
    let marker = Marker::new();
    let text = marker.text();
    for mode in ["delete", "truncate", "persist", "wal", "memory", "off"] {
        let journal = match mode {
            "wal" => "-wal",
            "memory" | "off" => "",
            _ => "-journal",
        };
        let plain = place.place.plain().join(mode);
        fs::create_dir(&plain).unwrap();
        let control = Command::new("sqlite3");
        for (mut shell, dir, is_sealed) in
            [(control, &plain, false), (place.exec("sqlite3"), &place.dir, true)]
        {
            let database = dir.join(format!("{mode}.db")).display().to_string();
            // The search looks at journals, log and shared memory while they are there.
            let statements = format!(
                "PRAGMA journal_mode={mode}; PRAGMA cache_size=1;
                 CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
                   WHERE i < 400) SELECT i, '{text}' || i AS x FROM n;
                 CREATE INDEX u ON t (x); {SIZE}
                 BEGIN; UPDATE t SET x = x || 'y'; DELETE FROM t WHERE i % 3 = 0;
                 {looks}COMMIT; VACUUM; SELECT count(*), sum(i), max(x) FROM t;
                 PRAGMA integrity_check;",
                looks = looks(dir, &format!("{database}*"), text)
            );
            let statements: Vec<&str> = statements.lines().map(str::trim).collect();
            shell.args(["-batch", "-bail", &database]);
            let script = place.dir.with_extension("sql");
            fs::write(&script, statements.join("\n")).unwrap();
            let said = ended_well(&mut place.place.fed(&shell, &script));
            assert!(
                said.contains(&format!("{mode}.db{journal}\n")),
                "{mode}: no journal was there: {said}"
            );
            judge_looks(&said, (!is_sealed).then_some(&format!("{database}{journal}")));
            assert!(said.ends_with(&format!("267|53467|{text}98y\nok\n")), "{mode}: {said}");
        }
        place.nothing_leaks(&marker);
    }
}

/// SQLite follows the link by itself, and makes its journals beside the file that it leads to.
#[test]
fn journals_of_a_database_behind_a_link_are_sealed_whether_it_is_there_already_or_not() {
    let Some(place) = Place::new() else { return };
    let (marker, far) = (Marker::new(), place.place.plain().join("far"));
    let (text, there) = (marker.text(), place.dir.join("there.db"));
    fs::create_dir(&far).unwrap();
    std::os::unix::fs::symlink(far.join("made.db"), place.dir.join("made.db")).unwrap();
    let open = |mut shell: Command, database: &Path, far: &Path, mode: &str| {
        let looks = looks(far, &format!("{}/*", far.display()), text);
        let statements = format!(
            "PRAGMA journal_mode={mode};\nPRAGMA cache_size=1;\nCREATE TABLE t (x);\n{SIZE}\n\
             BEGIN;\nINSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < 400) SELECT '{text}' || i FROM n;\n{looks}COMMIT;\n{looks}",
        );
        let script = place.place.plain().join("script.sql");
        fs::write(&script, statements).unwrap();
        shell.args(["-batch", "-bail"]).arg(database);
        let said = ended_well(&mut place.place.fed(&shell, &script));
        let beside = if mode == "wal" { "-wal" } else { "-journal" };
        assert!(said.contains(&format!(".db{beside}\n")), "{said}");
        said
    };
    for (mode, within) in [("wal", "x.db-wal"), ("delete", "x.db")] {
        let far = place.place.plain().join(format!("far-{mode}"));
        fs::create_dir(&far).unwrap();
        let link = place.place.plain().join(format!("{mode}.db"));
        std::os::unix::fs::symlink(far.join("x.db"), &link).unwrap();
        let said = open(Command::new("sqlite3"), &link, &far, mode);
        judge_looks(&said, Some(&far.join(within).display().to_string()));
    }
    judge_looks(&open(place.exec("sqlite3"), &place.dir.join("made.db"), &far, "wal"), None);
    ended_well(place.exec("sqlite3").arg(&there).arg("CREATE TABLE first (x)"));
    fs::rename(&there, far.join("there.db")).unwrap();
    std::os::unix::fs::symlink(far.join("there.db"), &there).unwrap();
    judge_looks(&open(place.exec("sqlite3"), &there, &far, "delete"), None);
    let seen = marker.search(&[&far]).unwrap();
    assert!(seen.files >= 2 && seen.findings.is_empty(), "{seen:?}");
}

/// Python's sqlite3 asks for the links of a path by itself and opens what they lead to. Others go
/// there first, or ask for the real path.
#[test]
fn databases_behind_links_further_down_are_sealed_though_the_program_resolves_the_path() {
    let Some(place) = Place::new() else { return };
    let (marker, far) = (Marker::new(), place.place.plain().join("far"));
    let tenants = place.dir.join("tenants");
    fs::create_dir_all(far.join("shelf")).unwrap();
    fs::create_dir(&tenants).unwrap();
    std::os::unix::fs::symlink(far.join("made.db"), tenants.join("made.db")).unwrap();
    std::os::unix::fs::symlink(far.join("shelf"), tenants.join("shelf")).unwrap();
    let names = ["made.db", "shelf/connected.db", "shelf/real.db", "shelf/gone.db", "shelf/listed"];
    for (way, name) in ["connect", "connect", "realpath", "chdir", "openat"].iter().zip(names) {
        let mut python = place.exec(PYTHON);
        python.arg(engine("links.py")).arg(way).arg(tenants.join(name)).arg(marker.text());
        ended_well(&mut python);
        assert!(far.join(name).exists(), "{way}: {name} is not there");
    }
    let seen = marker.search(&[&far, &place.dir]).unwrap();
    assert!(seen.files >= 5 && seen.findings.is_empty(), "{seen:?}");
}

/// What lies behind one that is not known would be plain.
#[test]
fn a_program_does_not_start_with_more_links_out_of_the_directory_than_it_can_know() {
    let Some(place) = Place::new() else { return };
    let link = |number: u32| {
        let far = place.place.plain().join(format!("far{number}"));
        fs::create_dir(&far).unwrap();
        std::os::unix::fs::symlink(&far, place.dir.join(format!("link{number}"))).unwrap();
    };
    (0..120).for_each(link);
    place.sql("CREATE TABLE t (x)");
    (120..130).for_each(link);
    let refused = run(place.exec("sqlite3").args([&place.database(), "SELECT * FROM t"]));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{told}");
    assert!(told.contains("too many links lead out of") && told.contains("hint:"), "{told}");
}

/// `make demo-sqlite`, on what the tests are built with.
#[test]
fn every_step_of_the_demo_passes() {
    let Some(place) = Place::new() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut demo = Command::new(root.join("ci/demo-sqlite"));
    let said = ended_well(demo.arg(place.product.command().parent().unwrap()));
    let seconds = said
        .trim_end()
        .rsplit_once("\nAll steps passed in ")
        .and_then(|(_, rest)| rest.strip_suffix(" s.")?.parse::<u32>().ok());
    assert!(seconds.is_some(), "{said}");
}

#[test]
fn processes_exclude_each_other_as_on_a_plain_file() {
    let Some(place) = Place::new() else { return };
    let mut plain = Command::new(PYTHON);
    let plain = ended_well(plain.arg(engine("sqlite_locks.py")).arg(place.place.plain()));
    let sealed = ended_well(place.python("sqlite_locks.py").arg(&place.dir));
    assert!(plain.contains("database is locked") && plain.contains("\\nok"), "{plain}");
    assert_eq!(plain, sealed);
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn workers_of_multiprocessing_have_keys_by_fork_and_by_spawn() {
    let Some(place) = Place::new() else { return };
    let marker = Marker::new();
    let mut workers = place.python("sqlite_workers.py");
    let said = ended_well(workers.arg(&place.dir).arg(marker.text()));
    assert_eq!(said, "fork 60 3 ok\nspawn 60 3 ok\n");
    place.nothing_leaks(&marker);
}

#[test]
fn temporary_files_lie_in_the_directory_and_a_map_is_read_instead() {
    let Some(place) = Place::new() else { return };
    place.sql(
        "CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
         WHERE i < 400) SELECT i, randomblob(1000) AS x FROM n",
    );
    let mut shell = place.exec("sqlite3");
    let mapped = run(shell
        .args(["-batch", &place.database()])
        .arg("PRAGMA mmap_size=1000000; SELECT sum(i), sum(length(x)) FROM t; PRAGMA mmap_size"));
    let said = String::from_utf8_lossy(&mapped.stdout);
    assert!(said.ends_with("80200|400000\n0\n"), "{said}");
    let words = String::from_utf8_lossy(&mapped.stderr);
    assert_eq!(words.matches("let the program read without maps").count(), 1, "{words}");
    let trace = place.dir.with_extension("trace");
    let mut vacuum = place.exec("sqlite3");
    vacuum.args(["-batch", &place.database(), "PRAGMA cache_size=1; VACUUM"]);
    ended_well(&mut traced(&vacuum, &trace, &["-e", "trace=open,openat,openat2"]));
    let trace = fs::read_to_string(&trace).unwrap();
    let temporary: Vec<&str> = trace.lines().filter(|line| line.contains("etilqs")).collect();
    let below = place.dir.join("etilqs").display().to_string();
    assert!(!temporary.is_empty(), "VACUUM made no temporary file");
    assert!(temporary.iter().all(|line| line.contains(&below)), "{temporary:#?}");
    // The caller's own choice stays, with a warning.
    let elsewhere = place.place.plain();
    let mut shell = place.exec("/bin/sh");
    let done = run(shell.env("SQLITE_TMPDIR", &elsewhere).args(["-c", "echo $SQLITE_TMPDIR"]));
    let words = String::from_utf8_lossy(&done.stderr);
    let kept = String::from_utf8_lossy(&done.stdout);
    assert_eq!(kept.trim(), elsewhere.display().to_string());
    assert!(words.contains("outside of the protected directory"), "{words}");
}

/// Sorts more than its cache holds, and waits with what it has spilled. Then its temporary files
/// have no names.
const SORTS: &str = r#"
import sqlite3, sys
database, marker = sys.argv[1:]
db = sqlite3.connect(database)
db.execute("PRAGMA cache_size = 10")
db.execute("CREATE TABLE t (x)")
db.executemany("INSERT INTO t VALUES (? || hex(randomblob(500)))", [(marker,)] * 20000)
db.commit()
rows = db.execute("SELECT x FROM t ORDER BY substr(x, -20)")
rows.fetchone()
print("sorted", flush=True)
sys.stdin.read()
"#;

/// How many files without a name a program has below `dir`, and in how many of them the marker is.
fn nameless(program: u32, dir: &Path, marker: &Marker) -> (usize, usize) {
    let entries = fs::read_dir(format!("/proc/{program}/fd")).unwrap();
    let is_nameless = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.starts_with(dir) && target.to_string_lossy().ends_with(" (deleted)")
    };
    let files: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(is_nameless).collect();
    let has_it = |path: &&PathBuf| !marker.search_file(path).unwrap().findings.is_empty();
    (files.len(), files.iter().filter(has_it).count())
}

#[test]
fn temporary_files_without_a_name_hold_no_row() {
    let Some(place) = Place::new() else { return };
    let marker = Marker::new();
    let plain = place.place.plain().join("sorts");
    fs::create_dir(&plain).unwrap();
    let mut control = Command::new(PYTHON);
    control.env("SQLITE_TMPDIR", &plain);
    for (mut python, dir, is_sealed) in
        [(control, &plain, false), (place.exec(PYTHON), &place.dir, true)]
    {
        python.args(["-c", SORTS]).arg(dir.join("sort.db")).arg(marker.text());
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut sorting = python.spawn().unwrap();
        let mut said = [0; 7];
        sorting.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let (files, with_marker) = nameless(sorting.id(), dir, &marker);
        drop(sorting.stdin.take());
        assert!(sorting.wait().unwrap().success() && &said == b"sorted\n");
        assert!(files > 0, "the sort made no temporary file");
        assert_eq!(with_marker > 0, !is_sealed, "{with_marker} of {files} files");
    }
    place.nothing_leaks(&marker);
}

/// The command under strace.
fn traced(command: &Command, trace: &Path, options: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(trace).args(options);
    strace.arg(command.get_program()).args(command.get_args());
    strace.env_clear();
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace
}

/// SQLite's own suite: the tests that fail with the library are those that fail without it, but for
/// those that `sqlite/differences.toml` lists.
#[test]
#[ignore = "long: make test-full"]
fn the_suite_of_sqlite_ends_as_without_the_library() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/sqlite3");
    let Ok(source) = source.canonicalize() else {
        skip::missing("build/sqlite3 (ci/sqlite-testfixture)");
        return;
    };
    let Some(place) = Place::new() else { return };
    let (libraries, program) = (source.join(".libs"), source.join(".libs/testfixture"));
    // The suite unpacks archives that SQLite wrote, and ends where that fails.
    if Path::new(UNZIP).exists() {
        let mut set = place.place.command(&place.product);
        ended_well(set.args(["profile", "set", "--program", UNZIP, "-D"]).arg(&place.dir));
    }
    if is_root() {
        let all = place.dir.parent().unwrap();
        ended_well(Command::new("chown").args(["-R", "nobody:nogroup"]).arg(all));
    }
    let suite = |name: &str, command: Command, dir: &Path| {
        let mut command = unprivileged(command);
        command.arg(source.join("test/veryquick.test")).current_dir(dir);
        let done = command.env("LD_LIBRARY_PATH", &libraries).finish_within(SUITE).unwrap();
        let (said, words) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let ended = Ended::read(&said).unwrap_or_else(|| {
            let last: Vec<&str> = said.lines().rev().take(20).collect();
            panic!("{name}, {}: it did not end: {last:#?}\n{words}", done.status)
        });
        println!("{name}: {} of {} tests failed", ended.failed.len(), ended.tests);
        ended
    };
    let sealed = suite("sealed", place.exec(program.to_str().unwrap()), &place.dir);
    let plain = suite("plain", Command::new(&program), &place.place.plain());
    assert_eq!(sealed.tests, plain.tests);
    let listed = listed();
    let differ: BTreeSet<String> =
        plain.failed.symmetric_difference(&sealed.failed).cloned().collect();
    let unlisted: Vec<_> = differ.difference(&listed).collect();
    assert!(unlisted.is_empty(), "these differ, and are not listed: {unlisted:#?}");
    let agree: Vec<_> = listed.difference(&differ).collect();
    assert!(agree.is_empty(), "these are listed, and do not differ: {agree:#?}");
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

/// What a run of the suite says at its end.
struct Ended {
    tests: u32,
    failed: BTreeSet<String>,
}

impl Ended {
    /// `None` where the end is missing, or its names are not as many as it says.
    fn read(said: &str) -> Option<Self> {
        let line = said.lines().rfind(|line| line.contains(" errors out of "))?;
        let (errors, rest) = line.split_once(" errors out of ")?;
        let tests = rest.split(' ').next()?.parse().ok()?;
        let named = said.lines().find_map(|line| line.strip_prefix("!Failures on these tests:"));
        let failed: BTreeSet<String> =
            named.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect();
        (errors.parse() == Ok(failed.len())).then_some(Self { tests, failed })
    }
}

/// `sqlite/differences.toml`: tests, and one reason for all of them.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    tests: Vec<String>,
    reason: String,
}

/// The tests that may differ, and must.
fn listed() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sqlite/differences.toml");
    let mut all: BTreeMap<String, Vec<Explained>> =
        toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let differences = all.remove("difference").unwrap_or_default();
    assert!(all.is_empty(), "only differences are listed");
    assert!(differences.iter().all(|it| !it.reason.is_empty()), "each has a reason");
    differences.into_iter().flat_map(|it| it.tests).collect()
}

#[test]
fn the_end_of_a_run_of_the_suite_is_read() {
    let end =
        "x-1... Ok\n2 errors out of 17 tests on vm Linux\n!Failures on these tests: a-1 b=2\n";
    let ended = Ended::read(end).unwrap();
    assert_eq!((ended.tests, ended.failed.len()), (17, 2));
    assert!(ended.failed.contains("b=2"));
    let none = Ended::read("0 errors out of 17 tests on vm Linux\n").unwrap();
    assert_eq!((none.tests, none.failed.len()), (17, 0));
    assert!(Ended::read("x-1... Ok\n").is_none());
    assert!(Ended::read("2 errors out of 17 tests\n!Failures on these tests: a-1\n").is_none());
    assert!(!listed().is_empty());
}

const UNZIP: &str = "/usr/bin/unzip";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The command as a user whom permissions bind: the suite does not run as root.
fn unprivileged(command: Command) -> Command {
    if !is_root() {
        return command;
    }
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    as_nobody.arg(command.get_program()).args(command.get_args());
    as_nobody.env_clear();
    as_nobody.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    as_nobody
}

/// Of one arm; ten minutes on a machine that does nothing else.
const SUITE: Duration = Duration::from_secs(3000);
