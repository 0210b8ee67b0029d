//! Copies of a MySQL server, and servers that follow it: each has keys of its own, or none.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::maria::{Sql as _, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::mysql::{Install, MySql, numbers};
use tidelock_testkit::mysqls;
use tidelock_testkit::pg::{Arm, Error, Result, Workspace, ensure, unused_port};

/// One statement copies all tables into a directory with keys of its own; a server starts on that.
fn a_local_clone_is_sealed_under_the_keys_of_its_directory(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let (text, some) = (marker.text(), numbers(3000));
    let settings =
        [("plugin_load_add", "mysql_clone.so"), ("plugin_dir", "/usr/lib/mysql/plugin/")];
    let source = MySql::installed(&place, install, "source", Arm::Sealed, &settings)?;
    let copy = MySql::at(&place, install, "copy", Arm::Sealed, &settings)?;
    copy.protect()?;
    let mut both = source.mysqld()?.under(Arm::Sealed, copy.dir()).limit(600).spawn()?;
    ensure(source.wait_until_it_answers(&mut both)?, || "it ended".into())?;
    // MySQL makes the directory, and takes none that is there.
    let data = copy.dir().join("data");
    source.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.i (k INT PRIMARY KEY, b TEXT);
         INSERT INTO d.i SELECT n, CONCAT('{text}', n) FROM {some};
         CLONE LOCAL DATA DIRECTORY = '{}'",
        data.display()
    ))?;
    let sum = "CHECKSUM TABLE d.i";
    let wanted = source.sql(sum)?;
    source.sql("SHUTDOWN")?;
    both.wait()?;
    search(&marker, Arm::Sealed, &[source.dir(), copy.dir()])?;
    // By its own keys alone.
    let own = copy.mysqld()?.arg(format!("--datadir={}", data.display()));
    let mut cloned = own.limit(600).spawn()?;
    ensure(copy.wait_until_it_answers(&mut cloned)?, || "the clone ended".into())?;
    copy.expect(sum, &wanted)?;
    copy.expect("SELECT COUNT(*) FROM d.i", "3000")?;
    copy.sql("SHUTDOWN")?;
    cloned.wait()?;
    search(&marker, Arm::Sealed, &[copy.dir()])?;
    place.tool(place.programs()?.command).args(["verify", "-D"]).arg(copy.dir()).run().map(drop)
}
mysqls!(a_local_clone_is_sealed_under_the_keys_of_its_directory: debian);

/// A clone over the network that replaces a server's own data, and replicas: sealed to sealed,
/// sealed to plain, and back.
fn copies_and_replicas_have_keys_of_their_own(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let (text, some) = (marker.text(), numbers(3000));
    let server = |name: &str, id: &str, arm| {
        let port = unused_port().map_err(Error::io("looking for a port"))?.to_string();
        let settings = [
            ("skip_networking", "OFF"),
            ("bind_address", "127.0.0.1"),
            ("port", &*port),
            ("server_id", id),
            ("log_bin", "binlog"),
            ("gtid_mode", "ON"),
            ("enforce_gtid_consistency", "ON"),
            ("plugin_load_add", "mysql_clone.so"),
            ("plugin_dir", "/usr/lib/mysql/plugin/"),
            ("relay_log", "relay"),
        ];
        let made = MySql::installed(&place, install, name, arm, &settings)?;
        made.start()?;
        // Not for the others, which have this user too.
        made.sql(
            "SET sql_log_bin = 0; CREATE USER r@'%' IDENTIFIED BY 'r';
             GRANT REPLICATION SLAVE, BACKUP_ADMIN, CLONE_ADMIN ON *.* TO r@'%';
             RESET BINARY LOGS AND GTIDS",
        )?;
        Ok::<_, Error>((made, port))
    };
    let (source, port) = server("source", "1", Arm::Sealed)?;
    source.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.i (k INT PRIMARY KEY, b TEXT);
         INSERT INTO d.i SELECT n, CONCAT('{text}', n) FROM {some}"
    ))?;
    let (plain, back) = server("plain", "3", Arm::Plain)?;
    follow(&plain, &port)?;

    // Over the network: the clone replaces all that the copy has, and it starts on that.
    let (copy, _) = server("copy", "2", Arm::Sealed)?;
    let clone = format!(
        "SET GLOBAL clone_valid_donor_list = '127.0.0.1:{port}';
         CLONE INSTANCE FROM r@127.0.0.1:{port} IDENTIFIED BY 'r' REQUIRE NO SSL"
    );
    // It ends the server, which nobody here starts again.
    let told = copy.client()?.args(["--batch"]).stdin(clone).attempt()?;
    ensure(told.text().contains("3707") || told.status.success(), || told.text())?;
    copy.await_end()?;
    copy.start()?;
    copy.expect("SELECT COUNT(*) FROM d.i", "3000")?;
    follow(&copy, &port)?;

    // What is not applied yet lies in the relay logs alone.
    for replica in [&copy, &plain] {
        reached(&source, replica)?;
        replica.sql("STOP REPLICA SQL_THREAD")?;
    }
    source.sql(&format!(
        "UPDATE d.i SET b = CONCAT('{text}', b) WHERE k < 2000; ALTER TABLE d.i ADD COLUMN x INT;
         CREATE TABLE d.m (b TEXT) ENGINE = MyISAM; INSERT INTO d.m VALUES ('{text}')"
    ))?;
    for (replica, is_shown) in [(&copy, false), (&plain, true)] {
        arrived(&source, replica)?;
        let seen = marker.search(&relay_logs(replica.dir())?).map_err(Error::io("searching"))?;
        let good = seen.files > 0 && seen.findings.is_empty() != is_shown;
        ensure(good, || format!("relay logs of {}: {seen:?}", replica.dir().display()))?;
    }
    plain.sql("START REPLICA SQL_THREAD")?;
    // Recovery of the replica's state belongs to it; it starts both threads.
    copy.kill_nine()?;
    copy.start()?;
    for replica in [&copy, &plain] {
        reached(&source, replica)?;
        let sums = "CHECKSUM TABLE d.i, d.m";
        ensure(replica.sql(sums)? == source.sql(sums)?, || "a replica differs".into())?;
    }
    search(&marker, Arm::Sealed, &[source.dir(), copy.dir()])?;
    // And back: the plain one becomes the source of the sealed one.
    plain.sql("STOP REPLICA; RESET REPLICA ALL")?;
    follow(&source, &back)?;
    plain.sql(&format!("INSERT INTO d.m VALUES (REVERSE('{text}'))"))?;
    reached(&plain, &source)?;
    source.expect("SELECT COUNT(*) FROM d.m", "2")?;
    search(&marker, Arm::Sealed, &[source.dir(), copy.dir()]).map(drop)
}
mysqls!(copies_and_replicas_have_keys_of_their_own: debian);

fn follow(replica: &MySql<'_>, port: &str) -> Result<()> {
    replica.sql(&format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port},
             SOURCE_USER = 'r', SOURCE_PASSWORD = 'r', SOURCE_AUTO_POSITION = 1,
             GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"
    ))?;
    Ok(())
}

fn relay_logs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(Error::io("listing relay logs"))?;
    let is_one = |path: &PathBuf| path.to_string_lossy().contains("/relay.0");
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_one).collect())
}

/// Waits until the replica has all that the source has written, applied or not.
fn arrived(source: &MySql<'_>, replica: &MySql<'_>) -> Result<()> {
    let at = source.sql("SELECT @@GLOBAL.gtid_executed")?.replace('\n', "");
    let has = format!(
        "SELECT GTID_SUBSET(GTID_SUBTRACT('{at}', @@GLOBAL.gtid_executed), RECEIVED_TRANSACTION_SET)
         FROM performance_schema.replication_connection_status"
    );
    let until = Instant::now() + Duration::from_secs(100);
    while replica.sql(&has)? != "1" {
        ensure(Instant::now() < until, || "the relay log does not come".into())?;
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Waits until the replica has applied all that the source has written.
fn reached(source: &MySql<'_>, replica: &MySql<'_>) -> Result<()> {
    let at = source.sql("SELECT @@GLOBAL.gtid_executed")?.replace('\n', "");
    let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{at}', 100)");
    let got = replica.sql(&wait)?;
    ensure(got == "0", || {
        format!("{wait}: {got}\n{}", replica.sql("SHOW REPLICA STATUS").unwrap_or_default())
    })
}
