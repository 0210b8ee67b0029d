//! Keys that change under a running server: new data keys, rotated and removed slots, another
//! node's keys.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tidelock_servers::skip;
use tidelock_testkit::arms;
use tidelock_testkit::pg::{
    Arm, Cluster, Error, Load, Process, Result, Workspace, ensure, fill_pgbench,
};

/// `tidelock key VERB -D DIR ...` of a cluster; what it prints.
fn key(cluster: &Cluster<'_>, verb: &str, args: &[&str]) -> Result<String> {
    let dir = cluster.dir().display().to_string();
    let tool = cluster.tidelock(&["key", verb, "-D", &dir])?;
    Ok(tool.args(args).run()?.stdout)
}

fn json(cluster: &Cluster<'_>, args: &[&str]) -> Result<Value> {
    let output = cluster.tidelock(args)?.run()?;
    serde_json::from_str(&output.stdout).map_err(|why| Error::Unexpected(why.to_string()))
}

/// Ids of the slots of this type.
fn slots(cluster: &Cluster<'_>, kind: &str) -> Result<Vec<String>> {
    let dir = cluster.dir().display().to_string();
    let report = json(cluster, &["key", "list", "--json", "-D", &dir])?;
    let slots = report["slots"].as_array().cloned().unwrap_or_default();
    let ids =
        slots.iter().filter(|slot| slot["kind"] == kind).filter_map(|slot| slot["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// The data key of new files.
fn current(cluster: &Cluster<'_>) -> Result<String> {
    let dir = cluster.dir().display().to_string();
    let report = json(cluster, &["status", "--json", "-D", &dir])?;
    let keys = report["unlocked"]["data_keys"].as_array().cloned().unwrap_or_default();
    let current = keys.iter().find(|key| key["state"] == "current");
    Ok(current.and_then(|key| key["id"].as_str()).unwrap_or_default().to_owned())
}

/// The data key that a file is sealed under.
fn data_key(cluster: &Cluster<'_>, file: &Path) -> Result<String> {
    let file = file.display().to_string();
    let report = json(cluster, &["inspect", "--json", &file])?.to_string();
    let at = report.find("\"data_key\":\"").map(|at| at + 12);
    Ok(at.and_then(|at| report.get(at..at + 32)).unwrap_or_default().to_owned())
}

/// The file of a new table.
fn new_table(cluster: &Cluster<'_>, name: &str) -> Result<std::path::PathBuf> {
    cluster.sql(&format!("CREATE TABLE {name} AS SELECT g FROM generate_series(1, 1000) g"))?;
    Ok(cluster.dir().join(cluster.sql(&format!("SELECT pg_relation_filepath('{name}')"))?.trim()))
}

/// Everything that `key` changes, under four clients and a base backup: no transaction fails, no
/// backup either, and the server comes back after each.
fn keys_change_under_load_and_backup(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let server = Cluster::started(&place, "server", arm)?;
    let copy = Cluster::empty(&place, "copy", arm)?;
    fill_pgbench(&server, 2)?;
    let first = current(&server)?;
    let before = new_table(&server, "before")?;
    ensure(data_key(&server, &before)? == first, || {
        format!("{} is not under {first}", before.display())
    })?;
    let recovery = place.join("home/server.recovery").display().to_string();
    let new_key =
        |name: &str| format!("file:{}", place.join(&format!("home/{name}.key")).display());
    thread::scope(|scope| {
        let load = scope.spawn(|| Load::tpcb(4, 15).run(&server));
        let backup = scope.spawn(|| copy.backup_of(&server, &["-R", "--max-rate=4M"]));
        // The backends of the load live on: they get the key with their next file.
        key(&server, "new-data-key", &[])?;
        let second = current(&server)?;
        let table = new_table(&server, "after")?;
        ensure(second != first && data_key(&server, &table)? == second, || {
            "an old data key".into()
        })?;
        key(&server, "add", &[&new_key("second")])?;
        let old = slots(&server, "file")?;
        key(&server, "remove", &[&old[0], "--recovery-file", &recovery])?;
        let left = slots(&server, "file")?;
        let to = new_key("third");
        let words = ["--slot", &left[0], "--to", &to, "--recovery-file", &recovery];
        key(&server, "rotate", &words)?;
        for _ in 0..3 {
            key(&server, "new-data-key", &[])?;
        }
        let run = load.join().map_err(|_| Error::Unexpected("the load panicked".into()))??;
        ensure(run.transactions > 0.0, || "no transaction was done".into())?;
        backup.join().map_err(|_| Error::Unexpected("the backup panicked".into()))?
    })?;
    let table = new_table(&server, "last")?;
    ensure(data_key(&server, &table)? == current(&server)?, || "an old data key".into())?;
    let balances =
        "SELECT sum(bbalance) = (SELECT sum(tbalance) FROM pgbench_tellers) FROM pgbench_branches";
    server.expect(balances, "t")?;
    copy.start()?;
    copy.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'last'", "1")?;
    copy.wait_for(balances, "t")?;
    copy.stop("fast")?;
    // With the keys that are left now, and no agent that remembers others.
    server.kill_nine()?;
    place.wait_for_agents()?;
    server.start()?;
    server.expect("SELECT (SELECT count(*) FROM before) + (SELECT count(*) FROM last)", "2000")?;
    key(&server, "check", &[]).map(drop)
}
arms!(keys_change_under_load_and_backup: sealed);

/// An archive that `cp` made is sealed under the keys of the node that wrote it; another node reads
/// it once it has adopted them, and seals its own files with its own keys still.
fn another_nodes_archive_is_read_after_adopting_its_keys(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let archive = place.make_dir("archive")?;
    let source = Cluster::new(&place, "source", arm)?;
    source.set("archive_mode", "on")?;
    source.set("archive_command", &format!("cp %p {}/%f", archive.display()))?;
    source.start()?;
    let node = Cluster::empty(&place, "node", arm)?;
    node.backup_of(&source, &[])?;
    source.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 5000) g")?;
    source.sql("SELECT pg_switch_wal()")?;
    source.wait_for("SELECT count(*) > 0 FROM pg_stat_archiver WHERE archived_count > 1", "t")?;
    source.stop("fast")?;
    node.set("restore_command", &format!("cp {}/%f %p", archive.display()))?;
    node.set("archive_mode", "off")?;
    place.write(&node.dir().join("recovery.signal"), "")?;
    node.start_fails()?;
    let from = source.dir().display().to_string();
    key(&node, "adopt", &["--from", &from])?;
    node.start()?;
    node.wait_for("SELECT count(*) FROM t", "5000")?;
    node.wait_for("SELECT pg_is_in_recovery()", "f")?;
    let table = new_table(&node, "own")?;
    ensure(data_key(&node, &table)? == current(&node)?, || "a new file under adopted keys".into())
}
arms!(another_nodes_archive_is_read_after_adopting_its_keys: sealed);

/// Root's commands reach the agent of the server's user, which cannot see which program asks it.
#[test]
fn roots_key_commands_reach_the_agent_of_the_servers_user() -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("a command of root's") {
        return Ok(());
    }
    let server = Cluster::new(&place, "server", Arm::Sealed)?;
    // One log for both, in the test's own folder.
    let config = place.join("home/.config");
    let keyrings = fs::read_dir(config.join("tidelock/keyrings")).map_err(Error::io("listing"))?;
    for file in keyrings.flatten().map(|entry| entry.path()) {
        let text = fs::read_to_string(&file).map_err(Error::io("reading the configuration"))?;
        let log = place.join("home/audit.log");
        fs::write(&file, format!("audit = \"file:{}\"\n{text}", log.display()))
            .map_err(Error::io("writing the configuration"))?;
    }
    // Root takes no configuration from another user's home.
    let roots = place.join("roots");
    fs::create_dir_all(roots.join("tidelock/keyrings")).map_err(Error::io("making roots"))?;
    let keyrings = fs::read_dir(config.join("tidelock/keyrings")).map_err(Error::io("listing"))?;
    for file in keyrings.flatten() {
        let copy = roots.join("tidelock/keyrings").join(file.file_name());
        fs::copy(file.path(), copy).map_err(Error::io("copying the configuration"))?;
    }
    place.wait_for_agents()?;
    server.start()?;
    let first = current(&server)?;
    let dir = server.dir().display().to_string();
    let root = |args: &[&str]| -> Result<String> {
        let tool = server.tidelock(args)?.as_ourselves();
        Ok(tool.env("XDG_CONFIG_HOME", &roots).run()?.text())
    };
    let said = root(&["key", "new-data-key", "-D", &dir])?;
    ensure(said.contains("seals new files"), || said.clone())?;
    let second = current(&server)?;
    let table = new_table(&server, "by_root")?;
    let found = data_key(&server, &table)?;
    ensure(second != first && found == second, || {
        format!("a new file is under {found}; first {first}, current {second}")
    })?;
    // With an agent of root's own beside it, both are told.
    root(&["exec", "-D", &dir, "--", "true"])?;
    root(&["key", "new-data-key", "-D", &dir])?;
    let third = current(&server)?;
    let table = new_table(&server, "by_root_again")?;
    let found = data_key(&server, &table)?;
    ensure(third != second && found == third, || {
        format!("a new file is under {found}; current is {third}")
    })?;
    let log = root(&["audit", "show", "-D", &dir])?;
    ensure(!log.contains("\"refuse\""), || log.clone())
}

/// The server would panic over its own log, and say nothing of keys.
#[test]
fn a_keyring_that_was_rolled_back_is_told_before_the_server_starts() -> Result<()> {
    let place = Workspace::new()?;
    let server = Cluster::started(&place, "server", Arm::Sealed)?;
    let keyring = server.dir().join(".tidelock/keyring");
    let older = fs::read(&keyring).map_err(Error::io("reading the keyring"))?;
    key(&server, "new-data-key", &[])?;
    new_table(&server, "after")?;
    server.sql("SELECT pg_switch_wal()")?;
    server.sql("CREATE TABLE last AS SELECT 1 AS a")?;
    server.stop("fast")?;
    place.wait_for_agents()?;
    let newest = fs::read(&keyring).map_err(Error::io("reading the keyring"))?;
    let lock = server.dir().join(".tidelock/lock");
    // By what was announced, and by the files where that is lost too.
    for announced in [true, false] {
        fs::write(&keyring, &older).map_err(Error::io("rolling the keyring back"))?;
        if !announced {
            fs::remove_file(&lock).map_err(Error::io("removing the lock file"))?;
        }
        for output in [
            server.tidelock(&["key", "check", "-D"])?.arg(server.dir()).fails()?,
            server.start_fails()?,
        ] {
            let text = output.text();
            ensure(output.status.code() == Some(4), || text.clone())?;
            ensure(text.contains("rolled back") && text.contains("hint:"), || text.clone())?;
            ensure(!text.contains("PANIC"), || text.clone())?;
        }
    }
    fs::write(&keyring, &newest).map_err(Error::io("putting the keyring back"))?;
    place.account().give(&keyring)?;
    server.tidelock(&["key", "check", "-D"])?.arg(server.dir()).run()?;
    server.start()?;
    server.expect("SELECT count(*) FROM last", "1")
}

/// What `status` says of the agent and warns of.
fn status(cluster: &Cluster<'_>) -> Result<(Option<Process>, String)> {
    let dir = cluster.dir().display().to_string();
    let report = json(cluster, &["status", "--json", "-D", &dir])?;
    let pid = report["agent"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    Ok((pid.and_then(Process::new), report["warnings"].to_string()))
}

/// As a crash would end it: its socket stays.
fn kill_agent(cluster: &Cluster<'_>) -> Result<()> {
    let (agent, _) = status(cluster)?;
    let agent = agent.ok_or_else(|| Error::Unexpected("no agent is alive".into()))?;
    agent.signal(Signal::KILL)?;
    agent.wait_gone(Duration::from_secs(30))
}

/// A server goes on without its agent. A new data key reaches it all the same: by an agent that
/// `key` leaves behind, and by one that the library starts where that one is gone too.
fn a_new_data_key_is_used_though_the_agent_was_killed(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let server = Cluster::started(&place, "server", arm)?;
    let first = current(&server)?;
    kill_agent(&server)?;
    let (agent, warnings) = status(&server)?;
    ensure(agent.is_none() && warnings.contains("\"no_agent\""), || {
        format!("no agent is alive, and status warns of {warnings}")
    })?;
    key(&server, "new-data-key", &[])?;
    let second = current(&server)?;
    let table = new_table(&server, "by_key")?;
    let found = data_key(&server, &table)?;
    ensure(second != first && found == second, || {
        format!("a new file is under {found}; first {first}, current {second}")
    })?;
    let (agent, warnings) = status(&server)?;
    ensure(agent.is_some() && !warnings.contains("\"no_agent\""), || warnings)?;

    key(&server, "new-data-key", &[])?;
    kill_agent(&server)?;
    let third = current(&server)?;
    let table = new_table(&server, "by_library")?;
    let found = data_key(&server, &table)?;
    ensure(third != second && found == third, || {
        format!("a new file is under {found}; current is {third}")
    })?;
    server.stop("fast")?;
    place.wait_for_agents()
}
arms!(a_new_data_key_is_used_though_the_agent_was_killed: sealed);

/// The server itself learns of a change before it forks. So new connections, and the recovery after
/// a backend was killed, open files of the new key though no agent is left and none can be started,
/// as with a passphrase.
#[test]
fn connections_open_files_of_a_new_key_though_no_agent_can_be_started() -> Result<()> {
    let place = Workspace::new()?;
    let server = Cluster::started(&place, "server", Arm::Sealed)?;
    key(&server, "new-data-key", &[])?;
    let second = current(&server)?;
    let table = new_table(&server, "before")?;
    let found = data_key(&server, &table)?;
    ensure(found == second, || format!("a new file is under {found}; current is {second}"))?;
    let key_file = place.join("home/server.key");
    let away = key_file.with_extension("away");
    kill_agent(&server)?;
    fs::rename(&key_file, &away).map_err(Error::io("moving the key file"))?;

    server.expect("SELECT count(*) FROM before", "1000")?;
    server.sql("CREATE TABLE after AS SELECT g FROM generate_series(1, 10) g")?;
    let sleeping = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    thread::scope(|threads| {
        let sleeper = threads.spawn(|| server.sql("SELECT pg_sleep(60)"));
        server.wait_for(&format!("SELECT count(*) FROM ({sleeping}) AS found"), "1")?;
        let pid = server.sql(sleeping)?;
        let backend = pid.trim().parse().ok().and_then(Process::new);
        let backend = backend.ok_or_else(|| Error::Unexpected(format!("pid {pid}")))?;
        backend.signal(Signal::KILL)?;
        let ended = sleeper.join();
        ensure(matches!(ended, Ok(Err(_))), || "the backend was killed".into())
    })?;
    // It recovers, and takes no connection meanwhile.
    let begun = Instant::now();
    while server.sql("SELECT 1").is_err() && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(100));
    }
    server.expect("SELECT count(*) FROM after", "10")?;
    server.expect("SELECT count(*) FROM before", "1000")?;
    fs::rename(&away, &key_file).map_err(Error::io("moving it back"))?;
    server.stop("fast")?;
    place.wait_for_agents()
}
