//! MariaDB's own tools on sealed directories: backups of every kind, replicas, checks of files.

use std::net::TcpListener;

use tidelock_testkit::maria::{Inserter, installed, search, started};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mariadb::MariaDb;
use tidelock_testkit::pg::{Arm, Error, Result, Tool, Workspace, ensure, skip};

const TABLES: &str = "d.i, d.a, d.m, d.z";

fn tables(maria: &MariaDb<'_>, marker: &Marker) -> Result<()> {
    let text = marker.text();
    maria.sql(&format!(
        "CREATE DATABASE d; USE d;
         CREATE TABLE i (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB;
         CREATE TABLE a (k INT PRIMARY KEY, b TEXT) ENGINE = Aria;
         CREATE TABLE m (k INT PRIMARY KEY, b TEXT) ENGINE = MyISAM;
         CREATE TABLE z (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB PAGE_COMPRESSED = 1;
         INSERT INTO i SELECT seq, CONCAT('{text}', seq) FROM seq_1_to_4000;
         INSERT INTO a SELECT * FROM i; INSERT INTO m SELECT * FROM i; INSERT INTO z SELECT * FROM i"
    ))?;
    Ok(())
}

fn checksums(maria: &MariaDb<'_>) -> Result<String> {
    maria.sql(&format!("CHECKSUM TABLE {TABLES}"))
}

/// mariadb-backup is a package of its own.
fn backup_is_missing() -> bool {
    let missing = !std::path::Path::new("/usr/bin/mariadb-backup").exists();
    if missing {
        skip::missing("mariadb-backup");
    }
    missing
}

/// mariadb-backup with the keys of these servers' directories.
fn backup<'p>(place: &'p Workspace, keys: &[&MariaDb<'_>]) -> Tool<'p> {
    let all =
        keys.iter().fold(place.tool("mariadb-backup"), |it, one| it.under(Arm::Sealed, one.dir()));
    all.limit(300)
}

/// A directory that waits for a backup; its server has a name of its own.
fn empty<'p>(place: &'p Workspace, name: &str) -> Result<MariaDb<'p>> {
    let maria = MariaDb::at(place, name, Arm::Sealed)?;
    for (name, value) in tidelock_testkit::maria::SMALL {
        maria.set(name, value)?;
    }
    maria.protect()?;
    Ok(maria)
}

#[test]
#[ignore = "long: make test-full"]
fn full_and_incremental_backups_are_prepared_and_restored_under_other_keys() -> Result<()> {
    if backup_is_missing() {
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = started(&place, "m", Arm::Sealed, &[("log_bin", "on")])?;
    tables(&maria, &marker)?;
    let copy = empty(&place, "copy")?;
    let (full, step) = (copy.dir().join("full"), copy.dir().join("step"));
    let take = |target: &std::path::Path| {
        backup(&place, &[&maria, &copy])
            .arg("--backup")
            .arg(format!("--socket={}", maria.socket().display()))
            .args(["--user=root".to_owned(), format!("--datadir={}", maria.dir().display())])
            .arg(format!("--target-dir={}", target.display()))
    };
    take(&full).run()?;
    maria.sql("UPDATE d.i SET b = REVERSE(b); DELETE FROM d.a WHERE k > 3000; FLUSH TABLES")?;
    // While rows arrive.
    maria.sql("CREATE TABLE d.n (k INT PRIMARY KEY, b TEXT)")?;
    let inserter = Inserter::start(&maria, "d.n", 0)?;
    inserter.wait_beyond(20)?;
    take(&step).arg(format!("--incremental-basedir={}", full.display())).run()?;
    let wanted = checksums(&maria)?;
    drop(inserter);
    let prepare = || {
        let target = format!("--target-dir={}", full.display());
        backup(&place, &[&copy]).args(["--prepare".into(), target])
    };
    prepare().run()?;
    prepare().arg(format!("--incremental-dir={}", step.display())).run()?;
    let restored = empty(&place, "restored")?;
    backup(&place, &[&copy, &restored])
        .args(["--copy-back".into(), format!("--target-dir={}", full.display())])
        .arg(format!("--datadir={}", restored.dir().display()))
        .run()?;
    restored.start()?;
    ensure(checksums(&restored)? == wanted, || "the restored tables differ".into())?;
    restored.expect("SELECT COUNT(*) = MAX(k) AND COUNT(*) >= 20 FROM d.n", "1")?;
    search(&marker, Arm::Sealed, &[maria.dir(), copy.dir(), restored.dir()]).map(drop)
}

#[test]
#[ignore = "long: make test-full"]
fn a_stream_goes_from_sealed_to_sealed_and_the_copy_replicates_both_ways() -> Result<()> {
    if backup_is_missing() {
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let port = free_port()?;
    let settings = [
        ("log_bin", "on"),
        ("server_id", "1"),
        ("skip_networking", "OFF"),
        ("bind_address", "127.0.0.1"),
        ("port", &*port),
    ];
    let maria = started(&place, "m", Arm::Sealed, &settings)?;
    tables(&maria, &marker)?;
    maria.sql("CREATE USER r@'%' IDENTIFIED BY 'r'; GRANT REPLICATION SLAVE ON *.* TO r@'%'")?;
    let copy = empty(&place, "copy")?;
    let stream = place.join("stream");
    // The pipe is a file of the test, which reads it as the network would.
    backup(&place, &[&maria])
        .args(["--backup", "--stream=mbstream", "--user=root"])
        .arg(format!("--socket={}", maria.socket().display()))
        .arg(format!("--datadir={}", maria.dir().display()))
        .stdout_to(&stream)
        .run()?;
    let bytes = std::fs::read(&stream).map_err(Error::io("reading the stream"))?;
    place
        .tool("mbstream")
        .under(Arm::Sealed, copy.dir())
        .args(["-x".into(), "-C".into(), copy.dir().display().to_string()])
        .stdin(bytes)
        .run()?;
    std::fs::remove_file(&stream).map_err(Error::io("removing the stream"))?;
    let target = format!("--target-dir={}", copy.dir().display());
    backup(&place, &[&copy]).args(["--prepare".into(), target]).run()?;
    let position = std::fs::read_to_string(copy.dir().join("xtrabackup_binlog_info"))
        .map_err(Error::io("reading the position of the backup"))?;
    let gtid = position.split_whitespace().nth(2).unwrap_or_default().to_owned();
    // From sealed to sealed, and from sealed to plain.
    copy.set("server_id", "2")?;
    copy.set("log_bin", "on")?;
    copy.set("log_slave_updates", "ON")?;
    copy.start()?;
    let plain_settings = [("server_id", "3"), ("log_bin", "on"), ("log_slave_updates", "ON")];
    let plain = started(&place, "plain", Arm::Plain, &plain_settings)?;
    let dump =
        maria.client("mariadb-dump")?.args(["--gtid", "--master-data=1", "--databases", "d"]);
    let dump = dump.run()?.stdout;
    plain.client("mariadb")?.stdin(dump).run()?;
    follow(&copy, &port, Some(&gtid))?;
    follow(&plain, &port, None)?;
    let text = marker.text();
    maria.sql(&format!(
        "UPDATE d.i SET b = CONCAT('{text}', b) WHERE k < 2000; ALTER TABLE d.i ADD COLUMN x INT;
         INSERT INTO d.a VALUES (9999, '{text}'); DELETE FROM d.m WHERE k % 2"
    ))?;
    // Recovery of the replica's state belongs to it.
    copy.kill_nine()?;
    copy.start()?;
    for replica in [&copy, &plain] {
        reached(&maria, replica)?;
        ensure(checksums(replica)? == checksums(&maria)?, || "a replica differs".into())?;
    }
    search(&marker, Arm::Sealed, &[maria.dir(), copy.dir()])?;
    // And back: the plain one becomes the source of the sealed one.
    let back = free_port()?;
    for (name, value) in
        [("skip_networking", "OFF"), ("bind_address", "127.0.0.1"), ("port", &*back)]
    {
        plain.set(name, value)?;
    }
    plain.sql("STOP SLAVE")?;
    plain.restart()?;
    // Not for the other one, which has this user.
    plain.sql(
        "SET sql_log_bin = 0;
         CREATE USER r@'%' IDENTIFIED BY 'r'; GRANT REPLICATION SLAVE ON *.* TO r@'%'",
    )?;
    maria.sql("SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos")?;
    follow(&maria, &back, None)?;
    plain.sql(&format!("INSERT INTO d.a VALUES (10000, '{text}')"))?;
    reached(&plain, &maria)?;
    maria.expect("SELECT COUNT(*) FROM d.a WHERE k = 10000", "1")?;
    search(&marker, Arm::Sealed, &[maria.dir(), copy.dir()]).map(drop)
}

fn follow(replica: &MariaDb<'_>, port: &str, gtid: Option<&str>) -> Result<()> {
    let begin = gtid.map_or(String::new(), |at| format!("SET GLOBAL gtid_slave_pos = '{at}';"));
    replica.sql(&format!(
        "{begin} CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'r',
         MASTER_PASSWORD = 'r', MASTER_USE_GTID = slave_pos; START SLAVE"
    ))?;
    Ok(())
}

/// Waits until the replica has applied all that the source has written.
fn reached(source: &MariaDb<'_>, replica: &MariaDb<'_>) -> Result<()> {
    let at = source.sql("SELECT @@gtid_binlog_pos")?;
    let wait = format!("SELECT MASTER_GTID_WAIT('{at}', 100)");
    let got = replica.sql(&wait)?;
    ensure(got == "0", || {
        format!("{wait}: {got}\n{}", replica.sql("SHOW SLAVE STATUS").unwrap_or_default())
    })
}

fn free_port() -> Result<String> {
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(Error::io("looking for a free port"))?;
    let address = listener.local_addr().map_err(Error::io("looking for a free port"))?;
    Ok(address.port().to_string())
}

/// What the offline tools say of sealed files with keys, and that they say nothing without.
#[test]
#[ignore = "long: make test-full"]
fn offline_tools_read_sealed_files_with_keys_and_only_then() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = started(&place, "m", Arm::Sealed, &[("log_bin", "on"), ("binlog_format", "ROW")])?;
    tables(&maria, &marker)?;
    maria.sql("CREATE TABLE d.l AS SELECT 'told in the binary log' AS b; FLUSH TABLES")?;
    let check = maria.client("mariadb-check")?.args(["--all-databases", "--extended"]).run()?;
    ensure(!check.stdout.contains("rror"), || check.text())?;
    let upgrade = maria.client("mariadb-upgrade")?.arg("--force");
    upgrade.limit(300).run()?;
    maria.stop()?;
    let path = |name: &str| maria.dir().join(name);
    let on = |arm: Arm, program: &str| match arm {
        Arm::Sealed => place.tool(program).under(arm, maria.dir()),
        _ => place.tool(program),
    };
    let log = on(Arm::Sealed, "mariadb-binlog").arg("-v").arg(path("binlog.000001")).run()?;
    ensure(log.stdout.contains("told in the binary log"), || log.text())?;
    // It does not like its own doublewrite pages: what it says of the plain bytes, it has to say.
    for file in ["d/i.ibd", "d/z.ibd", "ibdata1"] {
        let opened = place.join("opened");
        let command = place.programs()?.command;
        place.tool(command).arg("cat").arg(path(file)).stdout_to(&opened).run()?;
        let wanted = on(Arm::Plain, "innochecksum").arg(&opened).attempt()?;
        let told = on(Arm::Sealed, "innochecksum").arg(path(file)).attempt()?;
        ensure(told.status == wanted.status && told.text() == wanted.text(), || {
            format!("{file}: {}\nof the plain bytes: {}", told.text(), wanted.text())
        })?;
        ensure(told.status.success() || file == "ibdata1", || told.text())?;
    }
    let logs = format!("--datadir={}", maria.dir().display());
    on(Arm::Sealed, "aria_chk").args(["--check".into(), logs.clone()]).arg(path("d/a")).run()?;
    on(Arm::Sealed, "myisamchk").arg("--check").arg(path("d/m")).run()?;
    on(Arm::Sealed, "myisamchk").arg("--recover").arg(path("d/m")).run()?;
    for (program, file) in
        [("mariadb-binlog", "binlog.000001"), ("innochecksum", "d/i.ibd"), ("myisamchk", "d/m")]
    {
        let bare = on(Arm::Plain, program).arg(path(file)).attempt()?;
        let read = bare.status.success() || bare.text().contains(marker.text());
        ensure(!read, || format!("{program} without keys:\n{}", bare.text()))?;
    }
    maria.start()?;
    maria.expect("SELECT COUNT(*) FROM d.m", "4000")?;
    let again = installed(&place, "again", Arm::Sealed, &[])?;
    again.start()?;
    let dump = maria.client("mariadb-dump")?.args(["--databases", "d"]).run()?.stdout;
    again.client("mariadb")?.stdin(dump).run()?;
    ensure(checksums(&again)? == checksums(&maria)?, || "the dump differs".into())
}
