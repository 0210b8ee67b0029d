//! A server that crashes leaves no core file, which would hold pages, unless the configuration
//! allows it.
//!
//! With the kernel's own dumps: where core_pattern is not `core`, this machine cannot show it, and
//! says so.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Signal, getrlimit};
use tidelock_servers::skip;
use tidelock_testkit::pg::{Arm, Cluster, Error, Process, Result, Workspace, ensure};

const MARKER: &str = "a marker in a page of shared buffers 7315";

/// `pg_ctl -c start`, which allows cores of the server as far as it may.
fn start_with_cores(server: &Cluster<'_>) -> Result<()> {
    let start = server.pg_ctl(&["-c", "-t", "120", "-l"]).arg(server.log()).arg("start");
    start.log(server.log()).run().map(drop)
}

/// Kills a backend as a fault of memory does, and waits for the server to recover.
fn crash_a_backend(server: &Cluster<'_>) -> Result<()> {
    let session =
        server.psql("postgres", "SELECT count(*) FROM marked; SELECT pg_sleep(3000)").spawn()?;
    server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1")?;
    let backend = server.sql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'")?;
    let backend = Process::new(backend.parse().unwrap()).unwrap();
    backend.signal(Signal::SEGV)?;
    backend.wait_gone(Duration::from_secs(60))?;
    drop(session);
    let start = std::time::Instant::now();
    while server.sql("SELECT 1").is_err() {
        ensure(start.elapsed() < Duration::from_secs(120), || "it does not recover".into())?;
        std::thread::sleep(Duration::from_millis(200));
    }
    server.expect("SELECT count(*) FROM marked", "1000")
}

/// Files below `dir` that the kernel has named as cores.
fn cores(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"core"))
        })
        .filter(|path| path.is_file())
        .collect()
}

fn can_show() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let allowed = getrlimit(Resource::Core).maximum.is_none();
    if pattern.trim() != "core" || !allowed {
        skip::because(format_args!(
            "core_pattern is {pattern:?}, unlimited cores allowed: {allowed}"
        ));
    }
    pattern.trim() == "core" && allowed
}

#[test]
fn a_crash_leaves_no_core_file_unless_it_is_allowed() -> Result<()> {
    if !can_show() {
        return Ok(());
    }
    let place = Workspace::new()?;
    let server = Cluster::new(&place, "main", Arm::Sealed)?;
    start_with_cores(&server)?;
    server.sql(&format!(
        "CREATE TABLE marked AS SELECT g, '{MARKER}'::text FROM generate_series(1, 1000) g"
    ))?;
    crash_a_backend(&server)?;
    let found = cores(server.dir());
    ensure(found.is_empty(), || format!("{found:?} after the crash of a backend"))?;
    server.stop("fast")?;
    place.wait_for_agents()?;

    let folder = place.join("home/.config/tidelock/keyrings");
    let config = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("core_dumps = true\n{text}")).unwrap();
    start_with_cores(&server)?;
    crash_a_backend(&server)?;
    let found = cores(server.dir());
    let [core] = found.as_slice() else {
        return Err(Error::Unexpected(format!("{found:?} where one core is allowed")));
    };
    let bytes = fs::read(core).unwrap();
    let search = aho_corasick::AhoCorasick::new([MARKER]).unwrap();
    ensure(search.is_match(&bytes), || "the core has no page: the test shows nothing".into())?;
    let dir = server.dir().display().to_string();
    let told = server.tidelock(&["status", "--json", "-D", &dir])?.run()?.stdout;
    ensure(told.contains("\"core_files\""), || format!("status does not warn: {told}"))?;
    fs::remove_file(core).unwrap();
    server.stop("fast")
}
