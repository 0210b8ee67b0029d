//! Engines by the profiles that are shipped, killed with signal 9 and checked against an
//! independent record: Redis, and DuckDB and RocksDB by their wheels for Python. Engines that map
//! their files are refused by the name of the file.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidelock_servers::{Bounded as _, alone, skip};
use tidelock_testkit::acknowledged::{self, Promises};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::twins::{Product, Workspace};
use tidelock_testkit::volume::{FileSystem, Volume};

/// What `ci/python-env engines` has made, beside the build.
fn python() -> Option<PathBuf> {
    let me = env::current_exe().unwrap();
    let built = me.ancestors().find(|dir| dir.ends_with("deps"))?.parent()?.parent()?;
    let python = built.join("python-engines/bin/python");
    python.exists().then_some(python)
}

/// The interpreter, if it and the engine's own program are installed.
fn python_with(program: Option<&str>) -> Option<PathBuf> {
    let Some(python) = python() else {
        skip::missing("target/python-engines (ci/python-env engines)");
        return None;
    };
    if let Some(program) = program.filter(|program| !Path::new(program).exists()) {
        skip::missing(program);
        return None;
    }
    Some(python)
}

/// `engine.py ENGINE WHAT DIR` by itself or, with `sealed`, by `tidelock exec`.
fn engine_script(
    (product, place): (&Product, &Workspace),
    python: &Path,
    (engine, what): (&str, &str),
    dir: &Path,
    sealed: bool,
) -> Command {
    let exec = place.command(product);
    // A group of its own, so that a server which the script starts is killed with it.
    let mut command = alone(if sealed { exec.get_program() } else { python.as_os_str() });
    command.env_clear().envs(exec.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if sealed {
        command.arg("exec").arg("-D").arg(dir).arg("--").arg(python);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/engine.py");
    command.arg(script).args([engine, what]).arg(dir);
    command
}

fn nothing_acknowledged_is_lost(engine: &str, program: Option<&str>) {
    let Some(python) = python_with(program) else { return };
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new(engine).unwrap();
    let dir = place.protect(&product, engine).unwrap_or_else(|error| panic!("{error}"));
    let record = dir.with_extension("record");
    let run = |what: &str| engine_script((&product, &place), &python, (engine, what), &dir, true);
    let mut promises = Promises::new(&record);
    let mut last = 0;
    for round in 0..ROUNDS {
        let mut writer = run("write");
        writer.arg(&record);
        acknowledged::kill_after(&mut [writer], &record, 10 + round * 37 % 101).unwrap();
        last = promises.check(&mut run("check")).unwrap();
    }
    println!("{engine}: {ROUNDS} kills, {last} commits were acknowledged, none is lost");
    assert!(last > 10 * ROUNDS as u64, "{last}");
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));

    let plain = dir.with_extension("plain");
    fs::create_dir(&plain).unwrap();
    let record = plain.with_extension("record");
    let mut writer = engine_script((&product, &place), &python, (engine, "write"), &plain, false);
    writer.arg(&record);
    acknowledged::kill_after(&mut [writer], &record, 40).unwrap();
    assert!(shows_the_first(&plain), "a plain {engine} does not show what the search looks for");
    assert!(!shows_the_first(&dir), "{engine} left plain bytes in {}", dir.display());
}

const ROUNDS: usize = 25;

/// Whether any file of the directory has what engine.py commits for the number 1, which begins with
/// SHA-256 of "1" in hexadecimal digits.
fn shows_the_first(dir: &Path) -> bool {
    let first = Marker::of("6b86b273ff34fce19d6b804eff5a3f57".to_owned());
    !first.search(&[dir]).unwrap().findings.is_empty()
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_redis_acknowledged_is_lost_by_kill_9() {
    nothing_acknowledged_is_lost("redis", Some(REDIS));
}

const REDIS: &str = "/usr/bin/redis-server";

/// CONFIG REWRITE renames redis.conf.XXXXXX to redis.conf.
#[test]
fn redis_rewrites_its_configuration_which_stays_plain() {
    if !Path::new(REDIS).exists() {
        skip::missing(REDIS);
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("redis").unwrap();
    let dir = place.protect(&product, "redis").unwrap_or_else(|error| panic!("{error}"));
    rewrites_its_configuration((&product, &place), &dir, &dir);
    // One of several servers.
    let folder = dir.join("one");
    fs::create_dir(&folder).unwrap();
    rewrites_its_configuration((&product, &place), &dir, &folder);
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

/// A server in `folder`, which lies below the protected `dir` or is that.
fn rewrites_its_configuration((product, place): (&Product, &Workspace), dir: &Path, folder: &Path) {
    let (conf, socket) = (folder.join("redis.conf"), folder.join("socket"));
    let text = format!("dir {}\nport 0\nunixsocket {}\n", folder.display(), socket.display());
    fs::write(&conf, text).unwrap();
    let mut server = place.command(product);
    server.arg("exec").arg("-D").arg(dir).arg("--").arg(REDIS).arg(&conf);
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut client = loop {
        match UnixStream::connect(&socket) {
            Ok(client) => break client,
            Err(why) if Instant::now() > until => {
                let _ = server.kill();
                panic!("{why}");
            }
            Err(_) => sleep(Duration::from_millis(20)),
        }
    };
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(b"CONFIG SET maxmemory 64mb\r\nCONFIG REWRITE\r\n").unwrap();
    let mut answers = [0; 10];
    let answered = client.read_exact(&mut answers);
    // Whatever it said, it is told to end.
    client.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
    let ended = server.wait().unwrap();
    let said = String::from_utf8_lossy(&answers);
    assert!(answered.is_ok() && said == "+OK\r\n+OK\r\n", "{said}: {answered:?}");
    assert!(ended.success(), "{ended}");
    let text = fs::read_to_string(&conf).unwrap();
    assert!(text.contains("maxmemory 64mb"), "{text}");
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_duckdb_acknowledged_is_lost_by_kill_9() {
    nothing_acknowledged_is_lost("duckdb", None);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_rocksdb_acknowledged_is_lost_by_kill_9() {
    nothing_acknowledged_is_lost("rocksdb", None);
}

/// One writer, whose disk loses its power again and again.
fn nothing_acknowledged_is_lost_by_power_cuts(engine: &str, program: Option<&str>, sealed: bool) {
    let Some(python) = python_with(program) else { return };
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new(engine).unwrap();
    for kind in FileSystem::ALL {
        let mut volume = Volume::create(kind, 400).unwrap();
        let dir = volume.root().join("data");
        if sealed {
            let key = format!("file:{}", place.plain().join(format!("{kind}.key")).display());
            let mut init = place.command(&product);
            init.arg("init").arg(&dir).args(["--profile", engine, "--no-recovery"]);
            let done = init.args(["--provider", &key]).finish().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        } else {
            fs::create_dir(&dir).unwrap();
        }
        // On another file system, which keeps its power.
        let record = place.plain().join(format!("{kind}.record"));
        let run =
            |what: &str| engine_script((&product, &place), &python, (engine, what), &dir, sealed);
        let mut promises = Promises::new(&record);
        let mut last = 0;
        for round in 0..ROUNDS {
            let mut writer = run("write");
            writer.arg(&record);
            let cut = || volume.stop_users_and_cut().map_err(std::io::Error::other);
            let lines = 10 + round * 37 % 101;
            acknowledged::cut_after(&mut [writer], &record, lines, cut).unwrap();
            volume.remount().unwrap();
            last = promises.check(&mut run("check")).unwrap_or_else(|why| panic!("{kind}: {why}"));
        }
        println!(
            "{engine} on {kind}: {ROUNDS} cuts, {last} commits were acknowledged, none is lost"
        );
        if sealed {
            place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_plain_redis_acknowledged_is_lost_by_power_cuts() {
    nothing_acknowledged_is_lost_by_power_cuts("redis", Some(REDIS), false);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_redis_acknowledged_is_lost_by_power_cuts() {
    nothing_acknowledged_is_lost_by_power_cuts("redis", Some(REDIS), true);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_plain_rocksdb_acknowledged_is_lost_by_power_cuts() {
    nothing_acknowledged_is_lost_by_power_cuts("rocksdb", None, false);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_rocksdb_acknowledged_is_lost_by_power_cuts() {
    nothing_acknowledged_is_lost_by_power_cuts("rocksdb", None, true);
}

#[test]
#[ignore = "long: make test-full"]
fn nothing_that_duckdb_acknowledged_is_lost_by_power_cuts() {
    nothing_acknowledged_is_lost_by_power_cuts("duckdb", None, true);
}

/// What each engine says plain is "ok"; on a protected directory one line names the file.
#[test]
#[ignore = "long: make test-full"]
fn an_engine_that_maps_its_files_is_told_which_and_what_to_do() {
    let Some(python) = python() else {
        skip::missing("target/python-engines (ci/python-env engines)");
        return;
    };
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("mapped").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/maps.py");
    let read = "let the program read without maps";
    let (lmdb, leveldb) = ("if it cannot (LMDB)", "if it cannot (LevelDB)");
    for (engine, refused) in [
        ("lmdb", Some(("lmdb/lock.mdb: ", lmdb))),
        ("leveldb", Some((".ldb: ", leveldb))),
        ("rocksdb-mapped", Some(("rocksdb-mapped/CURRENT: ", read))),
        ("rocksdb", None),
    ] {
        let mut plain = Command::new(&python);
        let plain = plain.arg(&script).arg(engine).arg(place.plain()).finish().unwrap();
        let words = String::from_utf8_lossy(&plain.stderr);
        assert_eq!(plain.stdout, b"ok\n", "{engine}: {words}");
        let mut sealed = place.command(&product);
        sealed.arg("exec").arg("-D").arg(&dir).arg("--").arg(&python).arg(&script);
        let sealed = sealed.arg(engine).arg(&dir).finish().unwrap();
        let words = String::from_utf8_lossy(&sealed.stderr);
        let Some((file, way)) = refused else {
            assert!(sealed.stdout == b"ok\n" && words.is_empty(), "{engine}: {words}");
            continue;
        };
        assert!(!sealed.status.success() && sealed.stdout.is_empty(), "{engine}: {words}");
        assert!(words.contains("No such device"), "{engine}: {words}");
        let mut lines = words.lines().filter(|line| line.starts_with("tidelock: "));
        let named = lines.next().is_some_and(|line| line.contains(file) && line.contains(way));
        assert!(named && lines.next().is_none(), "{engine}: {words}");
    }
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

/// Debian's RocksDB, with `allow_mmap_writes`. Those of the wheels write without maps, whatever the
/// option says.
#[test]
#[ignore = "long: make test-full"]
fn rocksdb_that_maps_what_it_writes_is_told_which_file_and_what_to_do() {
    if !Path::new(DB_BENCH).exists() {
        skip::missing("rocksdb-tools");
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("mmap_write").unwrap();
    let dir = place.protect(&product, "rocksdb").unwrap_or_else(|error| panic!("{error}"));
    let run = |mut command: Command, mapped: bool, dir: &Path| {
        command.args(["--benchmarks=fillseq,flush,readseq", "--num=2000"]);
        command.arg(format!("--mmap_write={mapped}")).arg(format!("--db={}", dir.display()));
        let done = command.finish().unwrap();
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.success(), words)
    };
    let sealed = || {
        let mut sealed = place.command(&product);
        sealed.arg("exec").arg("-D").arg(&dir).args(["--", DB_BENCH]);
        sealed
    };
    let (good, words) = run(Command::new(DB_BENCH), true, &place.plain());
    assert!(good, "{words}");
    let (good, words) = run(sealed(), true, &dir.join("mapped"));
    assert!(!good, "{words}");
    // Behind what db_bench says of its progress.
    let mut lines = words.lines().filter(|line| line.contains("tidelock: "));
    let way = "let the program write without maps";
    let named = lines.next().is_some_and(|line| line.contains(".sst: ") && line.contains(way));
    assert!(named && lines.next().is_none(), "{words}");
    let (good, words) = run(sealed(), false, &dir.join("written"));
    assert!(good && !words.contains("tidelock: "), "{words}");
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

const DB_BENCH: &str = "/usr/bin/db_bench";
