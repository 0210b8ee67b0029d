//! `tidelock protect` and `unprotect` of an existing MySQL server, wherever they are killed.

use std::path::Path;

use tidelock_testkit::maria::{Sql as _, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::mysql::{Install, MySql, numbers};
use tidelock_testkit::mysqls;
use tidelock_testkit::pg::{Arm, Result, Workspace, ensure};
use tidelock_testkit::protection::{Subject, is_sealed};

/// A plain one with rows, not started again yet. It listens on a second socket, for clients of
/// another protocol; nothing in its name says so.
fn filled<'p>(place: &'p Workspace, install: &'p Install, marker: &Marker) -> Result<MySql<'p>> {
    let mut mysql = MySql::at(place, install, "m", Arm::Plain, &[("log_bin", "binlog")])?;
    let second = mysql.socket().with_file_name("another").display().to_string();
    mysql.set("mysqlx", "ON");
    mysql.set("mysqlx_socket", &second);
    mysql.install()?;
    mysql.start()?;
    let (text, some) = (marker.text(), numbers(3000));
    mysql.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE i (b TEXT) ENGINE = InnoDB;
         CREATE TABLE m (b TEXT) ENGINE = MyISAM;
         INSERT INTO i SELECT CONCAT('{text}', n) FROM {some}; INSERT INTO m SELECT b FROM i"
    ))?;
    Ok(mysql)
}

fn subject<'p>(place: &'p Workspace, mysql: &MySql<'p>) -> Subject<'p> {
    Subject::new(place, mysql.dir(), "mysqld", "ibdata1")
}

const SUMS: &str = "CHECKSUM TABLE d.i, d.m";

fn a_running_server_is_sealed_and_made_plain_again_by_one_command_each(
    install: &Install,
) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let mysql = filled(&place, install, &marker)?;
    let server = subject(&place, &mysql);
    let (wanted, words) = (mysql.sql(SUMS)?, server.words()?);
    search(&marker, Arm::Plain, &[mysql.dir()])?;
    let told = server.protect()?.run()?;
    let version = if install.is_whole { "MySQL 9." } else { "MySQL 8.0." };
    for line in [version, "stops ", "disk ", "clients ", "undo ", "with the library; it has"] {
        ensure(told.stdout.contains(line), || format!("no {line}: {}", told.text()))?;
    }
    ensure(!told.text().contains("was tried"), || told.text())?;
    ensure(server.library_is_loaded()?, || "the library is not loaded".into())?;
    ensure(server.words()? == words, || "it was started with other words".into())?;
    ensure(mysql.sql(SUMS)? == wanted, || "the sealed tables differ".into())?;
    mysql.sql("INSERT INTO d.i VALUES ('later')")?;
    search(&marker, Arm::Sealed, &[mysql.dir()])?;
    ensure(server.keyring_copy().exists(), || "no second copy".into())?;
    let twice = server.protect()?.fails()?;
    ensure(twice.stderr.contains("already"), || twice.text())?;

    let told = server.unprotect()?.run()?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    ensure(!server.library_is_loaded()?, || "the library is loaded".into())?;
    ensure(server.words()? == words, || "it was started with other words".into())?;
    ensure(!mysql.dir().join(".tidelock").exists(), || "the keyring stays".into())?;
    mysql.sql("DELETE FROM d.i WHERE b = 'later'")?;
    mysql.expect(SUMS, &wanted)?;
    server.stop()
}
mysqls!(a_running_server_is_sealed_and_made_plain_again_by_one_command_each);

/// The process that was started ends when its child takes clients.
fn a_server_that_goes_to_the_background_does_so_again(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let mysql = filled(&place, install, &marker)?;
    let wanted = mysql.sql(SUMS)?;
    mysql.stop()?;
    // In its directory: the server opens it itself.
    let log = mysql.dir().join("server.err");
    let log_error = format!("--log-error={}", log.display());
    mysql.mysqld()?.args(["--daemonize", &log_error]).run()?;
    let server = subject(&place, &mysql);
    mysql.expect(SUMS, &wanted)?;
    for (library, tool) in [(true, server.protect()?), (false, server.unprotect()?)] {
        tool.run()?;
        ensure(server.library_is_loaded()? == library, || format!("loaded: {}", !library))?;
        ensure(server.words()?.contains("--daemonize"), || "it stays in front".into())?;
        mysql.expect(SUMS, &wanted)?;
        ensure(is_sealed(&log) == library, || "the error log is not so".into())?;
    }
    server.stop()
}
mysqls!(a_server_that_goes_to_the_background_does_so_again);

/// Its wrapper writes the error log, and is what starts the server again.
fn a_server_of_mysqld_safe_gets_its_wrapper_back(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let mysql = filled(&place, install, &marker)?;
    let wanted = mysql.sql(SUMS)?;
    mysql.stop()?;
    let log = mysql.dir().join("server.err");
    let safe = mysql.server_tool(Path::new("/usr/bin/mysqld_safe"))?;
    let mut safe = safe.arg(format!("--log-error={}", log.display())).limit(600).spawn()?;
    ensure(mysql.wait_until_it_answers(&mut safe)?, || "the wrapper has ended".into())?;
    let server = subject(&place, &mysql);
    for (library, tool) in [(true, server.protect()?), (false, server.unprotect()?)] {
        tool.run()?;
        ensure(server.library_is_loaded()? == library, || format!("loaded: {}", !library))?;
        mysql.expect(SUMS, &wanted)?;
        let parent = server.parent()?;
        ensure(parent.contains("mysqld_safe"), || format!("its parent is {parent}"))?;
        ensure(is_sealed(&log) == library, || "the error log is not so".into())?;
    }
    server.stop()
}
mysqls!(a_server_of_mysqld_safe_gets_its_wrapper_back: debian);

fn killed_at_each_step_unprotect_takes_it_back(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let mysql = filled(&place, install, &Marker::new())?;
    let server = subject(&place, &mysql);
    let wanted = mysql.sql(SUMS)?;
    server.is_taken_back_from_each_step(|| mysql.expect(SUMS, &wanted))?;
    server.stop()
}
mysqls!(killed_at_each_step_unprotect_takes_it_back);

fn killed_at_each_step_protect_goes_on(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let mysql = filled(&place, install, &marker)?;
    let server = subject(&place, &mysql);
    let wanted = mysql.sql(SUMS)?;
    server.goes_on_from_each_step(|| mysql.expect(SUMS, &wanted))?;
    search(&marker, Arm::Sealed, &[mysql.dir()])?;
    server.stop()
}
mysqls!(killed_at_each_step_protect_goes_on);

/// What would leave a server that does not come back is said while it runs.
fn a_place_outside_is_refused_while_the_server_runs(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let outside = place.make_dir("outside")?.display().to_string();
    let settings = [("innodb_tmpdir", &*outside)];
    let mysql = MySql::started(&place, install, "m", Arm::Plain, &settings)?;
    let server = subject(&place, &mysql);
    let refused = server.protect()?.fails()?;
    ensure(refused.status.code() == Some(3), || refused.text())?;
    ensure(refused.stderr.contains("error: innodb_tmpdir is"), || refused.text())?;
    mysql.expect("SELECT 1", "1")?;
    let copy = place.join("elsewhere").display().to_string();
    let options = ["--no-recovery", "--no-keyring-copy", "--without-stopping", &copy];
    let refused = server.tidelock("protect", &options)?.fails()?;
    ensure(refused.stderr.contains("replica"), || refused.text())?;
    let refused = server.tidelock("protect", &["mysql"])?.fails()?;
    ensure(refused.stderr.contains("run it as root"), || refused.text())?;
    ensure(!mysql.dir().join(".tidelock").exists(), || "a keyring was made".into())
}
mysqls!(a_place_outside_is_refused_while_the_server_runs);

/// A crash belongs to the server; `protect` of a stopped one does not start it.
fn a_stopped_server_stays_stopped_and_a_crashed_one_is_refused(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let mysql = filled(&place, install, &Marker::new())?;
    let wanted = mysql.sql(SUMS)?;
    mysql.kill_nine()?;
    let server = subject(&place, &mysql);
    let bin = install.server().parent().unwrap_or(Path::new("/")).display().to_string();
    let options = ["--bindir", &bin];
    let refused = server.protect()?.args(options).fails()?;
    ensure(refused.text().contains("was not stopped cleanly"), || refused.text())?;
    // It was refused before anything was done.
    let nothing = server.unprotect()?.fails()?;
    ensure(nothing.text().contains("nothing is to be taken back"), || nothing.text())?;
    mysql.start()?;
    mysql.stop()?;
    server.protect()?.args(options).run()?;
    ensure(server.process().is_err(), || "a server was started".into())?;
    server.unprotect()?.run()?;
    mysql.start()?;
    mysql.expect(SUMS, &wanted)?;
    mysql.stop().map(drop)
}
mysqls!(a_stopped_server_stays_stopped_and_a_crashed_one_is_refused);
