//! `tidelock migrate`: a running server moves into a protected directory and out of one, while
//! clients write, and wherever it is killed.

#[path = "postgres_migrate/refusals.rs"]
mod refusals;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidelock_testkit::killed::{again, kill_at};
use tidelock_testkit::pg::{
    Arm, Cluster, Error, Output, Result, Running, Tool, Workspace, ensure, fill_pgbench,
};

/// A call of migrate, as the account of the servers.
fn migrate<'p>(place: &'p Workspace, from: &Path, to: &Path, more: &[&str]) -> Result<Tool<'p>> {
    let key = place.join(&format!("home/{}.key", to.file_name().unwrap_or_default().display()));
    let mut tool = place.tool(place.programs()?.command).arg("migrate").arg(from).arg(to);
    if !["--without-keys", "--abort", "--forget"].iter().any(|it| more.contains(it)) {
        tool = tool.args(["--no-recovery", "--provider", &format!("file:{}", key.display())]);
    }
    Ok(tool.args(more).limit(300))
}

/// Clients that number the rows which they write one by one, and note each commit that they are
/// told of.
struct Writers {
    run: &'static str,
    notes: PathBuf,
    load: Running,
}

impl Writers {
    const TABLE: &str = "CREATE TABLE written (run text, client int, n int)";

    fn start(cluster: &Cluster<'_>, run: &'static str) -> Result<Self> {
        let place = cluster.workspace();
        let script = place.join(&format!("home/{run}.sql"));
        let text =
            format!("\\set n :n + 1\nINSERT INTO written VALUES ('{run}', :client_id, :n);\n");
        place.write(&script, &text)?;
        let notes = place.make_dir(&format!("told-{run}"))?;
        let load = cluster.client("pgbench").args(["-n", "-c", "3", "-j", "1", "-T", "200"]);
        let load = load.args(["-D", "n=0", "-l", "--log-prefix"]).arg(notes.join("told"));
        Ok(Self { run, notes, load: load.arg("-f").arg(script).spawn()? })
    }

    /// Each commit that a client was told of is there; how many they are, and how many rows. For
    /// when all clients have lost the old server.
    fn lost_nothing(self, server: &Cluster<'_>) -> Result<(usize, usize)> {
        let output = self.load.wait()?;
        let mut told = BTreeSet::new();
        for entry in fs::read_dir(&self.notes).map_err(Error::io("listing what was told"))? {
            let path = entry.map_err(Error::io("listing what was told"))?.path();
            let text = fs::read_to_string(&path).map_err(Error::io("reading what was told"))?;
            for line in text.lines() {
                // The client, and how many transactions it has done.
                let mut words = line.split(' ');
                let pair = words.next().zip(words.next());
                let (client, n) = pair.ok_or_else(|| Error::Unexpected(line.to_owned()))?;
                told.insert(format!("{client}|{n}"));
            }
        }
        ensure(told.len() > 50 && told.len() == acknowledged(&output)?, || {
            format!("{} commits were noted: {}", told.len(), output.text())
        })?;
        let run = self.run;
        let rows = server.sql(&format!("SELECT client, n FROM written WHERE run = '{run}'"))?;
        let rows: Vec<&str> = rows.lines().collect();
        let there: BTreeSet<&str> = rows.iter().copied().collect();
        let lost: Vec<_> = told.iter().filter(|pair| !there.contains(pair.as_str())).collect();
        ensure(lost.is_empty(), || {
            format!("acknowledged and lost (client, number): {lost:?} of {}", told.len())
        })?;
        // A client may have been cut off between its commit and the answer.
        ensure(rows.len() == there.len() && rows.len() <= told.len() + 3, || {
            format!("{} commits acknowledged, {} rows", told.len(), rows.len())
        })?;
        Ok((told.len(), rows.len()))
    }
}

fn acknowledged(output: &Output) -> Result<usize> {
    let line = output.stdout.lines().find(|line| line.contains("actually processed"));
    let number = line.and_then(|line| line.split(' ').filter_map(|it| it.parse().ok()).next());
    number.ok_or_else(|| Error::Unexpected(output.text()))
}

fn told(output: &Output, line: &str) -> Result<String> {
    let found = output.stdout.lines().find_map(|it| it.strip_prefix(line));
    found.map(|rest| rest.trim().to_owned()).ok_or_else(|| Error::Unexpected(output.text()))
}

fn is_plain_control(dir: &Path) -> Result<bool> {
    let path = dir.join("global/pg_control");
    let bytes = fs::read(&path).map_err(Error::io(format!("reading {}", path.display())))?;
    Ok(!bytes.starts_with(b"\x89TDLK"))
}

/// There and back; each time all that clients were told is there, and the old one does not start.
#[test]
fn no_acknowledged_commit_is_lost_from_plain_to_sealed_and_back() -> Result<()> {
    let place = Workspace::new()?;
    let first = Cluster::started(&place, "first", Arm::Plain)?;
    let space = place.make_dir("space")?;
    fill_pgbench(&first, 1)?;
    first.sql(&format!(
        "{};
         CREATE TABLESPACE s LOCATION '{}';
         CREATE TABLE in_space TABLESPACE s AS SELECT g FROM generate_series(1, 20000) g",
        Writers::TABLE,
        space.display()
    ))?;
    let ways = [(Arm::Plain, "first", "second"), (Arm::Sealed, "second", "third")];
    let mut old_space = space;
    for (arm, from, to_name) in ways {
        let (from, to) = (Cluster::at(&place, from, arm)?, place.join(to_name));
        let plain = arm == Arm::Sealed;
        let new_arm = if plain { Arm::Plain } else { Arm::Sealed };
        let new = Cluster::at(&place, to_name, new_arm)?;
        let new_space = place.join(&format!("space-of-{}", new_arm));
        let map = format!("{}={}", old_space.display(), new_space.display());
        let load = Writers::start(&first, to_name)?;
        let mut more = vec!["-T", &map, "--check", "sums", "--switch", "--yes"];
        if plain {
            more.push("--without-keys");
        }
        let output = migrate(&place, from.dir(), &to, &more)?.run()?;
        let (counted, rows) = load.lost_nothing(&first)?;
        let seconds = told(&output, "downtime")?;
        eprintln!("{arm}: {counted} acknowledged, {rows} there, downtime {seconds}");
        first.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
        first.expect("SELECT count(*) FROM in_space", "20000")?;
        first.expect("SHOW primary_conninfo", "")?;
        first.expect("SELECT pg_is_in_recovery()", "f")?;
        first.expect("SHOW data_directory", &to.display().to_string())?;
        ensure(is_plain_control(&to)? == plain, || {
            format!("{} is of the wrong kind", to.display())
        })?;
        from.start_fails()?;
        let log = fs::read_to_string(from.log()).map_err(Error::io("reading the log"))?;
        let refused = log.lines().last().unwrap_or_default();
        ensure(refused.contains("pg_control") || log.contains("pg_control\": No such"), || {
            log.clone()
        })?;
        ensure(!place.join(&format!("{}.tidelock-migration", to.display())).exists(), || {
            "the record stays".into()
        })?;
        ensure(!from.dir().join("pg_replslot").join("tidelock_migrate_second").exists(), || {
            "the slot stays".into()
        })?;
        if !plain {
            new.stop("fast")?;
            new.tidelock(&["verify", "-D"])?.arg(&to).run()?;
            new.start()?;
        }
        old_space = new_space;
        std::mem::forget(from);
        if plain {
            new.stop("fast")?;
            // The bare programs check the plain copy.
            place.tool("pg_checksums").arg("--check").arg("-D").arg(&to).run()?;
        } else {
            std::mem::forget(new);
        }
    }
    Ok(())
}

fn number(text: &str) -> Result<u64> {
    text.trim().parse().map_err(|_| Error::Unexpected(format!("{text:?} is not a number")))
}

/// Killed once at each of these, in this order.
const POINTS: [&str; 9] = [
    "the keyring is there",
    "the copy has begun",
    "the copy is whole",
    "the copy is checked",
    "the standby starts",
    "the source is told to stop",
    "the source has stopped",
    "the source cannot be started",
    "the new server is promoted",
];

fn reached(point: &str, from: &Path, to: &Path) -> bool {
    let there = |name: &str| to.join(name).exists();
    let record = fs::read_to_string(format!("{}.tidelock-migration", to.display()));
    let stage = |name: &str| {
        record.as_ref().is_ok_and(|text| text.contains(&format!("stage = \"{name}\"")))
    };
    match point {
        "the keyring is there" => there(".tidelock/keyring"),
        "the copy has begun" => there("base/1"),
        "the copy is whole" => there("backup_manifest"),
        "the copy is checked" => stage("following"),
        "the standby starts" => there("postmaster.pid"),
        "the source is told to stop" => stage("switching"),
        "the source has stopped" => stage("switching") && !from.join("postmaster.pid").exists(),
        "the source cannot be started" => from.join("global/pg_control.migrated").exists(),
        _ => stage("switching") && !there("standby.signal"),
    }
}

#[test]
fn killed_at_each_step_another_call_goes_on_and_no_commit_is_lost() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    fill_pgbench(&from, 1)?;
    from.sql(Writers::TABLE)?;
    let load = Writers::start(&from, "killed")?;
    let call = || migrate(&place, from.dir(), to.dir(), &["--switch", "--yes"]);
    let mut killed = Vec::new();
    for point in POINTS {
        let start = Instant::now();
        let mut hit = true;
        // One that is refused because the last one's copy goes on has reached nothing.
        while !kill_at(call()?.spawn()?, || reached(point, from.dir(), to.dir()))? {
            ensure(start.elapsed() < Duration::from_secs(60), || format!("never: {point}"))?;
            if reached("the new server is promoted", from.dir(), to.dir()) {
                hit = false;
                break;
            }
        }
        if hit {
            killed.push(point);
        }
    }
    // The steps after the switch follow each other within milliseconds.
    ensure(killed.len() + 3 >= POINTS.len(), || format!("killed at {killed:?} only"))?;
    let output = again(call)?;
    // The last of them may have been done before its kill.
    ensure(output.status.success() || output.stderr.contains("no server runs"), || output.text())?;
    let (counted, rows) = load.lost_nothing(&from)?;
    eprintln!("killed at {killed:?}: {counted} acknowledged, {rows} there");
    from.expect("SELECT pg_is_in_recovery()", "f")?;
    from.expect("SHOW data_directory", &to.dir().display().to_string())?;
    ensure(!is_plain_control(to.dir())?, || "pg_control is plain".into())?;
    to.stop("fast")?;
    to.tidelock(&["verify", "-D"])?.arg(to.dir()).run().map(drop)
}

/// Taken back while it follows, and when the source has stopped already.
#[test]
#[ignore = "long: make test-full"]
fn abort_leaves_the_source_running_as_before() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    from.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    let slots = "SELECT count(*) FROM pg_replication_slots";
    let aborted = |to: &Cluster<'_>| -> Result<()> {
        let output = again(|| migrate(&place, from.dir(), to.dir(), &["--abort"]))?;
        ensure(output.stdout.contains("as before"), || output.text())?;
        ensure(to.postmaster().is_err(), || "the standby runs".into())?;
        from.expect(slots, "0")?;
        from.expect(
            "SELECT count(*) FROM t; INSERT INTO t VALUES (0); DELETE FROM t WHERE g = 0",
            "1000",
        )?;
        let none = migrate(&place, from.dir(), to.dir(), &["--abort"])?.fails()?;
        ensure(none.stderr.contains("has begun"), || none.text())
    };
    let one = Cluster::at(&place, "one", Arm::Sealed)?;
    // A table that others write to all the time is let go, and holds up nobody.
    from.sql("CREATE TABLE busy (a int)")?;
    let writer = from.psql("postgres", "BEGIN; INSERT INTO busy VALUES (1); SELECT pg_sleep(60)");
    let writer = writer.spawn()?;
    from.wait_for("SELECT count(*) > 0 FROM pg_locks WHERE relation = 'busy'::regclass", "t")?;
    let counted = ["--check", "counts", "--yes"];
    let switched = [&counted[..], &["--switch"]].concat();
    let output = migrate(&place, from.dir(), one.dir(), &switched)?.fails()?;
    ensure(output.stderr.contains("1 table not compared"), || output.text())?;
    ensure(from.postmaster().is_ok(), || "the source was stopped".into())?;
    let output = migrate(&place, from.dir(), one.dir(), &counted)?.run()?;
    drop(writer);
    ensure(output.stdout.contains("--switch"), || output.text())?;
    ensure(output.stderr.contains("1 table not compared"), || output.text())?;
    ensure(output.stdout.contains("1 table, 1000 rows"), || output.text())?;
    from.expect(slots, "1")?;
    aborted(&one)?;
    let two = Cluster::at(&place, "two", Arm::Sealed)?;
    let call = migrate(&place, from.dir(), two.dir(), &["--check", "none", "--switch", "--yes"])?;
    let stopped = || reached("the source cannot be started", from.dir(), two.dir());
    ensure(kill_at(call.spawn()?, stopped)?, || "it was not killed".into())?;
    // The kill may have come after its promotion was asked for: then the new one has the data.
    let output = again(|| migrate(&place, from.dir(), two.dir(), &["--abort"]))?;
    if output.status.success() {
        from.expect(slots, "0")?;
        from.expect("SELECT count(*) FROM t", "1000")
    } else {
        ensure(output.stderr.contains("is promoted"), || output.text())
    }
}

/// As the line `by hand` says it, and then whatever the operator tries.
#[test]
fn abort_after_a_switchover_by_hand_does_not_stop_the_new_server() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    from.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    let call = |more: &[&str]| migrate(&place, from.dir(), to.dir(), more);
    let output = call(&["--yes"])?.run()?;
    let forget =
        format!("tidelock migrate {} {} --forget", from.dir().display(), to.dir().display());
    ensure(output.stdout.contains(&forget), || output.text())?;
    // While the copy follows there is something to take back.
    let early = call(&["--forget"])?.fails()?;
    ensure(early.stderr.contains("was not promoted"), || early.text())?;
    from.stop("fast")?;
    to.promote()?;
    to.stop("fast")?;
    to.start()?;
    from.sql("INSERT INTO t SELECT g FROM generate_series(1001, 1500) g")?;
    let postmaster = to.postmaster()?;
    for more in [&["--abort"][..], &["--switch", "--yes"], &["--yes"]] {
        let output = call(more)?.fails()?;
        ensure(output.stderr.contains("is no standby any more"), || output.text())?;
        ensure(output.stderr.contains(&forget), || output.text())?;
        ensure(output.status.code() == Some(3), || output.text())?;
        ensure(to.postmaster()?.id() == postmaster.id(), || "it was restarted".into())?;
    }
    let output = call(&["--forget"])?.run()?;
    ensure(output.stdout.contains("pg_drop_replication_slot"), || output.text())?;
    ensure(to.postmaster()?.id() == postmaster.id(), || "it was restarted".into())?;
    from.expect("SELECT count(*) FROM t", "1500")?;
    let record = place.join("to.tidelock-migration");
    ensure(!record.exists(), || "the record stays".into())?;
    let none = call(&["--forget"])?.fails()?;
    ensure(none.stderr.contains("has begun"), || none.text())?;
    to.stop("fast")
}

/// The copy took no commit any more, and the source goes on.
#[test]
fn a_switchover_to_a_copy_that_was_promoted_before_is_refused_and_stops_nothing() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    from.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    let call = |more: &[&str]| migrate(&place, from.dir(), to.dir(), more);
    call(&["--yes"])?.run()?;
    // Where the fence's name is taken, the source could be started after the switchover.
    let taken = from.dir().join("global/pg_control.migrated");
    place.write(&taken, "")?;
    let output = call(&["--switch", "--yes"])?.fails()?;
    ensure(output.stderr.contains("from another migration"), || output.text())?;
    from.expect("SELECT count(*) FROM t", "1000")?;
    fs::remove_file(&taken).map_err(Error::io("removing"))?;
    to.promote()?;
    from.sql("INSERT INTO t SELECT g FROM generate_series(1001, 1500) g")?;
    let (source, copy) = (from.postmaster()?.id(), to.postmaster()?.id());
    let record = place.join("to.tidelock-migration");
    let refused = |more: &[&str]| -> Result<()> {
        let output = call(more)?.fails()?;
        ensure(output.stderr.contains("is no standby any more"), || output.text())?;
        ensure(output.stderr.contains("--forget"), || output.text())?;
        ensure(record.exists(), || "the record is gone".into())?;
        ensure(to.postmaster()?.id() == copy, || "the copy was stopped".into())
    };
    refused(&["--switch", "--yes"])?;
    refused(&["--abort"])?;
    // The same where a killed call had told the source to stop, and before it was fenced.
    let text = fs::read_to_string(&record).map_err(Error::io("reading the record"))?;
    let switching = text.replace("stage = \"following\"", "stage = \"switching\"");
    ensure(switching != text, || text.clone())?;
    place.write(&record, &switching)?;
    refused(&["--switch", "--yes"])?;
    refused(&["--abort"])?;
    ensure(from.postmaster()?.id() == source, || "the source was stopped".into())?;
    from.expect("SELECT count(*) FROM t", "1500")?;
    from.stop("fast")?;
    refused(&["--switch", "--yes"])?;
    ensure(from.dir().join("global/pg_control").exists(), || "the source is fenced".into())?;
    // The source is the one that goes on.
    to.stop("fast")?;
    from.start()?;
    call(&["--forget"])?.run()?;
    from.sql("SELECT pg_drop_replication_slot('tidelock_migrate_to')")?;
    from.expect("SELECT count(*) FROM t", "1500")
}

/// PostgreSQL 13 to 15: the copy would find the file, and promote itself.
#[test]
fn a_trigger_file_of_the_source_does_not_promote_the_copy() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let setting = "SELECT count(*) FROM pg_settings WHERE name = 'promote_trigger_file'";
    if from.sql(setting)? == "0" {
        return Ok(());
    }
    let trigger = place.join("home/trigger");
    place.write(&trigger, "")?;
    from.set("promote_trigger_file", &trigger.display().to_string())?;
    from.restart()?;
    from.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    migrate(&place, from.dir(), to.dir(), &["--yes"])?.run()?;
    ensure(to.dir().join("standby.signal").exists(), || "the copy is promoted".into())?;
    ensure(trigger.exists(), || "the copy has used the trigger".into())?;
    migrate(&place, from.dir(), to.dir(), &["--switch", "--yes"])?.run()?;
    from.expect("SELECT count(*) FROM t", "1000")?;
    std::mem::forget(from);
    to.stop("fast")
}

/// PostgreSQL 17 and later: the promoted copy has to forget the source all the same.
#[test]
fn a_source_that_forbids_alter_system_is_switched_over() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let setting = "SELECT count(*) FROM pg_settings WHERE name = 'allow_alter_system'";
    if from.sql(setting)? == "0" {
        return Ok(());
    }
    from.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    from.set("allow_alter_system", "off")?;
    from.restart()?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    migrate(&place, from.dir(), to.dir(), &["--switch", "--yes"])?.run()?;
    from.expect("SELECT count(*) FROM t", "1000")?;
    from.expect("SHOW primary_conninfo", "")?;
    from.expect("SHOW allow_alter_system", "off")?;
    std::mem::forget(from);
    to.stop("fast")
}

/// No other copy of it is there: the standby archives nothing that it was sent.
#[test]
fn wal_that_no_archive_has_is_told_before_the_old_directory_is_removed() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::new(&place, "from", Arm::Plain)?;
    from.set("archive_mode", "on")?;
    from.set("archive_command", "false")?;
    from.start()?;
    from.sql("CREATE TABLE t AS SELECT 1 AS a; SELECT pg_switch_wal()")?;
    from.wait_for("SELECT failed_count > 0 FROM pg_stat_archiver", "t")?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    let output = migrate(&place, from.dir(), to.dir(), &["--switch", "--yes"])?.run()?;
    ensure(output.stderr.contains("not archived yet"), || output.text())?;
    let told = told(&output, "not archived")?;
    ensure(told.contains("000000010000000000000001 to "), || output.text())?;
    ensure(output.stdout.contains("when these are archived"), || output.text())?;
    std::mem::forget(from);
    to.stop("immediate")
}

/// The copy would run them, beside the source, before it has taken its place.
#[test]
#[ignore = "long: make test-full"]
fn commands_that_the_source_has_as_a_standby_are_not_run_by_the_copy() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::new(&place, "from", Arm::Plain)?;
    let ran = place.join("home/ran");
    for (name, code) in
        [("restore_command", 1), ("archive_cleanup_command", 0), ("recovery_end_command", 0)]
    {
        from.set(name, &format!("echo {name} >> {}; exit {code}", ran.display()))?;
    }
    from.set("recovery_min_apply_delay", "1h")?;
    from.start()?;
    from.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    let output = migrate(&place, from.dir(), to.dir(), &["--switch", "--yes"])?.run()?;
    ensure(output.stdout.contains("downtime"), || output.text())?;
    from.expect("SELECT count(*) FROM t", "1000")?;
    from.expect("SHOW recovery_min_apply_delay", "1h")?;
    ensure(!ran.exists(), || fs::read_to_string(&ran).unwrap_or_default())?;
    std::mem::forget(from);
    to.stop("fast")
}

/// By the stock tools: tar of a plain base backup, and cp of a sealed directory.
#[test]
#[ignore = "long: make test-full"]
fn a_plain_backup_restores_into_a_protected_directory_and_the_other_way_round() -> Result<()> {
    let place = Workspace::new()?;
    let rows = "SELECT count(*), sum(g) FROM t";
    let source = Cluster::started(&place, "source", Arm::Plain)?;
    source.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 20000) g")?;
    let out = place.join("home/backup");
    let backup = ["-d", &source.conninfo(), "-Ft", "-X", "fetch", "-c", "fast", "-D"];
    place.tool("pg_basebackup").args(backup).arg(&out).run()?;
    source.stop("fast")?;
    let sealed = Cluster::empty(&place, "sealed", Arm::Sealed)?;
    sealed.tool("tar").arg("-xf").arg(out.join("base.tar")).arg("-C").arg(sealed.dir()).run()?;
    ensure(!is_plain_control(sealed.dir())?, || "pg_control is plain".into())?;
    sealed.listen_here()?;
    sealed.start()?;
    sealed.expect(rows, "20000|200010000")?;
    sealed.stop("fast")?;
    sealed.tidelock(&["verify", "-D"])?.arg(sealed.dir()).run()?;

    let plain = Cluster::at(&place, "plain", Arm::Plain)?;
    let plain_dir = place.make_dir("plain")?;
    sealed.tool("cp").arg("-a").arg(sealed.dir().join(".")).arg(&plain_dir).run()?;
    ensure(is_plain_control(&plain_dir)?, || "pg_control is sealed".into())?;
    ensure(!plain_dir.join(".tidelock").exists(), || "the keyring came along".into())?;
    plain.listen_here()?;
    plain.start()?;
    plain.expect(rows, "20000|200010000")
}

/// A base backup through both sets of keys, and WAL on another disk than the rest.
#[test]
#[ignore = "long: make test-full"]
fn from_one_set_of_keys_to_another_with_wal_elsewhere() -> Result<()> {
    let place = Workspace::new()?;
    let first = Cluster::started(&place, "first", Arm::Sealed)?;
    fill_pgbench(&first, 1)?;
    let to = place.join("second");
    let wal = place.join("wal");
    let more = ["--waldir", &wal.display().to_string(), "--switch", "--yes"];
    migrate(&place, first.dir(), &to, &more)?.run()?;
    first.expect("SHOW data_directory", &to.display().to_string())?;
    first.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    first.sql("CREATE TABLE later AS SELECT 1; SELECT pg_switch_wal(); CHECKPOINT")?;
    let second = Cluster::at(&place, "second", Arm::Sealed)?;
    let leads = fs::read_link(to.join("pg_wal")).map_err(Error::io("reading the link"))?;
    ensure(leads == wal, || format!("pg_wal leads to {}", leads.display()))?;
    let keyring = |dir: &Path| -> Result<String> {
        let dir = dir.display().to_string();
        let status = second.tidelock(&["status", "-D", &dir])?.attempt()?;
        let line = status.stdout.lines().find(|line| line.starts_with("keyring "));
        line.map(str::to_owned).ok_or_else(|| Error::Unexpected(status.text()))
    };
    ensure(keyring(first.dir())? != keyring(&to)?, || "both have one keyring".into())?;
    // Nothing needs the keys of the first one.
    fs::remove_file(place.join("home/first.key")).map_err(Error::io("removing the key"))?;
    second.stop("fast")?;
    second.tidelock(&["verify", "-D"])?.arg(&to).run()?;
    place.wait_for_agents()?;
    second.listen_here()?;
    second.start()?;
    second.expect("SELECT count(*) FROM later", "1")
}
