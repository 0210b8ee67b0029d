//! What a killed program leaves beside a database, and those that come next: programs without keys,
//! and conversions.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{PYTHON, Place, ended_well, engine, run};

/// Asks for what [`Place::crashed`] has committed, and the answer.
const ALL: &str = "SELECT count(*), sum(x) FROM kept; PRAGMA integrity_check";
const WHOLE: &str = "400|80200\nok\n";

impl Place {
    /// A new database whose writer was killed in a transaction that changes all 400 rows, by `exec`
    /// if it is sealed: its path, and that of the journal or log beside it.
    fn crashed(&self, name: &str, mode: &str, sealed: bool) -> [PathBuf; 2] {
        let database = self.dir.join(name);
        let mut writer = if sealed { self.python("sqlite.py") } else { bare_python() };
        let done = run(writer.arg("crash").arg(&database).arg(mode));
        let by_kill = done.status.signal() == Some(9) || done.status.code() == Some(128 + 9);
        assert!(by_kill, "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
        let end = if mode == "wal" { "wal" } else { "journal" };
        let left = self.dir.join(format!("{name}-{end}"));
        assert!(fs::metadata(&left).unwrap().len() > 0, "{mode}: {} is empty", left.display());
        [database, left]
    }

    /// All rows are as they were committed, for a program with keys.
    fn has_all(&self, database: &Path) {
        let mut shell = self.exec("sqlite3");
        assert_eq!(ended_well(shell.args(["-batch", "-bail"]).arg(database).arg(ALL)), WHOLE);
    }

    /// `tidelock COMMAND [OPTION]... DIR`.
    fn convert(&self, words: &[&str]) -> Command {
        let mut command = self.place.command(&self.product);
        command.args(words).arg(&self.dir);
        command
    }
}

/// The script without keys and without the library.
fn bare_python() -> Command {
    let mut python = Command::new(PYTHON);
    python.arg(engine("sqlite.py"));
    python
}

/// The same of a plain database.
fn bare_has_all(database: &Path) {
    let mut shell = Command::new("/usr/bin/sqlite3");
    let said = ended_well(shell.args(["-batch", "-bail"]).arg(database).arg(ALL));
    assert_eq!(said, WHOLE, "{}", database.display());
}

/// docs/engines/sqlite.md: a program without keys may look, if it opens the database to read only.
#[test]
fn a_read_only_look_without_keys_after_a_kill_loses_nothing() {
    let Some(place) = Place::new() else { return };
    for mode in ["delete", "truncate", "persist", "wal"] {
        let [database, left] = place.crashed(&format!("{mode}.db"), mode, true);
        let mut shell = Command::new("/usr/bin/sqlite3");
        shell.args(["-batch", "-readonly"]).arg(&database).arg(ALL);
        let mut reader = bare_python();
        reader.arg("look").arg(format!("file:{}?mode=ro", database.display()));
        let bytes = || [&database, &left].map(|path| fs::read(path).unwrap());
        let before = bytes();
        for look in [&mut shell, &mut reader] {
            let done = run(look);
            assert!(!done.status.success(), "{mode}: {look:?} read it");
            assert!(left.exists(), "{mode}: {look:?} removed {}", left.display());
            assert!(bytes() == before, "{mode}: {look:?} changed a file");
        }
        place.has_all(&database);
    }
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

/// SQLite acts on journals by their names, and must find nothing there that it may remove.
#[test]
fn a_program_without_keys_that_may_write_leaves_what_a_kill_has_left() {
    const WORDS: [&str; 7] = [
        "SELECT count(*) FROM kept",
        "BEGIN IMMEDIATE",
        "CREATE TABLE mine (x)",
        "PRAGMA journal_mode = delete",
        "PRAGMA journal_mode = wal",
        "PRAGMA wal_checkpoint(truncate)",
        "VACUUM",
    ];
    let Some(place) = Place::new() else { return };
    for mode in ["delete", "truncate", "persist", "wal"] {
        let [database, left] = place.crashed(&format!("{mode}.db"), mode, true);
        let bytes = || [&database, &left].map(|path| fs::read(path).unwrap());
        let before = bytes();
        let said = if mode == "wal" { "unable to open database" } else { "is not a database" };
        for words in WORDS {
            let mut shell = Command::new("/usr/bin/sqlite3");
            let done = run(shell.args(["-batch", "-bail"]).arg(&database).arg(words));
            let told = String::from_utf8_lossy(&done.stderr);
            assert!(!done.status.success() && told.contains(said), "{mode}, {words}: {told}");
            assert!(left.exists(), "{mode}, {words}: {} is gone", left.display());
            assert!(bytes() == before, "{mode}, {words}: a file has changed");
        }
        let uri = format!("file:{}", database.display());
        assert!(!run(bare_python().args(["look", &uri])).status.success(), "{mode}");
        assert!(bytes() == before, "{mode}: Python has changed a file");
        place.has_all(&database);
    }
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

/// Holds a database open.
struct Holder(Child);

impl Holder {
    fn start(python: Command, database: &Path) -> Self {
        Self::said(python, database, "held\n")
    }

    /// One that opens no database before it is told which.
    fn waiting(python: Command) -> Self {
        Self::said(python, Path::new("-"), "waits\n")
    }

    fn said(mut python: Command, database: &Path, wanted: &str) -> Self {
        python.arg("hold").arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Self(python.spawn().unwrap());
        assert_eq!(holder.line(), wanted);
        holder
    }

    /// What it says next; it says one line at a time.
    fn line(&mut self) -> String {
        let mut said = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        said
    }

    fn open(&mut self, database: &Path) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{}", database.display()).unwrap();
        assert_eq!(self.line(), "held\n");
    }

    /// It closes the database.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // One that a failing test leaves ends with its standard input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The index of a log is shared memory of all who have the database open. Whoever trusts it may
/// copy pages of the log into the database, which for a program without keys are sealed bytes.
#[test]
fn a_program_without_keys_that_closes_a_database_last_changes_neither_it_nor_its_log() {
    let Some(place) = Place::new() else { return };
    for keyed_first in [true, false] {
        let [database, log] = place.crashed(&format!("{keyed_first}.db"), "wal", true);
        let keyed = || Holder::start(place.python("sqlite.py"), &database);
        let bare = || Holder::start(bare_python(), &database);
        let (with, without) = if keyed_first {
            let with = keyed();
            (with, bare())
        } else {
            let without = bare();
            (keyed(), without)
        };
        with.end();
        let bytes = || [&database, &log].map(|path| fs::read(path).unwrap());
        let before = bytes();
        without.end();
        assert!(bytes() == before, "keyed first: {keyed_first}: a file has changed");
        place.has_all(&database);
    }
    place.place.verify(&place.product, &place.dir).unwrap_or_else(|error| panic!("{error}"));
}

/// Two programs with two indexes would lose the database.
#[test]
fn programs_with_keys_share_one_index_by_whatever_path_they_reach_a_database() {
    let Some(place) = Place::new() else { return };
    let indexes = |dir: &Path| {
        let names = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| name.ends_with("-shm"));
        names.sort();
        names
    };
    let [database, _] = place.crashed("app.db", "wal", true);
    let holder = Holder::start(place.python("sqlite.py"), &database);
    let mut late = Holder::waiting(place.python("sqlite.py"));
    // By a name that the policy of a running program does not know.
    let moved = place.dir.with_file_name("moved");
    fs::rename(&place.dir, &moved).unwrap();
    late.open(&moved.join("app.db"));
    assert_eq!(indexes(&moved), ["app.db-tidelock-shm"]);
    late.end();
    fs::rename(&moved, &place.dir).unwrap();
    holder.end();
    assert_eq!(indexes(&place.dir), [""; 0]);

    // By a link out of the directory that one of them has not seen.
    let elsewhere = place.place.plain().join("elsewhere.db");
    let mut late = Holder::waiting(place.python("sqlite.py"));
    let link = place.dir.join("link.db");
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let statements = "PRAGMA journal_mode=wal; CREATE TABLE kept (x)";
    ended_well(place.exec("sqlite3").arg("-batch").arg(&link).arg(statements));
    let holder = Holder::start(place.python("sqlite.py"), &link);
    late.open(&elsewhere);
    assert_eq!(indexes(elsewhere.parent().unwrap()), ["elsewhere.db-tidelock-shm"]);
    late.end();
    holder.end();

    // One whose name is that of another's index without its end.
    let [one, _] = place.crashed("twin", "wal", true);
    let [other, _] = place.crashed("twin-tidelock", "wal", true);
    let holders = [&one, &other].map(|path| Holder::start(place.python("sqlite.py"), path));
    assert_eq!(indexes(&place.dir), ["twin-tidelock-shm", "twin-tidelock-tidelock-shm"]);
    for holder in holders {
        holder.end();
    }
    place.has_all(&one);
    place.has_all(&other);
}

/// Where a policy seals files of such names, they are files as any others.
#[test]
fn sealed_files_that_are_called_like_an_index_are_removed_by_their_own_names() {
    let Some(mut place) = Place::new() else { return };
    place.dir = place.place.plain().join("generic");
    let key = format!("file:{}", place.place.plain().join("key").display());
    let init = ["init", "--profile", "generic", "--no-recovery", "--provider", &key];
    ended_well(&mut place.convert(&init));
    let script = "import os, sys
os.chdir(sys.argv[1])
for name in ('x', 'x-shm', 'x-tidelock-shm'):
    open(name, 'w').write('data')
with open('x', 'r+'):
    os.unlink('x-shm')
    print(sorted(name for name in os.listdir() if name.startswith('x')))
    os.mkdir('x-shm')
    os.rmdir('x-shm')";
    let mut python = place.exec(PYTHON);
    let said = ended_well(python.args(["-c", script]).arg(&place.dir));
    assert_eq!(said, "['x', 'x-tidelock-shm']\n");
}

/// The one call that changes a database without a look at its first page.
#[test]
fn a_checkpoint_that_a_program_without_keys_asks_for_fails_beside_one_with_keys() {
    let Some(place) = Place::new() else { return };
    let [database, log] = place.crashed("app.db", "wal", true);
    let holder = Holder::start(place.python("sqlite.py"), &database);
    let bytes = || [&database, &log].map(|path| fs::read(path).unwrap());
    let before = bytes();
    let answer = ended_well(bare_python().arg("checkpoint").arg(&database));
    // SQLITE_CANTOPEN.
    assert_eq!(answer, "14\n");
    assert!(bytes() == before, "a file has changed");
    holder.end();
    place.has_all(&database);
    let left: Vec<_> =
        fs::read_dir(&place.dir).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "app.db-tidelock-shm"), "{left:?}");
}

/// The guard judges what is copied by its first bytes.
#[test]
fn a_copy_of_a_journal_and_a_log_by_a_program_without_keys_below_exec_opens() {
    let Some(place) = Place::new() else { return };
    for mode in ["delete", "wal"] {
        let [database, left] = place.crashed(&format!("{mode}.db"), mode, true);
        let copy = place.dir.join("copy");
        fs::create_dir(&copy).unwrap();
        let words = format!("cp {} {} {}", database.display(), left.display(), copy.display());
        ended_well(place.exec("sh").args(["-c", &words]));
        place.has_all(&copy.join(format!("{mode}.db")));
        fs::remove_dir_all(&copy).unwrap();
    }
}

/// A journal of mode persist stays when its database is closed, and is used again.
#[test]
fn a_journal_that_a_conversion_has_sealed_or_rekeyed_is_as_safe_as_a_new_one() {
    let Some(mut place) = Place::new() else { return };
    place.dir = place.place.plain().join("app");
    fs::create_dir(&place.dir).unwrap();
    let database = place.dir.join("app.db");
    let statements = "PRAGMA journal_mode=persist; CREATE TABLE t (x); INSERT INTO t VALUES (1)";
    ended_well(Command::new("/usr/bin/sqlite3").arg("-batch").arg(&database).arg(statements));
    let key = format!("file:{}", place.place.plain().join("key").display());
    let encrypt = ["encrypt", "--profile", "sqlite", "--no-recovery", "--provider", &key];
    for words in [&encrypt[..], &["rekey"]] {
        ended_well(&mut place.convert(words));
        let [_, left] = place.crashed("app.db", "persist", true);
        let mut shell = Command::new("/usr/bin/sqlite3");
        let done = run(shell.args(["-batch", "-bail"]).arg(&database).arg("VACUUM"));
        assert!(!done.status.success() && left.exists(), "{words:?}");
        place.has_all(&database);
        ended_well(place.exec("sqlite3").arg("-batch").arg(&database).arg("DROP TABLE kept"));
    }
}

/// A journal or log and its database are converted one after the other, and belong together.
#[test]
fn a_conversion_refuses_a_journal_or_log_until_the_database_was_opened_and_closed() {
    let Some(mut place) = Place::new() else { return };
    place.dir = place.place.plain().join("app");
    fs::create_dir(&place.dir).unwrap();
    let key = format!("file:{}", place.place.plain().join("key").display());
    let encrypt = ["encrypt", "--profile", "sqlite", "--no-recovery", "--provider", &key];
    let refuses = |words: &[&str], left: &Path| {
        let done = run(&mut place.convert(words));
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{words:?}: {told}");
        let name = left.file_name().unwrap().to_str().unwrap();
        assert!(told.contains(&format!("has left {name}\n")) && told.contains("hint:"), "{told}");
    };
    // What mode persist leaves begins with zeros, and does not count.
    let persist = place.dir.join("persist.db");
    let statements = "PRAGMA journal_mode=persist; CREATE TABLE t (x); INSERT INTO t VALUES (1)";
    ended_well(Command::new("/usr/bin/sqlite3").arg("-batch").arg(&persist).arg(statements));
    assert!(fs::metadata(place.dir.join("persist.db-journal")).unwrap().len() > 0);
    let mut databases = Vec::new();
    for mode in ["delete", "wal"] {
        let [database, left] = place.crashed(&format!("{mode}.db"), mode, false);
        refuses(&encrypt, &left);
        assert!(!place.dir.join(".tidelock").exists(), "{mode}: something was changed");
        bare_has_all(&database);
        databases.push(database);
    }
    ended_well(&mut place.convert(&encrypt));
    for (command, mode) in [("rekey", "delete"), ("decrypt", "wal")] {
        let [database, left] = place.crashed(&format!("sealed-{mode}.db"), mode, true);
        refuses(&[command], &left);
        place.has_all(&database);
        ended_well(&mut place.convert(&[command]));
        databases.push(database);
    }
    for database in databases {
        bare_has_all(&database);
    }
}
