//! `tidelock protect` and `unprotect`: an existing server sealed and made plain again by one
//! command each, wherever they are killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::killed::{again, kill_at};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Tool, Workspace, ensure, fill_pgbench};

/// A server with pages, a tablespace and a marker in plain text.
fn filled<'p>(place: &'p Workspace, name: &str) -> Result<(Cluster<'p>, PathBuf)> {
    let cluster = Cluster::started(place, name, Arm::Plain)?;
    let space = place.make_dir(&format!("space-of-{name}"))?;
    fill_pgbench(&cluster, 1)?;
    cluster.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}';
         CREATE TABLE t TABLESPACE s AS SELECT g, '{MARKER}' || g AS told FROM generate_series(1, 20000) g;
         CHECKPOINT",
        space.display()
    ))?;
    Ok((cluster, space))
}

const MARKER: &str = "plain-to-everybody-who-has-this-disk-";

fn same_rows(cluster: &Cluster<'_>) -> Result<()> {
    cluster.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    cluster.expect("SELECT count(*), sum(g) FROM t", "20000|200010000")
}

/// A call, as the account of the servers.
fn tidelock<'p>(place: &'p Workspace, what: &str, dir: &Path, more: &[&str]) -> Result<Tool<'p>> {
    let tool = place.tool(place.programs()?.command).args([what, "--yes", "-D"]).arg(dir);
    Ok(tool.args(more).limit(300))
}

fn protect<'p>(place: &'p Workspace, dir: &Path) -> Result<Tool<'p>> {
    let key = format!("file:{}", place.join("home/key").display());
    let copy = place.join("home/keyring-copy");
    let copy = copy.display().to_string();
    tidelock(place, "protect", dir, &["--no-recovery", "--provider", &key, "--keyring-copy", &copy])
}

fn unprotect<'p>(place: &'p Workspace, dir: &Path) -> Result<Tool<'p>> {
    tidelock(place, "unprotect", dir, &[])
}

/// In how many files below these directories the marker stands.
fn seen(dirs: &[&Path]) -> Result<usize> {
    let found = Marker::of(MARKER.to_owned()).search(dirs).map_err(Error::io("searching"))?;
    Ok(found.findings.len())
}

fn library_in(cluster: &Cluster<'_>) -> Result<bool> {
    let maps = format!("/proc/{}/maps", cluster.postmaster()?.id());
    let maps = fs::read_to_string(&maps).map_err(Error::io("reading maps"))?;
    Ok(maps.contains("libtidelock_preload"))
}

#[test]
fn a_running_server_is_sealed_and_made_plain_again_by_one_command_each() -> Result<()> {
    let place = Workspace::new()?;
    let (cluster, space) = filled(&place, "main")?;
    ensure(seen(&[cluster.dir(), &space])? > 0, || "the control finds nothing".into())?;
    let told = protect(&place, cluster.dir())?.run()?;
    let outside = format!("outside       {}, ", space.display());
    for line in ["stops ", &outside, "disk ", "clients ", "undo ", "with the library"] {
        ensure(told.stdout.contains(line), || format!("no {line}: {}", told.text()))?;
    }
    ensure(library_in(&cluster)?, || "the library is not loaded".into())?;
    same_rows(&cluster)?;
    cluster.sql("INSERT INTO t VALUES (0, 'later'); CHECKPOINT")?;
    ensure(seen(&[cluster.dir(), &space])? == 0, || "the marker is seen".into())?;
    ensure(place.join("home/keyring-copy").exists(), || "no second copy".into())?;
    let again = protect(&place, cluster.dir())?.fails()?;
    ensure(again.stderr.contains("already"), || again.text())?;
    let told = unprotect(&place, cluster.dir())?.run()?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    ensure(told.stdout.contains(&outside), || told.text())?;
    ensure(!library_in(&cluster)?, || "the library is loaded".into())?;
    ensure(!cluster.dir().join(".tidelock").exists(), || "the keyring stays".into())?;
    cluster.expect("SELECT count(*) FROM t", "20001")?;
    cluster.sql("DELETE FROM t WHERE g = 0")?;
    same_rows(&cluster)?;
    cluster.stop("fast")?;
    place.tool("pg_checksums").arg("--check").arg("-D").arg(cluster.dir()).run().map(drop)
}

/// The links of a copy lead to what belongs to its original.
#[test]
fn places_outside_of_a_stopped_server_are_converted_only_if_somebody_says_whose_they_are()
-> Result<()> {
    let place = Workspace::new()?;
    let (cluster, space) = filled(&place, "main")?;
    cluster.stop("fast")?;
    let refused = |tool: Tool<'_>| -> Result<()> {
        let output = tool.fails()?;
        let said = output.stderr.contains("nobody has said that the places are its own");
        ensure(output.status.code() == Some(3) && said, || output.text())
    };
    refused(protect(&place, cluster.dir())?)?;
    ensure(!cluster.dir().join(".tidelock").exists(), || "a keyring was made".into())?;
    ensure(seen(&[&space])? > 0, || "the tablespace is sealed".into())?;
    protect(&place, cluster.dir())?.arg("--outside").run()?;
    ensure(seen(&[cluster.dir(), &space])? == 0, || "the marker is seen".into())?;
    refused(unprotect(&place, cluster.dir())?)?;
    ensure(seen(&[&space])? == 0, || "the tablespace is plain".into())?;
    unprotect(&place, cluster.dir())?.arg("--outside").run()?;
    cluster.start()?;
    same_rows(&cluster)
}

/// Who may read a server's environment (superusers, by COPY FROM PROGRAM) gets no key by that.
#[test]
fn a_server_has_no_credentials_of_whoever_protects_it_or_takes_it_back() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let secrets = ["AWS_SECRET_ACCESS_KEY", "VAULT_TOKEN", "TL_KEY"];
    let call = |what: &str, more: &[&str]| {
        let tool = tidelock(&place, what, cluster.dir(), more)?.env("TL_HARMLESS", "1");
        secrets.iter().fold(tool, |tool, name| tool.secret_env(name, "5a".repeat(32))).run()
    };
    let keys = ["--no-recovery", "--no-keyring-copy", "--provider", "env:TL_KEY"];
    // `tidelock exec`, which starts the sealed server, takes out what opens its keyring.
    let steps = [("protect", &keys[..], &secrets[2..]), ("unprotect", &[], &secrets)];
    for (what, more, secrets) in steps {
        call(what, more)?;
        ensure(library_in(&cluster)? == (what == "protect"), || format!("no {what}"))?;
        let path = format!("/proc/{}/environ", cluster.postmaster()?.id());
        let text = fs::read(&path).map_err(Error::io("reading the environment"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let names: Vec<_> = text.split('\0').filter_map(|it| it.split('=').next()).collect();
        ensure(names.contains(&"TL_HARMLESS"), || format!("{what}: {names:?}"))?;
        let found = secrets.iter().find(|name| names.contains(name));
        ensure(found.is_none(), || format!("{what}: the server has {found:?}"))?;
    }
    Ok(())
}

/// Where a call is killed.
const POINTS: [&str; 5] =
    ["it has begun", "the server has stopped", "some files are sealed", "all are", "it runs again"];

fn reached(point: &str, dir: &Path) -> bool {
    let record = fs::read_to_string(format!("{}.tidelock-protection", dir.display()));
    let stage = |name: &str| {
        record.as_ref().is_ok_and(|text| text.contains(&format!("stage = \"{name}\"")))
    };
    let runs = dir.join("postmaster.pid").exists();
    match point {
        "it has begun" => record.is_ok(),
        "the server has stopped" => record.is_ok() && !runs,
        "some files are sealed" => {
            let first = fs::read(dir.join("global/pg_control")).unwrap_or_default();
            first.starts_with(b"\x89TDLK")
        }
        "all are" => stage("converted"),
        _ => stage("converted") && runs,
    }
}

#[test]
#[ignore = "long: make test-full"]
fn killed_at_each_step_protect_goes_on() -> Result<()> {
    let place = Workspace::new()?;
    let (cluster, space) = filled(&place, "main")?;
    for point in POINTS {
        let start = Instant::now();
        let at = || reached(point, cluster.dir());
        while !kill_at(protect(&place, cluster.dir())?.spawn()?, at)? {
            ensure(start.elapsed() < Duration::from_secs(60), || format!("never: {point}"))?;
        }
    }
    let done = again(|| protect(&place, cluster.dir()))?;
    ensure(done.status.success(), || done.text())?;
    ensure(library_in(&cluster)?, || "the library is not loaded".into())?;
    same_rows(&cluster)?;
    ensure(seen(&[cluster.dir(), &space])? == 0, || "the marker is seen".into())
}

#[test]
fn killed_at_each_step_unprotect_takes_it_back() -> Result<()> {
    let place = Workspace::new()?;
    let (cluster, _) = filled(&place, "main")?;
    for point in POINTS {
        // The key file of the last round belongs to another keyring.
        for old in ["home/key", "home/keyring-copy"] {
            let _ = fs::remove_file(place.join(old));
        }
        let at = || reached(point, cluster.dir());
        ensure(kill_at(protect(&place, cluster.dir())?.spawn()?, at)?, || {
            format!("never: {point}")
        })?;
        let back = again(|| unprotect(&place, cluster.dir()))?;
        ensure(back.status.success(), || format!("{point}: {}", back.text()))?;
        ensure(!library_in(&cluster)?, || format!("{point}: the library is loaded"))?;
        ensure(!cluster.dir().join(".tidelock").exists(), || format!("{point}: a keyring"))?;
        same_rows(&cluster)?;
        let record = format!("{}.tidelock-protection", cluster.dir().display());
        ensure(!Path::new(&record).exists(), || format!("{point}: the record stays"))?;
    }
    cluster.stop("fast")?;
    place.tool("pg_checksums").arg("--check").arg("-D").arg(cluster.dir()).run().map(drop)
}

/// pg_ctl stops the server on, and keeps the lock until it is down.
#[test]
fn killed_while_the_server_stops_it_is_taken_back_once_the_server_is_down() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", Arm::Plain)?;
    let (dir, release) = (cluster.dir(), place.join("home/release"));
    // The server ends when all its WAL is archived.
    cluster.set("archive_mode", "on")?;
    let wait = format!("while ! test -e {}; do sleep 0.1; done", release.display());
    cluster.set("archive_command", &wait)?;
    cluster.start()?;
    cluster.sql("CREATE TABLE t AS SELECT 1 AS a; SELECT pg_switch_wal()")?;
    let stopping = || {
        let text = fs::read_to_string(dir.join("postmaster.pid"));
        text.is_ok_and(|text| text.contains("stopping"))
    };
    ensure(kill_at(protect(&place, dir)?.spawn()?, stopping)?, || "it never stopped".into())?;
    let early = unprotect(&place, dir)?.fails()?;
    ensure(early.stderr.contains("is at work"), || early.text())?;
    fs::write(&release, "").map_err(Error::io("letting the server end"))?;
    let back = again(|| unprotect(&place, dir))?;
    ensure(back.status.success(), || back.text())?;
    cluster.expect("SELECT a FROM t", "1")
}

#[test]
fn what_would_leave_a_server_that_does_not_come_back_is_refused_before_it_stops() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let dir = cluster.dir();
    let refused = |more: &[&str], said: &str| -> Result<()> {
        let output = tidelock(&place, "protect", dir, more)?.fails()?;
        ensure(output.status.code() == Some(3) && output.stderr.contains(said), || {
            format!("{said}: {}", output.text())
        })?;
        cluster.postmaster().map(drop)?;
        ensure(!dir.join(".tidelock").exists(), || "a keyring was made".into())
    };
    let inside = dir.join("copy").display().to_string();
    refused(&["--no-recovery"], "no second copy")?;
    refused(&["--no-keyring-copy"], "recovery key")?;
    refused(&["--no-recovery", "--keyring-copy", &inside], "lies inside")?;
    let shm = ["--no-recovery", "--no-keyring-copy", "--provider", "file:/dev/shm/tl-none.key"];
    refused(&shm, "lies in memory")?;
    let taken = place.join("home/taken");
    place.write(&taken, "another keyring's")?;
    let taken = taken.display().to_string();
    refused(&["--no-recovery", "--keyring-copy", &taken], "taken is there already")?;
    refused(&["--no-keyring-copy", "--recovery-file", &taken], "taken is there already")?;
    let closed = dir.join("base/closed");
    place.write(&closed, "what its owner cannot read")?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).map_err(Error::io("chmod"))?;
    refused(&["--no-recovery", "--no-keyring-copy"], "base/closed cannot be read by")?;
    fs::remove_file(&closed).map_err(Error::io("remove"))?;
    let conf = dir.join("postgresql.conf");
    let mut follower = place.tool("tail").arg("-f").arg(&conf).spawn()?;
    let fds = format!("/proc/{}/fd", follower.id());
    let opened = || {
        let all = fs::read_dir(&fds).into_iter().flatten().flatten();
        all.filter_map(|it| fs::read_link(it.path()).ok()).any(|path| path == conf)
    };
    let start = Instant::now();
    while !opened() && start.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(5));
    }
    refused(&["--no-recovery", "--no-keyring-copy"], "tail (process")?;
    ensure(follower.runs(), || "tail has ended".into())
}

/// The recovery key is written before the keyring.
#[test]
fn killed_between_recovery_key_and_keyring_protect_goes_on() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let (dir, recovery) = (cluster.dir(), place.join("home/recovery"));
    let key = format!("file:{}", place.join("home/key").display());
    let file = recovery.display().to_string();
    let more = ["--provider", &*key, "--recovery-file", &*file, "--no-keyring-copy"];
    let begun = || reached("it has begun", dir);
    let call = tidelock(&place, "protect", dir, &more)?;
    ensure(kill_at(call.spawn()?, begun)?, || "it was not killed".into())?;
    ensure(!dir.join(".tidelock/keyring").exists(), || "there is a keyring already".into())?;
    // As a conversion leaves it that is killed there, and one before it.
    place.write(&recovery, "opens nothing")?;
    place.write(&place.join("home/recovery.unused"), "an earlier one")?;
    let done = again(|| tidelock(&place, "protect", dir, &more))?;
    ensure(done.status.success(), || done.text())?;
    for (name, kept) in [("unused", "an earlier one"), ("unused-2", "opens nothing")] {
        let aside = fs::read_to_string(recovery.with_extension(name));
        ensure(aside.is_ok_and(|text| text == kept), || format!("{name}: {}", done.text()))?;
    }
    let opens = place.tool(place.programs()?.command).args(["cat", "--recovery-file", &file]);
    opens.arg(dir.join("global/pg_control")).run().map(drop)
}

/// A call for another directory may write one while a person reads the plan.
#[test]
fn a_recovery_key_that_was_written_since_the_plan_is_left_alone() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let (dir, recovery) = (cluster.dir(), place.join("home/recovery"));
    let key = format!("file:{}", place.join("home/key").display());
    let file = recovery.display().to_string();
    let more = ["--provider", &*key, "--recovery-file", &*file, "--no-keyring-copy"];
    let mut call = tidelock(&place, "protect", dir, &more)?.spawn()?;
    while call.runs() && !reached("it has begun", dir) {
        thread::sleep(Duration::from_millis(1));
        call.check_limit()?;
    }
    // It waits for the server's end now.
    place.write(&recovery, "opens another directory")?;
    let told = call.wait()?;
    ensure(told.status.code() == Some(3), || told.text())?;
    ensure(told.stderr.contains("is there already"), || told.text())?;
    ensure(told.stdout.contains("nothing is sealed"), || told.text())?;
    let kept = fs::read_to_string(&recovery);
    ensure(kept.is_ok_and(|text| text == "opens another directory"), || told.text())?;
    ensure(!recovery.with_extension("unused").exists(), || told.text())?;
    ensure(!dir.join(".tidelock").exists(), || "a keyring was made".into())?;
    cluster.expect("SELECT 1", "1")
}

/// By a copy, there and back; the server stops for the switchover only.
#[test]
#[ignore = "long: make test-full"]
fn without_stopping_there_and_back() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    fill_pgbench(&cluster, 1)?;
    cluster.sql(&format!(
        "CREATE TABLE t AS SELECT g, '{MARKER}' || g AS told FROM generate_series(1, 20000) g"
    ))?;
    let (new, back) = (place.join("new"), place.join("back"));
    let key = format!("file:{}", place.join("home/key").display());
    let copy = place.join("home/keyring-copy").display().to_string();
    let to = new.display().to_string();
    let keys = ["--no-recovery", "--provider", &key, "--keyring-copy", &copy];
    let by_a_copy = [&["--without-stopping", &to][..], &keys].concat();
    let told = tidelock(&place, "protect", cluster.dir(), &by_a_copy)?.run()?;
    ensure(told.stdout.contains("downtime"), || told.text())?;
    same_rows(&cluster)?;
    cluster.expect("SHOW data_directory", &to)?;
    ensure(Path::new(&copy).exists(), || "no second copy of the keyring".into())?;
    cluster.sql("CHECKPOINT")?;
    ensure(seen(&[&new])? == 0, || "the marker is seen".into())?;
    let to = back.display().to_string();
    let told = tidelock(&place, "unprotect", &new, &["--without-stopping", &to])?.run()?;
    ensure(told.stdout.contains("downtime"), || told.text())?;
    same_rows(&cluster)?;
    cluster.expect("SHOW data_directory", &to)?;
    Cluster::at(&place, "back", Arm::Plain)?.stop("fast")
}

/// The passphrase would be asked after the server has stopped.
#[test]
fn a_passphrase_that_nobody_can_type_is_refused_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    // A session of its own has no terminal.
    let told = place
        .tool("setsid")
        .arg("--wait")
        .arg(place.programs()?.command)
        .args(["protect", "--yes", "--no-recovery", "--provider", "passphrase"])
        .args(["--no-keyring-copy", "-D"])
        .arg(cluster.dir())
        .fails()?;
    ensure(told.status.code() == Some(3), || told.text())?;
    ensure(told.stderr.contains("there is no terminal to ask on"), || told.text())?;
    cluster.expect("SELECT 1", "1")?;
    ensure(!cluster.dir().join(".tidelock").exists(), || "a keyring was made".into())
}

/// A sealed server, and the key file that opens its keyring.
fn protected<'p>(place: &'p Workspace) -> Result<(Cluster<'p>, PathBuf)> {
    let cluster = Cluster::started(place, "main", Arm::Plain)?;
    protect(place, cluster.dir())?.run()?;
    Ok((cluster, place.join("home/key")))
}

/// `unprotect` is refused with this code and these words, and the server goes on as it was.
fn unprotect_is_refused(
    place: &Workspace,
    cluster: &Cluster<'_>,
    more: &[&str],
    said: (i32, &[&str]),
) -> Result<()> {
    let before = cluster.postmaster()?.id();
    let told = tidelock(place, "unprotect", cluster.dir(), more)?.fails()?;
    let (code, words) = said;
    ensure(told.status.code() == Some(code), || told.text())?;
    ensure(words.iter().all(|word| told.stderr.contains(word)), || told.text())?;
    ensure(cluster.postmaster()?.id() == before, || "another server runs".into())?;
    ensure(!reached("it has begun", cluster.dir()), || "a record was left".into())?;
    cluster.expect("SELECT 1", "1")
}

/// The server may be the last that has the keys.
#[test]
fn unprotect_of_a_keyring_that_does_not_open_leaves_the_server_up() -> Result<()> {
    let place = Workspace::new()?;
    let (cluster, key) = protected(&place)?;
    let moved = place.join("home/moved");
    fs::rename(&key, &moved).map_err(Error::io("moving the key file"))?;
    let said = ["does not open", "do not stop the server", "pg_dumpall"];
    unprotect_is_refused(&place, &cluster, &[], (4, &said))?;
    unprotect_is_refused(&place, &cluster, &["--recovery-file", "-"], (2, &["standard input"]))?;
    // It takes what `decrypt` takes, which goes by the same.
    let provider = format!("file:{}", moved.display());
    let more = ["--provider", &*provider, "--jobs", "1"];
    let told = tidelock(&place, "unprotect", cluster.dir(), &more)?.run()?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    cluster.expect("SELECT 1", "1")
}

/// A descriptor gives its passphrase once, and two processes need it.
#[test]
fn unprotect_hands_on_a_passphrase_that_a_pipe_gave() -> Result<()> {
    let place = Workspace::new()?;
    let (cluster, key) = protected(&place)?;
    let (command, dir) = (place.programs()?.command, cluster.dir());
    let sh = |line: &str| {
        let tool = place.tool("sh").args(["-c", line, "sh"]).arg(&command).arg(dir);
        tool.limit(300).run()
    };
    let words = "correct horse battery staple, twice over";
    sh(&format!("echo '{words}' | \"$1\" key add -D \"$2\" passphrase --new-passphrase-fd 0"))?;
    fs::remove_file(&key).map_err(Error::io("removing the key file"))?;
    let told = sh(&format!(
        "echo '{words}' | \"$1\" unprotect --yes -D \"$2\" --provider passphrase \
         --passphrase-fd 0"
    ))?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    cluster.expect("SELECT 1", "1")
}

#[test]
fn unprotect_refuses_what_would_hinder_it_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let (cluster, _) = protected(&place)?;
    let taken = place.join("home/taken");
    place.write(&taken, "another keyring's")?;
    let keep = ["--keep-keyring", &*taken.display().to_string()];
    unprotect_is_refused(&place, &cluster, &keep, (3, &["no copy of this keyring"]))?;
    let inside = cluster.dir().join("copy").display().to_string();
    let keep = ["--keep-keyring", &*inside];
    unprotect_is_refused(&place, &cluster, &keep, (3, &["lies in the directory"]))?;
    // It has the lock file of the directory open, and nothing else there.
    let tool = place.tool(place.programs()?.command).args(["exec", "-D"]).arg(cluster.dir());
    let mut idle = tool.args(["--", "sleep", "600"]).spawn()?;
    let lock = cluster.dir().join(".tidelock/lock");
    let fds = format!("/proc/{}/fd", idle.id());
    let start = Instant::now();
    let opened = || {
        let all = fs::read_dir(&fds).into_iter().flatten().flatten();
        all.filter_map(|it| fs::read_link(it.path()).ok()).any(|path| path == lock)
    };
    while !opened() && start.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(5));
    }
    let name = format!("sleep (process {})", idle.id());
    unprotect_is_refused(&place, &cluster, &[], (3, &[&name, "has keys of"]))?;
    ensure(idle.runs(), || "sleep has ended".into())
}

/// `protect` is refused with these words, and the server goes on as it was.
fn protect_is_refused(
    place: &Workspace,
    cluster: &Cluster<'_>,
    more: &[&str],
    said: &str,
) -> Result<()> {
    let before = cluster.postmaster()?.id();
    let options = [&["--no-recovery", "--no-keyring-copy"], more].concat();
    let told = tidelock(place, "protect", cluster.dir(), &options)?.fails()?;
    ensure(told.stderr.contains(said), || format!("{said}: {}", told.text()))?;
    ensure(cluster.postmaster()?.id() == before, || "another server runs".into())?;
    ensure(!reached("it has begun", cluster.dir()), || "a record was left".into())?;
    ensure(!cluster.dir().join(".tidelock").exists(), || "a keyring was made".into())
}

#[test]
fn a_provider_that_gives_no_key_is_found_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let refused = |provider: &str, said| {
        protect_is_refused(&place, &cluster, &["--provider", provider], said)
    };
    refused("command:exit 3", "the key command failed")?;
    let short = place.join("home/short");
    place.write(&short, "no key")?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&short, mode).map_err(Error::io("chmod of the key file"))?;
    refused(&format!("file:{}", short.display()), "short")
}

#[test]
fn files_that_cannot_be_converted_are_found_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let dir = cluster.dir();
    let failed = || Error::io("making a file of the test");
    place.write(&place.join("home/outside"), "one")?;
    let link = dir.join("base/link");
    std::os::unix::fs::symlink(place.join("home/outside"), &link).map_err(failed())?;
    protect_is_refused(&place, &cluster, &[], "is a link to a single file")?;
    let left = dir.join("base/.tidelock-convert-1");
    place.write(&left, "left")?;
    let plain = ["--plain", "base/link"];
    protect_is_refused(&place, &cluster, &plain, "has a name that conversions use")?;
    fs::rename(&left, dir.join("base/hard")).map_err(failed())?;
    fs::hard_link(dir.join("base/hard"), place.join("home/hard")).map_err(failed())?;
    protect_is_refused(&place, &cluster, &plain, "outside of the directory (hard links)")?;
    // What the hints name is taken.
    let options = ["--no-recovery", "--no-keyring-copy", "--leave-links", "--jobs", "1"];
    let listed = ["--program", "/usr/bin/od"];
    let told =
        tidelock(&place, "protect", dir, &[&options[..], &plain, &listed].concat())?.run()?;
    ensure(told.stdout.contains("with the library"), || told.text())?;
    // A program that is listed reads plain bytes wherever it is started; `nice` has no keys.
    let control = dir.join("global/pg_control");
    let first = ["/usr/bin/od", "-An", "-c", "-N5"];
    let bare = place.tool(first[0]).args(&first[1..]).arg(&control).run()?;
    ensure(bare.stdout.contains("T   D   L   K"), || bare.text())?;
    let exec = place.tool(place.programs()?.command).arg("exec").arg("-D").arg(dir);
    let told = exec.args(["--", "nice"]).args(first).arg(&control).run()?;
    ensure(!told.stdout.contains("T   D"), || told.text())?;
    let outside = fs::read(place.join("home/outside")).map_err(failed())?;
    ensure(outside == b"one", || "the file behind the link was sealed".into())
}

#[test]
fn a_server_that_was_stopped_for_nothing_is_started_again() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Plain)?;
    let dir = cluster.dir();
    let before = cluster.postmaster()?.id();
    // A key service that goes down with the server.
    let (pid, key) = (dir.join("postmaster.pid"), "ab".repeat(32));
    let provider = format!("command:test -e {} && echo {key}", pid.display());
    let recovery = place.join("home/recovery").display().to_string();
    let more = ["--provider", &*provider, "--recovery-file", &*recovery, "--no-keyring-copy"];
    let told = tidelock(&place, "protect", dir, &more)?.fails()?;
    ensure(told.status.code() == Some(1), || told.text())?;
    for line in ["without the library", "nothing is sealed"] {
        ensure(told.stdout.contains(line), || format!("no {line}: {}", told.text()))?;
    }
    ensure(cluster.postmaster()?.id() != before, || "it never stopped".into())?;
    cluster.expect("SELECT 1", "1")?;
    ensure(!dir.join(".tidelock").exists(), || "a keyring was made".into())?;
    ensure(!reached("it has begun", dir), || "the record stays".into())?;
    ensure(!Path::new(&recovery).exists(), || "a recovery key of no keyring".into())
}
