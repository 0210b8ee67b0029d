//! Copies of a server: base backups of each kind, standbys with keys of their own, archives,
//! recovery to a point in time.

use std::fs;

use tidelock_testkit::arms;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure, fill_pgbench};

fn a_standby_with_its_own_keys_streams_and_is_promoted(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let primary = Cluster::started(&place, "primary", arm)?;
    fill_pgbench(&primary, 2)?;
    let standby = Cluster::empty(&place, "standby", arm)?;
    standby.backup_of(&primary, &["-R", "-X", "stream", "-C", "-S", "standby"])?;
    standby.start()?;
    primary.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 5000) g")?;
    standby.wait_for("SELECT count(*) FROM pg_class WHERE relname = 't'", "1")?;
    standby.wait_for("SELECT count(*) FROM t", "5000")?;
    // A crash of the standby, WAL meanwhile.
    standby.kill_nine()?;
    primary.sql("INSERT INTO t SELECT g FROM generate_series(1, 5000) g")?;
    standby.start()?;
    standby.wait_for("SELECT count(*) FROM t", "10000")?;
    primary.kill_nine()?;
    standby.promote()?;
    standby.sql("INSERT INTO t VALUES (0)")?;
    standby.expect("SELECT count(*) FROM t; SELECT count(*) FROM pgbench_accounts", "10001\n200000")
}
arms!(a_standby_with_its_own_keys_streams_and_is_promoted: plain, sealed);

fn replication_crosses_the_arms(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let other = if arm == Arm::Sealed { Arm::Plain } else { Arm::Sealed };
    let primary = Cluster::started(&place, "primary", arm)?;
    let standby = Cluster::empty(&place, "standby", other)?;
    standby.backup_of(&primary, &["-R"])?;
    standby.start()?;
    primary.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 5000) g")?;
    standby.wait_for("SELECT count(*) FROM pg_class WHERE relname = 't'", "1")?;
    standby.promote()?;
    standby.expect("SELECT count(*) FROM t", "5000")
}
arms!(replication_crosses_the_arms: plain, sealed);

fn backups_with_two_tablespaces_verify_and_start(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let source = Cluster::started(&place, "source", arm)?;
    let copy = Cluster::empty(&place, "copy", arm)?;
    let mut mapping = Vec::new();
    for name in ["one", "two"] {
        let (dir, copied) = (place.make_dir(name)?, place.join(&format!("{name}-copy")));
        source.sql(&format!(
            "CREATE TABLESPACE {name} LOCATION '{}';
             CREATE TABLE in_{name} TABLESPACE {name} AS SELECT g, md5(g::text) b FROM generate_series(1, 20000) g",
            dir.display()
        ))?;
        mapping.push(format!("--tablespace-mapping={}={}", dir.display(), copied.display()));
    }
    let mapping: Vec<&str> = mapping.iter().map(String::as_str).collect();
    copy.tool("pg_basebackup")
        .args(["-d", &source.conninfo(), "-Fp", "-c", "fast", "-D"])
        .arg(copy.dir())
        .args(&mapping)
        .run()?;
    copy.tool("pg_verifybackup").arg(copy.dir()).run()?;
    copy.listen_here()?;
    copy.start()?;
    source.stop("fast")?;
    let both =
        "SELECT (SELECT count(DISTINCT b) FROM in_one), (SELECT count(DISTINCT b) FROM in_two)";
    copy.expect(both, "20000|20000")?;
    copy.sql("INSERT INTO in_one VALUES (0, 'x')")?;
    copy.stop("fast")?;
    copy.tool("pg_checksums").arg("--check").arg(copy.dir()).run().map(drop)
}
arms!(backups_with_two_tablespaces_verify_and_start: plain, sealed);

/// A tar backup to a directory outside is plain, as pg_dump's output is, and a stock server starts
/// on it.
fn a_tar_backup_to_outside_is_a_stock_backup(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let source = Cluster::started(&place, "source", arm)?;
    let space = place.make_dir("space")?;
    source.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}';
         CREATE TABLE t TABLESPACE s AS SELECT g FROM generate_series(1, 20000) g",
        space.display()
    ))?;
    let out = place.join("home/backup");
    source
        .tool("pg_basebackup")
        .args(["-d", &source.conninfo(), "-Ft", "-z", "-X", "fetch", "-c", "fast", "-D"])
        .arg(&out)
        .run()?;
    source.stop("fast")?;
    let restored = Cluster::empty(&place, "restored", Arm::Plain)?;
    place.make_dir("restored")?;
    place.make_dir("space-restored")?;
    let unpack = |archive: String, into: &std::path::Path| {
        place.tool("tar").arg("-xzf").arg(out.join(archive)).arg("-C").arg(into).run()
    };
    unpack("base.tar.gz".into(), restored.dir())?;
    let map = fs::read_to_string(restored.dir().join("tablespace_map"))
        .map_err(Error::io("reading tablespace_map"))?;
    let oid = map.split(' ').next().unwrap_or_default().to_owned();
    unpack(format!("{oid}.tar.gz"), &place.join("space-restored"))?;
    let mapped = map.replace("/space\n", "/space-restored\n");
    place.write(&restored.dir().join("tablespace_map"), &mapped)?;
    restored.listen_here()?;
    restored.start()?;
    restored.expect("SELECT count(*) FROM t", "20000")
}
arms!(a_tar_backup_to_outside_is_a_stock_backup: plain, sealed);

fn a_backup_in_a_stream_can_be_read(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let source = Cluster::started(&place, "source", arm)?;
    let out = place.join("home/base.tar");
    source
        .tool("pg_basebackup")
        .args(["-d", &source.conninfo(), "-Ft", "-X", "fetch", "-c", "fast", "-D", "-"])
        .stdout_to(&out)
        .run()?;
    let list = place.tool("tar").arg("-tf").arg(&out).run()?;
    ensure(list.stdout.contains("global/pg_control"), || list.text())
}
arms!(a_backup_in_a_stream_can_be_read: plain, sealed);

/// The archive that `cp` makes is sealed; restore_command's `cp` brings it back under the same
/// keys.
fn an_archive_by_cp_restores_to_a_point_in_time(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let archive = place.make_dir("archive")?;
    let source = Cluster::new(&place, "source", arm)?;
    source.set("archive_mode", "on")?;
    source
        .set("archive_command", &format!("test ! -f {0}/%f && cp %p {0}/%f", archive.display()))?;
    source.start()?;
    source.sql("CREATE TABLE t (a int)")?;
    // The copy is of the files as they lie there, keyring included: any backup program's way.
    let copy = Cluster::at(&place, "copy", arm)?;
    let label = place.join("home/label");
    source.sql(&format!(
        "SELECT pg_backup_start('copy', true);
         \\! cp -a {from} {to} && rm -rf {to}/postmaster.* {to}/pg_wal/0*
         \\t on
         \\o {label}
         SELECT labelfile FROM pg_backup_stop(false);
         \\o",
        from = source.dir().display(),
        to = copy.dir().display(),
        label = label.display(),
    ))?;
    source.sql(
        "INSERT INTO t SELECT generate_series(1, 1000); SELECT pg_create_restore_point('here')",
    )?;
    let last = source.sql(
        "INSERT INTO t SELECT generate_series(1, 1000); SELECT pg_walfile_name(pg_switch_wal())",
    )?;
    source.wait_for(&format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver"), "t")?;
    source.stop("fast")?;
    let first = archive.join(last);
    let bytes = fs::read(&first).map_err(Error::io(format!("reading {}", first.display())))?;
    let plain = bytes.starts_with(&WAL_PAGE_MAGIC);
    ensure(plain == (arm == Arm::Plain), || format!("{arm}: the archive is plain: {plain}"))?;
    // An agent serves one directory of a keyring at a time.
    place.wait_for_agents()?;
    // As the manual says: the text that pg_backup_stop answered, by any program.
    place.tool("cp").arg(&label).arg(copy.dir().join("backup_label")).run()?;
    copy.set("restore_command", &format!("cp {}/%f %p", archive.display()))?;
    copy.set("recovery_target_name", "here")?;
    copy.set("recovery_target_action", "promote")?;
    copy.set("archive_mode", "off")?;
    copy.listen_here()?;
    place.write(&copy.dir().join("recovery.signal"), "")?;
    copy.start()?;
    copy.wait_for("SELECT pg_is_in_recovery()", "f")?;
    copy.expect("SELECT count(*) FROM t", "1000")
}
arms!(an_archive_by_cp_restores_to_a_point_in_time: plain, sealed);

/// XLOG_PAGE_MAGIC of PostgreSQL 15 (xlog_internal.h), little-endian.
const WAL_PAGE_MAGIC: [u8; 2] = [0x10, 0xd1];
