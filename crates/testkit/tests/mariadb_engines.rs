//! What MariaDB's storage engines do to files: ways of writing, changes of tables, many clients,
//! and crashes at any moment.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::arms;
use tidelock_testkit::maria::{Inserter, SMALL, started, two_hundred_clients_update};
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Error, Result, Workspace, ensure, skip};
use tidelock_testkit::volume::{FileSystem, Volume, VolumeError};

/// Clients write all the time; the server is killed, recovers, and has what it acknowledged.
fn survives_kills(arm: Arm, settings: &[(&str, &str)]) -> Result<()> {
    let place = Workspace::new()?;
    let mut all = vec![("log_bin", "on"), ("innodb_flush_log_at_trx_commit", "1")];
    all.extend(settings);
    let maria = started(&place, "m", arm, &all)?;
    has_the_requests_it_was_told(&maria, settings)?;
    maria.sql("CREATE DATABASE d")?;
    let tables: Vec<_> = ["InnoDB", "InnoDB", "InnoDB", "Aria TRANSACTIONAL = 1"]
        .iter()
        .enumerate()
        .map(|(number, engine)| (format!("d.t{number}"), engine))
        .collect();
    for (table, engine) in &tables {
        maria
            .sql(&format!("CREATE TABLE {table} (k INT PRIMARY KEY, b TEXT) ENGINE = {engine}"))?;
    }
    let mut last = vec![0; tables.len()];
    for _ in 0..ROUNDS {
        let mut inserters = Vec::new();
        for ((table, _), last) in tables.iter().zip(&last) {
            inserters.push(Inserter::start(&maria, table, *last)?);
        }
        for (inserter, last) in inserters.iter().zip(&last) {
            inserter.wait_beyond(last + 60)?;
        }
        maria.kill_nine()?;
        maria.start()?;
        for (inserter, last) in inserters.iter().zip(&mut last) {
            *last = inserter.compare(&maria)?;
        }
    }
    Ok(())
}

const ROUNDS: u32 = 12;
/// What a server that was built without libaio does too: its own threads read and write pages.
const OWN_THREADS: (&str, &str) = ("innodb_use_native_aio", "OFF");

fn has_the_requests_it_was_told(maria: &Mysqld<'_>, settings: &[(&str, &str)]) -> Result<()> {
    let native = if settings.contains(&OWN_THREADS) { "0" } else { "1" };
    maria.expect("SELECT @@innodb_use_native_aio", native)
}

fn acknowledged_rows_survive_kills_with_direct_writes(arm: Arm) -> Result<()> {
    survives_kills(arm, &[("innodb_flush_method", "O_DIRECT")])
}
arms!(acknowledged_rows_survive_kills_with_direct_writes: sealed; slow);

fn acknowledged_rows_survive_kills_with_buffered_writes(arm: Arm) -> Result<()> {
    survives_kills(
        arm,
        &[
            ("innodb_flush_method", "fsync"),
            ("innodb_log_file_buffering", "ON"),
            ("innodb_file_per_table", "OFF"),
            ("innodb_doublewrite", "ON"),
            ("sync_binlog", "1"),
        ],
    )
}
arms!(acknowledged_rows_survive_kills_with_buffered_writes: sealed; slow);

fn acknowledged_rows_survive_kills_without_native_requests(arm: Arm) -> Result<()> {
    survives_kills(arm, &[("innodb_flush_method", "O_DIRECT"), OWN_THREADS])
}
arms!(acknowledged_rows_survive_kills_without_native_requests: sealed; slow);

/// The same with the power of the disk cut, by a server that syncs what it acknowledges. With
/// buffered writes (innodb_flush_method = fsync) the plain server loses rows as well
/// (docs/decisions/0022).
fn survives_power_cuts(arm: Arm, fs: FileSystem, settings: &[(&str, &str)]) -> Result<()> {
    if skip::unless_root("a volume of one's own") {
        return Ok(());
    }
    let failed = |why: VolumeError| Error::Unexpected(why.to_string());
    let mut volume = Volume::create(fs, 1200).map_err(failed)?;
    let place = Workspace::new()?;
    place.account().give(volume.root())?;
    let maria = Mysqld::mariadb(&place, "m", arm)?.on(volume.root().join("m"));
    let durable = [
        ("innodb_flush_method", "O_DIRECT"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("innodb_doublewrite", "ON"),
        ("log_bin", "on"),
        ("sync_binlog", "1"),
    ];
    let small = SMALL.iter().filter(|(name, _)| !SYNCS_NOTHING.contains(name));
    for (name, value) in small.chain(&durable).chain(settings) {
        maria.set(name, value)?;
    }
    maria.install()?;
    maria.start()?;
    has_the_requests_it_was_told(&maria, settings)?;
    maria.sql("CREATE DATABASE d")?;
    let tables = ["d.a", "d.b", "d.c"];
    for table in tables {
        maria.sql(&format!("CREATE TABLE {table} (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB"))?;
    }
    let mut last = [0; 3];
    for round in 0..CUTS {
        let mut inserters = Vec::new();
        for (table, last) in tables.iter().zip(&last) {
            inserters.push(Inserter::start(&maria, table, *last)?);
        }
        for (inserter, last) in inserters.iter().zip(&last) {
            inserter.wait_beyond(last + 10 + round * 7 % 41)?;
        }
        volume.stop_users_and_cut().map_err(failed)?;
        // Ends the server.
        volume.remount().map_err(failed)?;
        maria.start()?;
        for (inserter, last) in inserters.iter().zip(&mut last) {
            *last = inserter.compare(&maria)?;
        }
    }
    println!("{fs}: {CUTS} cuts, {last:?} acknowledged, none lost");
    Ok(())
}

const CUTS: u64 = 25;
/// Settings of tests that no power cut comes near.
const SYNCS_NOTHING: [&str; 2] = ["innodb_flush_method", "debug_no_sync"];

fn acknowledged_rows_survive_power_cuts_on_ext4(arm: Arm) -> Result<()> {
    survives_power_cuts(arm, FileSystem::Ext4, &[])
}
arms!(acknowledged_rows_survive_power_cuts_on_ext4: plain, sealed; slow);

fn acknowledged_rows_survive_power_cuts_on_xfs(arm: Arm) -> Result<()> {
    survives_power_cuts(arm, FileSystem::Xfs, &[])
}
arms!(acknowledged_rows_survive_power_cuts_on_xfs: plain, sealed; slow);

fn acknowledged_rows_survive_power_cuts_without_native_requests(arm: Arm) -> Result<()> {
    survives_power_cuts(arm, FileSystem::Ext4, &[OWN_THREADS])
}
arms!(acknowledged_rows_survive_power_cuts_without_native_requests: sealed; slow);

/// io_uring goes round libc, so the server is told that there is none. It goes on with libaio, if
/// it was built with that, and else with threads of its own; its log says so.
#[test]
#[ignore = "long: make test-full"]
fn native_asynchronous_io_is_carried_out_by_libaio() -> Result<()> {
    let place = Workspace::new()?;
    for method in ["O_DIRECT", "fsync", "O_DSYNC", "O_DIRECT_NO_FSYNC", "littlesync"] {
        let settings = [("innodb_use_native_aio", "ON"), ("innodb_flush_method", method)];
        let maria = started(&place, method, Arm::Sealed, &settings)?;
        let log = fs::read_to_string(maria.log()).map_err(Error::io("reading the log"))?;
        ensure(log.contains("io_uring_queue_init() failed with ENOSYS"), || log.clone())?;
        let has_libaio = log.contains("falling back to libaio");
        let says = if has_libaio { "Using Linux native AIO" } else { "innodb_use_native_aio=OFF" };
        ensure(log.contains(says), || log.clone())?;
        maria.expect("SELECT @@innodb_use_native_aio", if has_libaio { "1" } else { "0" })?;
        maria.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE t (k INT PRIMARY KEY, b TEXT);
             INSERT INTO t SELECT seq, REPEAT(MD5(seq), 20) FROM seq_1_to_20000",
        )?;
        maria.kill_nine()?;
        maria.start()?;
        maria.expect("SELECT COUNT(*), SUM(b = REPEAT(MD5(k), 20)) FROM d.t", "20000\t20000")?;
        maria.stop()?;
    }
    Ok(())
}

/// Every algorithm, and what goes with the files: discard, import, rename, truncate, partitions.
fn tables_change_in_every_way(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let maria = started(&place, "m", arm, &[("innodb_online_alter_log_max_size", "64M")])?;
    maria.sql("CREATE DATABASE d; CREATE DATABASE e; CREATE SEQUENCE d.s")?;
    for engine in ["InnoDB", "Aria", "MyISAM"] {
        maria.sql(&format!(
            "USE d; CREATE TABLE t (k INT PRIMARY KEY, b VARCHAR(300), c INT) ENGINE = {engine};
             INSERT INTO t SELECT seq, REPEAT(MD5(seq), 4), seq % 7 FROM seq_1_to_5000;
             ALTER TABLE t ADD KEY (c), ALGORITHM = COPY; ALTER TABLE t DROP KEY c;
             ALTER TABLE t RENAME TO e.t; RENAME TABLE e.t TO d.t;
             ALTER TABLE t FORCE; ANALYZE TABLE t"
        ))?;
        // A repair of Aria and MyISAM writes the same temporary names.
        let told = maria.sql("OPTIMIZE TABLE d.t")?;
        ensure(told.ends_with("OK") && !told.contains("ailed"), || told)?;
        maria.expect("SELECT COUNT(*), SUM(b = REPEAT(MD5(k), 4)) FROM d.t", "5000\t5000")?;
        maria.sql("TRUNCATE d.t; DROP TABLE d.t")?;
    }
    maria.sql(
        "USE d; CREATE TABLE t (k INT PRIMARY KEY, b VARCHAR(300), c INT) ENGINE = InnoDB;
         INSERT INTO t SELECT seq, REPEAT(MD5(seq), 4), seq % 7 FROM seq_1_to_5000;
         ALTER TABLE t ADD COLUMN n INT DEFAULT 5, ALGORITHM = INSTANT;
         ALTER TABLE t ADD KEY (c), ALGORITHM = NOCOPY;
         ALTER TABLE t ADD KEY (b), ALGORITHM = INPLACE, LOCK = NONE;
         ALTER TABLE t MODIFY c BIGINT, ALGORITHM = COPY;
         ALTER TABLE t ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 2;
         ALTER TABLE t KEY_BLOCK_SIZE = 0 ROW_FORMAT = DYNAMIC PAGE_COMPRESSED = 1;
         ALTER TABLE t PARTITION BY HASH (k) PARTITIONS 4;
         ALTER TABLE t COALESCE PARTITION 2; ALTER TABLE t REMOVE PARTITIONING;
         CREATE TABLE e.t LIKE t; ALTER TABLE e.t DISCARD TABLESPACE",
    )?;
    // The client copies while its session holds the table; below one directory a byte copy has the
    // same keys.
    let (from, to) = (maria.dir().join("d/t"), maria.dir().join("e/"));
    let (from, to) = (from.display(), to.display());
    maria.sql(&format!(
        "USE d;\nFLUSH TABLES t FOR EXPORT;\n\\! cp {from}.ibd {from}.cfg {to}\nUNLOCK TABLES;\n\
         ALTER TABLE e.t IMPORT TABLESPACE"
    ))?;
    for database in ["d", "e"] {
        let query =
            format!("SELECT COUNT(*), SUM(b = REPEAT(MD5(k), 4)), SUM(n) FROM {database}.t");
        maria.expect(&query, "5000\t5000\t25000")?;
    }
    maria.kill_nine()?;
    maria.start()?;
    let checked = maria.sql("CHECK TABLE d.t, e.t EXTENDED")?;
    ensure(checked.matches("\tOK").count() == 2, || checked)
}
arms!(tables_change_in_every_way: plain, sealed; slow);

/// The server is killed while a table changes, and undoes or ends that by its log of changes
/// (`ddl_recovery.log`): all rows are there, and no file is left over.
fn a_change_of_a_table_that_is_killed_in_the_middle_loses_nothing(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let maria = started(&place, "m", arm, &[])?;
    maria.sql("CREATE DATABASE d")?;
    let mut cut = 0;
    for (engine, change) in [
        ("InnoDB", "ADD COLUMN n INT DEFAULT 5, ALGORITHM = COPY"),
        ("InnoDB", "ADD KEY (b), ALGORITHM = INPLACE"),
        ("InnoDB", "FORCE, ALGORITHM = INPLACE"),
        ("InnoDB", "PARTITION BY HASH (k) PARTITIONS 4"),
        ("Aria", "ADD COLUMN n INT DEFAULT 5"),
        ("MyISAM", "ADD KEY (b)"),
    ] {
        for wait in [10, 60, 250] {
            maria.sql(&format!(
                "USE d; DROP TABLE IF EXISTS t;
                 CREATE TABLE d.t (k INT PRIMARY KEY, b VARCHAR(300)) ENGINE = {engine};
                 INSERT INTO d.t SELECT seq, REPEAT(MD5(seq), 4) FROM seq_1_to_{ROWS};
                 FLUSH TABLES"
            ))?;
            let sql = format!("ALTER TABLE d.t {change}");
            let client = maria.client("mariadb")?.args(["--execute", &sql]).spawn()?;
            thread::sleep(Duration::from_millis(wait));
            maria.kill_nine()?;
            cut += u32::from(!client.wait()?.status.success());
            maria.start()?;
            let checked = maria.sql("CHECK TABLE d.t EXTENDED")?;
            ensure(checked.ends_with("OK"), || format!("{engine} {change}: {checked}"))?;
            let right = "SELECT COUNT(*), SUM(b = REPEAT(MD5(k), 4)) FROM d.t";
            maria.expect(right, &format!("{ROWS}\t{ROWS}"))?;
            let left = fs::read_dir(maria.dir().join("d")).map_err(Error::io("listing d"))?;
            let names = left.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
            let left: Vec<_> = names.filter(|name| name.starts_with("#sql")).collect();
            ensure(left.is_empty(), || format!("{engine} {change}: {left:?} are left"))?;
        }
    }
    println!("{cut} of 18 changes were cut off");
    ensure(cut > 6, || format!("only {cut} changes were cut off"))
}
arms!(a_change_of_a_table_that_is_killed_in_the_middle_loses_nothing: plain, sealed; slow);

const ROWS: u32 = 60_000;

/// Page compression gives its blocks back to the file system, and rows are right afterwards.
fn compressed_pages_punch_holes(arm: Arm) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let place = Workspace::new()?;
    let maria = started(&place, "m", arm, &[("innodb_flush_method", "O_DIRECT")])?;
    maria.sql(
        "CREATE DATABASE d; USE d;
         CREATE TABLE t (k INT PRIMARY KEY, b TEXT) PAGE_COMPRESSED = 1;
         INSERT INTO t SELECT seq, REPEAT('a', 2000) FROM seq_1_to_10000;
         UPDATE t SET b = REPEAT('b', 2000) WHERE k % 3 = 0",
    )?;
    maria.stop()?;
    let file = maria.dir().join("d/t.ibd");
    let file = fs::metadata(&file).map_err(Error::io("looking at the table"))?;
    let (size, there) = (file.size(), file.blocks() * 512);
    ensure(there < size / 2, || format!("{there} bytes of {size} are on the disk"))?;
    maria.start()?;
    maria.expect(
        "SELECT COUNT(*), SUM(b = REPEAT(IF(k % 3 = 0, 'b', 'a'), 2000)) FROM d.t",
        "10000\t10000",
    )?;
    let errors = maria.sql("SHOW STATUS LIKE 'Innodb_num_pages_page_compression_error'")?;
    ensure(errors.ends_with("\t0"), || errors)
}
arms!(compressed_pages_punch_holes: plain, sealed; slow);

/// Files of arbitrary lengths that many threads share.
#[test]
#[ignore = "long: make test-full"]
fn two_hundred_clients_update_tables_without_transactions() -> Result<()> {
    let place = Workspace::new()?;
    let maria = started(&place, "m", Arm::Sealed, &[("max_connections", "400")])?;
    maria.sql(
        "CREATE DATABASE d; USE d;
         CREATE TABLE m (k INT PRIMARY KEY, n INT, b VARCHAR(200)) ENGINE = MyISAM;
         CREATE TABLE a (k INT PRIMARY KEY, n INT, b VARCHAR(200)) ENGINE = Aria",
    )?;
    two_hundred_clients_update(&maria, &["d.m", "d.a"])
}

/// All of them have a statement under way at one moment: a lock holds them until they are there.
#[test]
#[ignore = "long: make test-full"]
fn a_thousand_connections_write_at_once() -> Result<()> {
    let place = Workspace::new()?;
    let settings = [("max_connections", "1100"), ("innodb_flush_method", "O_DIRECT")];
    let maria = started(&place, "m", Arm::Sealed, &settings)?;
    maria.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE i (n INT) ENGINE = InnoDB;
         CREATE TABLE a (n INT, b TEXT) ENGINE = Aria",
    )?;
    let lock = "LOCK TABLES d.i WRITE, d.a WRITE; DO SLEEP(3600)";
    let _locker = maria.client("mariadb")?.stdin(lock).limit(900).spawn()?;
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE";
    reached(&maria, &format!("{count} STATE = 'User sleep'"), 1)?;
    let slap = maria
        .client("mariadb-slap")?
        .args(["--concurrency=1000", "--number-of-queries=10000", "--create-schema=d"])
        .args(["--delimiter=;", "--no-drop", "--query"])
        .arg("INSERT INTO i VALUES (1);INSERT INTO a VALUES (1, REPEAT(MD5(RAND()), 9))")
        .limit(900)
        .spawn()?;
    reached(&maria, &format!("{count} STATE LIKE 'Waiting for table%lock'"), 1000)?;
    let locker = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
    let locker = maria.sql(locker)?;
    maria.sql(&format!("KILL {locker}"))?;
    let output = slap.wait()?;
    ensure(output.status.success(), || output.text())?;
    maria.expect("SELECT (SELECT COUNT(*) FROM d.i) + (SELECT COUNT(*) FROM d.a)", "10000")?;
    maria.kill_nine()?;
    maria.start()?;
    maria.expect("SELECT COUNT(*) FROM d.i", "5000")?;
    let checked = maria.sql("CHECK TABLE d.i, d.a EXTENDED")?;
    ensure(checked.matches("\tOK").count() == 2, || checked)
}

/// Waits until a query counts so many.
fn reached(maria: &Mysqld<'_>, query: &str, wanted: u32) -> Result<()> {
    let begin = Instant::now();
    loop {
        let found = maria.sql(query)?;
        if found.parse() == Ok(wanted) {
            return Ok(());
        }
        ensure(begin.elapsed() < Duration::from_secs(600), || format!("{query}: {found}"))?;
        thread::sleep(Duration::from_millis(100));
    }
}
