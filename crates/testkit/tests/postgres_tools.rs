//! PostgreSQL's own tools on the directory of a server: checksums, control data, WAL, rewind, reset,
//! dump, and Debian's wrapper.

use std::fs;

use tidelock_testkit::arms;
use tidelock_testkit::pg::{Arm, Cluster, Error, Place, Result, ensure, fill_pgbench};

fn checksums_are_checked_disabled_and_enabled(arm: Arm) -> Result<()> {
    let place = Place::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    fill_pgbench(&cluster, 1)?;
    cluster.stop("fast")?;
    let checksums = |what: &str| {
        cluster.tool("pg_checksums").arg("-D").arg(cluster.dir()).args([what, "--progress"]).run()
    };
    let told = checksums("--check")?.text();
    ensure(told.contains("Bad checksums:  0"), || told.clone())?;
    checksums("--disable")?;
    cluster.start()?;
    cluster.expect("SHOW data_checksums", "off")?;
    cluster.sql("UPDATE pgbench_accounts SET abalance = 1 WHERE aid % 2 = 0")?;
    cluster.stop("fast")?;
    checksums("--enable")?;
    checksums("--check")?;
    cluster.start()?;
    cluster.expect("SHOW data_checksums; SELECT sum(abalance) FROM pgbench_accounts", "on\n50000")
}
arms!(checksums_are_checked_disabled_and_enabled: plain, sealed);

fn control_data_and_wal_are_readable(arm: Arm) -> Result<()> {
    let place = Place::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("wal_keep_size", "64MB")?;
    cluster.start()?;
    let segment =
        cluster.sql("CREATE TABLE t (a text); SELECT pg_walfile_name(pg_current_wal_lsn())")?;
    cluster.sql(
        "INSERT INTO t SELECT md5(g::text) FROM generate_series(1, 1000) g; SELECT pg_switch_wal()",
    )?;
    // Running and stopped.
    for state in ["in production", "shut down"] {
        let control = cluster.tool("pg_controldata").arg("-D").arg(cluster.dir()).run()?;
        ensure(control.stdout.contains(state), || control.text())?;
        let path = cluster.dir().join("pg_wal").join(&segment);
        let dump = cluster.tool("pg_waldump").arg("--stats").arg(&path).run()?;
        ensure(dump.stdout.contains("Heap"), || dump.text())?;
        if state == "in production" {
            cluster.stop("fast")?;
        }
    }
    Ok(())
}
arms!(control_data_and_wal_are_readable: plain, sealed);

fn resetwal_makes_a_server_without_its_wal_start(arm: Arm) -> Result<()> {
    let place = Place::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    cluster.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 100) g; CHECKPOINT")?;
    cluster.stop("fast")?;
    cluster
        .tool("pg_resetwal")
        .arg("-D")
        .arg(cluster.dir())
        .args(["-f", "--wal-segsize=4"])
        .run()?;
    cluster.start()?;
    cluster.expect("SELECT count(*) FROM t; SHOW wal_segment_size", "100\n4MB")
}
arms!(resetwal_makes_a_server_without_its_wal_start: plain, sealed);

fn rewind_makes_an_old_primary_follow_the_new_one(arm: Arm) -> Result<()> {
    let place = Place::new()?;
    let old = Cluster::new(&place, "old", arm)?;
    old.set("wal_log_hints", "on")?;
    old.set("wal_keep_size", "512MB")?;
    old.start()?;
    fill_pgbench(&old, 1)?;
    let new = Cluster::empty(&place, "new", arm)?;
    new.backup_of(&old, &["-R"])?;
    new.start()?;
    old.sql("CREATE TABLE common (a int)")?;
    new.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'common'", "1")?;
    new.promote()?;
    old.sql("CREATE TABLE lost AS SELECT g FROM generate_series(1, 10000) g; UPDATE pgbench_accounts SET abalance = 5")?;
    new.sql("CREATE TABLE kept AS SELECT g FROM generate_series(1, 10000) g; UPDATE pgbench_accounts SET abalance = 7 WHERE aid < 100; CHECKPOINT")?;
    old.stop("fast")?;
    let conf = place.join("home/old.conf");
    place.write(&conf, &read(&old.dir().join("postgresql.conf"))?)?;
    old.tool("pg_rewind")
        .args(["--source-server", &new.conninfo(), "-R", "--progress", "--target-pgdata"])
        .arg(old.dir())
        .run()?;
    old.listen_here()?;
    old.start()?;
    old.wait_for("SELECT count(*) FROM pg_class WHERE relname IN ('kept', 'lost')", "1")?;
    old.wait_for("SELECT sum(abalance) FROM pgbench_accounts", "693")?;
    new.sql("CREATE TABLE after (a int)")?;
    old.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'after'", "1")
}
arms!(rewind_makes_an_old_primary_follow_the_new_one: plain, sealed);

fn dump_and_restore_cross_the_arms(arm: Arm) -> Result<()> {
    let place = Place::new()?;
    let from = Cluster::started(&place, "from", arm)?;
    fill_pgbench(&from, 1)?;
    let dump = place.join("home/dump");
    from.client("pg_dump").args(["-Fd", "-j2", "-f"]).arg(&dump).run()?;
    let to = Cluster::started(&place, "to", Arm::Plain)?;
    to.client("pg_restore").args(["-j2", "-d", "postgres"]).arg(&dump).run()?;
    to.expect("SELECT count(*) FROM pgbench_accounts", "100000")
}
arms!(dump_and_restore_cross_the_arms: plain, sealed);

/// Debian's wrapper empties the environment: library and agent come from the cluster's own file.
fn pg_ctlcluster_starts_and_stops(arm: Arm) -> Result<()> {
    let place = Place::new()?;
    if !place.account().switches() {
        eprintln!("pg_ctlcluster manages /etc/postgresql and needs root: not run");
        return Ok(());
    }
    let cluster = Cluster::new(&place, "main", arm)?;
    let name = format!("tl{}{arm}", std::process::id());
    let conf = std::path::Path::new("/etc/postgresql/15").join(&name);
    let _removed = Remove(conf.clone());
    fs::create_dir_all(&conf).map_err(Error::io("making the cluster's configuration"))?;
    place.account().give(&conf)?;
    let moved = |file: &str| place.tool("mv").arg(cluster.dir().join(file)).arg(&conf).run();
    for file in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
        moved(file)?;
    }
    let settings = [
        ("data_directory", cluster.dir().display().to_string()),
        ("hba_file", conf.join("pg_hba.conf").display().to_string()),
        ("ident_file", conf.join("pg_ident.conf").display().to_string()),
    ];
    let mut text = read(&conf.join("postgresql.conf"))?;
    for (setting, value) in settings {
        text += &format!("{setting} = '{value}'\n");
    }
    place.write(&conf.join("postgresql.conf"), &text)?;
    place.write(&conf.join("start.conf"), "manual\n")?;
    // The agent lives as long as somebody is connected: this shell holds it.
    let mut holder = None;
    if arm == Arm::Sealed {
        let told = place.join("home/environment");
        let script = format!(
            "printf \"LD_PRELOAD = '%s'\\nTIDELOCK_AGENT = '%s'\\n\" \"$LD_PRELOAD\" \"$TIDELOCK_AGENT\" \
             > {told}.new && mv {told}.new {told} && exec sleep 3000",
            told = told.display()
        );
        holder = Some(cluster.tool("sh").args(["-c", &script]).spawn()?);
        for _ in 0..6000 {
            if told.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        place.write(&conf.join("environment"), &read(&told)?)?;
    }
    let ctl = |what: &str| {
        place.tool("pg_ctlcluster").as_ourselves().args([
            "--skip-systemctl-redirect",
            "15",
            &name,
            what,
        ])
    };
    ctl("start").run()?;
    cluster.expect("SELECT 1", "1")?;
    ctl("restart").run()?;
    cluster.sql("CREATE TABLE t AS SELECT 1")?;
    ctl("status").run()?;
    ctl("stop").run()?;
    drop(holder);
    Ok(())
}
arms!(pg_ctlcluster_starts_and_stops: plain, sealed);

struct Remove(std::path::PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(path: &std::path::Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io(format!("reading {}", path.display())))
}
