//! `tidelock protect` and `unprotect` of an existing MariaDB server, wherever they are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidelock_testkit::killed::{again, kill_at};
use tidelock_testkit::maria::{installed, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Error, Process, Result, Tool, Workspace, ensure};

/// A server that the command stops and starts, so that it is no child of the test: ended on drop.
struct Found<'m, 'p>(&'m Mysqld<'p>);

impl Found<'_, '_> {
    fn process(&self) -> Result<Process> {
        let file = self.0.socket().with_file_name("pid");
        let text = fs::read_to_string(&file).map_err(Error::io("reading the process id"))?;
        let id = text.trim().parse().ok().and_then(Process::new);
        id.ok_or_else(|| Error::Unexpected(format!("{text:?} is no process id")))
    }

    fn library_is_loaded(&self) -> Result<bool> {
        let maps = format!("/proc/{}/maps", self.process()?.id());
        let maps = fs::read_to_string(maps).map_err(Error::io("reading maps"))?;
        Ok(maps.contains("libtidelock_preload"))
    }

    fn stop(&self) -> Result<()> {
        let process = self.process()?;
        process.signal(Signal::TERM)?;
        process.wait_gone(Duration::from_secs(120))
    }
}

impl Drop for Found<'_, '_> {
    fn drop(&mut self) {
        if let Ok(process) = self.process() {
            let _ = process.signal(Signal::KILL);
        }
    }
}

fn filled<'p>(place: &'p Workspace, marker: &Marker) -> Result<Mysqld<'p>> {
    let maria = installed(place, "m", Arm::Plain, &[("log_bin", "on")])?;
    // The sealed server has none outside; the last one counts.
    maria.set("tmpdir", &maria.dir().display().to_string())?;
    maria.start()?;
    let text = marker.text();
    maria.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE i (b TEXT) ENGINE = InnoDB;
         CREATE TABLE a (b TEXT) ENGINE = Aria; CREATE TABLE m (b TEXT) ENGINE = MyISAM;
         INSERT INTO i SELECT CONCAT('{text}', seq) FROM seq_1_to_3000;
         INSERT INTO a SELECT b FROM i; INSERT INTO m SELECT b FROM i"
    ))?;
    Ok(maria)
}

const SUMS: &str = "CHECKSUM TABLE d.i, d.a, d.m";

fn tidelock<'p>(place: &'p Workspace, what: &str, dir: &Path, more: &[&str]) -> Result<Tool<'p>> {
    let tool = place.tool(place.programs()?.command).args([what, "--yes", "-U", "root", "-D"]);
    Ok(tool.arg(dir).args(more).limit(300))
}

fn protect<'p>(place: &'p Workspace, dir: &Path) -> Result<Tool<'p>> {
    let key = format!("file:{}", place.join("home/key").display());
    let copy = place.join("home/keyring-copy").display().to_string();
    tidelock(place, "protect", dir, &["--no-recovery", "--provider", &key, "--keyring-copy", &copy])
}

fn unprotect<'p>(place: &'p Workspace, dir: &Path) -> Result<Tool<'p>> {
    tidelock(place, "unprotect", dir, &[])
}

/// The key file of the last round belongs to another keyring.
fn forget_keys(place: &Workspace) {
    for old in ["home/key", "home/keyring-copy"] {
        let _ = fs::remove_file(place.join(old));
    }
}

#[test]
#[ignore = "long: make test-full"]
fn a_running_server_is_sealed_and_made_plain_again_by_one_command_each() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = filled(&place, &marker)?;
    let found = Found(&maria);
    let wanted = maria.sql(SUMS)?;
    search(&marker, Arm::Plain, &[maria.dir()])?;
    let told = protect(&place, maria.dir())?.run()?;
    for line in ["MariaDB 10.", "stops ", "disk ", "clients ", "undo ", "with the library; it has"]
    {
        ensure(told.stdout.contains(line), || format!("no {line}: {}", told.text()))?;
    }
    ensure(found.library_is_loaded()?, || "the library is not loaded".into())?;
    ensure(maria.sql(SUMS)? == wanted, || "the sealed tables differ".into())?;
    maria.sql("INSERT INTO d.i VALUES ('later')")?;
    search(&marker, Arm::Sealed, &[maria.dir()])?;
    ensure(place.join("home/keyring-copy").exists(), || "no second copy".into())?;
    let twice = protect(&place, maria.dir())?.fails()?;
    ensure(twice.stderr.contains("already"), || twice.text())?;

    let told = unprotect(&place, maria.dir())?.run()?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    ensure(!found.library_is_loaded()?, || "the library is loaded".into())?;
    ensure(!maria.dir().join(".tidelock").exists(), || "the keyring stays".into())?;
    maria.sql("DELETE FROM d.i WHERE b = 'later'")?;
    ensure(maria.sql(SUMS)? == wanted, || "the plain tables differ".into())?;
    found.stop()
}

/// Started as most people start one by hand: its wrapper writes the error log, and is what starts
/// the server again.
#[test]
#[ignore = "long: make test-full"]
fn a_server_of_mariadbd_safe_gets_its_wrapper_back() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = filled(&place, &marker)?;
    let wanted = maria.sql(SUMS)?;
    maria.stop()?;
    let log = maria.dir().join("server.err");
    let mut safe = maria
        .server_tool("mariadbd-safe")?
        .arg(format!("--log-error={}", log.display()))
        .limit(600)
        .spawn()?;
    maria.wait_until_it_answers(&mut safe)?;
    let found = Found(&maria);
    for (library, tool) in
        [(true, protect(&place, maria.dir())?), (false, unprotect(&place, maria.dir())?)]
    {
        tool.run()?;
        ensure(found.library_is_loaded()? == library, || format!("loaded: {}", !library))?;
        ensure(maria.sql(SUMS)? == wanted, || "the tables differ".into())?;
        let parent = wrapper(found.process()?)?;
        ensure(parent.contains("mariadbd-safe"), || format!("its parent is {parent}"))?;
        let bytes = fs::read(&log).map_err(Error::io("reading the error log"))?;
        ensure(bytes.starts_with(b"\x89TDLK") == library, || "the error log is not so".into())?;
    }
    found.stop()
}

/// The words of the process that has started this one.
fn wrapper(process: Process) -> Result<String> {
    let read = |path: PathBuf| fs::read(path).map_err(Error::io("looking at a process"));
    let status = read(format!("/proc/{}/status", process.id()).into())?;
    let status = String::from_utf8_lossy(&status).into_owned();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or("0").trim();
    let words = read(format!("/proc/{parent}/cmdline").into())?;
    Ok(String::from_utf8_lossy(&words).replace('\0', " "))
}

/// Where a call is killed. Each state lasts until a later step that takes its time.
const POINTS: [&str; 5] =
    ["it has begun", "the server has stopped", "some files are sealed", "all are", "it runs again"];

/// What has begun.
fn record(dir: &Path) -> PathBuf {
    PathBuf::from(format!("{}.tidelock-protection", dir.display()))
}

fn reached(point: &str, dir: &Path) -> bool {
    let record = fs::read_to_string(record(dir));
    let stage = |name: &str| {
        record.as_ref().is_ok_and(|text| text.contains(&format!("stage = \"{name}\"")))
    };
    match point {
        "it has begun" => record.is_ok(),
        "the server has stopped" => record.is_ok() && !runs(dir),
        "some files are sealed" => {
            fs::read(dir.join("ib_logfile0")).unwrap_or_default().starts_with(b"\x89TDLK")
        }
        "all are" => stage("converted"),
        _ => stage("converted") && runs(dir),
    }
}

/// A server works in its directory.
fn runs(dir: &Path) -> bool {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|it| fs::read_link(it.path().join("cwd")).is_ok_and(|cwd| cwd == dir)).any(|it| {
        let exe = fs::read_link(it.path().join("exe")).unwrap_or_default();
        exe.file_name().is_some_and(|name| name == "mariadbd")
    })
}

/// Kills `protect` at this point; one that was quicker than we could look is taken back, and the
/// next one is killed.
fn killed(place: &Workspace, dir: &Path, point: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        if kill_at(protect(place, dir)?.spawn()?, || reached(point, dir))? {
            return Ok(());
        }
        ensure(begin.elapsed() < Duration::from_secs(300), || format!("never: {point}"))?;
        // What an earlier call had started is still at work; or all was done before we looked.
        if !record(dir).exists() {
            unprotect(place, dir)?.run()?;
            forget_keys(place);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "long: make test-full"]
fn killed_at_each_step_unprotect_takes_it_back() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = filled(&place, &marker)?;
    let found = Found(&maria);
    let wanted = maria.sql(SUMS)?;
    for point in POINTS {
        forget_keys(&place);
        killed(&place, maria.dir(), point)?;
        let back = again(|| unprotect(&place, maria.dir()))?;
        ensure(back.status.success(), || format!("{point}: {}", back.text()))?;
        ensure(!found.library_is_loaded()?, || format!("{point}: the library is loaded"))?;
        ensure(!maria.dir().join(".tidelock").exists(), || format!("{point}: a keyring"))?;
        ensure(maria.sql(SUMS)? == wanted, || format!("{point}: the tables differ"))?;
        ensure(!record(maria.dir()).exists(), || format!("{point}: the record stays"))?;
    }
    found.stop()
}

#[test]
#[ignore = "long: make test-full"]
fn killed_at_each_step_protect_goes_on() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = filled(&place, &marker)?;
    let found = Found(&maria);
    let wanted = maria.sql(SUMS)?;
    for point in POINTS {
        killed(&place, maria.dir(), point)?;
    }
    let done = again(|| protect(&place, maria.dir()))?;
    ensure(done.status.success(), || done.text())?;
    ensure(found.library_is_loaded()?, || "the library is not loaded".into())?;
    ensure(maria.sql(SUMS)? == wanted, || "the tables differ".into())?;
    search(&marker, Arm::Sealed, &[maria.dir()])?;
    found.stop()
}

/// What would leave a server that does not come back is said while it runs.
#[test]
#[ignore = "long: make test-full"]
fn a_place_outside_is_refused_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let maria = installed(&place, "m", Arm::Plain, &[])?;
    maria.start()?;
    // The tmpdir of plain servers lies beside their sockets.
    let refused = protect(&place, maria.dir())?.fails()?;
    ensure(refused.status.code() == Some(3), || refused.text())?;
    ensure(refused.stderr.contains("error: tmpdir is"), || refused.text())?;
    maria.expect("SELECT 1", "1")?;
    let copy = place.join("elsewhere").display().to_string();
    let refused = tidelock(
        &place,
        "protect",
        maria.dir(),
        &["--no-recovery", "--no-keyring-copy", "--without-stopping", &copy],
    )?
    .fails()?;
    ensure(refused.stderr.contains("replica"), || refused.text())?;
    ensure(!maria.dir().join(".tidelock").exists(), || "a keyring was made".into())
}
