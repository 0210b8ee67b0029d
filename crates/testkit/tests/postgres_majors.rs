//! The life of a sealed server of every major that `ci/pg-majors` has unpacked: made, filled,
//! killed, recovered, searched for plaintext, rekeyed, and taken back.

use std::fs;
use std::path::Path;

use tidelock_servers::skip;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure, fill_pgbench, majors};

/// The values of `io_method`; none before 18, where the setting is new.
fn io_methods(major: u32) -> &'static [&'static str] {
    if major < 18 { &["default"] } else { &["worker", "sync"] }
}

fn life(major: u32, bin: &Path, io_method: &str) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::at(&place, "main", Arm::Sealed)?.with(Some(bin.into()), Vec::new());
    cluster.make(&["-k"])?;
    if io_method != "default" {
        cluster.set("io_method", io_method)?;
    }
    cluster.set("shared_buffers", "2MB")?;
    cluster.start()?;
    fill_pgbench(&cluster, 1)?;
    let marker = Marker::new();
    cluster.sql(&format!(
        "CREATE TABLE m AS SELECT '{}'::text AS t, g FROM generate_series(1, 5000) g",
        marker.text()
    ))?;
    let mut load = cluster.client("pgbench").args(["-n", "-c", "2", "-T", "900"]).spawn()?;
    cluster.wait_for("SELECT count(*) > 100 FROM pgbench_history", "t")?;
    ensure(load.runs(), || "pgbench ended before the crash".into())?;
    cluster.kill_nine()?;
    drop(load);
    cluster.start()?;
    cluster.expect("SELECT count(*) FROM m", "5000")?;
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) \
                = (SELECT sum(delta) FROM pgbench_history)";
    cluster.expect(sums, "t")?;
    cluster.sql("VACUUM FULL; CREATE EXTENSION amcheck")?;
    cluster.expect(
        "SELECT count(bt_index_check(oid, true)) > 50 FROM pg_class \
                    WHERE relkind = 'i' AND relam = 403 AND relpersistence = 'p'",
        "t",
    )?;
    cluster.stop("fast")?;
    let found = marker.search(&[cluster.dir()]).map_err(Error::io("searching"))?;
    ensure(found.findings.is_empty(), || format!("{:?}", found.findings))?;
    cluster.tidelock(&["verify", "-D"])?.arg(cluster.dir()).run()?;
    cluster.tidelock(&["rekey"])?.arg(cluster.dir()).run()?;
    let bare = Cluster::at(&place, "bare", Arm::Plain)?.on(cluster.dir().to_path_buf());
    let bare = bare.with(Some(bin.into()), Vec::new());
    bare.start_fails()?;
    cluster.start()?;
    cluster.expect("SELECT count(*) FROM m", "5000")?;
    cluster.stop("fast")?;
    cluster.tidelock(&["decrypt"])?.arg(cluster.dir()).run()?;
    bare.start()?;
    // It listens where the sealed one did.
    cluster.expect("SELECT count(*) FROM m", "5000")?;
    cluster.expect(sums, "t")?;
    bare.stop("fast")?;
    bare.tidelock(&["encrypt", "--no-recovery"])?.arg(bare.dir()).run()?;
    cluster.start()?;
    let version = cluster.sql("SHOW server_version_num")?;
    ensure(version.starts_with(&major.to_string()), || version.clone())?;
    cluster.expect("SELECT count(*) FROM m", "5000")?;
    cluster.stop("fast")
}

fn live(choose: impl Fn(usize, usize) -> bool) -> Result<()> {
    let majors = majors::ready()?;
    if majors.is_empty() {
        skip::missing("other majors of PostgreSQL (ci/pg-majors)");
        return Ok(());
    }
    let count = majors.len();
    let mut chosen =
        majors.iter().enumerate().filter(|(place, _)| choose(*place, count)).peekable();
    if chosen.peek().is_none() {
        skip::missing("a major between the oldest and the newest (ci/pg-majors full)");
    }
    for (_, (major, bin)) in chosen {
        for io_method in io_methods(*major) {
            life(*major, bin, io_method)
                .map_err(|why| Error::Unexpected(format!("{major}, {io_method}: {why}")))?;
        }
    }
    Ok(())
}

#[test]
fn the_oldest_major_lives_sealed() -> Result<()> {
    live(|place, _| place == 0)
}

#[test]
fn the_newest_major_lives_sealed_with_each_io_method() -> Result<()> {
    live(|place, count| place + 1 == count)
}

#[test]
#[ignore = "long: make test-full"]
fn every_major_between_lives_sealed() -> Result<()> {
    live(|place, count| place > 0 && place + 1 < count)
}

/// The ready binaries are built without io_uring; here is a server that would use it, past libc.
#[test]
#[ignore = "long: make test-full"]
fn io_uring_is_refused_where_a_plain_server_has_it() -> Result<()> {
    let Some(bin) = majors::built(18) else { return Ok(()) };
    let place = Workspace::new()?;
    let cluster = |name: &str, arm| -> Result<Cluster<'_>> {
        let cluster = Cluster::at(&place, name, arm)?.with(Some(bin.clone()), Vec::new());
        cluster.make(&["-k"])?;
        cluster.set("io_method", "io_uring")?;
        Ok(cluster)
    };
    let plain = cluster("plain", Arm::Plain)?;
    if let Err(why) = plain.start() {
        skip::because(format_args!("this kernel has no io_uring: {why}"));
        return Ok(());
    }
    plain.expect("SHOW io_method", "io_uring")?;
    plain.stop("fast")?;
    let sealed = cluster("sealed", Arm::Sealed)?;
    let told = sealed.start_fails()?;
    let log = fs::read_to_string(sealed.log()).map_err(Error::io("reading the log"))?;
    ensure(log.contains("could not setup io_uring queue"), || told.text() + &log)?;
    // The server's own hint blames the kernel.
    ensure(log.contains("tidelock: io_uring is refused"), || told.text() + &log)?;
    ensure(log.contains("io_method = worker"), || told.text() + &log)?;
    // The remedy that it names.
    sealed.set("io_method", "worker")?;
    sealed.start()?;
    sealed.stop("fast")
}
