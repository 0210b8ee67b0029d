//! A backup as a stream, the sealed and the plain replica that follow, and what waits in their
//! files.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::maria::{installed, search, started};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Error, Result, Tool, Workspace, ensure, unused_port};
use tidelock_testkit::tools::Sees;

use super::{
    LOADED, backup_is_missing, checksums, empty, load, named, page, searched_by_name, tables,
};

/// mariadb-backup with the keys of these servers' directories.
fn backup<'p>(place: &'p Workspace, keys: &[&Mysqld<'_>]) -> Tool<'p> {
    let all =
        keys.iter().fold(place.tool("mariadb-backup"), |it, one| it.under(Arm::Sealed, one.dir()));
    all.limit(300)
}

#[test]
#[ignore = "long: make test-full"]
fn a_stream_goes_from_sealed_to_sealed_and_the_copy_replicates_both_ways() -> Result<()> {
    if backup_is_missing() {
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let port = unused_port().map_err(Error::io("looking for a port"))?.to_string();
    let settings = [
        ("log_bin", "on"),
        ("server_id", "1"),
        ("skip_networking", "OFF"),
        ("bind_address", "127.0.0.1"),
        ("port", &*port),
    ];
    let maria = started(&place, "m", Arm::Sealed, &settings)?;
    tables(&maria, &marker)?;
    // The replicas keep the name of this user in their `master.info`.
    let user = marker.text();
    let makes_user = format!(
        "CREATE USER '{user}'@'%' IDENTIFIED BY 'r';
         GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%'"
    );
    maria.sql(&makes_user)?;
    let (copy, careless) = (empty(&place, "copy")?, empty(&place, "careless")?);
    let test = "a_stream_goes_from_sealed_to_sealed_and_the_copy_replicates_both_ways";
    let mut page = page(&place, test, &maria);
    let stream = place.join("stream");
    // The pipe is a file of the test, which reads it as the network would.
    let send =
        "mariadb-backup --backup --stream=mbstream --user=root --socket=SOCKET --datadir=DIR";
    let tool = page.tool(send).under(Arm::Sealed, maria.dir()).stdout_to(&stream);
    page.works(tool, Sees::Plain, send, "a **plain** stream, for a pipe")?;
    let bytes = fs::read(&stream).map_err(Error::io("reading the stream"))?;
    let take = "mbstream -x -C NEW";
    page.word("NEW", careless.dir().display());
    page.tool(take).stdin(bytes.clone()).run()?;
    let verify = place.tool(place.programs()?.command).arg("verify").arg("-D");
    verify.arg(careless.dir()).fails()?;
    let told = "**plain** files in the protected directory; `tidelock verify` names them";
    page.row(Sees::SealedBytes, take, told)?;
    page.word("NEW", copy.dir().display());
    let tool = page.tool(take).under(Arm::Sealed, copy.dir()).stdin(bytes);
    page.works(tool, Sees::Plain, take, "sealed under NEW's keys")?;
    fs::remove_file(&stream).map_err(Error::io("removing the stream"))?;
    let target = format!("--target-dir={}", copy.dir().display());
    backup(&place, &[&copy]).args(["--prepare".into(), target]).run()?;
    let position = fs::read_to_string(copy.dir().join("xtrabackup_binlog_info"))
        .map_err(Error::io("reading the position of the backup"))?;
    let gtid = position.split_whitespace().nth(2).unwrap_or_default().to_owned();
    // From sealed to sealed, and from sealed to plain.
    copy.set("server_id", "2")?;
    copy.set("log_bin", "on")?;
    copy.set("log_slave_updates", "ON")?;
    copy.start()?;
    let plain_settings = [("server_id", "3"), ("log_bin", "on"), ("log_slave_updates", "ON")];
    let plain = installed(&place, "plain", Arm::Plain, &plain_settings)?;
    // The control, too, has everything below its directory.
    plain.set("slave_load_tmpdir", &plain.dir().display().to_string())?;
    plain.start()?;
    let dump = "mariadb-dump --socket=SOCKET --user=root --gtid --master-data=1 --databases d";
    let told = "works; a plain server that loads it becomes a replica";
    let dump = page.works(page.tool(dump), Sees::Plain, dump, told)?.stdout;
    plain.client("mariadb")?.stdin(dump).run()?;
    follow(&copy, &port, user, Some(&gtid))?;
    follow(&plain, &port, user, None)?;
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
    // What is not applied yet lies in the relay logs alone.
    for replica in [&copy, &plain] {
        replica.sql("STOP SLAVE SQL_THREAD")?;
    }
    maria.sql(&format!("INSERT INTO d.a VALUES (9998, '{text}')"))?;
    for replica in [&copy, &plain] {
        arrived(&maria, replica)?;
        replica.expect("SELECT COUNT(*) FROM d.a WHERE k = 9998", "0")?;
    }
    for replica in [&copy, &plain] {
        searched_by_name(replica, &marker, "-relay-bin.0")?;
    }
    let found = search(&marker, Arm::Plain, &[plain.dir()])?;
    ensure(found.iter().any(|name| name == "master.info"), || format!("{found:?}"))?;
    search(&marker, Arm::Sealed, &[maria.dir(), copy.dir()])?;
    for replica in [&copy, &plain] {
        replica.sql("START SLAVE SQL_THREAD")?;
        reached(&maria, replica)?;
        replica.expect("SELECT COUNT(*) FROM d.a WHERE k = 9998", "1")?;
    }
    loaded_rows_wait_in_sealed_files(&maria, [&copy, &plain], &marker)?;
    // And back: the plain one becomes the source of the sealed one.
    let back = unused_port().map_err(Error::io("looking for a port"))?.to_string();
    for (name, value) in
        [("skip_networking", "OFF"), ("bind_address", "127.0.0.1"), ("port", &*back)]
    {
        plain.set(name, value)?;
    }
    plain.sql("STOP SLAVE")?;
    plain.restart()?;
    // Not for the other one, which has this user.
    plain.sql(&format!("SET sql_log_bin = 0; {makes_user}"))?;
    maria.sql("SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos")?;
    follow(&maria, &back, user, None)?;
    plain.sql(&format!("INSERT INTO d.a VALUES (10000, '{text}')"))?;
    reached(&plain, &maria)?;
    maria.expect("SELECT COUNT(*) FROM d.a WHERE k = 10000", "1")?;
    search(&marker, Arm::Sealed, &[maria.dir(), copy.dir()])?;
    for sealed in [&maria, &copy] {
        sealed.stop()?;
        place.tool(place.programs()?.command).args(["verify", "-D"]).arg(sealed.dir()).run()?;
    }
    search(&marker, Arm::Sealed, &[maria.dir(), copy.dir()]).map(drop)
}

/// A replica keeps rows of LOAD DATA in statement format in files until it loads them. A lock on
/// the table holds them there.
fn loaded_rows_wait_in_sealed_files(
    maria: &Mysqld<'_>,
    replicas: [&Mysqld<'_>; 2],
    marker: &Marker,
) -> Result<()> {
    const FILES: &str = "SQL_LOAD-";
    const LOCKER: &str = "STATE = 'User sleep'";
    maria.sql("CREATE TABLE d.l (b TEXT) ENGINE = InnoDB")?;
    let mut lockers = Vec::new();
    for replica in replicas {
        reached(maria, replica)?;
        let lock = "LOCK TABLES d.l WRITE; DO SLEEP(3600)";
        lockers.push(replica.client("mariadb")?.stdin(lock).limit(900).spawn()?);
        one_is(replica, LOCKER)?;
    }
    load(maria, "d.l", marker)?;
    for replica in replicas {
        one_is(replica, "STATE LIKE 'Waiting for table%lock'")?;
        searched_by_name(replica, marker, FILES)?;
        let locker = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE {LOCKER}");
        let locker = replica.sql(&locker)?;
        replica.sql(&format!("KILL {locker}"))?;
        reached(maria, replica)?;
        replica.expect(&format!("SELECT COUNT(*) = {LOADED} FROM d.l"), "1")?;
        let left = named(replica.dir(), FILES)?;
        ensure(left.is_empty(), || format!("{left:?} are left"))?;
    }
    Ok(())
}

/// Waits until one connection of a server is in this state.
fn one_is(maria: &Mysqld<'_>, state: &str) -> Result<()> {
    let count = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE {state}");
    let begin = Instant::now();
    while maria.sql(&count)? != "1" {
        let told = || maria.sql("SHOW FULL PROCESSLIST").unwrap_or_default();
        ensure(begin.elapsed() < Duration::from_secs(100), || format!("{count}: {}", told()))?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn follow(replica: &Mysqld<'_>, port: &str, user: &str, gtid: Option<&str>) -> Result<()> {
    let begin = gtid.map_or(String::new(), |at| format!("SET GLOBAL gtid_slave_pos = '{at}';"));
    replica.sql(&format!(
        "{begin} CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port},
         MASTER_USER = '{user}', MASTER_PASSWORD = 'r', MASTER_USE_GTID = slave_pos; START SLAVE"
    ))?;
    Ok(())
}

/// Waits until the replica has applied all that the source has written.
fn reached(source: &Mysqld<'_>, replica: &Mysqld<'_>) -> Result<()> {
    let at = source.sql("SELECT @@gtid_binlog_pos")?;
    let wait = format!("SELECT MASTER_GTID_WAIT('{at}', 100)");
    let got = replica.sql(&wait)?;
    ensure(got == "0", || {
        format!("{wait}: {got}\n{}", replica.sql("SHOW SLAVE STATUS").unwrap_or_default())
    })
}

/// Waits until the replica has received all that the source has written.
fn arrived(source: &Mysqld<'_>, replica: &Mysqld<'_>) -> Result<()> {
    let at = source.sql("SELECT @@gtid_binlog_pos")?;
    let begin = Instant::now();
    loop {
        let status = replica.sql("SHOW SLAVE STATUS")?;
        if status.split('\t').any(|field| field == at) {
            return Ok(());
        }
        ensure(begin.elapsed() < Duration::from_secs(100), || format!("{at}: {status}"))?;
        thread::sleep(Duration::from_millis(20));
    }
}
