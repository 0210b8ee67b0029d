//! A server's life: initdb, start, stop, restart, crash, settings, the collector's log.
//!
//! Each test runs in the arms it names; what plain does is what sealed has to do.

use tidelock_testkit::arms;
use tidelock_testkit::pg::{Arm, Cluster, Result, Workspace, ensure, fill_pgbench, skip};

fn starts_stops_restarts_and_tells_its_status(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    cluster.sql("CREATE TABLE t AS SELECT g, md5(g::text) FROM generate_series(1, 1000) g")?;
    cluster.pg_ctl(&["status"]).run()?;
    for mode in ["smart", "fast", "immediate"] {
        cluster.stop(mode)?;
        let status = cluster.pg_ctl(&["status"]).fails()?;
        ensure(status.status.code() == Some(3), || format!("status of {mode}: {status:?}"))?;
        cluster.start()?;
        cluster.expect("SELECT count(*), max(g) FROM t", "1000|1000")?;
    }
    cluster.restart()?;
    cluster.pg_ctl(&["reload"]).run()?;
    cluster.expect("SELECT count(*) FROM t", "1000")?;
    cluster.stop("fast")
}
arms!(starts_stops_restarts_and_tells_its_status: plain, idle, sealed);

fn initdb_without_checksums_and_with_wal_elsewhere(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::empty(&place, "main", arm)?;
    let wal = place.join("wal");
    let told = place.tool("initdb").arg("--version").run()?.stdout;
    // Checksums are the default since 18.
    let newer = ["18", "19"].iter().any(|major| told.contains(&format!(") {major}.")));
    let without: &[&str] = if newer { &["--no-data-checksums"] } else { &[] };
    cluster.initdb(&[&["-X", &wal.display().to_string(), "--wal-segsize=1"], without].concat())?;
    cluster.start()?;
    cluster.expect("SHOW data_checksums", "off")?;
    cluster.sql("CREATE TABLE t AS SELECT repeat('w', 1000) FROM generate_series(1, 5000)")?;
    cluster.kill_nine()?;
    cluster.start()?;
    cluster.expect("SELECT count(*) FROM t", "5000")?;
    let segments = std::fs::read_dir(&wal)
        .map_err(|e| tidelock_testkit::pg::Error::io(format!("reading {}", wal.display()))(e))?;
    ensure(segments.count() > 2, || "no WAL in the directory given to -X".into())
}
arms!(initdb_without_checksums_and_with_wal_elsewhere: plain, sealed);

fn recovers_all_committed_rows_after_kill_nine(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    // Small buffers make backends write pages; frequent checkpoints make full page images.
    cluster.set("shared_buffers", "2MB")?;
    cluster.set("checkpoint_timeout", "30s")?;
    cluster.set("max_wal_size", "32MB")?;
    cluster.set("min_wal_size", "32MB")?;
    cluster.set("wal_recycle", "on")?;
    cluster.start()?;
    fill_pgbench(&cluster, 1)?;
    cluster.sql("CREATE TABLE seen (client int, n bigint)")?;
    for round in 0..3 {
        let mut load = cluster
            .client("pgbench")
            .args(["-n", "-c", "4", "-j", "2", "-T", "900", "-b", "tpcb-like"])
            .limit(900)
            .spawn()?;
        cluster.wait_for("SELECT count(*) > 300 FROM pgbench_history", "t")?;
        std::thread::sleep(std::time::Duration::from_millis(700));
        ensure(load.runs(), || "pgbench ended before the crash".into())?;
        cluster.kill_nine()?;
        drop(load);
        cluster.start()?;
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) \
                    FROM pgbench_history)
             AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)
             AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)";
        cluster.expect(sums, "t")?;
        cluster.sql(&format!(
            "INSERT INTO seen VALUES ({round}, 1); TRUNCATE pgbench_history;
            UPDATE pgbench_accounts SET abalance = 0 WHERE abalance <> 0;
            UPDATE pgbench_tellers SET tbalance = 0; UPDATE pgbench_branches SET bbalance = 0"
        ))?;
    }
    cluster.expect("SELECT count(*) FROM seen", "3")?;
    cluster.sql("CREATE EXTENSION amcheck")?;
    if cluster.sql("SHOW server_version_num")?.starts_with("13") {
        // Its amcheck knows indexes only, and pg_amcheck came with 14.
        cluster.expect(
            "SELECT count(bt_index_check(oid, true)) > 50 FROM pg_class
             WHERE relkind = 'i' AND relam = 403 AND relpersistence = 'p'",
            "t",
        )?;
    } else {
        cluster.client("pg_amcheck").args(["--all", "--heapallindexed"]).run()?;
    }
    cluster.stop("fast")?;
    cluster.tool("pg_checksums").arg("-D").arg(cluster.dir()).arg("--check").run().map(drop)
}
arms!(recovers_all_committed_rows_after_kill_nine: plain, sealed);

fn unlogged_tables_are_reset_and_prepared_transactions_kept_by_a_crash(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("max_prepared_transactions", "4")?;
    cluster.start()?;
    cluster.sql(
        "CREATE UNLOGGED TABLE u AS SELECT g FROM generate_series(1, 20000) g;
         CREATE INDEX ON u (g);
         CREATE TABLE t (a text);
         BEGIN; INSERT INTO t VALUES ('first'); PREPARE TRANSACTION 'one';
         BEGIN; INSERT INTO t VALUES ('second'); PREPARE TRANSACTION 'two';
         CHECKPOINT",
    )?;
    cluster.restart()?;
    cluster.expect("SELECT count(*) FROM u WHERE g > 0", "20000")?;
    cluster.sql("COMMIT PREPARED 'one'")?;
    cluster.kill_nine()?;
    cluster.start()?;
    cluster.expect("SELECT count(*) FROM u", "0")?;
    cluster.sql("INSERT INTO u VALUES (1); COMMIT PREPARED 'two'")?;
    cluster.expect("SELECT string_agg(a, ',' ORDER BY a) FROM t", "first,second")?;
    cluster.expect("SELECT count(*) FROM pg_prepared_xacts", "0")
}
arms!(unlogged_tables_are_reset_and_prepared_transactions_kept_by_a_crash: plain, sealed);

fn alter_system_and_dropped_in_settings_survive_a_restart(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    cluster.sql("ALTER SYSTEM SET work_mem = '7MB'; SELECT pg_reload_conf()")?;
    cluster.sql("ALTER SYSTEM SET max_connections = 55")?;
    cluster.set("include_dir", "conf.d")?;
    let conf = cluster.dir().join("conf.d");
    place.tool("mkdir").arg(&conf).run()?;
    place.write(&conf.join("own.conf"), "maintenance_work_mem = 11MB\n")?;
    cluster.restart()?;
    cluster.expect("SHOW work_mem", "7MB")?;
    cluster.expect("SHOW max_connections", "55")?;
    cluster.expect("SHOW maintenance_work_mem", "11MB")?;
    cluster.sql("ALTER SYSTEM RESET ALL")?;
    cluster.restart()?;
    cluster.expect("SHOW work_mem", "4MB")
}
arms!(alter_system_and_dropped_in_settings_survive_a_restart: plain, sealed);

fn connections_over_tls_use_the_certificate_dropped_in(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    let library = cluster.tool("postgres").args(["-C", "ssl_library", "-D"]).arg(cluster.dir());
    if library.run()?.stdout.trim().is_empty() {
        skip::because("this server is built without TLS");
        return Ok(());
    }
    let (key, certificate) = (cluster.dir().join("server.key"), cluster.dir().join("server.crt"));
    place
        .tool("openssl")
        .args(["req", "-new", "-x509", "-days", "2", "-nodes", "-subj", "/CN=localhost", "-out"])
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .run()?;
    cluster.set("ssl", "on")?;
    cluster.start()?;
    cluster.expect("SHOW ssl", "on")
}
arms!(connections_over_tls_use_the_certificate_dropped_in: plain, sealed);

fn the_collectors_log_is_written_rotated_and_readable(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("logging_collector", "on")?;
    cluster.set("log_destination", "stderr,csvlog")?;
    cluster.set("log_filename", "server.log")?;
    cluster.set("log_statement", "all")?;
    cluster.start()?;
    cluster.sql("SELECT 'told to the collector'")?;
    cluster.expect("SELECT pg_current_logfile()", "log/server.log")?;
    cluster.sql("SELECT pg_rotate_logfile()")?;
    // The collector is a process of its own: it writes when it comes to it.
    cluster.wait_for(
        "SELECT position('told to the collector' IN pg_read_file('log/server.log')) > 0",
        "t",
    )?;
    cluster.wait_for("SELECT length(pg_read_file('log/server.csv')) > 100", "t")?;
    let log = cluster.dir().join("log/server.log");
    let bare = std::fs::read(&log)
        .map_err(tidelock_testkit::pg::Error::io(format!("reading {}", log.display())))?;
    let seen = String::from_utf8_lossy(&bare).contains("told to the collector");
    ensure(seen == (arm == Arm::Plain), || format!("{arm}: readable from outside: {seen}"))?;
    if arm == Arm::Sealed {
        let path = log.display().to_string();
        let read = cluster.tidelock(&["cat", &path])?.run()?;
        ensure(read.stdout.contains("told to the collector"), || read.text())?;
    }
    Ok(())
}
arms!(the_collectors_log_is_written_rotated_and_readable: plain, sealed);
