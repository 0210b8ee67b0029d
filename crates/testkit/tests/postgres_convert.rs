//! Real clusters that are sealed in place, rekeyed and taken back: whole, interrupted, and with the
//! power cut.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidelock_servers::skip;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Tool, Workspace, ensure, fill_pgbench};
use tidelock_testkit::volume::{FileSystem, Volume};

/// One data directory, as a plain server sees it and as a sealed one does.
struct Instance<'p> {
    plain: Cluster<'p>,
    sealed: Cluster<'p>,
    key: PathBuf,
}

const SUMS: &str = "SELECT count(*), sum(abalance), sum(hashtext(filler)) FROM pgbench_accounts";

impl<'p> Instance<'p> {
    /// A plain cluster with data and a tablespace, whose pg_wal lies elsewhere; stopped.
    fn new(place: &'p Workspace, above: &Path) -> Result<Self> {
        let dir = above.join("data");
        let plain = Cluster::at(place, "plain", Arm::Plain)?.on(dir.clone());
        let sealed = Cluster::at(place, "sealed", Arm::Sealed)?.on(dir);
        plain.make(&["-k", "--wal-segsize=1", "-X", &above.join("wal").display().to_string()])?;
        plain.start()?;
        let tablespace = above.join("space");
        fs::create_dir(&tablespace).map_err(Error::io("making a tablespace"))?;
        place.account().give(&tablespace)?;
        fill_pgbench(&plain, 1)?;
        plain.sql(&format!(
            "CREATE TABLESPACE space LOCATION '{}';\n\
             CREATE TABLE elsewhere TABLESPACE space AS SELECT * FROM pgbench_accounts;\n\
             CREATE DATABASE other TABLESPACE space;",
            tablespace.display()
        ))?;
        plain.stop("fast")?;
        let key = place.join("home/instance.key");
        Ok(Self { plain, sealed, key })
    }

    fn convert(&self, command: &str, more: &[&str]) -> Result<Tool<'p>> {
        let tool = self.plain.tidelock(&[command, "--outside"])?.arg(self.plain.dir()).args(more);
        Ok(match command {
            "encrypt" if !more.contains(&"--resume") => tool
                .arg("--no-recovery")
                .args(["--provider", &format!("file:{}", self.key.display())]),
            _ => tool,
        })
    }

    /// Starts the server, plain or sealed, and asks it for what `before` it said.
    fn expect(&self, arm: Arm, before: &str) -> Result<()> {
        let server = if arm == Arm::Sealed { &self.sealed } else { &self.plain };
        server.start()?;
        self.plain.expect(SUMS, before)?;
        self.plain.expect("SELECT count(*) FROM elsewhere", "100000")?;
        self.plain
            .tool("pg_amcheck")
            .args(["-a", "--install-missing", "-U", "postgres", "-h"])
            .arg(self.plain.socket_dir())
            .run()?;
        server.stop("fast")
    }

    fn sums(&self) -> Result<String> {
        self.plain.start()?;
        let sums = self.plain.sql(SUMS)?;
        self.plain.stop("fast")?;
        Ok(sums)
    }
}

#[test]
fn a_cluster_is_sealed_rekeyed_and_taken_back() -> Result<()> {
    let place = Workspace::new()?;
    let above = place.make_dir("instance")?;
    let it = Instance::new(&place, &above)?;
    let marker = Marker::new();
    it.plain.start()?;
    it.plain.sql(&format!("CREATE TABLE m AS SELECT '{}'::text AS t", marker.text()))?;
    let sums = it.plain.sql(SUMS)?;
    let refused = it.convert("encrypt", &[])?.fails()?.text();
    ensure(refused.contains("a server runs on"), || refused.clone())?;
    it.plain.stop("immediate")?;
    let refused = it.convert("encrypt", &[])?.fails()?.text();
    ensure(refused.contains("was not stopped cleanly: in production"), || refused.clone())?;
    it.plain.start()?;
    it.plain.stop("fast")?;
    let told = it.convert("encrypt", &["--dry-run"])?.run()?.stdout;
    ensure(told.contains("would be sealed"), || told.clone())?;
    ensure(!it.plain.dir().join(".tidelock").exists(), || "a dry run made a keyring".into())?;
    ensure(told.contains("space, converted too"), || told.clone())?;
    it.convert("encrypt", &["--jobs", "2"])?.run()?;
    let found = marker.search(&[&above]).map_err(Error::io("searching"))?;
    ensure(found.findings.is_empty(), || format!("{:?}", found.findings))?;
    it.plain.start_fails()?;
    it.expect(Arm::Sealed, &sums)?;
    // Nobody has said that the places are not those of an original.
    for command in ["rekey", "decrypt"] {
        let refused = it.plain.tidelock(&[command])?.arg(it.plain.dir()).fails()?.text();
        let places = ["wal", "space"].map(|name| above.join(name).display().to_string());
        let names_one = places.iter().any(|place| refused.contains(place.as_str()));
        ensure(names_one && refused.contains("--outside"), || refused.clone())?;
    }
    let told = it.convert("rekey", &["--rate", "200MiB/s"])?.run()?.text();
    let leads = |name: &str| format!("leads to {}, converted too", above.join(name).display());
    ensure(["wal", "space"].iter().all(|name| told.contains(&leads(name))), || told.clone())?;
    let status = it.plain.tidelock(&["status", "-D"])?.arg(it.plain.dir()).run()?.stdout;
    ensure(status.contains("older: 0 files, 0 B"), || status.clone())?;
    it.sealed.tidelock(&["verify", "-D"])?.arg(it.plain.dir()).run()?;
    it.expect(Arm::Sealed, &sums)?;
    it.sealed.start()?;
    let refused = it.convert("decrypt", &[])?.fails()?.text();
    ensure(refused.contains("a server runs on"), || refused.clone())?;
    it.sealed.stop("fast")?;
    it.convert("decrypt", &["--json"])?.run()?;
    ensure(!it.plain.dir().join(".tidelock").exists(), || "a keyring was left".into())?;
    it.expect(Arm::Plain, &sums)
}

/// What a conversion is doing when it is killed, and how one is ended.
const TURNS: &[(&str, &str)] = &[
    ("encrypt", "encrypt"),
    ("rekey", "rekey"),
    ("decrypt", "decrypt"),
    ("encrypt", "decrypt"),
    ("encrypt", "encrypt"),
    ("decrypt", "encrypt"),
    ("rekey", "decrypt"),
];

fn is_sealed(dir: &Path) -> bool {
    dir.join(".tidelock/keyring").exists()
}

/// Begins the conversions of `TURNS` one after another, interrupts each with `interrupt` after a
/// random time, and ends it. How often it was interrupted.
fn interrupted(
    it: &Instance<'_>,
    rounds: usize,
    mut interrupt: impl FnMut(u32) -> Result<()>,
) -> Result<usize> {
    let sums = it.sums()?;
    let mut random = fastrand::Rng::with_seed(7);
    let mut whole = Duration::from_secs(3);
    let mut interrupts = 0;
    for round in 0..rounds {
        for (begin, end) in TURNS {
            let at = format!("round {round}, {begin} then {end}");
            // One that has ended already, as the one before it may have, is not begun again.
            let fits = is_sealed(it.plain.dir()) == (*begin != "encrypt");
            ensure(fits, || format!("{at}: the last one did not end as it should"))?;
            let start = Instant::now();
            let mut running = it.convert(begin, &["--jobs", "2"])?.spawn()?;
            let wait = whole.mul_f64(random.f64());
            while running.runs() && start.elapsed() < wait {
                sleep(Duration::from_millis(2));
            }
            let killed = running.runs();
            interrupt(running.id())?;
            let output = running.wait()?;
            ensure(killed || output.status.success(), || format!("{at}: {}", output.text()))?;
            if output.status.success() {
                whole = start.elapsed();
            }
            let half = half_converted(it)?;
            // One that had not begun, or had ended, was not interrupted.
            interrupts += usize::from(!output.status.success() && half);
            if half {
                refuse_all(it, &at)?;
                it.convert(end, &["--resume"])?.run()?;
            } else if is_sealed(it.plain.dir()) != (*end != "decrypt") {
                // It had not begun, or had ended: then the other way.
                it.convert(end, &[])?.run()?;
            }
            let arm = if is_sealed(it.plain.dir()) { Arm::Sealed } else { Arm::Plain };
            it.expect(arm, &sums)?;
        }
        if is_sealed(it.plain.dir()) {
            it.convert("decrypt", &[])?.run()?;
        }
    }
    Ok(interrupts)
}

fn half_converted(it: &Instance<'_>) -> Result<bool> {
    let status = it.plain.tidelock(&["status", "-D"])?.arg(it.plain.dir()).attempt()?;
    Ok(status.stdout.contains("\nconversion "))
}

/// No server starts on a half-converted directory: neither with the library nor without it.
fn refuse_all(it: &Instance<'_>, at: &str) -> Result<()> {
    let refused = it.sealed.start_fails()?.text();
    ensure(refused.contains("was interrupted"), || format!("{at}: {refused}"))
}

fn kill(pid: u32) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed());
    // One that has just ended needs no signal.
    let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
    Ok(())
}

/// A process that nobody has waited for yet is dead once it has no files.
fn wait_until_dead(pid: u32) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(30);
    let lives = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.contains(") Z "),
        Err(_) => false,
    };
    while lives() {
        ensure(Instant::now() < until, || format!("process {pid} does not end"))?;
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn rounds(variable: &str, short: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

#[test]
fn conversions_that_are_killed_lose_nothing() -> Result<()> {
    let place = Workspace::new()?;
    let above = place.make_dir("instance")?;
    let it = Instance::new(&place, &above)?;
    let mut count = interrupted(&it, rounds("TIDELOCK_ROUNDS", 1), kill)?;
    // A machine on which most ended before their kill has more turns.
    for _ in 0..9 {
        if count >= 2 {
            break;
        }
        count += interrupted(&it, 1, kill)?;
    }
    eprintln!("{count} kills");
    ensure(count >= 2, || format!("only {count} conversions were killed"))
}

#[test]
#[ignore = "long: make test-full"]
fn conversions_that_are_killed_200_times_lose_nothing() -> Result<()> {
    let place = Workspace::new()?;
    let above = place.make_dir("instance")?;
    let it = Instance::new(&place, &above)?;
    let (mut count, mut turns) = (0, 0);
    while count < 200 && turns < 100 {
        count += interrupted(&it, 1, kill)?;
        turns += 1;
    }
    eprintln!("{count} kills in {turns} rounds");
    ensure(count >= 200, || format!("only {count} conversions were killed"))
}

fn power_cuts(fs: FileSystem, cuts: usize) -> Result<()> {
    if skip::unless_root("a volume of one's own") {
        return Ok(());
    }
    let place = Workspace::new()?;
    let volume = Volume::create(fs, 700).map_err(|why| Error::Unexpected(why.to_string()))?;
    let above = volume.root().join("instance");
    fs::create_dir(&above).map_err(Error::io("making a directory"))?;
    place.account().give(&above)?;
    let it = Instance::new(&place, &above)?;
    let volume = std::cell::RefCell::new(volume);
    let cut = |pid: u32| {
        let mut volume = volume.borrow_mut();
        let failed =
            |why: tidelock_testkit::volume::VolumeError| Error::Unexpected(why.to_string());
        volume.cut().map_err(failed)?;
        kill(pid)?;
        // Until it has let go of its files the volume cannot go.
        wait_until_dead(pid)?;
        volume.remount().map_err(failed)
    };
    let (mut count, mut turns) = (0, 0);
    while count < cuts && turns < 2 * cuts {
        count += interrupted(&it, 1, cut)?;
        turns += 1;
    }
    eprintln!("{count} power cuts in {turns} rounds");
    ensure(count >= cuts, || format!("only {count} conversions were cut off"))
}

#[test]
fn a_power_cut_during_a_conversion_loses_nothing() -> Result<()> {
    power_cuts(FileSystem::Ext4, 2)
}

#[test]
#[ignore = "long: make test-full"]
fn power_cuts_during_conversions_lose_nothing_on_ext4() -> Result<()> {
    power_cuts(FileSystem::Ext4, rounds("TIDELOCK_CUTS", 50))
}

#[test]
#[ignore = "long: make test-full"]
fn power_cuts_during_conversions_lose_nothing_on_xfs() -> Result<()> {
    power_cuts(FileSystem::Xfs, rounds("TIDELOCK_CUTS", 50))
}

#[test]
fn a_link_to_a_single_file_is_refused_before_anything_is_made() -> Result<()> {
    let place = Workspace::new()?;
    let above = place.make_dir("instance")?;
    let it = Instance::new(&place, &above)?;
    let (link, far) = (it.plain.dir().join("notes"), place.join("far"));
    place.write(&far, "text")?;
    symlink(&far, &link).map_err(Error::io("linking"))?;
    let refused = it.convert("encrypt", &[])?.fails()?.text();
    ensure(refused.contains("is a link to a single file"), || refused.clone())?;
    ensure(!it.plain.dir().join(".tidelock").exists(), || "a keyring was made".into())?;
    fs::remove_file(&link).map_err(Error::io("removing the link"))?;
    let control = it.plain.dir().join("global/pg_control");
    fs::hard_link(&control, place.join("second")).map_err(Error::io("linking"))?;
    let refused = it.convert("encrypt", &[])?.fails()?.text();
    ensure(refused.contains("1 other name"), || refused.clone())
}
