//! An archive of WAL under keys of its own: other nodes restore from it, new data keys stop nobody,
//! and no death of a process leaves anything but whole files.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::arms;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Tool, Workspace, ensure};

/// A protected directory of the profile `wal-archive`.
struct Archive<'p> {
    place: &'p Workspace,
    dir: PathBuf,
}

impl<'p> Archive<'p> {
    fn at(place: &'p Workspace, name: &str, provider: &str) -> Result<Self> {
        let archive = Self { place, dir: place.join(name) };
        let init = archive.tidelock(&["init", "--profile", "wal-archive", "--no-recovery"])?;
        init.args(["--provider", provider]).arg(&archive.dir).run()?;
        Ok(archive)
    }

    fn with_key_file(place: &'p Workspace) -> Result<Self> {
        Self::at(place, "archive", &format!("file:{}", place.join("home/a.key").display()))
    }

    fn tidelock(&self, args: &[&str]) -> Result<Tool<'p>> {
        Ok(self.place.tool(self.place.programs()?.command).args(args))
    }

    /// What a server is told: `put %p` or `get %f %p`.
    fn command(&self, what: &str) -> Result<String> {
        let program = self.place.programs()?.command;
        Ok(format!("{} wal {what} {}", program.display(), self.dir.display()))
    }

    fn put(&self, file: &Path) -> Result<Tool<'p>> {
        Ok(self.tidelock(&["wal", "put"])?.arg(file).arg(&self.dir))
    }

    fn archives(&self, cluster: &Cluster<'_>) -> Result<()> {
        cluster.set("archive_mode", "on")?;
        cluster.set("archive_command", &self.command("put %p")?)
    }

    fn new_data_key_of(&self, dir: &Path) -> Result<()> {
        self.tidelock(&["key", "new-data-key", "-D"])?.arg(dir).run().map(drop)
    }

    /// Every file opens, and is proven; what is missing is a problem too.
    fn check(&self) -> Result<String> {
        let report = self.tidelock(&["wal", "check"])?.arg(&self.dir).run()?;
        self.tidelock(&["verify", "-D"])?.arg(&self.dir).run()?;
        Ok(report.stdout)
    }
}

/// Ends the segment and waits until it is archived.
fn archive_now(cluster: &Cluster<'_>) -> Result<String> {
    let last = cluster.sql("SELECT pg_walfile_name(pg_switch_wal())")?;
    cluster
        .wait_for(&format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver"), "t")?;
    Ok(last)
}

/// Makes a copy of the primary that has no WAL of its own yet and restores from the archive.
fn restores<'p>(
    place: &'p Workspace,
    name: &str,
    arm: Arm,
    primary: &Cluster<'_>,
    (command, signal): (&str, &str),
) -> Result<Cluster<'p>> {
    let copy = Cluster::empty(place, name, arm)?;
    copy.backup_of(primary, &["-X", "none"])?;
    copy.set("archive_mode", "off")?;
    copy.set("restore_command", command)?;
    place.write(&copy.dir().join(signal), "")?;
    Ok(copy)
}

/// The server comes up with what there was at the restore point.
fn restored(node: &Cluster<'_>) -> Result<()> {
    node.start()?;
    node.wait_for("SELECT pg_is_in_recovery()", "f")?;
    node.expect("SELECT count(*), count(DISTINCT b) FROM t", "3000|1")?;
    node.sql("CHECKPOINT")?;
    node.stop("fast")
}

/// The server ends by itself, for this reason, and never comes up.
fn stops_recovery(node: &Cluster<'_>, why: &str) -> Result<()> {
    let read = || fs::read_to_string(node.log()).map_err(Error::io("reading the log"));
    let before = fs::metadata(node.log()).map_or(0, |found| found.len());
    // It may have been consistent before it came to that file.
    if node.start().is_ok() {
        node.postmaster().ok().map(|it| it.wait_gone(Duration::from_secs(60))).transpose()?;
    }
    let log = read()?.split_off(usize::try_from(before).unwrap_or(0));
    let stopped = log.contains(why) && log.contains("FATAL:  could not restore file");
    ensure(stopped && !log.contains("selected new timeline"), || log.clone())
}

fn flip(path: &Path, at: usize) -> Result<()> {
    let mut bytes = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
    bytes[at] ^= 0xFF;
    fs::write(path, bytes).map_err(Error::io(format!("writing {}", path.display())))
}

/// The primary is of this arm; a sealed and a plain node restore what it archived. Neither has
/// another node's keys, and all three keyrings get new data keys on the way.
fn nodes_with_keys_of_their_own_restore_to_a_point_in_time(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let archive = Archive::with_key_file(&place)?;
    let primary = Cluster::new(&place, "primary", arm)?;
    archive.archives(&primary)?;
    primary.start()?;
    let marker = Marker::new();
    primary.sql("CREATE TABLE t (a int, b text)")?;
    let get = archive.command("get %f %p")?;
    let nodes = [("sealed", Arm::Sealed), ("plain", Arm::Plain)];
    let nodes =
        nodes.map(|(name, arm)| restores(&place, name, arm, &primary, (&get, "recovery.signal")));
    let insert =
        format!("INSERT INTO t SELECT g, '{}' FROM generate_series(1, 1000) g", marker.text());
    primary.sql(&insert)?;
    archive_now(&primary)?;
    if arm == Arm::Sealed {
        archive.new_data_key_of(primary.dir())?;
    }
    archive.new_data_key_of(&archive.dir)?;
    primary.sql(&insert)?;
    let middle = archive_now(&primary)?;
    primary.sql(&format!("{insert}; SELECT pg_create_restore_point('here')"))?;
    primary.sql(&insert)?;
    archive_now(&primary)?;
    primary.stop("fast")?;
    let report = archive.check()?;
    ensure(report.contains("0 problems, 0 notes"), || report.clone())?;
    let found = marker.search(&[&archive.dir]).map_err(Error::io("searching the archive"))?;
    ensure(found.findings.is_empty() && found.files > 4, || format!("{found:?}"))?;
    let files = fs::read_dir(&archive.dir).map_err(Error::io("listing the archive"))?.count();
    for node in nodes {
        let node = node?;
        node.set("recovery_target_name", "here")?;
        node.set("recovery_target_action", "promote")?;
        if arm == Arm::Plain || node.arm() == Arm::Plain {
            restored(&node)?;
            continue;
        }
        // A damaged segment is not the end of WAL: nothing comes up that lacks what is behind it.
        let segment = archive.dir.join(&middle);
        flip(&segment, 100_000)?;
        stops_recovery(&node, "the MAC over its bytes does not match")?;
        flip(&segment, 100_000)?;
        // Nor is an archive that is not mounted.
        let away = place.join("away");
        fs::rename(&archive.dir, &away).map_err(Error::io("moving the archive"))?;
        stops_recovery(&node, "archive is not a protected directory: it does not exist")?;
        fs::rename(&away, &archive.dir).map_err(Error::io("moving the archive back"))?;
        restored(&node)?;
        archive.tidelock(&["verify", "-D"])?.arg(node.dir()).run()?;
    }
    let now = fs::read_dir(&archive.dir).map_err(Error::io("listing the archive"))?.count();
    ensure(now == files, || format!("{now} files in the archive, not {files}"))
}
arms!(nodes_with_keys_of_their_own_restore_to_a_point_in_time: plain, sealed);

/// The running standby knows neither the primary nor its keys. pg_archivecleanup takes away what it
/// has replayed.
#[test]
fn a_running_archive_standby_goes_on_after_new_data_keys_everywhere() -> Result<()> {
    let place = Workspace::new()?;
    let archive = Archive::with_key_file(&place)?;
    let primary = Cluster::new(&place, "primary", Arm::Sealed)?;
    archive.archives(&primary)?;
    primary.start()?;
    primary.sql("CREATE TABLE t (a int)")?;
    let get = archive.command("get %f %p")?;
    let standby = restores(&place, "standby", Arm::Sealed, &primary, (&get, "standby.signal"))?;
    standby.set("wal_retrieve_retry_interval", "200ms")?;
    let cleanup =
        format!("/usr/lib/postgresql/15/bin/pg_archivecleanup {} %r", archive.dir.display());
    standby.set("archive_cleanup_command", &cleanup)?;
    let first = archive_now(&primary)?;
    standby.start()?;
    let dirs = [primary.dir(), &archive.dir, standby.dir()];
    for (round, dir) in dirs.into_iter().enumerate() {
        archive.new_data_key_of(dir)?;
        primary.sql("INSERT INTO t SELECT generate_series(1, 1000); CHECKPOINT")?;
        archive_now(&primary)?;
        standby.wait_for("SELECT count(*) FROM t", &format!("{}", 1000 * (round + 1)))?;
    }
    standby.sql("CHECKPOINT")?;
    let start = Instant::now();
    while archive.dir.join(&first).exists() {
        ensure(start.elapsed() < Duration::from_secs(30), || "nothing is cleaned up".into())?;
        thread::sleep(Duration::from_millis(100));
        standby.sql("CHECKPOINT")?;
    }
    primary.stop("fast")?;
    standby.wait_for("SELECT count(*) FROM t", "3000")?;
    standby.promote()?;
    standby.sql("INSERT INTO t VALUES (0)")?;
    standby.expect("SELECT count(*) FROM t", "3001")?;
    archive.check().map(drop)
}

/// A key service is asked when the archive is used first, not for each segment.
#[test]
fn the_provider_of_an_archive_is_asked_once_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let (asked, key) = (place.join("home/asked"), place.join("home/key"));
    let script = place.join("home/provider");
    place.write(&key, &"5a".repeat(32))?;
    place.write(
        &script,
        &format!("#!/bin/sh\necho asked >> {}\ncat {}\n", asked.display(), key.display()),
    )?;
    place.tool("chmod").arg("700").arg(&script).run()?;
    let archive = Archive::at(&place, "archive", &format!("command:{}", script.display()))?;
    let primary = Cluster::new(&place, "primary", Arm::Sealed)?;
    archive.archives(&primary)?;
    primary.start()?;
    fs::remove_file(&asked).map_err(Error::io("removing what init asked"))?;
    primary.sql("CREATE TABLE t (a int)")?;
    for _ in 0..5 {
        primary.sql("INSERT INTO t VALUES (1)")?;
        archive_now(&primary)?;
    }
    let count = fs::read_to_string(&asked).map_err(Error::io("reading what was asked"))?;
    ensure(count.lines().count() == 1, || format!("asked {} times", count.lines().count()))?;
    primary.stop("fast")?;
    archive.check().map(drop)
}

/// The server dies while it archives; then `wal put` at random moments, segment by segment.
#[test]
fn kill_nine_of_the_server_and_of_put_leaves_whole_segments_only() -> Result<()> {
    let place = Workspace::new()?;
    let archive = Archive::with_key_file(&place)?;
    let primary = Cluster::at(&place, "primary", Arm::Sealed)?;
    primary.make(&["--wal-segsize=1"])?;
    archive.archives(&primary)?;
    primary.set("wal_keep_size", "2GB")?;
    primary.start()?;
    primary.sql("CREATE TABLE t (a int, b text)")?;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..3 {
        let load =
            "INSERT INTO t SELECT g, repeat(md5(g::text), 8) FROM generate_series(1, 40000) g";
        let running = primary.psql("postgres", load).spawn()?;
        thread::sleep(Duration::from_millis(300 + random.u64(..600)));
        primary.kill_nine()?;
        drop(running);
        primary.start()?;
    }
    archive_now(&primary)?;
    primary.stop("fast")?;
    let report = archive.check()?;
    ensure(report.contains("0 problems, 0 notes"), || report.clone())?;
    let again =
        Archive::at(&place, "again", &format!("file:{}", place.join("home/b.key").display()))?;
    let (mut compared, mut begun) = (0, 0);
    // As long as one takes. A put that ends before its kill was given too long.
    let mut longest = None;
    for entry in fs::read_dir(&archive.dir).map_err(Error::io("listing the archive"))? {
        let name = entry.map_err(Error::io("listing the archive"))?.file_name();
        let original = primary.dir().join("pg_wal").join(&name);
        if name == ".tidelock" || !original.is_file() {
            continue;
        }
        // The same name again is compared, and refused where it differs.
        archive.put(&original)?.run()?;
        if longest.is_none() {
            let start = Instant::now();
            again.put(&original)?.run()?;
            longest = Some(start.elapsed());
            fs::remove_file(again.dir.join(&name)).map_err(Error::io("removing a segment"))?;
        }
        let longest = longest.get_or_insert_default();
        let count = || fs::read_dir(&again.dir).map(Iterator::count);
        let count = || count().map_err(Error::io("listing the archive"));
        let before = count()?;
        let mut killed = 0;
        while killed < 2 {
            let mut running = again.put(&original)?.spawn()?;
            thread::sleep(longest.mul_f64(random.f64()));
            if running.runs() {
                killed += 1;
                begun += usize::from(count()? > before);
            } else {
                *longest = longest.mul_f64(0.9);
            }
            drop(running);
        }
        // What is there now is whole, or nothing is.
        let plain = place.join("home/plain");
        let name = name.to_string_lossy();
        let got = again.tidelock(&["wal", "get", &name])?.arg(&plain).arg(&again.dir).attempt()?;
        ensure(matches!(got.status.code(), Some(0 | 1)), || got.text())?;
        again.put(&original)?.run()?;
        for archive in [&archive, &again] {
            archive.tidelock(&["wal", "get", &name])?.arg(&plain).arg(&archive.dir).run()?;
            let read = |path: &Path| {
                fs::read(path).map_err(Error::io(format!("reading {}", path.display())))
            };
            let sealed = archive.tidelock(&["cat"])?.arg(&original);
            let cat = place.join("home/cat");
            sealed.stdout_to(&cat).run()?;
            ensure(read(&plain)? == read(&cat)?, || format!("{name} differs"))?;
        }
        compared += 1;
        if compared == 20 {
            break;
        }
    }
    ensure(compared == 20, || format!("{compared} compared"))?;
    println!("{begun} of 40 kills met a put that had begun to write");
    ensure(begun > 0, || "no put was killed while it wrote".into())?;
    let left = fs::read_dir(&again.dir).map_err(Error::io("listing the archive"))?.count();
    ensure(left == 21, || format!("{left} names in the archive"))
}

/// What pg_receivewal and basic_archive write elsewhere is plain. It can be restored into a sealed
/// node all the same, and brought into the archive.
#[test]
fn plain_archives_are_restored_into_a_sealed_node() -> Result<()> {
    let place = Workspace::new()?;
    let archive = Archive::with_key_file(&place)?;
    let (basic, received) = (place.make_dir("basic")?, place.make_dir("received")?);
    let primary = Cluster::new(&place, "primary", Arm::Sealed)?;
    primary.set("archive_mode", "on")?;
    primary.set("archive_library", "basic_archive")?;
    primary.set("basic_archive.archive_directory", &basic.display().to_string())?;
    primary.start()?;
    primary.sql("CREATE TABLE t (a int); SELECT pg_create_physical_replication_slot('r', true)")?;
    let get = archive.command("get --plain %f %p")?;
    let command = get.replace(&archive.dir.display().to_string(), &basic.display().to_string());
    let node = restores(&place, "node", Arm::Sealed, &primary, (&command, "recovery.signal"))?;
    primary.sql("INSERT INTO t SELECT generate_series(1, 1000)")?;
    archive_now(&primary)?;
    primary.sql("INSERT INTO t SELECT generate_series(1, 1000)")?;
    let last = archive_now(&primary)?;
    let end = primary.sql("SELECT pg_current_wal_lsn()")?;
    // To a plain directory, and through the library into the archive.
    for dir in [&received, &archive.dir] {
        let arm = if *dir == received { Arm::Plain } else { Arm::Sealed };
        place
            .tool("pg_receivewal")
            .under(arm, dir)
            .args(["-d", &primary.conninfo(), "-S", "r", "--no-loop", "-E", &end, "-D"])
            .arg(dir)
            .run()?;
        primary.sql("SELECT pg_drop_replication_slot('r'); SELECT pg_create_physical_replication_slot('r', true)")?;
    }
    primary.stop("fast")?;
    for dir in [&basic, &received] {
        let first = fs::read(dir.join(&last)).map_err(Error::io("reading a segment"))?;
        ensure(first.starts_with(&WAL_PAGE_MAGIC), || format!("{} is sealed", dir.display()))?;
    }
    archive.put(&received.join(&last))?.run()?;
    let dump = place.tool("pg_waldump").under(Arm::Sealed, &archive.dir).arg("--stats");
    let dump = dump.arg(archive.dir.join(&last)).run()?;
    ensure(dump.stdout.contains("Heap"), || dump.text())?;
    archive.check()?;
    // Garbage under the name of a segment is refused, at which recovery stops.
    let garbage = place.join("home/garbage");
    fs::create_dir(&garbage).map_err(Error::io("making a directory"))?;
    fs::write(garbage.join(&last), vec![0x5A; 16 << 20]).map_err(Error::io("writing garbage"))?;
    let refused =
        archive.tidelock(&["wal", "get", "--plain", &last])?.arg(node.dir().join("pg_wal/x"));
    let refused = refused.arg(&garbage).fails()?;
    ensure(refused.status.code() == Some(205), || refused.text())?;
    node.start()?;
    node.wait_for("SELECT pg_is_in_recovery()", "f")?;
    node.expect("SELECT count(*) FROM t", "2000")?;
    node.stop("fast")?;
    archive.tidelock(&["verify", "-D"])?.arg(node.dir()).run().map(drop)
}

/// A backup that has what it needs would start without the archive: the rows behind it are what a
/// recovery that ends early loses.
#[test]
fn cp_from_a_plain_archive_stops_recovery_instead_of_ending_it_early() -> Result<()> {
    let place = Workspace::new()?;
    let archive = place.make_dir("archive")?;
    let primary = Cluster::new(&place, "primary", Arm::Plain)?;
    primary.set("archive_mode", "on")?;
    primary.set("archive_command", &format!("cp %p {}/%f", archive.display()))?;
    primary.start()?;
    primary.sql("CREATE TABLE t (a int)")?;
    let node = Cluster::empty(&place, "node", Arm::Sealed)?;
    node.backup_of(&primary, &["-X", "stream"])?;
    primary.sql("INSERT INTO t SELECT generate_series(1, 1000)")?;
    archive_now(&primary)?;
    primary.stop("fast")?;
    node.set("archive_mode", "off")?;
    place.write(&node.dir().join("recovery.signal"), "")?;
    for command in ["cp", "exec /bin/cp", "set -e; cp"] {
        node.set("restore_command", &format!("{command} {}/%f %p", archive.display()))?;
        node.start_fails()?;
        let log = fs::read_to_string(node.log()).map_err(Error::io("reading the log"))?;
        ensure(log.contains("tidelock wal get --plain"), || log)?;
    }
    let tidelock = place.programs()?.command;
    let get = format!("{} wal get --plain %f %p {}", tidelock.display(), archive.display());
    node.set("restore_command", &get)?;
    node.start()?;
    node.wait_for("SELECT pg_is_in_recovery()", "f")?;
    node.expect("SELECT count(*) FROM t", "1000")?;
    node.stop("fast")
}

/// A directory stands for the object store.
#[test]
fn an_archive_behind_a_command_restores_and_refuses_what_was_cut() -> Result<()> {
    let place = Workspace::new()?;
    let archive = Archive::with_key_file(&place)?;
    let store = place.make_dir("store")?;
    let at = store.display();
    let primary = Cluster::new(&place, "primary", Arm::Sealed)?;
    primary.set("archive_mode", "on")?;
    let put = format!("--through \"cat > {at}/%f.new && mv {at}/%f.new {at}/%f\"");
    primary.set("archive_command", &archive.command(&format!("put {put} %p"))?)?;
    primary.start()?;
    primary.sql("CREATE TABLE t (a int)")?;
    let get = archive.command(&format!(
        "get --not-there 3 --through \"test -f {at}/%f || exit 3; cat {at}/%f\" %f %p"
    ))?;
    let node = restores(&place, "node", Arm::Sealed, &primary, (&get, "recovery.signal"))?;
    primary.sql("INSERT INTO t SELECT generate_series(1, 1000)")?;
    let last = archive_now(&primary)?;
    primary.stop("fast")?;
    let file = store.join(&last);
    let bytes = fs::read(&file).map_err(Error::io("reading the store"))?;
    fs::write(&file, &bytes[..bytes.len() / 2]).map_err(Error::io("cutting a stream"))?;
    stops_recovery(&node, "is cut or changed")?;
    fs::write(&file, &bytes).map_err(Error::io("mending a stream"))?;
    node.start()?;
    node.wait_for("SELECT pg_is_in_recovery()", "f")?;
    node.expect("SELECT count(*) FROM t", "1000")
}

/// XLOG_PAGE_MAGIC of PostgreSQL 15 (xlog_internal.h), little-endian.
const WAL_PAGE_MAGIC: [u8; 2] = [0x10, 0xd1];
