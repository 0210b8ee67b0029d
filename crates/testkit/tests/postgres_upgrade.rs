//! pg_upgrade between clusters of which one is sealed, or both with keys of their own; from 15 to
//! 15, which pg_upgrade allows.

use std::fs;

use tidelock_servers::Tool;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Error, Output, Result, Workspace, ensure};

/// An old cluster with rows, committed and not, row locks, a large object, a role; it is stopped.
fn old_cluster<'p>(place: &'p Workspace, arm: Arm, marker: &Marker) -> Result<Cluster<'p>> {
    let old = Cluster::started(place, "old", arm)?;
    old.sql(&format!(
        "CREATE ROLE \"r{0}\" LOGIN PASSWORD 'secret';
         CREATE TABLE t AS SELECT g, '{0}' AS b FROM generate_series(1, 1000) g;
         BEGIN; DELETE FROM t; ROLLBACK;
         BEGIN; SELECT count(*) FROM (SELECT g FROM t FOR SHARE) l;
         SAVEPOINT s; SELECT count(*) FROM (SELECT g FROM t FOR UPDATE) l; COMMIT;
         SELECT lo_from_bytea(4711, '{0}'); CREATE INDEX ON t (g)",
        marker.text()
    ))?;
    old.stop("fast")?;
    Ok(old)
}

fn pg_upgrade<'p>(place: &'p Workspace, old: &Cluster<'_>, new: &Cluster<'_>) -> Tool<'p> {
    let mut tool = place.tool("pg_upgrade");
    for cluster in [old, new] {
        if cluster.arm() == Arm::Sealed {
            tool = tool.under(Arm::Sealed, cluster.dir());
        }
    }
    tool.args(["-b", BINDIR, "-B", BINDIR, "-U", "postgres", "-j", "2", "-s"])
        .arg(place.path())
        .arg("-d")
        .arg(old.dir())
        .arg("-D")
        .arg(new.dir())
        .limit(300)
}

/// Neither the link nor logs in memory stay after a run that went well.
fn nothing_is_left(new: &Cluster<'_>, told: &Output) -> Result<()> {
    let link = new.dir().join("pg_upgrade_output.d");
    ensure(!told.stderr.contains("are in memory"), || told.text())?;
    ensure(fs::symlink_metadata(&link).is_err(), || format!("{} is left", link.display()))
}

fn upgrade(from: Arm, to: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let old = old_cluster(&place, from, &marker)?;
    let new = Cluster::new(&place, "new", to)?;
    let check = pg_upgrade(&place, &old, &new).arg("--check").run()?;
    ensure(check.stdout.contains("*Clusters are compatible*"), || check.text())?;
    let done = pg_upgrade(&place, &old, &new).run()?;
    ensure(done.stdout.contains("Upgrade Complete"), || done.text())?;
    nothing_is_left(&new, &done)?;
    if to == Arm::Sealed {
        // Logs, dumps and the old transaction status included.
        let found = marker.search(&[new.dir()]).map_err(Error::io("searching"))?;
        ensure(found.findings.is_empty(), || format!("{found:?}"))?;
        let dir = new.dir().display().to_string();
        new.tidelock(&["verify", "-D", &dir])?.run()?;
    }
    // As pg_upgrade advises: the old cluster is deleted, its keyring with it.
    place.wait_for_agents()?;
    fs::remove_dir_all(old.dir()).map_err(Error::io("deleting the old cluster"))?;
    let key = place.join("home/old.key");
    if key.exists() {
        fs::remove_file(key).map_err(Error::io("deleting the old key"))?;
    }
    new.start()?;
    new.expect(
        "SELECT count(*), count(DISTINCT b) FROM t; SELECT length(lo_get(4711)) > 30",
        "1000|1\nt",
    )?;
    new.sql("UPDATE t SET g = g + 1; VACUUM FREEZE; CHECKPOINT")?;
    new.expect("SET enable_seqscan = off; SELECT count(*) FROM t WHERE g > 500", "501")?;
    new.stop("fast")?;
    new.tool("pg_checksums").arg("--check").arg(new.dir()).run().map(drop)
}

#[test]
fn a_sealed_cluster_is_upgraded_into_one_with_other_keys() -> Result<()> {
    upgrade(Arm::Sealed, Arm::Sealed)
}

#[test]
#[ignore = "long: make test-full"]
fn a_plain_cluster_is_upgraded_into_a_sealed_one() -> Result<()> {
    upgrade(Arm::Plain, Arm::Sealed)
}

#[test]
#[ignore = "long: make test-full"]
fn a_sealed_cluster_is_upgraded_into_a_plain_one() -> Result<()> {
    upgrade(Arm::Sealed, Arm::Plain)
}

#[test]
fn what_would_fail_half_way_is_refused_before_a_byte_is_written() -> Result<()> {
    let place = Workspace::new()?;
    let old = Cluster::new(&place, "old", Arm::Sealed)?;
    let new = Cluster::new(&place, "new", Arm::Sealed)?;
    let before = names(&new)?;
    for mode in ["--link", "--clone", "-k", "--copy-file-range", "--swap"] {
        let told = pg_upgrade(&place, &old, &new).arg(mode).fails()?;
        ensure(told.status.code() == Some(3), || told.text())?;
        ensure(told.stderr.contains("each is sealed with keys of its own"), || told.text())?;
    }
    // Without the keys of the old one, or without `exec` at all.
    let one = |dirs: &Cluster<'_>, program: &str, arguments: &[&str]| {
        let tool = place.tool(program).under(Arm::Sealed, dirs.dir()).args(arguments);
        let tool = tool.args(["-b", BINDIR, "-B", BINDIR, "-U", "postgres", "-d"]);
        tool.arg(old.dir()).arg("-D").arg(new.dir()).fails()
    };
    let told = one(&new, "pg_upgrade", &[])?;
    ensure(told.stderr.contains("this run does not have its keys"), || told.text())?;
    ensure(told.stderr.contains(&format!("-D {}", old.dir().display())), || told.text())?;
    let inside = format!("{BINDIR}/pg_upgrade");
    let told = one(&new, "nice", &[&inside])?;
    ensure(told.stderr.contains("let tidelock start it"), || told.text())?;
    let bare = place.tool("pg_upgrade").args(["-b", BINDIR, "-B", BINDIR, "-U", "postgres", "-d"]);
    bare.arg(old.dir()).arg("-D").arg(new.dir()).fails()?;
    // The two clusters' folders in a tablespace would have one name.
    let space = place.make_dir("space")?;
    old.start()?;
    old.sql(&format!("CREATE TABLESPACE s LOCATION '{}'", space.display()))?;
    old.stop("fast")?;
    let told = pg_upgrade(&place, &old, &new).fails()?;
    ensure(told.status.code() == Some(3), || told.text())?;
    ensure(told.stderr.contains("both clusters have version 15"), || told.text())?;
    old.start()?;
    old.sql("DROP TABLESPACE s")?;
    old.stop("fast")?;
    // Somebody's own directory of that name is not taken away.
    let output = new.dir().join("pg_upgrade_output.d");
    fs::create_dir_all(output.join("kept")).map_err(Error::io("making a directory"))?;
    place.account().give(&output)?;
    let told = pg_upgrade(&place, &old, &new).fails()?;
    ensure(told.stderr.contains("is not empty"), || told.text())?;
    fs::remove_dir_all(&output).map_err(Error::io("removing it"))?;
    ensure(names(&new)? == before, || "the new cluster has other files".into())?;
    new.start()?;
    old.start()
}

/// The names in a directory and below.
fn names(cluster: &Cluster<'_>) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![cluster.dir().to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).map_err(Error::io("listing"))? {
            let path = entry.map_err(Error::io("listing"))?.path();
            if path.is_dir() {
                waiting.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
