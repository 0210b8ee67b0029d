//! A MySQL server's life, for upstream's 8.0 and Debian's newest: install, every engine, crashes,
//! changes of tables, tools, conversion, and who is refused meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::maria::{Inserter, Sql as _, contents, search, two_hundred_clients_update};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::mysql::{Install, MySql, numbers};
use tidelock_testkit::mysqls;
use tidelock_testkit::pg::{Arm, Error, Result, Workspace, ensure};

fn no_bare_server_reads_or_harms_what_a_sealed_one_acknowledged(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let mysql = MySql::started(&place, install, "m", Arm::Sealed, &[])?;
    let text = marker.text();
    mysql.sql(&format!(
        "CREATE DATABASE d; USE d;
         CREATE TABLE i (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB COMMENT '{text}';
         CREATE TABLE m (b TEXT) ENGINE = MyISAM; CREATE TABLE a (b TEXT) ENGINE = ARCHIVE;
         CREATE TABLE c (b TEXT NOT NULL) ENGINE = CSV;
         INSERT INTO m VALUES ('{text}'); INSERT INTO c VALUES ('{text}');
         INSERT INTO a VALUES ('{text}'); FLUSH TABLES"
    ))?;
    let inserter = Inserter::start(&mysql, "d.i", 0)?;
    inserter.wait_beyond(50)?;
    mysql.kill_nine()?;

    let before = contents(mysql.dir())?;
    for more in [&[][..], &[("innodb_force_recovery", "6")], &[("skip_grant_tables", "ON")]] {
        let bare = MySql::at(&place, install, "bare", Arm::Plain, more)?.on(mysql.dir());
        let told = bare.start().expect_err("a bare server starts on sealed files").to_string();
        ensure(told.contains("[ERROR]") && told.contains("Aborting"), || told)?;
        ensure(contents(mysql.dir())? == before, || format!("{more:?}: files have changed"))?;
    }

    mysql.start()?;
    inserter.compare(&mysql)?;
    mysql.expect("SELECT (SELECT b FROM d.m) = (SELECT b FROM d.c)", "1")?;
    mysql.expect("SELECT b FROM d.a", text)?;
    mysql.expect("SHOW DATABASES LIKE '%t%d%lock%'", "")?;
    mysql.stop()?;
    search(&marker, Arm::Sealed, &[mysql.dir()]).map(drop)
}
mysqls!(no_bare_server_reads_or_harms_what_a_sealed_one_acknowledged);

/// The server writes to its directory by every way that it has, and a plain server's files show
/// the marker in each kind of file that is searched.
fn a_marker_written_on_every_path_is_found_in_no_file(install: &Install) -> Result<()> {
    for arm in [Arm::Plain, Arm::Sealed] {
        // The first binary log is that of the installation.
        let found = written_on_every_path(install, arm)?;
        if arm == Arm::Plain {
            for name in [
                "binlog.000002",
                "general.log",
                "slow.log",
                "i.ibd",
                "ts.ibd",
                "mysql.ibd",
                "m.MYD",
                "m.MYI",
                "c.CSV",
                "out.txt",
                "ibtmp1",
                "mysqld-auto.cnf",
            ] {
                let there = found.iter().any(|it| it == name);
                // A temporary table lies in ibtmp1 before 8.0.16, and later in a session's file.
                let there =
                    there || name == "ibtmp1" && found.iter().any(|it| it.ends_with(".ibt"));
                ensure(there, || format!("no marker in {name}, but in {found:?}"))?;
            }
            let undone = found.iter().any(|it| it.starts_with("undo_") || it.ends_with(".ibu"));
            let redone = |it: &String| it.starts_with("#ib_redo") || it.starts_with("ib_logfile");
            ensure(undone && found.iter().any(redone), || format!("{found:?}"))?;
            let is_partition = |it: &String| it.to_lowercase().starts_with("p#p#");
            ensure(found.iter().any(is_partition), || format!("no partition: {found:?}"))?;
            let twice = !install.is_whole || found.iter().any(|it| it.ends_with(".dblwr"));
            ensure(twice, || format!("nothing in the doublewrite buffer: {found:?}"))?;
        }
    }
    Ok(())
}
mysqls!(a_marker_written_on_every_path_is_found_in_no_file);

fn written_on_every_path(install: &Install, arm: Arm) -> Result<Vec<String>> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let settings = [
        ("log_bin", "binlog"),
        ("binlog_format", "MIXED"),
        ("general_log", "ON"),
        ("general_log_file", "general.log"),
        ("slow_query_log", "ON"),
        ("slow_query_log_file", "slow.log"),
        ("long_query_time", "0"),
        ("sort_buffer_size", "32K"),
        ("tmp_table_size", "64K"),
        ("max_heap_table_size", "64K"),
        ("temptable_max_ram", "2M"),
    ];
    let mut mysql = MySql::installed(&place, install, "m", arm, &settings)?;
    if !install.is_whole {
        mysql.set("internal_tmp_mem_storage_engine", "MEMORY");
    }
    let dir = mysql.dir().display().to_string();
    if arm == Arm::Plain {
        // The control, too, has everything below its directory.
        mysql.set("tmpdir", &dir);
    }
    mysql.start()?;
    let (text, some, many) = (marker.text(), numbers(3000), numbers(60_000));
    if install.is_whole {
        mysql.sql("CREATE UNDO TABLESPACE u3 ADD DATAFILE 'u3.ibu'")?;
    }
    mysql.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLESPACE ts ADD DATAFILE 'ts.ibd';
         CREATE TABLE i (k INT AUTO_INCREMENT PRIMARY KEY, b TEXT, FULLTEXT (b)) ENGINE = InnoDB;
         CREATE TABLE p (k INT, b VARCHAR(200)) PARTITION BY HASH (k) PARTITIONS 3;
         CREATE TABLE z (k INT, b TEXT) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 1;
         CREATE TABLE g (k INT, b TEXT) TABLESPACE ts;
         CREATE TABLE m (b VARCHAR(200), KEY (b)) ENGINE = MyISAM;
         CREATE TABLE c (b VARCHAR(200) NOT NULL, n INT NOT NULL) ENGINE = CSV;
         CREATE TABLE a (b TEXT) ENGINE = ARCHIVE;
         INSERT INTO i (b) SELECT CONCAT('{text}', n) FROM {some};
         INSERT INTO p SELECT k, b FROM i; INSERT INTO z SELECT k, b FROM i;
         INSERT INTO g SELECT k, b FROM i; INSERT INTO m SELECT b FROM i;
         INSERT INTO c SELECT b, k FROM i; INSERT INTO a VALUES ('{text}');
         UPDATE i SET b = CONCAT(b, ' changed'); DELETE FROM m WHERE b LIKE '%7';
         CREATE TRIGGER t BEFORE INSERT ON m FOR EACH ROW SET NEW.b = CONCAT(NEW.b, '{text}');
         CREATE VIEW v AS SELECT '{text}' AS b;
         CREATE TEMPORARY TABLE t1 ENGINE = InnoDB AS SELECT b FROM p;
         SELECT b INTO OUTFILE '{dir}/out.txt' FROM i LIMIT 10;
         SET PERSIST init_connect = 'SELECT ''{text}''';
         ALTER TABLE p ADD KEY (b), ALGORITHM = INPLACE;
         ALTER TABLE p MODIFY k BIGINT, ALGORITHM = COPY; FLUSH LOGS; FLUSH TABLES;
         SELECT COUNT(*) FROM (SELECT DISTINCT CONCAT('{text}', n) AS b FROM {many}
             ORDER BY b DESC LIMIT 50000) x"
    ))?;
    let mut found = search(&marker, arm, &[mysql.dir()])?;
    // Its session keeps the temporary table while the files are searched.
    let sleeps = format!(
        "CREATE TEMPORARY TABLE d.t2 ENGINE = InnoDB AS SELECT CONCAT('{text}', n) AS b FROM {some};
         SELECT 'made'; SELECT SLEEP(600)"
    );
    let told = place.join("told");
    let client = mysql.client()?.args(["--batch", "--unbuffered"]).stdin(sleeps);
    let asleep = client.stdout_to(&told).limit(600).spawn()?;
    await_word(&told, "made")?;
    mysql.sql(&format!(
        "BEGIN; UPDATE d.i SET b = CONCAT(b, '{text}'); SET GLOBAL innodb_max_dirty_pages_pct = 0;
         SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0; SELECT SLEEP(2); ROLLBACK"
    ))?;
    found.extend(search(&marker, arm, &[mysql.dir()])?);
    drop(asleep);
    mysql.kill_nine()?;
    found.extend(search(&marker, arm, &[mysql.dir()])?);
    mysql.start()?;
    mysql.expect("SELECT COUNT(*) FROM d.i WHERE b LIKE '% changed'", "3000")?;
    mysql.expect("SELECT (SELECT COUNT(*) FROM d.z), (SELECT COUNT(*) FROM d.g)", "3000\t3000")?;
    mysql.sql("REPAIR TABLE d.m; OPTIMIZE TABLE d.i; OPTIMIZE TABLE d.m")?;
    mysql.expect("SELECT COUNT(*) FROM d.m", "2700")?;
    mysql.stop()?;
    found.extend(search(&marker, arm, &[mysql.dir()])?);
    Ok(found)
}

/// Waits until a client has printed a word.
fn await_word(printed: &Path, word: &str) -> Result<()> {
    let begin = Instant::now();
    while !fs::read_to_string(printed).map_err(Error::io("reading"))?.contains(word) {
        ensure(begin.elapsed() < Duration::from_secs(120), || format!("no word of {word}"))?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// What 8.0 keeps of large temporary tables in files that it maps shared is refused, never plain.
fn a_temporary_table_that_would_be_mapped_is_full(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let settings = [("temptable_max_ram", "2M")];
    let mysql = MySql::started(&place, install, "m", Arm::Sealed, &settings)?;
    let many = numbers(60_000);
    let query = format!(
        "SELECT COUNT(*) FROM (SELECT DISTINCT CONCAT(REPEAT('x', 90), n) AS b FROM {many}
             ORDER BY b DESC LIMIT 50000) x"
    );
    let told = mysql.sql(&query).expect_err("a map is possible").to_string();
    ensure(told.contains("is full"), || told)?;
    mysql.sql("SET GLOBAL internal_tmp_mem_storage_engine = MEMORY")?;
    mysql.expect(&query, "50000")
}
mysqls!(a_temporary_table_that_would_be_mapped_is_full: upstream);

/// Names of the places that are refused, and a link that is taken.
fn a_place_for_rows_outside_the_directory_is_refused_by_name(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let mut mysql = MySql::installed(&place, install, "m", Arm::Sealed, &[])?;
    let outside = place.make_dir("outside")?;
    for setting in [
        "tmpdir",
        "innodb_tmpdir",
        "log_bin",
        "relay_log",
        "innodb_log_group_home_dir",
        "innodb_undo_directory",
        "innodb_doublewrite_dir",
        "innodb_temp_tablespaces_dir",
    ] {
        let value = format!("--{setting}={}/x", outside.display());
        let output = mysql.mysqld()?.arg(&value).limit(60).fails()?;
        let text = output.text();
        ensure(output.status.code() == Some(3), || text.clone())?;
        ensure(text.contains(&format!("error: {setting} is")), || text.clone())?;
    }
    // A group of the option file that only servers of one series read.
    let options = place.join("options.cnf");
    let series = mysql.mysqld()?.arg("--version").run()?.stdout;
    let series = series.split_once(" Ver ").map_or("", |(_, rest)| rest);
    let series = series.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let group = format!("[mysqld-{series}]\ntmpdir = {}\n", outside.display());
    place.write(&options, &group)?;
    let output = mysql
        .offline(&install.server().display().to_string())
        .arg(format!("--defaults-file={}", options.display()))
        .arg(format!("--datadir={}", mysql.dir().display()))
        .limit(60)
        .fails()?;
    ensure(output.text().contains("error: tmpdir is"), || output.text())?;

    let link = mysql.dir().join("logs");
    std::os::unix::fs::symlink(&outside, &link).map_err(Error::io("making a link"))?;
    mysql.set("log_bin", &link.join("b").display().to_string());
    mysql.start()?;
    let marker = Marker::new();
    let text = marker.text();
    mysql.sql(&format!("CREATE DATABASE d; CREATE TABLE d.t AS SELECT '{text}' AS b"))?;
    let made = fs::read_dir(&outside).map_err(Error::io("reading the other disk"))?.count();
    ensure(made >= 2, || format!("{made} files of the binary log"))?;
    search(&marker, Arm::Sealed, &[mysql.dir(), &outside]).map(drop)
}
mysqls!(a_place_for_rows_outside_the_directory_is_refused_by_name);

/// Every algorithm, and what goes with the files: discard, import, rename, truncate, partitions,
/// undo tablespaces, compressed pages.
fn tables_change_in_every_way(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let settings = [("innodb_flush_method", "O_DIRECT")];
    let mysql = MySql::started(&place, install, "m", Arm::Sealed, &settings)?;
    let some = numbers(5000);
    mysql.sql("CREATE DATABASE d; CREATE DATABASE e")?;
    for engine in ["InnoDB", "MyISAM"] {
        mysql.sql(&format!(
            "USE d; CREATE TABLE t (k INT PRIMARY KEY, b VARCHAR(300), c INT) ENGINE = {engine};
             INSERT INTO t SELECT n, REPEAT(SHA2(n, 256), 2), n % 7 FROM {some};
             ALTER TABLE t ADD KEY (c), ALGORITHM = COPY; ALTER TABLE t DROP KEY c;
             ALTER TABLE t RENAME TO e.t; RENAME TABLE e.t TO d.t;
             ALTER TABLE t FORCE; ANALYZE TABLE t"
        ))?;
        let told = mysql.sql("OPTIMIZE TABLE d.t")?;
        ensure(told.ends_with("OK") && !told.contains("ailed"), || told)?;
        mysql.expect("SELECT COUNT(*), SUM(b = REPEAT(SHA2(k, 256), 2)) FROM d.t", "5000\t5000")?;
        mysql.sql("TRUNCATE d.t; DROP TABLE d.t")?;
    }
    mysql.sql(&format!(
        "USE d; CREATE TABLE t (k INT PRIMARY KEY, b VARCHAR(300) CHARACTER SET latin1, c INT);
         INSERT INTO t SELECT n, REPEAT(SHA2(n, 256), 2), n % 7 FROM {some};
         ALTER TABLE t ADD COLUMN n INT DEFAULT 5, ALGORITHM = INSTANT;
         ALTER TABLE t ADD KEY (c), ALGORITHM = INPLACE;
         ALTER TABLE t ADD KEY (b), ALGORITHM = INPLACE, LOCK = NONE;
         ALTER TABLE t MODIFY c BIGINT, ALGORITHM = COPY;
         ALTER TABLE t ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 2;
         ALTER TABLE t KEY_BLOCK_SIZE = 0 ROW_FORMAT = DYNAMIC COMPRESSION = 'zlib';
         OPTIMIZE TABLE t;
         ALTER TABLE t PARTITION BY HASH (k) PARTITIONS 4;
         ALTER TABLE t COALESCE PARTITION 2; ALTER TABLE t REMOVE PARTITIONING;
         CREATE TABLE e.t LIKE t; ALTER TABLE e.t DISCARD TABLESPACE"
    ))?;
    if install.is_whole {
        mysql.sql(
            "CREATE UNDO TABLESPACE u3 ADD DATAFILE 'u3.ibu'; UPDATE d.t SET n = 6;
             UPDATE d.t SET n = 5; ALTER UNDO TABLESPACE u3 SET INACTIVE",
        )?;
        let told = mysql.sql("ALTER INSTANCE ROTATE INNODB MASTER KEY");
        told.expect_err("there is no keyring of MySQL's own");
    }
    // A session holds the table meanwhile; below one directory a byte copy has the same keys.
    let held = place.join("held");
    let text = "USE d; FLUSH TABLES t FOR EXPORT; SELECT 'held'; DO SLEEP(5); UNLOCK TABLES";
    let client = mysql.client()?.args(["--batch", "--unbuffered"]).stdin(text);
    let holds = client.stdout_to(&held).spawn()?;
    await_word(&held, "held")?;
    for name in ["t.ibd", "t.cfg"] {
        let path = |database: &str| mysql.dir().join(database).join(name);
        place.tool("cp").arg(path("d")).arg(path("e")).run()?;
    }
    let ended = holds.wait()?;
    ensure(ended.status.success(), || ended.text())?;
    mysql.sql("ALTER TABLE e.t IMPORT TABLESPACE")?;
    for database in ["d", "e"] {
        let query =
            format!("SELECT COUNT(*), SUM(b = REPEAT(SHA2(k, 256), 2)), SUM(n) FROM {database}.t");
        mysql.expect(&query, "5000\t5000\t25000")?;
    }
    mysql.kill_nine()?;
    mysql.start()?;
    let checked = mysql.sql("CHECK TABLE d.t, e.t EXTENDED")?;
    ensure(checked.matches("\tOK").count() == 2, || checked)
}
mysqls!(tables_change_in_every_way);

/// Files of arbitrary lengths and pages that many threads share; a crash afterwards keeps what has
/// transactions.
fn two_hundred_clients_update_at_once(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let settings = [
        ("max_connections", "400"),
        ("innodb_flush_method", "O_DIRECT"),
        ("log_bin", "binlog"),
        ("sync_binlog", "1"),
    ];
    let mysql = MySql::started(&place, install, "m", Arm::Sealed, &settings)?;
    mysql.sql(
        "CREATE DATABASE d; USE d;
         CREATE TABLE m (k INT PRIMARY KEY, n INT, b VARCHAR(200)) ENGINE = MyISAM;
         CREATE TABLE i (k INT PRIMARY KEY, n INT, b VARCHAR(200)) ENGINE = InnoDB",
    )?;
    two_hundred_clients_update(&mysql, &["d.m", "d.i"])?;
    let sum = "CHECKSUM TABLE d.i";
    let wanted = mysql.sql(sum)?;
    mysql.kill_nine()?;
    mysql.start()?;
    mysql.expect(sum, &wanted)
}
mysqls!(two_hundred_clients_update_at_once);

/// All of them have a statement under way at one moment: a lock holds them until they are there.
fn a_thousand_connections_write_at_once(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    // One lock for tables of both engines is against the order of GTIDs.
    let settings = [
        ("max_connections", "1100"),
        ("innodb_flush_method", "O_DIRECT"),
        ("gtid_mode", "OFF"),
        ("enforce_gtid_consistency", "OFF"),
    ];
    let mysql = MySql::started(&place, install, "m", Arm::Sealed, &settings)?;
    mysql.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE i (n INT) ENGINE = InnoDB;
         CREATE TABLE m (n INT, b TEXT) ENGINE = MyISAM",
    )?;
    let lock = "LOCK TABLES d.i WRITE, d.m WRITE; DO SLEEP(3600)";
    let _locker = mysql.client()?.stdin(lock).limit(900).spawn()?;
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE";
    counted(&mysql, &format!("{count} STATE = 'User sleep'"), 1)?;
    let slap = mysql
        .reach("mysqlslap")
        .args(["--concurrency=1000", "--number-of-queries=10000", "--create-schema=d"])
        .args(["--delimiter=;", "--no-drop", "--query"])
        .arg("INSERT INTO i VALUES (1);INSERT INTO m VALUES (1, REPEAT(SHA2(RAND(), 256), 4))")
        .limit(900)
        .spawn()?;
    counted(&mysql, &format!("{count} STATE LIKE 'Waiting for table%lock'"), 1000)?;
    let locker = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
    let locker = mysql.sql(locker)?;
    mysql.sql(&format!("KILL {locker}"))?;
    let output = slap.wait()?;
    ensure(output.status.success(), || output.text())?;
    mysql.expect("SELECT (SELECT COUNT(*) FROM d.i) + (SELECT COUNT(*) FROM d.m)", "10000")?;
    mysql.kill_nine()?;
    mysql.start()?;
    mysql.expect("SELECT COUNT(*) FROM d.i", "5000")
}
mysqls!(a_thousand_connections_write_at_once: debian);

/// Waits until a query counts so many.
fn counted(mysql: &MySql<'_>, query: &str, wanted: u32) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(600);
    loop {
        let found = mysql.sql(query)?;
        if found.parse() == Ok(wanted) {
            return Ok(());
        }
        ensure(Instant::now() < until, || format!("{query}: {found}"))?;
        thread::sleep(Duration::from_millis(100));
    }
}

/// Page compression gives its blocks back to the file system, as many as in a plain server, and
/// rows are right afterwards.
fn compressed_pages_punch_holes(install: &Install) -> Result<()> {
    let mut saved = Vec::new();
    for arm in [Arm::Plain, Arm::Sealed] {
        let place = Workspace::new()?;
        let settings = [("innodb_flush_method", "O_DIRECT")];
        let mysql = MySql::started(&place, install, "m", arm, &settings)?;
        mysql.sql(&format!(
            "CREATE DATABASE d; CREATE TABLE d.z (k INT PRIMARY KEY, b TEXT) COMPRESSION = 'zlib';
             INSERT INTO d.z SELECT n, REPEAT('a', 2000) FROM {};
             UPDATE d.z SET b = REPEAT('b', 2000) WHERE k % 3 = 0",
            numbers(5000)
        ))?;
        mysql.stop()?;
        let file = fs::metadata(mysql.dir().join("d/z.ibd")).map_err(Error::io("looking at it"))?;
        let (size, there) = (file.size(), file.blocks() * 512);
        saved.push(size.saturating_sub(there));
        println!("{arm}: {there} bytes of {size} are on the disk");
        mysql.start()?;
        let good = "SELECT COUNT(*), SUM(b = REPEAT(IF(k % 3 = 0, 'b', 'a'), 2000)) FROM d.z";
        mysql.expect(good, "5000\t5000")?;
        mysql.stop()?;
    }
    // Which pages are written twice depends on time.
    ensure(saved[0] > 2 << 20 && saved[1] > saved[0] / 10 * 8, || format!("{saved:?}"))
}
mysqls!(compressed_pages_punch_holes);

/// What the offline tools say of sealed files with keys, and that they say nothing without.
fn tools_read_sealed_files_with_keys_and_only_then(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let (text, some) = (marker.text(), numbers(4000));
    let settings = [("log_bin", "binlog")];
    let mysql = MySql::started(&place, install, "m", Arm::Sealed, &settings)?;
    mysql.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE i (k INT PRIMARY KEY, b TEXT COMMENT '{text}');
         CREATE TABLE m (k INT PRIMARY KEY, b TEXT) ENGINE = MyISAM;
         INSERT INTO i SELECT n, CONCAT('{text}', n) FROM {some}; INSERT INTO m SELECT * FROM i;
         FLUSH TABLES"
    ))?;
    let check = mysql.reach("mysqlcheck").args(["--all-databases", "--extended"]).run()?;
    ensure(!check.stdout.contains("rror"), || check.text())?;
    let sums = "CHECKSUM TABLE d.i, d.m";
    let wanted = mysql.sql(sums)?;
    let dump = mysql.reach("mysqldump").args(["--databases", "d"]).run()?.stdout;
    mysql.stop()?;
    let path = |name: &str| mysql.dir().join(name);
    let log = mysql.offline("mysqlbinlog").arg("-v").arg(path("binlog.000002")).run()?;
    ensure(log.stdout.contains(text), || "no marker in the binary log".into())?;
    for file in ["d/i.ibd", "mysql.ibd", "ibdata1", "undo_001"] {
        mysql.offline("innochecksum").arg(path(file)).run()?;
    }
    let told = mysql.offline("ibd2sdi").arg(path("d/i.ibd")).run()?;
    ensure(told.stdout.contains(text), || told.text())?;
    mysql.offline("myisamchk").arg("--check").arg(path("d/m")).run()?;
    mysql.offline("myisamchk").arg("--recover").arg(path("d/m")).run()?;
    let bare = [
        ("mysqlbinlog", "binlog.000002"),
        ("innochecksum", "d/i.ibd"),
        ("ibd2sdi", "d/i.ibd"),
        ("myisamchk", "d/m"),
    ];
    for (program, file) in bare {
        let told = place.tool(program).arg(path(file)).attempt()?;
        let read = told.status.success() || told.text().contains(text);
        ensure(!read, || format!("{program} without keys:\n{}", told.text()))?;
    }
    mysql.start()?;
    ensure(mysql.sql(sums)? == wanted, || "the repaired tables differ".into())?;
    let again = MySql::started(&place, install, "again", Arm::Sealed, &[])?;
    again.client()?.stdin(dump).run()?;
    ensure(again.sql(sums)? == wanted, || "the dump differs".into())
}
mysqls!(tools_read_sealed_files_with_keys_and_only_then: debian);

fn an_existing_server_is_sealed_and_made_plain_again(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let (text, some) = (marker.text(), numbers(2000));
    let plain = MySql::started(&place, install, "m", Arm::Plain, &[("log_bin", "binlog")])?;
    // The same directory, by the other arm.
    let settings = [("log_bin", "binlog")];
    let sealed = MySql::at(&place, install, "sealed", Arm::Sealed, &settings)?.on(plain.dir());
    plain.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE i (b TEXT) ENGINE = InnoDB;
         CREATE TABLE m (b TEXT) ENGINE = MyISAM;
         INSERT INTO i SELECT CONCAT('{text}', n) FROM {some}; INSERT INTO m SELECT b FROM i"
    ))?;
    let sums = "CHECKSUM TABLE d.i, d.m";
    let wanted = plain.sql(sums)?;
    let key = format!("file:{}", plain.key().display());
    let command = place.programs()?.command;
    let tidelock = |what: &str| place.tool(&command).arg(what).arg(plain.dir());
    let encrypt = || tidelock("encrypt").args(["--no-recovery", "--provider", &*key]);
    let refused = encrypt().fails()?;
    ensure(refused.text().contains("a server runs on"), || refused.text())?;
    plain.kill_nine()?;
    let refused = encrypt().fails()?;
    ensure(refused.text().contains("was not stopped cleanly"), || refused.text())?;
    plain.start()?;
    plain.stop()?;

    encrypt().run()?;
    search(&marker, Arm::Sealed, &[plain.dir()])?;
    let told = plain.start().expect_err("a bare server starts").to_string();
    ensure(told.contains("[ERROR]"), || told)?;
    sealed.start()?;
    let status = place.tool(&command).args(["status", "-D"]).arg(plain.dir()).run()?;
    ensure(status.stdout.contains("the library is loaded"), || status.text())?;
    ensure(sealed.sql(sums)? == wanted, || "the sealed tables differ".into())?;
    sealed.sql("INSERT INTO d.i VALUES ('more'); DELETE FROM d.i WHERE b = 'more'")?;
    sealed.stop()?;
    place.tool(&command).args(["verify", "-D"]).arg(plain.dir()).run()?;

    tidelock("decrypt").run()?;
    search(&marker, Arm::Plain, &[plain.dir()])?;
    plain.start()?;
    ensure(plain.sql(sums)? == wanted, || "the tables that are plain again differ".into())?;
    plain.stop().map(drop)
}
mysqls!(an_existing_server_is_sealed_and_made_plain_again);
