//! While PostgreSQL lives through initdb, start, load and stop, no file below the protected
//! directory is opened for writing, cut or named but by the library; and a program that goes round
//! it is caught.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::net::{self, Caught, OPTIONS};
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Result, Tool, Workspace, ensure};
use tidelock_testkit::twins;

#[test]
fn every_change_below_the_directory_of_postgresql_comes_from_the_library() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::empty(&place, "main", Arm::Sealed)?;
    let dir = cluster.dir().display().to_string();

    let initdb = traced(&cluster, "initdb", "initdb.trace")?
        .args(["-D", &dir, "-U", "postgres", "-A", "trust", "--locale=C.UTF-8"])
        .limit(900);
    initdb.run()?;
    nothing_else(&cluster, "initdb.trace", 1000)?;
    cluster.listen_here()?;

    let server = traced(&cluster, "postgres", "postgres.trace")?.args(["-D", &dir]).limit(900);
    let running = server.spawn()?;
    let start = Instant::now();
    while cluster.sql("SELECT 1").is_err() {
        ensure(start.elapsed() < Duration::from_secs(300), || "the server does not answer".into())?;
        thread::sleep(Duration::from_millis(200));
    }
    cluster.sql("CREATE TABLE t AS SELECT g, md5(g::text) FROM generate_series(1, 20000) g")?;
    cluster.sql("CREATE INDEX ON t (md5)")?;
    cluster
        .sql("SET work_mem = '64kB'; SELECT count(*) FROM (SELECT md5 FROM t ORDER BY md5) s")?;
    cluster.sql("ALTER SYSTEM SET work_mem = '5MB'")?;
    cluster.sql("CREATE DATABASE copied STRATEGY file_copy")?;
    cluster.sql("SELECT pg_switch_wal()")?;
    cluster.sql("CHECKPOINT")?;
    cluster.sql("VACUUM FULL t")?;
    cluster.sql("DROP DATABASE copied")?;
    cluster.stop("fast")?;
    drop(running.wait()?);
    nothing_else(&cluster, "postgres.trace", 100)
}

/// `tidelock exec -D DIR -- PROGRAM`, with the calls that matter written down beside the directory.
fn traced<'p>(cluster: &Cluster<'p>, program: &str, trace: &str) -> Result<Tool<'p>> {
    let place = cluster.workspace();
    let command = place.programs()?.command;
    let strace = place.tool("strace").arg("-f").arg("-o").arg(place.join(trace)).args(OPTIONS);
    let exec = strace.arg(command).arg("exec").arg("-D").arg(cluster.dir()).arg("--");
    let bin = env::var_os("TIDELOCK_PG_BINDIR").map_or_else(|| BINDIR.into(), PathBuf::from);
    Ok(exec.arg(bin.join(program)))
}

fn nothing_else(cluster: &Cluster<'_>, trace: &str, at_least: usize) -> Result<()> {
    let text = fs::read_to_string(cluster.workspace().join(trace)).unwrap();
    let Caught { by_the_library, others } = net::cast(&text, cluster.dir());
    ensure(others.is_empty(), || format!("{trace}: not by the library:\n{}", others.join("\n")))?;
    ensure(by_the_library >= at_least, || format!("{trace}: only {by_the_library} by the library"))
}

/// Opens one file through libc and one by the instruction itself.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    long made;
    if (argc != 2 || chdir(argv[1]) < 0 || open("seen", O_RDWR | O_CREAT, 0600) < 0)
        return 1;
    register long mode __asm__("r10") = 0600;
    __asm__ volatile("syscall"
                     : "=a"(made)
                     : "a"(SYS_openat), "D"(AT_FDCWD), "S"("unseen"), "d"(O_RDWR | O_CREAT), "r"(mode)
                     : "rcx", "r11", "memory");
    return made < 0;
}
"#;

#[test]
fn a_call_by_the_instruction_itself_is_caught() {
    let place = twins::Workspace::new("net").unwrap();
    let (source, program) = (place.programs().join("p.c"), place.programs().join("p"));
    fs::write(&source, PROGRAM).unwrap();
    assert!(Command::new("gcc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o555)).unwrap();
    let product = twins::Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let trace = dir.with_extension("trace");
    let traced = place.run_traced(&product, &program, &dir, &trace, OPTIONS);
    let ended = traced.unwrap_or_else(|error| panic!("{error}\nhint: install strace"));
    assert!(ended.good(), "{ended}");
    let Caught { by_the_library, others } = net::cast(&fs::read_to_string(&trace).unwrap(), &dir);
    assert_eq!(by_the_library, 1);
    assert_eq!(others.len(), 1, "{others:#?}");
    assert!(others[0].contains("unseen"), "{others:#?}");
}
