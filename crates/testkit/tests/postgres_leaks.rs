//! The leak search: a marker goes through every path of a server, then through none of its files.
//!
//! The same run on a plain server is the negative control: there the marker must be found, in each
//! place that is searched, or the search proves nothing.
//!
//! Not written is what stays plain by policy: `postgresql.auto.conf`, which Debian's pg_ctlcluster
//! reads, shows what ALTER SYSTEM was given.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidelock_testkit::arms;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Running, Workspace, ensure};

/// Everything that a server writes: heap, index, toast, WAL, spills, sorts, large objects,
/// two-phase state, temporary and unlogged tables, statistics, logs, both kinds of database copies,
/// tablespaces, archive, replication slots, relation maps, a crash in the middle of it, and a
/// standby.
fn a_marker_written_on_every_path_is_found_in_no_file(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let archive = place.make_dir("archive")?;
    let spaces = [place.make_dir("one")?, place.make_dir("two")?];
    let wal = place.join("wal");
    let main = Cluster::empty(&place, "main", arm)?;
    main.initdb(&["-k", "-X", &wal.display().to_string()])?;
    for (name, value) in [
        ("archive_mode", "on"),
        ("archive_command", &*format!("cp %p {}/%f", archive.display())),
        ("wal_level", "logical"),
        ("logical_decoding_work_mem", "64kB"),
        ("max_prepared_transactions", "4"),
        ("logging_collector", "on"),
        ("log_statement", "all"),
        ("log_destination", "stderr,csvlog,jsonlog"),
        ("shared_preload_libraries", "pg_stat_statements"),
        ("temp_buffers", "800kB"),
        ("shared_buffers", "1MB"),
        ("wal_keep_size", "1GB"),
        ("track_activity_query_size", "4kB"),
    ] {
        main.set(name, value)?;
    }
    main.start()?;
    write_everywhere(&main, &marker, &spaces)?;
    let standby = Cluster::empty(&place, "standby", arm)?;
    let mut mapping = Vec::new();
    let mut copies = Vec::new();
    for space in &spaces {
        let copy = PathBuf::from(format!("{}-copy", space.display()));
        mapping.push(format!("--tablespace-mapping={}={}", space.display(), copy.display()));
        copies.push(copy);
    }
    let mut args = vec!["-R", "-X", "stream"];
    args.extend(mapping.iter().map(String::as_str));
    standby.backup_of(&main, &args)?;
    standby.set("archive_mode", "off")?;
    standby.start()?;
    let text = marker.text();
    main.sql(&format!("CREATE TABLE last AS SELECT '{text}' || g FROM generate_series(1, 9) g"))?;
    standby.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'last'", "1")?;
    standby.wait_for("SELECT count(*) FROM last", "9")?;
    let mut roots = vec![main.dir().to_path_buf(), wal, archive, standby.dir().to_path_buf()];
    if arm == Arm::Sealed {
        // Where the agents leave their files.
        roots.push(place.join("home/run"));
    }
    roots.extend(spaces.iter().cloned());
    roots.extend(copies);
    // While both run, after a crash of both, after recovery, and after a clean stop.
    let mut seen = Seen::new(arm, &marker, &roots);
    let decoded = decode(&main, &marker)?;
    seen.look("running")?;
    main.kill_nine()?;
    drop(decoded);
    standby.kill_nine()?;
    seen.look("crashed")?;
    main.start()?;
    standby.start()?;
    main.expect("SELECT count(*) FROM last", "9")?;
    seen.look("recovered")?;
    main.stop("fast")?;
    standby.stop("fast")?;
    seen.look("stopped")?;
    if arm == Arm::Plain {
        for kind in KINDS {
            let found = seen.paths.iter().any(|path| path.to_string_lossy().contains(kind));
            ensure(found, || format!("the marker was never in {kind}: {:#?}", seen.paths))?;
        }
    }
    Ok(())
}

/// Where a plain server writes the marker: places that one search of a whole directory might miss.
const KINDS: [&str; 10] = [
    "/main/base/",
    "/wal/0",
    "/archive/0",
    "/pg_twophase/",
    "/pg_replslot/slot/xid-",
    "/log/postgresql",
    ".csv",
    ".json",
    "copied.text",
    "copied.binary",
];

/// A transaction that goes on while a client decodes it: what of it has no room in memory lies in
/// the slot.
fn decode(main: &Cluster<'_>, marker: &Marker) -> Result<[Running; 2]> {
    let client = main.client("pg_recvlogical");
    let client = client.args(["-d", "postgres", "-S", "slot", "--start", "-f", "/dev/null"]);
    let client = client.spawn()?;
    let open = format!(
        "BEGIN; INSERT INTO wide SELECT '{}' || g FROM generate_series(1, 20000) g;
         SELECT pg_sleep(3000)",
        marker.text()
    );
    let session = main.psql("postgres", &open).spawn()?;
    let slot = main.dir().join("pg_replslot/slot");
    let spilled = || {
        let names = std::fs::read_dir(&slot).into_iter().flatten().flatten();
        let spill = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".spill");
        // More than the header of a sealed file.
        let len = |it: std::fs::DirEntry| it.metadata().map_or(0, |found| found.len());
        names.filter(|it| spill(&it.file_name())).any(|it| len(it) > 8192)
    };
    let start = Instant::now();
    while !spilled() {
        ensure(start.elapsed() < Duration::from_secs(60), || "nothing was spilled".into())?;
        sleep(Duration::from_millis(50));
    }
    Ok([client, session])
}
arms!(a_marker_written_on_every_path_is_found_in_no_file: plain, sealed);

struct Seen<'a> {
    arm: Arm,
    marker: &'a Marker,
    roots: &'a [PathBuf],
    /// Files in which it was.
    paths: BTreeSet<PathBuf>,
}

impl<'a> Seen<'a> {
    fn new(arm: Arm, marker: &'a Marker, roots: &'a [PathBuf]) -> Self {
        Self { arm, marker, roots, paths: BTreeSet::new() }
    }

    /// Sealed: found nowhere. Plain: found below each root that holds data.
    fn look(&mut self, when: &str) -> Result<()> {
        for root in self.roots {
            let found = self
                .marker
                .search(&[root])
                .map_err(Error::io(format!("searching {}", root.display())))?;
            let name = root.display();
            if self.arm == Arm::Sealed {
                ensure(found.findings.is_empty(), || format!("{when}: {:#?}", found.findings))?;
                continue;
            }
            let holds_data = !root.ends_with("run");
            let what = || format!("{when}: the search found nothing below {name}, {found:?}");
            ensure(found.findings.is_empty() != holds_data, what)?;
            self.paths.extend(found.findings.into_iter().map(|it| it.path));
        }
        Ok(())
    }
}

fn write_everywhere(main: &Cluster<'_>, marker: &Marker, spaces: &[PathBuf; 2]) -> Result<()> {
    let text = marker.text();
    let (one, two) = (spaces[0].display(), spaces[1].display());
    main.sql(&format!(
        "CREATE TABLESPACE one LOCATION '{one}'; CREATE TABLESPACE two LOCATION '{two}';
         CREATE TABLE \"t_{text}\" (a int, b text) TABLESPACE one;
         INSERT INTO \"t_{text}\" SELECT g, '{text}' || g FROM generate_series(1, 20000) g;
         CREATE INDEX \"i_{text}\" ON \"t_{text}\" (b) TABLESPACE two;
         CREATE TABLE wide (b text); ALTER TABLE wide ALTER b SET STORAGE EXTERNAL;
         INSERT INTO wide SELECT repeat('{text}', 1000) FROM generate_series(1, 20);
         CREATE UNLOGGED TABLE quick AS SELECT * FROM \"t_{text}\";
         CREATE TABLE utf16 AS SELECT convert_to('{text}', 'UTF8') b;
         SELECT lo_from_bytea(0, convert_to(repeat('{text}', 2000), 'UTF8'));
         ANALYZE; VACUUM FULL wide;
         CREATE EXTENSION pg_stat_statements;
         COMMENT ON TABLE wide IS '{text}';
         CREATE DATABASE copied STRATEGY file_copy; CREATE DATABASE logged STRATEGY wal_log;
         COPY \"t_{text}\" TO '{dir}/copied.text'; COPY \"t_{text}\" TO '{dir}/copied.binary' \
                (FORMAT binary);
         SELECT pg_create_logical_replication_slot('slot', 'test_decoding');
         BEGIN; INSERT INTO wide SELECT '{text}' || g FROM generate_series(1, 20000) g;
         PREPARE TRANSACTION '{text}'; CHECKPOINT;
         BEGIN; INSERT INTO wide SELECT '{text}' || g FROM generate_series(1, 20000) g; COMMIT;
         SELECT count(*) FROM pg_logical_slot_peek_changes('slot', NULL, NULL);
         SET work_mem = '64kB'; SET temp_tablespaces = one, two;
         CREATE TEMP TABLE mine AS SELECT * FROM \"t_{text}\";
         SELECT count(*) FROM (SELECT b FROM mine ORDER BY b OFFSET 10) s;
         SELECT pg_switch_wal(); CHECKPOINT",
        dir = main.dir().display(),
    ))?;
    main.wait_for("SELECT archived_count > 1 AND failed_count = 0 FROM pg_stat_archiver", "t")
}

/// While a backend works, its spilled files lie on the disk: they are looked at right then.
fn spilled_files_are_sealed_while_they_exist(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let main = Cluster::new(&place, "main", arm)?;
    main.set("work_mem", "64kB")?;
    main.set("temp_buffers", "800kB")?;
    main.start()?;
    let held = format!(
        "CREATE TEMP TABLE mine AS SELECT '{0}' || g b FROM generate_series(1, 50000) g;
         BEGIN; DECLARE c CURSOR FOR SELECT b FROM mine ORDER BY b; FETCH 1 FROM c;
         SELECT pg_sleep(3000)",
        marker.text()
    );
    let session = main.psql("postgres", &held).spawn()?;
    main.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1")?;
    let temporary = main.dir().join("base/pgsql_tmp");
    let files = std::fs::read_dir(&temporary).map_or(0, std::iter::Iterator::count);
    ensure(files > 0, || "the sort did not spill".into())?;
    let mut seen = Seen::new(arm, &marker, &[]);
    let roots = [temporary, main.dir().to_path_buf()];
    seen.roots = &roots;
    seen.look("spilled")?;
    drop(session);
    Ok(())
}
arms!(spilled_files_are_sealed_while_they_exist: plain, sealed);
