//! `tidelock protect` and `unprotect` of an existing MariaDB server, wherever they are killed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tidelock_testkit::maria::{installed, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Result, Workspace, ensure};
use tidelock_testkit::protection::{Subject, is_sealed};

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

fn subject<'p>(place: &'p Workspace, maria: &Mysqld<'p>) -> Subject<'p> {
    Subject::new(place, maria.dir(), "mariadbd", "ib_logfile0")
}

const SUMS: &str = "CHECKSUM TABLE d.i, d.a, d.m";

#[test]
#[ignore = "long: make test-full"]
fn a_running_server_is_sealed_and_made_plain_again_by_one_command_each() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = filled(&place, &marker)?;
    let server = subject(&place, &maria);
    let wanted = maria.sql(SUMS)?;
    search(&marker, Arm::Plain, &[maria.dir()])?;
    let told = server.protect()?.run()?;
    for line in ["MariaDB 10.", "stops ", "disk ", "clients ", "undo ", "with the library; it has"]
    {
        ensure(told.stdout.contains(line), || format!("no {line}: {}", told.text()))?;
    }
    ensure(server.library_is_loaded()?, || "the library is not loaded".into())?;
    ensure(maria.sql(SUMS)? == wanted, || "the sealed tables differ".into())?;
    maria.sql("INSERT INTO d.i VALUES ('later')")?;
    search(&marker, Arm::Sealed, &[maria.dir()])?;
    ensure(server.keyring_copy().exists(), || "no second copy".into())?;
    let twice = server.protect()?.fails()?;
    ensure(twice.stderr.contains("already"), || twice.text())?;

    let told = server.unprotect()?.run()?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    ensure(!server.library_is_loaded()?, || "the library is loaded".into())?;
    ensure(!maria.dir().join(".tidelock").exists(), || "the keyring stays".into())?;
    maria.sql("DELETE FROM d.i WHERE b = 'later'")?;
    ensure(maria.sql(SUMS)? == wanted, || "the plain tables differ".into())?;
    server.stop()
}

/// The plan asks the server of the directory, and starts it again as it was or not at all.
#[test]
#[ignore = "long: make test-full"]
fn neither_option_files_nor_variables_of_the_caller_lead_to_another_server() -> Result<()> {
    let place = Workspace::new()?;
    let maria = filled(&place, &Marker::new())?;
    let elsewhere = "[client]\nhost = 127.0.0.1\nprotocol = tcp\nport = 1\n";
    place.write(&place.join("home/.my.cnf"), elsewhere)?;
    let server = subject(&place, &maria);
    let refused = server.protect()?.env("MYSQL_GROUP_SUFFIX", ".other").fails()?;
    ensure(refused.status.code() == Some(3), || refused.text())?;
    ensure(refused.text().contains("env -u MYSQL_GROUP_SUFFIX tidelock"), || refused.text())?;
    maria.expect("SELECT 1", "1")?;
    let told = server.protect()?.run()?;
    ensure(told.stdout.contains("with the library; it has"), || told.text())?;
    server.stop()
}

/// Its name is no file.
#[test]
#[ignore = "long: make test-full"]
fn a_server_with_an_abstract_socket_is_asked_there() -> Result<()> {
    let place = Workspace::new()?;
    let maria = installed(&place, "m", Arm::Plain, &[])?;
    let socket = format!("@{}", place.join("socket").display());
    maria.set("tmpdir", &maria.dir().display().to_string())?;
    maria.set("socket", &socket)?;
    let mut child = maria.server_tool("mariadbd")?.limit(600).spawn()?;
    let begin = Instant::now();
    let asks = ["--no-defaults", "--user=root", "--socket", &socket, "--execute", "SELECT 1"];
    while !place.tool("mariadb").args(asks).attempt()?.status.success() {
        let waits = child.runs() && begin.elapsed() < Duration::from_secs(120);
        ensure(waits, || "the server does not answer".into())?;
        sleep(Duration::from_millis(100));
    }
    let server = subject(&place, &maria);
    for (tool, library) in [(server.protect()?, "with the"), (server.unprotect()?, "without the")] {
        let told = tool.run()?;
        ensure(told.stdout.contains(&format!("{library} library; it has")), || told.text())?;
    }
    server.stop()
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
    let server = subject(&place, &maria);
    for (library, tool) in [(true, server.protect()?), (false, server.unprotect()?)] {
        tool.run()?;
        ensure(server.library_is_loaded()? == library, || format!("loaded: {}", !library))?;
        ensure(maria.sql(SUMS)? == wanted, || "the tables differ".into())?;
        let parent = server.parent()?;
        ensure(parent.contains("mariadbd-safe"), || format!("its parent is {parent}"))?;
        ensure(is_sealed(&log) == library, || "the error log is not so".into())?;
    }
    server.stop()
}

#[test]
#[ignore = "long: make test-full"]
fn killed_at_each_step_unprotect_takes_it_back() -> Result<()> {
    let place = Workspace::new()?;
    let maria = filled(&place, &Marker::new())?;
    let server = subject(&place, &maria);
    let wanted = maria.sql(SUMS)?;
    server.is_taken_back_from_each_step(|| maria.expect(SUMS, &wanted))?;
    server.stop()
}

#[test]
#[ignore = "long: make test-full"]
fn killed_at_each_step_protect_goes_on() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = filled(&place, &marker)?;
    let server = subject(&place, &maria);
    let wanted = maria.sql(SUMS)?;
    server.goes_on_from_each_step(|| maria.expect(SUMS, &wanted))?;
    search(&marker, Arm::Sealed, &[maria.dir()])?;
    server.stop()
}

/// What would leave a server that does not come back is said while it runs.
#[test]
#[ignore = "long: make test-full"]
fn a_place_outside_is_refused_while_the_server_runs() -> Result<()> {
    let place = Workspace::new()?;
    let maria = installed(&place, "m", Arm::Plain, &[])?;
    maria.start()?;
    let server = subject(&place, &maria);
    // The tmpdir of plain servers lies beside their sockets.
    let refused = server.protect()?.fails()?;
    ensure(refused.status.code() == Some(3), || refused.text())?;
    ensure(refused.stderr.contains("error: tmpdir is"), || refused.text())?;
    maria.expect("SELECT 1", "1")?;
    let copy = place.join("elsewhere").display().to_string();
    let options = ["--no-recovery", "--no-keyring-copy", "--without-stopping", &copy];
    let refused = server.tidelock("protect", &options)?.fails()?;
    ensure(refused.stderr.contains("replica"), || refused.text())?;
    ensure(!maria.dir().join(".tidelock").exists(), || "a keyring was made".into())
}
